"""The time limit of user code: it ends code that catches a cancellation, and leaves a shielded cleanup alone."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aiokafka_lite import KafkaTimeout
from aiokafka_lite.consumer.group.callbacks import call
from tests.virtual import in_virtual_time


def cancellations() -> int:
    """Return how many cancellations of the running task are not withdrawn."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@in_virtual_time
async def test_code_that_catches_a_cancellation_is_cancelled_again() -> None:
    caught: list[BaseException] = []

    async def handle() -> None:
        for _ in range(3):  # retries
            try:
                await asyncio.sleep(10.0)
            except BaseException as error:  # noqa: BLE001 - the mistake of the user
                caught.append(error)
        await asyncio.sleep(1_000.0)

    began = asyncio.get_running_loop().time()
    with pytest.raises(KafkaTimeout, match=r"handle\(\) took longer than 5 s and was cancelled"):
        await call("handle()", handle, within=5.0)
    assert len(caught) == 3
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.1)
    assert cancellations() == 0


@in_virtual_time
async def test_a_shielded_part_ends_before_the_code_is_cancelled() -> None:
    ended: list[str] = []

    async def handle() -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(10.0)
            ended.append("shielded")
        await asyncio.sleep(1.0)
        ended.append("not shielded")

    with pytest.raises(KafkaTimeout):
        await call("handle()", handle, within=5.0)
    assert ended == ["shielded"]


@in_virtual_time
async def test_code_that_returns_after_its_cancellation_has_succeeded() -> None:
    async def handle() -> None:
        try:
            await asyncio.sleep(10.0)
        except asyncio.CancelledError:
            return

    await call("handle()", handle, within=5.0)
    await asyncio.sleep(0)  # raises nothing
    assert cancellations() == 0


@in_virtual_time
async def test_a_cancellation_from_outside_is_no_timeout() -> None:
    with anyio.move_on_after(1.0) as scope:
        await call("handle()", lambda: asyncio.sleep(10.0), within=5.0)
    assert scope.cancelled_caught
    task = asyncio.create_task(call("handle()", lambda: asyncio.sleep(10.0), within=5.0))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

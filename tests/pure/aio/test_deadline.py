"""``deadline`` turns a bound in time into a KafkaTimeout, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import KafkaTimeout
from aiokafka_lite.aio.deadline import deadline
from aiokafka_lite.aio.virtual_time import run
from tests.virtual import in_virtual_time


async def bounded(seconds: float | None, work: float) -> str:
    with deadline(seconds, lambda: "no answer in time"):
        await asyncio.sleep(work)
    return "done"


def test_a_body_that_takes_too_long_is_cancelled_with_the_text() -> None:
    with pytest.raises(KafkaTimeout, match="no answer in time") as failure:
        run(bounded(1.0, 2.0))
    assert failure.value.__suppress_context__, "a traceback does not show the cancellation"


def test_a_body_in_time_and_one_without_a_bound_end_as_usual() -> None:
    assert run(bounded(3.0, 2.0)) == "done"
    assert run(bounded(None, 1_000_000.0)) == "done"


def test_zero_and_less_are_over_at_the_first_await() -> None:
    for seconds in (0.0, -1.0):
        with pytest.raises(KafkaTimeout):
            run(bounded(seconds, 1.0))


def test_a_timeout_of_the_body_itself_passes_through() -> None:
    async def main() -> None:
        with deadline(5.0, lambda: "outer"), deadline(1.0, lambda: "inner"):
            await asyncio.sleep(2.0)

    with pytest.raises(KafkaTimeout, match="inner"):
        run(main())

    async def other() -> None:
        with deadline(5.0, lambda: "outer"):
            raise TimeoutError("of the body")

    with pytest.raises(TimeoutError, match="of the body"):
        run(other())


@in_virtual_time
async def test_a_cancellation_from_outside_stays_one() -> None:
    task = asyncio.ensure_future(bounded(5.0, 2.0))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

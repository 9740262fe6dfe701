"""A component closes in bounded time, and leaves no task."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiokafka_lite.aio.service import CANCEL_TIMEOUT, ServiceState
from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from tests.pure.aio.recording_component import Boom, Probe, boom, other_tasks, turns
from tests.virtual import in_virtual_time


async def test_closing_what_never_started_is_allowed() -> None:
    probe = Probe()
    await probe.close()
    assert probe.state is ServiceState.CLOSED
    assert not probe.notes


async def test_a_waiting_call_ends_at_the_close() -> None:
    probe = Probe()
    await probe.start()
    waiting = asyncio.create_task(probe.service.while_running(asyncio.Event().wait()))
    await turns()
    await probe.close()
    with pytest.raises(IllegalStateError, match="closed during the call"):
        await waiting
    assert waiting.cancelling() == 0


async def test_an_interrupted_call_that_raises_another_error_leaves_no_cancellation() -> None:
    async def fails_at_its_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the cleanup failed")

    async def call() -> int:
        with pytest.raises(OSError, match="the cleanup failed"):
            await probe.service.while_running(fails_at_its_end())
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    probe = Probe()
    await probe.start()
    calling = asyncio.create_task(call())
    await turns()
    await probe.close()
    assert await calling == 0


async def test_the_error_of_the_body_is_raised_not_that_of_close() -> None:
    async def hook(probe: Probe) -> None:
        raise OSError("and the goodbye failed, too")

    with pytest.raises(Boom, match="body"):
        async with Probe(on_close=hook):
            raise Boom("body")


async def test_an_error_while_closing_is_raised_by_close() -> None:
    probe = Probe(on_close=lambda _: boom())
    await probe.start()
    with pytest.raises(Boom):
        await probe.close()
    assert probe.state is ServiceState.FAILED


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_a_child_that_closes_its_component_does_not_wait_for_itself_if_tasks_are_eager() -> None:
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
    probe = Probe()
    await probe.start()
    ended = asyncio.Event()

    async def closes() -> None:
        await probe.close()
        ended.set()

    probe.service.start_child(closes)
    async with asyncio.timeout(CANCEL_TIMEOUT / 2):
        await ended.wait()
    await probe.close()


@asynccontextmanager
async def takes(seconds: float) -> AsyncIterator[None]:
    """Fail if the body takes another time than given."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    yield
    assert loop.time() - before == pytest.approx(seconds)


async def slow_to_close() -> Probe:
    """Return a started component with a child. Its close takes an hour."""
    probe = Probe(on_close=lambda _: asyncio.sleep(3600))
    await probe.start()
    probe.service.start_child(probe.forever)
    return probe


async def test_a_timeout_of_a_wrong_type_is_refused_and_the_component_runs_on() -> None:
    async with Probe() as probe:
        with pytest.raises(ConfigurationError, match="timeout must be a number of seconds, or None, got 'soon'"):
            await probe.close(timeout="soon")  # type: ignore[arg-type]
        assert probe.state is ServiceState.RUNNING


@in_virtual_time
async def test_on_close_is_cancelled_at_the_timeout() -> None:
    probe = await slow_to_close()
    async with takes(1.5):
        await probe.close(timeout=1.5)
    assert not other_tasks()


@in_virtual_time
async def test_a_second_close_can_shorten_the_first_but_not_extend_it() -> None:
    probe = await slow_to_close()
    async with takes(1.0):
        await asyncio.gather(probe.close(timeout=60), probe.close(timeout=1), probe.close(timeout=100))


@in_virtual_time
async def test_a_cancelled_close_becomes_abrupt_and_leaves_no_task() -> None:
    probe = await slow_to_close()
    async with takes(1.0):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await probe.close(timeout=100)
        assert probe.state is ServiceState.CLOSED
        assert not other_tasks()
        await probe.close()


@in_virtual_time
async def test_close_in_a_cancelled_scope_still_runs_on_close() -> None:
    async def hook(probe: Probe) -> None:
        await asyncio.sleep(0.5)
        probe.notes.append("flushed")

    probe = Probe(on_close=hook)
    with anyio.CancelScope() as scope:
        async with probe:
            scope.cancel()
            await asyncio.sleep(0)
    assert probe.notes == ["start", "close", "flushed"]


@in_virtual_time
async def test_a_task_that_resists_cancellation_is_named() -> None:
    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(60)

    probe = Probe()
    await probe.start()
    probe.service.start_child(stubborn, name="stubborn")
    await turns()
    async with takes(0.5 + CANCEL_TIMEOUT):
        with pytest.raises(TimeoutError, match="stubborn"):
            await probe.close(timeout=0.5)
    await asyncio.sleep(60)
    await probe.close()
    assert not other_tasks()


@pytest.mark.parametrize(("timeout", "after"), [(1.0, 0.0), (1.0, 0.7), (1.0, 1.0), (30.0, 30.0)])
@in_virtual_time
async def test_a_blocked_event_loop_does_not_count_as_a_task_that_resists_cancellation(
    timeout: float, after: float
) -> None:
    probe = Probe(on_close=lambda _: asyncio.sleep(60))
    await probe.start()
    probe.service.start_child(probe.forever)
    await turns()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)

    def block() -> None:
        loop.now += 15.0

    loop.call_later(after, block)
    await probe.close(timeout=timeout)
    assert probe.state is ServiceState.CLOSED
    assert not other_tasks()


async def test_a_child_that_closes_the_component_does_not_wait_for_itself() -> None:
    probe = Probe()
    await probe.start()
    probe.service.start_child(probe.close, None)
    await turns(20)
    assert probe.state is ServiceState.CLOSED

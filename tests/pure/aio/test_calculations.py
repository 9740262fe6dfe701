"""Long calculations run in threads, and in virtual time in the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from aiokafka_lite.aio.calculations import Calculations
from tests.virtual import in_virtual_time
from tests.waiting import DEADLINE, until


def fails() -> None:
    raise ZeroDivisionError


async def test_the_loop_turns_while_a_calculation_runs() -> None:
    turned = threading.Event()
    calculations = Calculations("test")
    result = calculations.start(lambda: (turned.wait(DEADLINE), threading.current_thread()))
    asyncio.get_running_loop().call_soon(turned.set)
    has_turned, thread = await result
    assert has_turned
    assert thread is not threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        await calculations.start(fails)
    calculations.end()
    with pytest.raises(RuntimeError):
        calculations.start(fails)
    await until(lambda: not thread.is_alive())


async def test_the_end_cancels_what_has_not_begun_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    released = threading.Event()
    calculations = Calculations("test")
    runs = calculations.start(lambda: released.wait(DEADLINE))
    waits = calculations.start(fails)
    calculations.end()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert not runs.done()
    released.set()
    assert await runs


async def test_a_function_without_a_thread_is_not_kept_and_a_later_one_runs() -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def function() -> threading.Thread:
        return threading.current_thread()

    calculations = Calculations("test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            calculations.start(function)
    reference = weakref.ref(function)
    del function
    gc.collect()
    assert reference() is None
    assert await calculations.start(threading.current_thread) is not threading.main_thread()
    calculations.end()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            calculations.start(fails)


async def test_an_error_that_no_caller_asks_for_is_not_logged() -> None:
    released = threading.Event()

    def fails_late() -> None:
        released.wait(DEADLINE)
        fails()

    calculations = Calculations("test")
    result = calculations.start(fails_late)
    calculations.end()
    released.set()
    await asyncio.wait([result])  # the fixture ``nothing_left_behind`` sees what asyncio logs


@in_virtual_time
async def test_in_virtual_time_a_calculation_runs_in_the_next_turn_of_the_loop() -> None:
    calculations = Calculations("test")
    result = calculations.start(threading.current_thread)
    assert not result.done()
    assert await result is threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await calculations.start(fails)
    dropped = calculations.start(fails)
    dropped.cancel()
    await asyncio.sleep(0)
    assert dropped.cancelled()
    calculations.end()

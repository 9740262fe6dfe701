"""Long calculations run in threads, and in virtual time in the event loop."""

from __future__ import annotations

import asyncio
import threading

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

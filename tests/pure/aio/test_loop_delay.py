"""``LoopDelay``: all clients of a loop share one timer, which ends with the last of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.aio.loop_delay import INTERVAL, LoopDelay
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


async def test_delays_of_one_loop_are_measured_by_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    started: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noted(delay: float, *call: Any, **context: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, *call, **context)
        if delay == INTERVAL:
            started.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", noted)
    one, other = LoopDelay(), LoopDelay()
    one.start()
    await asyncio.sleep(2.5)
    other.start()
    await asyncio.sleep(3)
    one.stop()
    await asyncio.sleep(2)
    other.stop()
    assert (len(one.recent), len(other.recent), len(started)) == (5, 5, 8)
    assert started[-1].cancelled()
    one.start()
    await asyncio.sleep(1.5)
    assert len(one.recent) == 6
    one.stop()


async def test_a_listener_that_fails_is_reported_and_the_measurement_goes_on() -> None:
    loop, reported, delays = asyncio.get_running_loop(), list[str](), list[float]()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    one, other = LoopDelay(), LoopDelay()
    one.on_measured(lambda delay: {}["missing"])
    one.on_measured(delays.append)
    one.start()
    other.start()
    await asyncio.sleep(3.5)
    one.stop()
    other.stop()
    assert (len(delays), len(one.recent), len(other.recent)) == (3, 3, 3)
    assert reported == ["a listener of the loop's delay failed"] * 3


async def test_a_listener_may_stop_the_measurement() -> None:
    delay = LoopDelay()
    delay.on_measured(lambda _: delay.stop())
    delay.start()
    await asyncio.sleep(3.5)
    assert len(delay.recent) == 1

"""A caller that waits for a shared future neither ends it nor is told of errors after its own cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.aio.light_event import result_of


async def test_each_caller_gets_the_result_and_a_cancelled_one_does_not_end_it() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    first, second = (asyncio.create_task(result_of(future)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not future.done()
    future.set_result(5)
    assert (await second, await result_of(future)) == (5, 5)


async def test_an_error_after_the_cancellation_reaches_the_other_callers_alone() -> None:
    loop = asyncio.get_running_loop()
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    future: asyncio.Future[int] = loop.create_future()
    cancelled, waiting = (asyncio.create_task(result_of(future)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    future.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await waiting
    await asyncio.sleep(0)
    assert reports == []

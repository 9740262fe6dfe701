"""``LightEvent`` behaves as ``asyncio.Event``, and is small."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest

from aiokafka_lite.aio.light_event import LightEvent


async def waiting(event: LightEvent, count: int = 1) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(event.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_set_wakes_every_task_that_waits() -> None:
    event = LightEvent()
    tasks = await waiting(event, 3)
    event.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks)
    assert event.is_set()


async def test_a_task_that_was_woken_continues_although_the_event_was_cleared() -> None:
    event = LightEvent()
    (task,) = await waiting(event)
    event.set()
    event.clear()
    async with asyncio.timeout(10):
        await task


async def test_a_set_event_lets_tasks_through_without_a_turn_of_the_loop() -> None:
    event = LightEvent()
    event.set()
    with pytest.raises(StopIteration):
        event.wait().send(None)


async def test_a_cancelled_wait_leaves_the_others_waiting() -> None:
    event = LightEvent()
    first, second = await waiting(event, 2)
    first.cancel()
    await asyncio.wait([first])
    assert not second.done()
    event.set()
    async with asyncio.timeout(10):
        await second


async def test_an_event_takes_less_than_100_bytes_after_its_last_waiter() -> None:
    event = LightEvent()
    (task,) = await waiting(event)
    task.cancel()
    await asyncio.wait([task])
    assert sys.getsizeof(event) < 100
    assert all(referent in (None, False, LightEvent) for referent in gc.get_referents(event))  # no container of waiters

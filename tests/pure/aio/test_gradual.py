"""``GradualCalls`` spreads callbacks over iterations of the loop; ``GradualEvent`` wakes its waiters through one."""

from __future__ import annotations

import asyncio

from aiokafka_lite.aio.gradual import GradualCalls, GradualEvent
from tests.virtual import in_virtual_time


@in_virtual_time
async def test_the_first_callbacks_run_at_once_and_the_others_in_later_iterations_in_order() -> None:
    gradual, calls = GradualCalls(2), list[int]()
    for number in range(5):
        gradual.call(lambda number=number: calls.append(number))  # type: ignore[misc]
    counts = [len(calls)]
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append(len(calls))
    assert counts == [2, 4, 5, 5]
    assert calls == [0, 1, 2, 3, 4]


@in_virtual_time
async def test_a_callback_that_calls_another_one_does_not_hold_the_loop() -> None:
    gradual, count = GradualCalls(2), 0

    def again() -> None:
        nonlocal count
        count += 1
        if count < 7:
            gradual.call(again)

    gradual.call(again)
    counts = [count]
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(count)
    assert counts == [2, 4, 6, 7, 7]


@in_virtual_time
async def test_a_set_event_wakes_all_waiters_but_only_so_many_in_one_iteration() -> None:
    event, woken = GradualEvent(GradualCalls(3)), list[int]()

    async def wait(number: int) -> None:
        await event.wait()
        woken.append(number)

    tasks = [asyncio.ensure_future(wait(number)) for number in range(7)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert not event.is_set()
    event.set()
    counts = []
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append(len(woken))
    assert counts == [3, 6, 6]
    await event.wait()
    await asyncio.gather(*tasks, return_exceptions=True)

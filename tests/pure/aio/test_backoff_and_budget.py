"""Pauses grow with jitter. Bytes are granted in order and never twice."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.aio.byte_budget import ByteBudget
from aiokafka_lite.aio.retry import Backoff
from aiokafka_lite.settings.checks import SHORTEST_PAUSE


def test_pauses_double_up_to_the_maximum_and_can_be_reset() -> None:
    backoff = Backoff(0.1, 1.0, random=lambda: 0.0)
    assert [backoff.next() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    backoff.reset()
    assert backoff.next() == pytest.approx(0.1)


def test_after_returns_the_same_pauses_for_a_count_of_failures() -> None:
    backoff = Backoff(0.1, 1.0, random=lambda: 0.0)
    assert [backoff.after(failures) for failures in (0, 1, 2, 3, 4, 10**9)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    )
    assert backoff.next() == pytest.approx(0.1)
    assert repr(backoff) == "<Backoff next=0.200s maximum=1.000s>"


@given(st.floats(0.001, 10), st.floats(0.001, 100), st.integers(0, 30), st.integers())
def test_a_pause_is_never_above_the_maximum_and_loses_at_most_its_jitter(
    initial: float, maximum: float, steps: int, seed: int
) -> None:
    plain = Backoff(initial, maximum, random=lambda: 0.0)
    jittered = Backoff(initial, maximum, jitter=0.2, random=random.Random(seed).random)
    for _ in range(steps):
        full, pause = plain.next(), jittered.next()
        assert full * 0.8 <= pause <= full <= maximum


async def test_bytes_are_granted_in_the_order_of_the_calls() -> None:
    budget = ByteBudget(100)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await budget.acquire(size)
        order.append(name)

    await take("first", 80)
    large = asyncio.create_task(take("large", 60))
    small = asyncio.create_task(take("small", 10))
    await asyncio.sleep(0)
    assert not budget.try_acquire(1), "no caller overtakes those that wait"
    assert repr(budget) == "<ByteBudget used=80 total=100 waiting=2>"
    budget.release(80)
    await asyncio.gather(large, small)
    assert order == ["first", "large", "small"]
    assert budget.free == 30


async def test_no_request_overtakes_a_granted_caller_that_has_not_run_yet() -> None:
    budget = ByteBudget(100)
    order: list[str] = []

    async def take(name: str) -> None:
        await budget.acquire(10)
        order.append(name)

    await budget.acquire(100)
    first = asyncio.create_task(take("first"))
    await asyncio.sleep(0)
    budget.release(100)
    assert not budget.try_acquire(10)
    assert budget.is_short
    second = asyncio.create_task(take("second"))
    await asyncio.gather(second, first)
    assert order == ["first", "second"]
    assert budget.try_acquire(80)


async def test_a_cancelled_caller_makes_room_for_the_next() -> None:
    budget = ByteBudget(100)
    await budget.acquire(50)
    large = asyncio.create_task(budget.acquire(90))
    small = asyncio.create_task(budget.acquire(50))
    await asyncio.sleep(0)
    large.cancel()
    await small
    assert budget.free == 0
    assert budget.waiting == 0


async def test_bytes_granted_to_a_caller_cancelled_in_the_same_turn_are_released() -> None:
    budget = ByteBudget(100)
    await budget.acquire(100)
    waiting = asyncio.create_task(budget.acquire(70))
    behind = asyncio.create_task(budget.acquire(100))
    await asyncio.sleep(0)
    budget.release(100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await behind
    assert budget.free == 0


def test_sizes_out_of_range_are_refused() -> None:
    budget = ByteBudget(100)
    with pytest.raises(ValueError, match="from 0 to 100 bytes"):
        budget.try_acquire(101)
    with pytest.raises(ValueError, match="bytes in use"):
        budget.release(1)


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=40), st.integers())
def test_used_and_free_bytes_always_sum_to_the_total(wishes: list[tuple[int, bool]], seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        budget = ByteBudget(100)
        reserved = 0

        async def use(size: int) -> None:
            nonlocal reserved
            await budget.acquire(size)
            reserved += size
            try:
                assert reserved <= 100
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                reserved -= size
                budget.release(size)

        tasks = []
        for size, cancelled in wishes:
            task = asyncio.create_task(use(size))
            tasks.append(task)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            if cancelled:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert budget.free == 100
        assert budget.waiting == 0

    asyncio.run(main())


def test_a_backoff_function_replaces_doubling_and_jitter_within_the_bound() -> None:
    backoff = Backoff(0.1, 1.0, function=lambda failures: failures * 2.0, at_most=5.0)
    assert [backoff.next() for _ in range(4)] == [2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 2.0
    assert Backoff(0.1, 1.0, function=lambda failures: 0).next() == SHORTEST_PAUSE


@pytest.mark.parametrize("answer", [-1, None, "1", math.nan, math.inf, ZeroDivisionError()])
def test_a_backoff_function_that_fails_is_reported_once_and_not_asked_again(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def function(failures: int) -> float:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    backoff = Backoff(0.1, 1.0, jitter=0.0, function=function)
    assert [backoff.next() for _ in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.0]
    [record] = caplog.records
    assert "retry_backoff_function" in record.getMessage()
    assert "retry_backoff is used instead" in record.getMessage()

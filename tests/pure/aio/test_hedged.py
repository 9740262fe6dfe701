"""A silent candidate is hedged, a failed one is skipped at once, and the first answer ends the search."""

from __future__ import annotations

import asyncio

from aiokafka_lite.aio import virtual_time
from aiokafka_lite.aio.hedged import hedged


async def _search(*candidates: float | None) -> tuple[int | None, float, list[int]]:
    """Return the answer, the seconds that it took, and the cancelled attempts. A candidate is its latency; None
    fails."""
    cancelled: list[int] = []

    async def ask(number: int) -> int | None:
        latency = candidates[number]
        if latency is None:
            return None
        try:
            await asyncio.sleep(latency)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    answer = await hedged(range(len(candidates)), ask, name="search")
    return answer, asyncio.get_running_loop().time(), sorted(cancelled)  # anyio cancels in any order


def test_the_first_answer_ends_the_search_without_a_second_request() -> None:
    assert virtual_time.run(_search(0.5, 0.0)) == (0, 0.5, [])


def test_failed_candidates_are_skipped_without_a_pause() -> None:
    assert virtual_time.run(_search(None, None, 0.25)) == (2, 0.25, [])


def test_the_hedge_delay_doubles_with_each_silent_candidate() -> None:
    assert virtual_time.run(_search(100.0, 100.0, 0.0)) == (2, 3.0, [0, 1])


def test_the_last_candidate_is_awaited() -> None:
    assert virtual_time.run(_search(10.0, 20.0)) == (0, 10.0, [1])


def test_no_answer_is_none() -> None:
    assert virtual_time.run(_search(None, None)) == (None, 0.0, [])
    assert virtual_time.run(_search()) == (None, 0.0, [])

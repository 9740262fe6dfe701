"""A hedged request: ask one broker, and ask the next one as well if the first does not answer for too long.

Rule 1: after a failure, the next candidate is asked at once; without an answer, it is asked after the hedge delay.
Rule 2: the delay doubles with each candidate that does not answer, so a cluster that is slow as a whole gets few extra
  requests.
Rule 3: the first answer cancels the attempts that still run.

So a frozen broker costs about a second. Without the hedge, it costs ``request_timeout`` (30 s).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from .light_event import LightEvent

C = TypeVar("C")
R = TypeVar("R")

HEDGE_DELAY = 1.0
"""Seconds without an answer until the next candidate is asked as well. This includes the time to connect."""


async def hedged(candidates: Iterable[C], ask: Callable[[C], Awaitable[R | None]], *, name: str) -> R | None:
    """Ask candidates, and return the first answer that is not None, or None if every candidate failed.

    ``ask`` returns None for a failure if another candidate may succeed. To end the search with an error, it returns the
    error as a value. ``candidates`` is read lazily, so an earlier attempt may remove later candidates. ``name`` is for
    the names of the tasks.
    """
    answers: list[R] = []
    running = 0
    delay = HEDGE_DELAY

    async def attempt(candidate: C, over: LightEvent) -> None:
        nonlocal running
        answer = await ask(candidate)
        running -= 1
        if answer is not None:
            answers.append(answer)
            if running:  # otherwise a cancellation would only take further turns of the loop
                attempts.cancel_scope.cancel()
        over.set()

    async with anyio.create_task_group() as attempts:
        for candidate in candidates:
            # An event per attempt: the failure of an older attempt must not shorten the wait for this one.
            over = LightEvent()
            running += 1
            attempts.start_soon(attempt, candidate, over, name=name)
            with anyio.move_on_after(delay) as waiting:
                await over.wait()
            if answers:
                break
            if waiting.cancelled_caught:
                delay *= 2
    # Two attempts can answer in the same turn of the loop, before the cancellation reaches the second.
    return answers[0] if answers else None

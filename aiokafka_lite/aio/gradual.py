"""Spreads many short callbacks over iterations of the event loop, so that other tasks run between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial


class GradualCalls:
    """Runs callbacks in the order of their calls, at most ``limit`` in one iteration of the event loop.

    The first ``limit`` callbacks of an iteration run at once, so a small number is never delayed.
    """

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._calls_left = limit
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def call(self, callback: Callable[[], object]) -> None:
        """Run the callback, now or in one of the next iterations."""
        self._schedule()
        if self._calls_left and not self._waiting:
            self._calls_left -= 1
            callback()
        else:
            self._waiting.append(callback)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_scheduled = False
        self._calls_left = self._limit
        while self._waiting and self._calls_left:
            self._schedule()
            self._calls_left -= 1
            self._waiting.popleft()()
            assert 0 <= self._calls_left <= self._limit, "at most limit callbacks run in one iteration"


class GradualEvent:
    """An event that is set once, and then wakes its waiters through a ``GradualCalls``."""

    def __init__(self, gradual: GradualCalls) -> None:
        self._gradual = gradual
        self._is_set = False
        self._waiters: dict[asyncio.Future[None], None] = {}

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            self._gradual.call(partial(_wake, waiter))

    async def wait(self) -> None:
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # the wait may have been cancelled
        waiter.set_result(None)

"""Calls that several tasks wait for: the first caller starts a task, and the others get the same answer.

A cancelled caller does not end the call: a ``poll`` with a short timeout cancels its deserializer, and the next
``poll`` must find the answer. So the tasks belong to ``SharedCalls``. They do not run in a ``Service``, which needs a
start, and fails as a whole if one task fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar, cast

from ..errors import IllegalStateError
from .forks import OwnProcess

T = TypeVar("T")


class SharedCalls:
    """The calls in progress, by key. ``closed`` is the error text for callers when ``cancel`` ends their call."""

    def __init__(self, closed: str) -> None:
        self._closed = closed
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    async def call(self, key: Hashable, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call ``function`` and return its answer, or raise its error. Callers with the same ``key`` share one call.

        Raises IllegalStateError after ``cancel``.
        """
        task = self._tasks.get(key)
        if task is None:
            self._tasks[key] = task = asyncio.create_task(OwnProcess(function()))
            task.add_done_callback(lambda ended: self._ended(key, ended))
        await asyncio.wait([task])  # unlike ``await task``, this does not cancel the task if the caller is cancelled
        if task.cancelled():
            raise IllegalStateError(self._closed)
        error = task.exception()
        if error is not None:
            raise error.with_traceback(None)
        return cast(T, task.result())

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel the calls in progress, and return their tasks. Their callers raise IllegalStateError."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # marks the error as retrieved, because all callers may have been cancelled

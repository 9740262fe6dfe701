"""Calls that a component interrupts when it ends: each waits in the task of its caller."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Interrupted(Exception):
    """The component has ended the call."""


class InterruptibleCalls:
    """The calls that wait now, in the order in which they began. Owned by a ``Service``."""

    def __init__(self) -> None:
        self._calls: dict[_Call, None] = {}

    def current(self) -> _Call:
        """A context manager for a call of the current task. It raises Interrupted if the call was interrupted."""
        task = asyncio.current_task()
        assert task is not None
        return _Call(task, self._calls)

    def interrupt(self) -> None:
        """Interrupt all calls."""
        for call in self._calls:
            call.interrupt()


class _Call:
    """One call. As in ``asyncio.timeout``, its task is cancelled; ``uncancel`` shows any other cancellation."""

    __slots__ = ("_before", "_calls", "_interrupted", "_task")

    def __init__(self, task: asyncio.Task[Any], calls: dict[_Call, None]) -> None:
        self._task = task
        self._before = task.cancelling()
        self._interrupted = False
        self._calls = calls

    def interrupt(self) -> None:
        if not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def __enter__(self) -> None:
        self._calls[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del self._calls[self]
        if isinstance(error, asyncio.CancelledError) and self._interrupted and self._task.uncancel() <= self._before:
            raise Interrupted from None

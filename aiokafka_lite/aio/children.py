"""The tasks that end with a component: its background tasks, and the waiting calls in tasks of its callers.

A task group of anyio would do the same as ``Children``, with 2.5 KB more per task and twice the time to start a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any

import anyio

from . import forks
from .forks import OwnProcess


class ChildScope:
    """Cancels one task, also before its first turn. The task enters it.

    The cancel scope of anyio is made by the task, because callbacks of the event loop start tasks as well. There anyio
    cannot make a scope if the package sniffio is installed: sniffio recognizes asyncio only inside a task.
    """

    def __init__(self) -> None:
        self._is_cancelled = False
        self._scope: anyio.CancelScope | None = None

    def cancel(self) -> None:
        """Cancel this and each later await of the task."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def __enter__(self) -> None:
        self._scope = anyio.CancelScope()
        if self._is_cancelled:
            self._scope.cancel()
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._scope is not None
        return self._scope.__exit__(kind, error, traceback)


class Children:
    """The tasks of one component. Owned by its ``Service``. ``on_end`` is called with each task that has ended."""

    def __init__(self, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        self.is_cancelling: bool = False
        """Whether all tasks were cancelled. Then each new task is cancelled at once."""
        self.has_ended: bool = False
        """Whether all tasks have ended. A new task is not allowed then, because nothing would wait for its end."""
        self._on_end = on_end
        self._scopes: dict[asyncio.Task[None], ChildScope] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that have not ended."""
        return [task for task in self._scopes if not task.done()]

    def start(self, coroutine: Coroutine[Any, Any, None], scope: ChildScope, name: str, context: Context) -> None:
        """Run a coroutine as a task, in ``context``. The task enters ``scope``, which cancels only this task."""
        assert not self.has_ended, "no task is started when nothing waits for its end any more"
        if self.is_cancelling:
            scope.cancel()
        # Not by the loop's task factory: an eager task (Python 3.12) would run before it is one of these tasks.
        task = asyncio.Task(OwnProcess(coroutine), loop=asyncio.get_running_loop(), name=name, context=context)
        self._scopes[task] = scope
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel all tasks. A scope cancels each later await of its task again."""
        self.is_cancelling = True
        for scope in self._scopes.values():
            scope.cancel()

    async def wait(self) -> None:
        """Wait until all tasks have ended. A cancellation of the caller is raised afterwards."""
        cancellation: asyncio.CancelledError | None = None
        while self._scopes:
            try:
                await asyncio.wait(self._scopes)
            except asyncio.CancelledError as error:
                cancellation = error
        self.has_ended = True
        if cancellation is not None:
            raise cancellation

    def _ended(self, task: asyncio.Task[None]) -> None:
        # This is a callback, because a task that is cancelled before its first turn does not run any of its code.
        del self._scopes[task]
        self._on_end(task)


class DueTask:
    """Repeats ``work`` in a task of a service, at the loop's times that ``due`` returns. Owned by one component.

    Until then there is only a timer, so an idle component has no task for it.
    """

    __slots__ = ("_due", "_is_running", "_may_spawn", "_name", "_spawn", "_timer", "_work")

    def __init__(self, work: Callable[[], Awaitable[object]], due: Callable[[], float], name: str) -> None:
        self._work = work
        self._due = due
        self._name = name
        self._spawn: Callable[..., object] | None = None  # from start to stop
        self._may_spawn: Callable[[], bool] = lambda: False
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self, spawn: Callable[..., object], may_spawn: Callable[[], bool]) -> None:
        """Run in tasks that ``spawn`` makes, as ``Service.start_child`` does, while ``may_spawn()`` is true."""
        self._spawn, self._may_spawn = spawn, may_spawn
        self.check()

    def stop(self) -> None:
        """Begin no more tasks. The service ends a task that runs."""
        self._spawn = None
        self._set_timer(None)

    def check(self) -> None:
        """Ask ``due`` again, because it may be earlier now. Does nothing before the start and while the task runs."""
        if self._spawn is None or self._is_running:
            return
        wait = self._due() - asyncio.get_running_loop().time()
        self._set_timer(wait if wait > 0 else None)
        if wait <= 0:
            self._begin()

    def _set_timer(self, wait: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if wait is None else forks.call_later(asyncio.get_running_loop())(wait, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._spawn is not None and self._may_spawn():
            self._is_running = True
            self._spawn(self._run, name=self._name)

    async def _run(self) -> None:
        try:
            is_due = True  # a timer may be early by the resolution of the clock
            while is_due:
                await self._work()
                is_due = self._due() <= asyncio.get_running_loop().time()
        finally:
            self._is_running = False
        self.check()


class Interrupted(Exception):
    """The component has ended the call."""


class InterruptibleCalls:
    """The calls that wait now, in the order in which they began. Owned by a ``Service``."""

    def __init__(self) -> None:
        self._calls: dict[_Call, None] = {}

    def current(self) -> _Call:
        """Make a context manager for a call of the current task. It raises Interrupted if the call was interrupted."""
        task = asyncio.current_task()
        assert task is not None
        return _Call(task, self._calls)

    def interrupt(self) -> None:
        for call in self._calls:
            call.interrupt()


class _Call:
    """One call. As in ``asyncio.timeout``, its task is cancelled; ``uncancel`` shows any other cancellation.

    ``is_late`` is whether ``expire`` has interrupted it, because its time is over.
    """

    __slots__ = ("_before", "_calls", "_interrupted", "_task", "is_late")

    def __init__(self, task: asyncio.Task[Any], calls: dict[_Call, None]) -> None:
        self.is_late: bool = False
        self._task = task
        self._before = task.cancelling()
        self._interrupted = False
        self._calls = calls

    def interrupt(self) -> None:
        if not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def expire(self) -> None:
        if not self._interrupted:
            self.is_late = True
            self.interrupt()

    def __enter__(self) -> None:
        self._calls[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del self._calls[self]
        # Counted back also if the body raised another error meanwhile, or returned.
        if self._interrupted and self._task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError):
            raise Interrupted from None

"""The lifetime of a component that runs tasks: start, run in one task group, fail as a whole, close within a bound.

A task group that is entered in the user's task breaks when ``start()`` and ``close()`` are called from different
tasks, as pytest fixtures and web frameworks do. So each component has one root task, made here and nowhere else in the
package, and the task group lives inside it. Everything that the component does in the background is a child of it.

Three rules follow. A component never half lives: the death of any child ends all of it. A death is never silent: the
exception reaches the calls that wait (``until_failed``), the next call (``check``) and ``close()``. And whoever closes
waits no longer than a bound, also when a peer does not answer and when the closing itself is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple

import anyio
import anyio.abc

from ..errors import IllegalStateError, KafkaTimeout
from ..protocol.state import next_state

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOSE_TIMEOUT = 3.0
"""Seconds that a component has for an orderly end, unless ``close()`` says otherwise; then its tasks are cancelled."""

NOT_STARTED = "is not started: use it in 'async with', or await its start() before"
CLOSED = "is closed, and cannot be started again: make a new one"

CANCEL_TIMEOUT = 2.0
"""Seconds that cancelled tasks have to end. A task that takes longer is a defect, and ``close()`` says so."""


class ServiceState(Enum):
    """What a component is doing."""

    NEW = "constructed; nothing runs, no loop is needed"
    STARTING = "the root task runs what must be done before use"
    RUNNING = "usable"
    CLOSING = "no new calls; what was begun is being finished or given up"
    CLOSED = "nothing runs; not to be used again"
    FAILED = "a task died; the rest was cancelled, and every call raises what the task died of"


class ServiceEvent(Enum):
    """What happens to a component."""

    START = "start() was called"
    STARTED = "what must be done before use is done"
    CLOSE = "close() was called, or start() was cancelled"
    FAIL = "a task died"
    ENDED = "the root task is at its end"


_S, _E = ServiceState, ServiceEvent

TRANSITIONS: dict[ServiceState, dict[ServiceEvent, ServiceState]] = {
    _S.NEW: {_E.START: _S.STARTING, _E.CLOSE: _S.CLOSED},
    _S.STARTING: {_E.STARTED: _S.RUNNING, _E.CLOSE: _S.CLOSING, _E.FAIL: _S.FAILED},
    _S.RUNNING: {_E.CLOSE: _S.CLOSING, _E.FAIL: _S.FAILED},
    _S.CLOSING: {_E.CLOSE: _S.CLOSING, _E.FAIL: _S.FAILED, _E.ENDED: _S.CLOSED},
    _S.CLOSED: {_E.CLOSE: _S.CLOSED},
    _S.FAILED: {_E.CLOSE: _S.FAILED, _E.FAIL: _S.FAILED, _E.ENDED: _S.FAILED},
}


class Service:
    """Base of components with tasks. Owned by the loop that ``start()`` ran in.

    A subclass says what to do before use in ``_on_start`` and how to end in good order in ``_on_close``; both run in
    the root task. It starts tasks with ``start_child`` and guards its public calls with ``check`` and ``until_failed``.
    A component that owns others starts them with ``attach``: they are closed after its own tasks, in reverse order.
    """

    def __init__(self) -> None:
        self._service_state: ServiceState = ServiceState.NEW
        self._service_failure: BaseException | None = None
        self._service_traceback: TracebackType | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._root: asyncio.Task[None] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._own_tasks: set[asyncio.Task[Any]] = set()
        self._attached: list[Service] = []
        self._is_attached = False
        self._started = asyncio.Event()
        self._closing = asyncio.Event()
        self._over = asyncio.Event()
        self._ended = asyncio.Event()
        self._close_scope: anyio.CancelScope | None = None
        self._interruptible: set[_Interruptible] = set()

    # What a subclass may say.

    async def _on_start(self, tasks: anyio.abc.TaskGroup) -> None:
        """Do what must be done before use. An exception ends the component and comes out of ``start()``."""

    async def _on_close(self) -> None:
        """End in good order: flush, say goodbye. Cut off by cancellation when the time for closing is over."""

    # The lifetime.

    @property
    def state(self) -> ServiceState:
        return self._service_state

    @property
    def failure(self) -> BaseException | None:
        """What a task of this component died of, if one did."""
        return self._service_failure

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the tasks that it runs."""
        return tuple(task.get_name() for task in self._own_tasks)

    async def start(self) -> None:
        """Make the component usable. Raises what ``_on_start`` raises; then, or when cancelled, nothing is left."""
        if self._service_state is not ServiceState.NEW:
            raise IllegalStateError(f"{self!r} cannot be started: it is {self._service_state.name}; make a new one")
        self._loop = asyncio.get_running_loop()
        self._close_scope = anyio.CancelScope()
        self._advance(ServiceEvent.START)
        self._root = self._loop.create_task(self._run(), name=type(self).__name__)
        self._root.add_done_callback(self._root_ended)
        try:
            await self._started.wait()
        except BaseException:  # cancelled: whoever asked for the component is gone, so it must be gone too
            self._begin_closing(0.0)
            await self._wait_for_end(CANCEL_TIMEOUT)
            raise
        if self.state is not ServiceState.RUNNING:
            self._raise_unusable("was closed while it was starting")

    async def close(self, timeout: float | None = None) -> None:
        """End the component: in good order if that takes at most ``timeout`` seconds, else by cancelling its tasks.

        May be called from any task of the loop, at any time, more than once. A caller that is cancelled makes the
        closing abrupt, not undone: the tasks are cancelled at once, and the cancellation goes on when they have ended.
        A task of the component that calls it only begins the closing, since it cannot wait for its own end.
        Raises what the component died of, if it did; ``KafkaTimeout`` when a task resists cancellation.
        """
        if self._service_state is ServiceState.NEW:
            self._advance(ServiceEvent.CLOSE)
        if self._service_state is ServiceState.CLOSED:
            return
        self._check_loop()
        bound = CLOSE_TIMEOUT if timeout is None else max(0.0, timeout)
        self._begin_closing(bound)
        if asyncio.current_task() in self._own_tasks:
            return
        try:
            ended = await self._wait_for_end(bound + CANCEL_TIMEOUT)
        except BaseException:
            self._begin_closing(0.0)
            await self._wait_for_end(CANCEL_TIMEOUT)
            raise
        if not ended:
            names = ", ".join(sorted(task.get_name() for task in self._own_tasks))
            raise KafkaTimeout(f"{self!r} did not end: tasks that go on although they were cancelled: {names}")
        self._raise_failure()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except Exception as failure:  # noqa: BLE001 - the body's own exception is the one to report
            if failure is not error:
                logger.warning("%r, while closing because of %r: %r", self, error, failure)

    # What calls of the component stand on.

    def check(self) -> None:
        """Raise unless the component is usable here and now: ``IllegalStateError``, or what it died of."""
        # The private name skips a RuntimeError for "no loop", which would be made and caught for nothing.
        if self._service_state is ServiceState.RUNNING and asyncio._get_running_loop() is self._loop:
            return
        self._raise_unusable(NOT_STARTED if self._service_state is ServiceState.NEW else CLOSED)

    async def until_failed(self, awaitable: Awaitable[T]) -> T:
        """Await something, but no longer than the component lives.

        Raises what the component died of, or ``IllegalStateError`` when it was closed in the meantime; the awaitable is
        cancelled then, as it is when the caller is cancelled. No task is made for this.
        """
        if self._service_state in (ServiceState.NEW, ServiceState.CLOSED, ServiceState.FAILED):
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            self._raise_unusable(NOT_STARTED if self._service_state is ServiceState.NEW else CLOSED)
        task = asyncio.current_task()
        assert task is not None
        waiting = _Interruptible(task)
        self._interruptible.add(waiting)
        try:
            return await awaitable
        except asyncio.CancelledError:
            if waiting.is_own_cancellation():
                self._raise_unusable("was closed during the call")
            raise
        finally:
            self._interruptible.discard(waiting)

    def start_child(
        self, function: Callable[[*Ts], Coroutine[Any, Any, object]], *args: *Ts, name: str | None = None
    ) -> anyio.CancelScope:
        """Run ``function(*args)`` as a task of the component; its exception ends the component, its return does not.

        The scope that is returned cancels this one task and nothing else.
        """
        if self._tasks is None or self._service_state in (ServiceState.CLOSED, ServiceState.FAILED):
            self._raise_unusable(NOT_STARTED if self._service_state is ServiceState.NEW else CLOSED)
        assert self._tasks is not None
        scope = anyio.CancelScope()
        label = name if name is not None else str(getattr(function, "__qualname__", function))
        self._tasks.start_soon(self._run_child, scope, function, args, label, name=label)
        return scope

    async def attach(self, service: Service) -> None:
        """Start another component that lives inside this one: closed after this one's tasks, its failure is this one's.

        To be called from ``_on_start`` or from a child.
        """
        self._attached.append(service)
        service._is_attached = True
        await service.start()
        self.watch(service)

    def watch(self, service: Service) -> None:
        """Die of what another component dies of, or of its being closed, without owning it."""
        self.start_child(service._until_over, name=f"{type(self).__name__}: watch {type(service).__name__}")

    # Inside.

    async def _until_over(self) -> None:
        await self._over.wait()
        self._raise_unusable("was closed by somebody else")

    async def _run(self) -> None:
        """The root task."""
        root = asyncio.current_task()
        assert root is not None
        self._own_tasks.add(root)
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._live(self._tasks)
                self._tasks.cancel_scope.cancel()
            if self._service_state in (ServiceState.STARTING, ServiceState.RUNNING):
                # anyio takes the cancelled child for one that has ended, and the group ends without a word.
                self._fail_by_cancellation(f"a task of {self!r}")
        except asyncio.CancelledError:
            self._fail_by_cancellation(repr(self))
            raise
        except BaseException as error:
            self._fail(error)
            if not isinstance(unwrapped(error), Exception):
                raise
        finally:
            await self._close_attached()

    def _root_ended(self, root: asyncio.Task[None]) -> None:
        # A callback and not the last lines of the task, as a task that is cancelled before its first turn has no lines.
        if not root.cancelled():
            root.exception()  # KeyboardInterrupt and its like have come out of the loop already
        if self._service_state in (ServiceState.STARTING, ServiceState.RUNNING):
            self._fail_by_cancellation(f"{self!r}, which had not begun,")
        self._own_tasks.discard(root)
        self._advance(ServiceEvent.ENDED)
        self._over.set()
        self._interrupt_waiters()
        self._ended.set()
        self._started.set()

    async def _live(self, tasks: anyio.abc.TaskGroup) -> None:
        if self._service_state is not ServiceState.STARTING:
            return  # closed before the first turn
        await self._on_start(tasks)
        if self.state is not ServiceState.STARTING:
            return  # closed, or a child has died, and _on_start did not await anything that would have told it
        self._advance(ServiceEvent.STARTED)
        self._started.set()
        await self._closing.wait()
        assert self._close_scope is not None
        with self._close_scope as scope:
            await self._on_close()
        if scope.cancelled_caught:
            logger.warning("%r did not end in good order within its time and is cut off", self)

    async def _run_child(
        self, scope: anyio.CancelScope, function: Callable[..., Coroutine[Any, Any, object]], args: Any, name: str
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert self._tasks is not None
        self._own_tasks.add(task)
        try:
            with scope:
                await function(*args)
        except asyncio.CancelledError:
            if not self._tasks.cancel_scope.cancel_called:
                self._fail_by_cancellation(f"task {name!r} of {self!r}")
            raise
        except BaseException as error:
            # Here, not at the end of the group: other children may take a while to end, and callers wait.
            self._fail(error)
            raise
        finally:
            self._own_tasks.discard(task)

    async def _close_attached(self) -> None:
        with anyio.CancelScope(shield=True):
            for service in reversed(self._attached):
                try:
                    await service.close()
                except Exception as error:  # noqa: BLE001 - the others must be closed too; it becomes the failure
                    self._fail(error)

    def _begin_closing(self, bound: float) -> None:
        """Ask the root task to end; an orderly end may last ``bound`` seconds, or less if it was told less before."""
        assert self._loop is not None
        assert self._close_scope is not None
        was = self._service_state
        self._advance(ServiceEvent.CLOSE)
        self._close_scope.deadline = min(self._close_scope.deadline, self._loop.time() + bound)
        self._closing.set()
        if was is ServiceState.STARTING and self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _wait_for_end(self, timeout: float) -> bool:
        # Shielded against scopes of the caller, which cancel each await anew; a plain cancel() still gets through.
        with anyio.move_on_after(timeout, shield=True):
            await self._ended.wait()
        return self._ended.is_set()

    def _advance(self, event: ServiceEvent) -> None:
        self._service_state = next_state(TRANSITIONS, self._service_state, event)

    def _fail_by_cancellation(self, what: str) -> None:
        """Fail of a cancellation that nobody here asked for, mostly by ``asyncio.run`` at its end.

        It cancels all tasks of all components at once. One line says so, that of the outermost component's first task.
        """
        why = "was cancelled from outside, as when the event loop ends before close(): use it in 'async with'"
        self._fail(IllegalStateError(f"{what} {why}"), is_news=self._service_failure is None and not self._is_attached)

    def _fail(self, error: BaseException, is_news: bool = True) -> None:
        error = unwrapped(error)
        if self._service_failure is not None:
            said = [self._service_failure, *(each.failure for each in self._attached)]
            if is_news and not any(error is each for each in said) and not isinstance(error, BaseExceptionGroup):
                logger.warning("%r, which has failed already, also met %r", self, error)
            return
        was = self._service_state
        self._service_failure, self._service_traceback = error, error.__traceback__
        self._advance(ServiceEvent.FAIL)
        if is_news and was is not ServiceState.STARTING:  # start() itself reports what happens there
            logger.error("%r failed: %r", self, error)
        self._over.set()
        self._interrupt_waiters()

    def _interrupt_waiters(self) -> None:
        for waiting in self._interruptible:
            waiting.interrupt()

    def _raise_failure(self) -> None:
        if self._service_failure is not None:
            # With its first traceback: one that is raised in many places would grow by each of them.
            raise self._service_failure.with_traceback(self._service_traceback)

    def _raise_unusable(self, why: str) -> None:
        self._raise_failure()
        self._check_loop()
        raise IllegalStateError(f"{self!r} {why}")

    def _check_loop(self) -> None:
        if self._loop is None:
            return
        if self._loop.is_closed():
            raise IllegalStateError(f"the event loop that {self!r} was started in is closed")
        if asyncio._get_running_loop() is not self._loop:
            raise IllegalStateError(f"{self!r} belongs to another event loop, the one that it was started in")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._service_state.name}>"


class _Interruptible:
    """A user's task that waits in a call and is to be woken when the component ends.

    As in ``asyncio.timeout``, the task is cancelled, and ``uncancel`` tells whether that was the only reason.
    """

    __slots__ = ("_before", "_interrupted", "_task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._before = task.cancelling()
        self._interrupted = False

    def interrupt(self) -> None:
        if not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def is_own_cancellation(self) -> bool:
        return self._interrupted and self._task.uncancel() <= self._before


def unwrapped(error: BaseException) -> BaseException:
    """The one error that a task group raised, without the groups around it; several stay a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

"""The lifetime of a component with tasks: it starts, runs, fails as a whole, and closes in bounded time.

A task group in the user's task breaks if ``start()`` and ``close()`` are called from different tasks, as pytest
fixtures and web frameworks do. So each component has one root task, which only this module creates. All background
work of the component runs in children of the root task (``Children``), and ends before it.

Rule 1: A component fails as a whole. When a child raises, all its tasks are cancelled.

Rule 2: A failure is never silent. The exception reaches the calls that wait (``while_running``), the next call
(``check``) and ``close()``.

Rule 3: ``close()`` takes a bounded time, even if a peer does not answer or the caller of ``close()`` is cancelled.

Rule 4: A component that is dropped without ``close()`` is garbage-collected, with a ResourceWarning. So no object that
a running task holds may refer to the component, and a Service has only weak references to it. The tasks run until the
event loop ends, because they may still deliver accepted records.

Rule 5: The tasks of a component begin with the context variables of ``start()``, not with those of the call that needs
a task first: the task works for other callers too.

Rule 6: A component belongs to the event loop and to the process of its ``start()``. In a forked process, every call
raises IllegalStateError, and the tasks do not continue (``aio/forks.py``).

A component derives from ``Component`` (``aio/component.py``), and calls ``self._service.check()`` and so on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from enum import Enum
from threading import get_ident
from types import TracebackType
from typing import Any, NoReturn, TypeVar, TypeVarTuple

import anyio

from ..arguments import check_timeout
from ..errors import IllegalStateError, KafkaTimeout
from ..state_machine import next_state
from . import forks
from .alarms import loop_alarms
from .children import Children, ChildScope, Interrupted, InterruptibleCalls
from .deadline import deadline
from .light_event import LightEvent

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOSE_TIMEOUT = 3.0
"""The default time for an orderly close, in seconds. After this time, the tasks of the component are cancelled."""

NOT_STARTED = "is not started: use it in 'async with', or await its start() first"
CLOSED = "is closed and cannot be started again: create a new one"

CANCEL_TIMEOUT = 2.0
"""Seconds that cancelled tasks have to end. A task that takes longer has a bug, and the error of ``close()`` names
it."""


WAIT_SLICES = 10
"""The number of slices in which ``close()`` waits for the end of the tasks."""


class ServiceState(Enum):
    """The state of a component."""

    NEW = "constructed; nothing runs, and no event loop is needed"
    STARTING = "the root task runs on_start"
    RUNNING = "the component is usable"
    CLOSING = "new calls are refused; the root task runs on_close"
    CLOSED = "nothing runs; the component cannot be used again"
    FAILED = "a task raised; the others were cancelled, and every call raises the same exception"


class ServiceEvent(Enum):
    """An event in the lifetime of a component."""

    START = "start() was called"
    STARTED = "on_start returned"
    CLOSE = "close() was called, or start() was cancelled"
    FAIL = "a task raised"
    ENDED = "the root task ended"


_S, _E = ServiceState, ServiceEvent

TRANSITIONS: dict[ServiceState, dict[ServiceEvent, ServiceState]] = {
    _S.NEW: {_E.START: _S.STARTING, _E.CLOSE: _S.CLOSED},
    _S.STARTING: {_E.STARTED: _S.RUNNING, _E.CLOSE: _S.CLOSING, _E.FAIL: _S.FAILED},
    _S.RUNNING: {_E.CLOSE: _S.CLOSING, _E.FAIL: _S.FAILED},
    _S.CLOSING: {_E.CLOSE: _S.CLOSING, _E.FAIL: _S.FAILED, _E.ENDED: _S.CLOSED},
    _S.CLOSED: {_E.CLOSE: _S.CLOSED},
    _S.FAILED: {_E.CLOSE: _S.FAILED, _E.FAIL: _S.FAILED, _E.ENDED: _S.FAILED},
}
_UP = (_S.STARTING, _S.RUNNING)
_OVER = (_S.CLOSED, _S.FAILED)
_UNUSABLE = (_S.NEW, *_OVER)


class _Hooks:
    """The component of a service, and what it does at its start and end. Weak references (rule 4)."""

    __slots__ = ("component", "describe_start", "name", "on_close", "on_start")

    def __init__(
        self,
        component: object,
        on_start: Callable[[], Awaitable[object]],
        on_close: Callable[[], Awaitable[object]],
        describe_start: Callable[[float], str],
    ) -> None:
        self.name = type(component).__name__
        # While start() and close() wait, their callers hold the component.
        self.component = weakref.ref(component)
        self.on_start = weakref.WeakMethod(on_start)
        self.on_close = weakref.WeakMethod(on_close)
        self.describe_start = weakref.WeakMethod(describe_start)


class Service:
    """The machinery of one component: its state, its root task and its children. Owned by the loop of ``start()``.

    ``on_start`` prepares the component and ``on_close`` ends it in an orderly way; both run in the root task.
    ``start()`` raises the exception of ``on_start``. ``on_close`` is cancelled when the time for closing is over.
    ``describe_start`` returns the error text of a start that exceeded a number of seconds, or "".
    Errors, log lines and task names contain the name of ``component``.
    """

    def __init__(
        self,
        component: object,
        on_start: Callable[[], Awaitable[object]],
        on_close: Callable[[], Awaitable[object]],
        describe_start: Callable[[float], str],
    ) -> None:
        self._hooks = _Hooks(component, on_start, on_close, describe_start)
        self._state = ServiceState.NEW
        self.failure: BaseException | None = None
        """The exception that ended the component, or None."""
        self._traceback: TracebackType | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: Context | None = None  # of the call of start() (rule 5)
        self._thread = 0  # the thread in which ``_loop`` runs, while the component is RUNNING
        self._root: asyncio.Task[None] | None = None
        self._root_scope: anyio.CancelScope | None = None  # of on_start, and of the wait for the end
        self._children = Children(on_end=self._child_ended)
        self._attached: list[Service] = []
        self._on_unusable: Callable[[], object] | None = None  # of the service that owns this one, and logs for both
        self.start_timeout: float | None = None
        """The ``timeout`` of ``start()``, of this service or of the service that owns it; None without a timeout."""
        self._started = LightEvent()  # the start is over, with or without success
        self._closing = LightEvent()
        self._at_end: list[Callable[[], Awaitable[object]]] = []
        self._ended = LightEvent()  # no task runs any more
        self._close_scope: anyio.CancelScope | None = None  # made when the component closes
        self._calls = InterruptibleCalls()
        self.is_inherited: bool = False
        """Whether a parent of this process started the component, before a fork."""

    # The lifetime.

    @property
    def name(self) -> str:
        """The component's class. The names of its tasks begin with it."""
        return self._hooks.name

    @property
    def state(self) -> ServiceState:
        return self._state

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the tasks that run now."""
        root = [] if self._root is None or self._root.done() else [self._root]
        return tuple(task.get_name() for task in (*root, *self._children.tasks))

    @property
    def is_own_task(self) -> bool:
        """Whether the current task belongs to the component. Such a task cannot wait for the component's end.

        A task of an anyio task group in a child belongs to the component too, because the child waits for it.
        """
        tasks = (self._root, *self._children.tasks)
        parent = anyio.get_current_task().parent_id
        return asyncio.current_task() in tasks or any(id(task) == parent for task in tasks)

    async def start(self, timeout: float | None = None, *, on_unusable: Callable[[], object] | None = None) -> None:
        """Run ``on_start`` in a new root task, and raise its exception. After an error, no task remains.

        Raises KafkaTimeout after ``timeout`` seconds. No task remains after a cancellation either. With
        ``on_unusable``, another service owns this service, bounds its start, and logs for both. It is called when the
        component has failed or ended after its start.
        """
        check_timeout(timeout)
        self.check_process()
        if self._state is not ServiceState.NEW:
            problem = "is started already" if self._state in _UP else "cannot be started again: create a new one"
            raise IllegalStateError(f"{self!r} {problem}")
        self._on_unusable = on_unusable
        self.start_timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._advance(ServiceEvent.START)
        self._context = copy_context()
        forks.notify(self)
        # Not eager, as in Children.start.
        self._root = asyncio.Task(forks.OwnProcess(self._run()), loop=self._loop, name=self.name)
        self._root.add_done_callback(self._root_ended)
        bound = timeout if on_unusable is None else None
        try:
            with deadline(bound, lambda: _describe_late_start([self, *self._attached], bound or 0.0)):
                await self._started.wait()
        except BaseException:  # the start was cancelled: the caller will never use the component, so no task may remain
            self._begin_closing(0.0)
            await _wait_for(self._ended, CANCEL_TIMEOUT)
            raise
        if self.state is not ServiceState.RUNNING or self.is_inherited:
            self._raise_unusable("was closed while it was starting")

    async def close(self, timeout: float | None = None) -> None:
        """Run ``on_close`` for at most ``timeout`` seconds, then cancel all tasks and wait for their end.

        May be called from any task of the loop, at any time, more than once. If a caller is cancelled, the tasks are
        cancelled at once, and the cancellation is raised after they have ended. If a task of the component calls it,
        the call returns at once, since a task cannot wait for its own end. Raises the exception that ended the
        component, if any, and KafkaTimeout if a task resists cancellation.
        """
        check_timeout(timeout)
        self.check_process()
        if self._state is ServiceState.NEW:
            self._advance(ServiceEvent.CLOSE)
        if self._state is ServiceState.CLOSED:
            return
        _check_loop(self._loop, self)
        bound = CLOSE_TIMEOUT if timeout is None else max(0.0, timeout)
        self._begin_closing(bound)
        if self.is_own_task:
            return
        try:
            # Two waits, because the cancellation of 100,000 calls blocks the loop for seconds. The block costs one
            # slice of the second wait.
            has_ended = await _wait_for(self._ended, bound) or await _wait_for(self._ended, CANCEL_TIMEOUT)
        except BaseException:
            self._begin_closing(0.0)
            await _wait_for(self._ended, CANCEL_TIMEOUT)
            raise
        self.check_process()
        if not has_ended:
            names = ", ".join(sorted(self.task_names))
            raise KafkaTimeout(f"{self!r} did not end: these tasks were cancelled and still run: {names}")
        self._raise_failure()

    # Used by the methods of the component.

    def check(self) -> None:
        """Raise the component's failure, or IllegalStateError if it cannot be used now or in this loop."""
        # Hot: runs for each record. If the loop of ``start()`` is running, and this is the thread in which it was
        # started, it is the running loop of this thread. Asking asyncio for the running loop takes three times as long
        # on Python 3.11.
        if self._thread == get_ident() and self._loop is not None and self._loop.is_running():
            return
        # The private function is used, because without a loop the public one would create a RuntimeError.
        if (
            self._state is ServiceState.RUNNING and not self.is_inherited and asyncio._get_running_loop() is self._loop  # noqa: SLF001
        ):
            return
        self._raise_unusable(NOT_STARTED if self._state is ServiceState.NEW else CLOSED)

    def check_process(self) -> None:
        """Raise IllegalStateError in a forked process, if the component was started before the fork."""
        if self.is_inherited:
            raise IllegalStateError(forks.text_of(self))

    async def while_running(
        self, awaitable: Awaitable[T], *, until: float = math.inf, describe: Callable[[], str] = str
    ) -> T:
        """Await ``awaitable``, but stop waiting when the component fails or ends. This creates no task.

        Then it raises the component's failure, or IllegalStateError if the component was closed. At the loop's time
        ``until`` it raises KafkaTimeout with the text that ``describe()`` returns then. The awaitable is cancelled in
        these cases, and also when the caller is cancelled; it must let the cancellation pass.
        """
        if self._state in _UNUSABLE or self.is_inherited:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            self._raise_unusable(NOT_STARTED if self._state is ServiceState.NEW else CLOSED)
        call = self._calls.current()
        alarm = None if until == math.inf else loop_alarms().at(until, call.expire)
        try:
            with call:
                return await awaitable
        except Interrupted:
            if call.is_late:
                raise KafkaTimeout(describe()) from None
            self._raise_unusable("was closed during the call")
        finally:
            if alarm is not None:
                alarm.call_off()

    def start_child(
        self, function: Callable[[*Ts], Coroutine[Any, Any, object]], *args: *Ts, name: str | None = None
    ) -> ChildScope:
        """Run ``function(*args)`` as a task. Its exception ends the component, but its return does not.

        The returned scope cancels only this task.
        """
        if not self.accepts_children:
            self._raise_unusable(NOT_STARTED if self._state is ServiceState.NEW else CLOSED)
        scope = ChildScope()
        label = name if name is not None else str(getattr(function, "__qualname__", function))
        assert self._context is not None
        self._children.start(self._run_child(scope, function, args), scope, label, self._context.copy())
        return scope

    @property
    def accepts_children(self) -> bool:
        """Whether ``start_child`` would start a task now."""
        return not (self._root_scope is None or self._children.has_ended or self._state in _OVER or self.is_inherited)

    def at_end(self, function: Callable[[], Awaitable[object]]) -> None:
        """Await ``function()`` when the component ends for any reason, while its tasks end. It must not wait long."""
        self._at_end.append(function)

    def fail(self, error: BaseException) -> None:
        """End the component with this error, as if one of its tasks had raised it."""
        self._fail(error)
        self._cancel_tasks()

    async def attach(self, service: Service) -> None:
        """Start the service of a component inside this service, and own it. Call it from ``on_start`` or from a child.

        The attached service is closed after the tasks of this component have ended. Services close in reverse order of
        attaching. A failure of the attached service is also the failure of this component.
        """
        self._attached.append(service)
        await service.start(self.start_timeout, on_unusable=lambda: self._attached_ended(service))

    # Inside.

    def __repr__(self) -> str:
        component = self._hooks.component()
        if component is not None:
            return repr(component)
        return f"<{self.name} {'NEW' if self._state is ServiceState.NEW else 'dropped without close()'}>"

    @property
    def is_abandoned(self) -> bool:
        """Whether the service runs and no other service owns it, so that only its component can close it."""
        # At the exit of the interpreter, the names of this module may be None already.
        return _UP is not None and self._state in _UP and self._on_unusable is None and not self.is_inherited

    def describe_start(self, timeout: float) -> str:
        """Return the component's text for a start that exceeded ``timeout`` seconds, or an empty string."""
        describe = self._hooks.describe_start()
        return "" if describe is None else describe(timeout)

    async def _run(self) -> None:
        """Run the component, as its root task."""
        try:
            with anyio.CancelScope() as self._root_scope:
                await self._run_states()
        except asyncio.CancelledError:
            self._fail_by_cancellation(repr(self))
            raise
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._children.cancel()
            try:
                await self._run_all(self._at_end)
                await self._children.wait()
            finally:
                await self._run_all(service.close for service in reversed(self._attached))

    async def _run_all(self, functions: Iterable[Callable[[], Awaitable[object]]]) -> None:
        # Shielded, because all of them must run even if the root task is cancelled.
        with anyio.CancelScope(shield=True):
            for function in functions:
                try:
                    await function()
                except Exception as error:  # noqa: BLE001 - the others must run too; it becomes the failure
                    self._fail(error)

    def _root_ended(self, root: asyncio.Task[None]) -> None:
        if self.is_inherited:  # something cancelled the task in a forked process, such as ``asyncio.run`` at its end
            return
        # This is a callback, because a task that is cancelled before its first turn does not run any of its code.
        if not root.cancelled():
            # Marks the exception as retrieved: KeyboardInterrupt and SystemExit have already left the loop.
            root.exception()
        assert not self._children.tasks, "the root task ends after the component's other tasks"
        if self._state in _UP:
            self._fail_by_cancellation(f"{self!r}, which had not begun,")
        self._advance(ServiceEvent.ENDED)
        self._became_unusable()
        self._ended.set()
        self._started.set()

    async def _run_states(self) -> None:
        if self._state is not ServiceState.STARTING:
            return  # the component was closed before the first turn
        on_start = self._hooks.on_start()
        if on_start is not None:
            await on_start()
        del on_start  # this frame lives as long as the component runs, and must not refer to it (rule 4)
        if self.state is not ServiceState.STARTING:
            # The component was closed or a child failed, but on_start did not await anything that could be cancelled.
            return
        self._advance(ServiceEvent.STARTED)
        self._started.set()
        await self._closing.wait()
        assert self._close_scope is not None
        with self._close_scope as scope:
            on_close = self._hooks.on_close()
            if on_close is not None:
                await on_close()
        if scope.cancelled_caught:
            logger.warning("%r did not close in time; its tasks are cancelled", self)

    async def _run_child(
        self, scope: ChildScope, function: Callable[..., Coroutine[Any, Any, object]], args: Any
    ) -> None:
        try:
            with scope:
                await function(*args)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # The failure is set here and not when the root task ends: other children may take a while to end, and
            # callers wait.
            self._fail(error)
            raise

    def _child_ended(self, child: asyncio.Task[None]) -> None:
        if self.is_inherited:
            return
        if child.cancelled():
            if not self._children.is_cancelling:
                self._fail_by_cancellation(f"task {child.get_name()!r} of {self!r}")
        elif child.exception() is None:
            return
        self._cancel_tasks()

    def _attached_ended(self, service: Service) -> None:
        # While this component ends, it closes the attached service itself.
        if self._children.is_cancelling or self._state in _OVER or self.is_inherited:
            return
        if service.failure is not None:
            self.fail(service.failure)
        else:
            self.fail(IllegalStateError(f"{service!r} was closed by another component"))

    def _cancel_tasks(self) -> None:
        """Cancel ``on_start`` or ``on_close`` in the root task, and all children."""
        if self._root_scope is not None:
            self._root_scope.cancel()
        self._children.cancel()

    def _begin_closing(self, bound: float) -> None:
        """Ask the root task to end within ``bound`` seconds. A later call can shorten that time, not extend it."""
        assert self._loop is not None
        if self._close_scope is None:
            self._close_scope = anyio.CancelScope()
        was = self._state
        self._advance(ServiceEvent.CLOSE)
        self._close_scope.deadline = min(self._close_scope.deadline, self._loop.time() + bound)
        self._closing.set()
        # ``on_start`` may wait long for an unreachable cluster, so it is cancelled. ``on_close`` does not run then.
        if was is ServiceState.STARTING and self._root_scope is not None:
            self._cancel_tasks()

    def _advance(self, event: ServiceEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event)
        self._thread = get_ident() if self._state is ServiceState.RUNNING else 0

    def _fail_by_cancellation(self, what: str) -> None:
        """Fail after a cancellation that did not come from this service, usually from the end of ``asyncio.run``.

        ``asyncio.run`` cancels all tasks of all components at once. Only the first task of the outermost component logs
        a line.
        """
        why = "was cancelled from outside, as when the event loop ends before close(): use it in 'async with'"
        self._fail(IllegalStateError(f"{what} {why}"), logs=self.failure is None and self._on_unusable is None)

    def _fail(self, error: BaseException, logs: bool = True) -> None:
        error = unwrapped(error)
        if self.failure is not None:
            # A failure of an attached service is also the failure of this component, so it is not a later error.
            failures = [self.failure, *(service.failure for service in self._attached)]
            is_known = any(error is failure or repr(error) == repr(failure) for failure in failures)
            if logs and not is_known and not isinstance(error, BaseExceptionGroup):
                logger.warning("%r failed with %r; a later error is ignored: %r", self, self.failure, error)
            return
        was = self._state
        self.failure, self._traceback = error, error.__traceback__
        self._advance(ServiceEvent.FAIL)
        if logs and was is not ServiceState.STARTING:  # start() raises an exception of the start
            logger.error("%r failed: %r", self, error)
        self._became_unusable()

    def _became_unusable(self) -> None:
        """End the calls that wait, and tell the owner, because the component has failed or ended."""
        self._calls.interrupt()
        # Before the end of the start, ``start`` raises.
        if self._on_unusable is not None and self._started.is_set():
            self._on_unusable()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            # The exception keeps its first traceback. Otherwise it would collect a traceback each time it is raised.
            raise self.failure.with_traceback(self._traceback)

    def forked(self) -> None:
        """Refuse all calls in a forked process, and end those that wait: no task answers them there."""
        if self._state in _OVER:
            return
        # The thread of the child has the number of the parent's thread.
        self._thread, self.is_inherited = 0, True
        self._calls.interrupt()
        self._started.set()
        self._ended.set()

    def _raise_unusable(self, why: str) -> NoReturn:
        self.check_process()
        self._raise_failure()
        _check_loop(self._loop, self)
        raise IllegalStateError(f"{self!r} {why}")


def _describe_late_start(services: list[Service], timeout: float) -> str:
    """Return the first text that one of the services has, or a general text about the first service."""
    texts = (service.describe_start(timeout) for service in services)
    return next(filter(None, texts), f"{services[0]!r} did not start within {timeout:g} s")


async def _wait_for(event: LightEvent, timeout: float) -> bool:
    """Wait for the event for at most ``timeout`` seconds. Returns whether it is set."""
    # The wait is in slices. While the loop is blocked, the clock runs but no task can end. With slices, a block costs
    # only one slice of the timeout.
    for _ in range(WAIT_SLICES):
        # The wait is shielded from the caller's cancel scopes, which would cancel each await again. A plain cancel()
        # still reaches it.
        with anyio.move_on_after(timeout / WAIT_SLICES, shield=True):
            await event.wait()
            break
    return event.is_set()


def _check_loop(loop: asyncio.AbstractEventLoop | None, component: object) -> None:
    """Raise IllegalStateError unless ``loop``, in which the component was started, is the running loop."""
    if loop is None:
        return
    if loop.is_closed():
        raise IllegalStateError(f"{component!r} belongs to an event loop that is closed; create one in this loop")
    if asyncio._get_running_loop() is not loop:  # noqa: SLF001
        raise IllegalStateError(f"{component!r} belongs to another event loop; create one for each loop")


def unwrapped(error: BaseException) -> BaseException:
    """Take the error that a task group raised out of its exception groups. Several errors stay a group.

    SystemExit and KeyboardInterrupt are taken out of several, because they end the program only by themselves.
    """
    while isinstance(error, BaseExceptionGroup):
        ends = error.subgroup((KeyboardInterrupt, SystemExit))
        if ends is None and len(error.exceptions) > 1:
            break
        error = (ends or error).exceptions[0]
    return error

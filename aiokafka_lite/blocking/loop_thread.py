"""The thread with the event loop that all blocking clients of a process share.

Rule 1: A process has one such thread. It starts at the first use of a client, and ends with the interpreter. A forked
process starts its own, because threads do not survive a fork.

Rule 2: A user's thread waits on a lock, which Python's signal handlers interrupt at once. An interrupted call is
cancelled in the loop, and has ended when the interrupt is raised, so the state of the client is known. If it had a
result by then, ``keep`` gets it in the loop: a read loses no record.

Rule 3: A client that runs is kept here until it is closed, also if the program drops it: its accepted records are sent.
When the interpreter ends, all clients are closed in the usual way.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from anyio.from_thread import BlockingPortal

from ..aio import forks
from ..aio.service import NOT_STARTED
from ..errors import IllegalStateError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

NAME = "aiokafka_lite"
"""The name of the thread."""

CANCEL_TIMEOUT = 2.0
"""Seconds that an interrupted call has to end in the loop."""

JOIN_TIMEOUT = 5.0
"""Seconds that the exit of the interpreter waits for the end of the thread, when all clients are closed."""

ENDED = "the interpreter ends, and the event loop of the blocking clients has ended"

NOT_STARTED_HERE = "is not started: use it in 'with', or call its start() first"


def for_threads(text: str) -> str:
    """Return the text of an IllegalStateError in the words of a program without an event loop."""
    text = text.replace(NOT_STARTED, NOT_STARTED_HERE).replace("async with", "with")
    text = re.sub(r"\bawait (\w+\()", r"call \1", text)
    if text.startswith("another task reads"):
        # The program knows threads, and the name of a task tells it nothing.
        text = re.sub(r"\btask\b", "thread", re.sub("'[^']*' waits", "it waits", text))
    return text


class Closable(Protocol):
    """A client as this module sees it."""

    def close(self) -> Coroutine[Any, Any, None]: ...


class Call(Generic[T]):
    """A call of a user's thread that runs in the loop.

    Either ``take`` returns a result at once, which is not None if there is a ``function``, or ``function`` runs in a
    task.
    """

    # A task costs as much as the rest of the way into the loop and back, so what needs no wait is done without one.

    __slots__ = ("_ended", "_error", "_function", "_has_result", "_result", "_take", "_task")

    def __init__(
        self, function: Callable[[], Coroutine[Any, Any, T]] | None, take: Callable[[], T | None] | None = None
    ) -> None:
        self._function = function
        self._take = take
        self._ended = threading.Lock()
        self._ended.acquire()
        self._task: asyncio.Task[None] | None = None
        self._result: T
        self._has_result = False
        self._error: BaseException | None = None

    def wait(self, loop: asyncio.AbstractEventLoop, keep: Callable[[T], object] | None = None) -> T:
        """Run the call in ``loop``, and block this thread until it has ended. Returns its result or raises its error.

        If a signal handler raises meanwhile, the call is cancelled, and ``keep`` gets a result that it still had, in
        the loop.
        """
        try:
            _soon(loop, self._start)
            self._ended.acquire()
        except IllegalStateError:
            raise
        except BaseException:  # KeyboardInterrupt, or whatever a handler of the program raises
            # Not ``_ended``: the handler may have raised when this thread had it already.
            settled = threading.Event()
            _soon(loop, partial(self._cancel, keep, settled))
            settled.wait(CANCEL_TIMEOUT)
            raise
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            if isinstance(error, asyncio.CancelledError):
                raise IllegalStateError(ENDED)
            if isinstance(error, IllegalStateError) and (text := for_threads(str(error))) != str(error):
                raise IllegalStateError(text) from None
            raise error
        finally:
            del error  # its traceback refers to this frame

    def _start(self) -> None:
        if self._take is not None:
            try:
                result = self._take()
            except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
                self._error = error
                self._ended.release()
                return
            if result is not None or self._function is None:
                self._result, self._has_result = cast("T", result), True
                self._ended.release()
                return
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _cancel(self, keep: Callable[[T], object] | None, settled: threading.Event) -> None:
        if self._task is None:  # the call has ended, or the interrupt came before it, and it is not made now
            self._settle(keep, settled)
        else:
            self._task.cancel()
            # Called also if the task was cancelled before its first step, and if it ends when no thread waits any more.
            self._task.add_done_callback(lambda _: self._settle(keep, settled))

    def _settle(self, keep: Callable[[T], object] | None, settled: threading.Event) -> None:
        try:
            if self._has_result and keep is not None:
                keep(self._result)
        finally:
            settled.set()

    async def _run(self) -> None:
        assert self._function is not None, "a call without a coroutine function has ended"
        try:
            self._result = await self._function()
            self._has_result = True
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._error = error
        finally:
            # So the task is freed in the loop: a callback of weak references, in which the user's thread would free it,
            # drops the exception of a signal handler.
            self._task = None
            self._ended.release()


class LoopThread:
    """The thread and its event loop. Owner of the running clients of the process."""

    def __init__(self) -> None:
        self._clients: set[Closable] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        started: Future[tuple[BlockingPortal, asyncio.AbstractEventLoop]] = Future()
        # A daemon, because the interpreter waits for all other threads before it lets this one close the clients.
        self._thread = threading.Thread(target=_run_loop, args=(started,), name=NAME, daemon=True)
        self._thread.start()
        self._portal, self.loop = started.result()

    @property
    def is_current(self) -> bool:
        """Whether this code runs in the thread, as a callback of a client does."""
        return threading.current_thread() is self._thread

    def call(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        keep: Callable[[T], object] | None = None,
        take: Callable[[], T | None] | None = None,
    ) -> T:
        """Run a coroutine function in the loop, and block this thread until it has ended.

        If ``take`` returns something, this is the result, and ``function`` is not called.
        """
        return Call(function, take).wait(self.loop, keep)

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop, outside of a task, and block this thread until it has ended."""
        return Call(None, function).wait(self.loop)

    def soon(self, function: Callable[[], object]) -> None:
        """Run a function in the loop, without waiting for it. Raises IllegalStateError if the loop has ended."""
        _soon(self.loop, function)

    # The clients; these methods run in the loop.

    def add(self, client: Closable) -> None:
        """Keep a client that starts, to close it at the exit of the interpreter."""
        self._clients.add(client)

    def remove(self, client: Closable) -> None:
        """Forget a client that is closed."""
        self._clients.discard(client)

    def close_soon(self, client: Closable) -> None:
        """Close a client that the program has dropped."""
        self.spawn(self._close(client))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that no thread waits for. It must not raise. The exit of the interpreter waits for its end."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close(self, client: Closable) -> None:
        try:
            await client.close()
        except Exception as error:  # noqa: BLE001 - no caller could get it
            logger.warning("%r failed while it was closed for the program: %r", client, error)
        self.remove(client)

    async def _close_all(self) -> None:
        await asyncio.gather(*map(self._close, list(self._clients)), *self._tasks)

    def end(self) -> None:
        """Close all clients, and end the thread. Called at the exit of the interpreter."""
        if not self._thread.is_alive():
            return
        self.call(self._close_all)
        self._portal.start_task_soon(self._portal.stop, True)
        self._thread.join(JOIN_TIMEOUT)


class _Process:
    """The thread of this process. The lock is free in a child, as ``forked`` replaces it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._has_ended = False
        forks.notify(self)

    def thread(self) -> LoopThread:
        """Return the thread, and start it if there is none. Raises IllegalStateError when the interpreter ends."""
        if self._thread is not None:
            return self._thread
        with self._lock:
            if self._has_ended:
                raise IllegalStateError(ENDED)
            if self._thread is None:
                self._thread = LoopThread()  # first: a signal handler may raise meanwhile
                atexit.register(self._end)
            return self._thread

    def forked(self) -> None:
        self._lock = threading.Lock()
        atexit.unregister(self._end)
        _of_parents.append(self._thread)
        self._thread = None

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()


_of_parents: list[object] = []
"""Threads of a forked process's parents: the garbage collector must not close their loops."""

_process = _Process()

loop_thread = _process.thread


class _Lookups(ThreadPoolExecutor):
    """The loop's threads for look-ups of addresses. At the exit of the interpreter, no thread can be started any more,
    and a look-up blocks the loop: records that are still to be sent may need a new connection."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[T] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - as in a thread
                done.set_exception(error)
            return done


def _run_loop(started: Future[tuple[BlockingPortal, asyncio.AbstractEventLoop]]) -> None:
    async def wait() -> None:
        async with BlockingPortal() as portal:
            started.set_result((portal, asyncio.get_running_loop()))
            await portal.sleep_until_stopped()

    try:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.set_default_executor(_Lookups(thread_name_prefix=f"{NAME}-lookup"))
            waiting = loop.create_task(wait(), name=NAME)
            while not waiting.done():
                _run(loop, waiting)
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(task)
    except (KeyboardInterrupt, SystemExit) as error:
        # Code of the program, such as a handler that calls ``sys.exit``, has raised it in a task. asyncio stops the
        # loop then, but the clients of other threads need it, and the task's own result is the exception.
        logger.warning("%r left the event loop of the blocking clients, which runs on", error)


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop is closed
        raise IllegalStateError(ENDED) from None

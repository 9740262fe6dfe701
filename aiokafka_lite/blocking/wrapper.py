"""The base of all blocking classes: each has an object of the asyncio client, and runs its calls in the loop."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Never, ParamSpec, Protocol, Self, TypeVar

from .. import method_names
from ..aio import forks
from ..aio.component import NotCopyable
from ..errors import IllegalStateError
from .loop_thread import Closable, LoopThread, loop_thread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

CLIENTS = ("Admin", "Consumer", "ConsumerGroup", "Producer", "ShareConsumer")


class Blocking(NotCopyable):
    """An object of the asyncio client, whose calls block the thread that makes them.

    Any number of threads may call. A call raises what the asyncio call raises, and IllegalStateError in a thread that
    runs an event loop.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"<blocking {repr(self._inner).removeprefix('<')}"

    def _await(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function of the asyncio object."""
        return self._thread().call(partial(function, *args, **kwargs))

    def _await_kept(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function, and close the asyncio object if the interpreter ends meanwhile.

        The interpreter does not wait for a daemon thread of the program.
        """
        thread, inner = self._thread(), self._inner

        async def run() -> T:
            thread.add(inner)
            try:
                return await function(*args, **kwargs)
            finally:
                thread.remove(inner)

        return thread.call(run)

    def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function of the asyncio object, which may be used in its loop alone. A callback may call it."""
        thread = loop_thread()
        if thread.is_current:
            return function(*args, **kwargs)
        check_thread(type(self).__name__, thread)
        return thread.run(partial(function, *args, **kwargs))

    def _read(self, name: str) -> Any:
        """Read an attribute of the asyncio object in its loop."""
        return self._run(getattr, self._inner, name)

    def _next(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        keep: Callable[[T], object] | None = None,
        take: Callable[[], T | None] | None = None,
    ) -> T:
        """Return the next item of an asynchronous iteration. Raises StopIteration at its end.

        ``keep`` gets the item of an interrupted call, in the loop. ``take`` returns an item that needs no wait.
        """
        try:
            return self._thread().call(function, keep, take)
        except StopAsyncIteration:
            raise StopIteration from None

    def _thread(self) -> LoopThread:
        """Return the thread of the loop. Raises IllegalStateError if the call would block an event loop."""
        thread = loop_thread()
        check_thread(type(self).__name__, thread)
        return thread


def check_thread(name: str, thread: LoopThread) -> None:
    """Raise IllegalStateError if a call of the class ``name`` would block an event loop that runs in this thread."""
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - the public function raises without a loop
        return
    if thread.is_current:
        raise IllegalStateError(
            f"a call of aiokafka_lite.blocking.{name} would block the event loop of the blocking clients: it was made "
            "in a callback, which runs in this loop; pass the work to a thread of the program"
        )
    if not _is_notebook():
        instead = f"aiokafka_lite.{name}" if name in CLIENTS else "the clients of aiokafka_lite itself"
        raise IllegalStateError(
            f"a call of aiokafka_lite.blocking.{name} would block the event loop that runs in this thread: use "
            f"{instead}, with await"
        )


def _is_notebook() -> bool:
    """Return whether a notebook runs here. Its kernel runs each cell in a loop, which a cell may block."""
    if (ipython := sys.modules.get("IPython")) is None:
        return False
    return hasattr(ipython.get_ipython(), "kernel")


def named_elsewhere(counterparts: Mapping[str, str]) -> Callable[[object, str], Never]:
    """Return the ``__getattr__`` of a class like that of its asyncio class, in the words of this package."""
    return method_names.named_elsewhere({name: _in_words_for_threads(text) for name, text in counterparts.items()})


def _in_words_for_threads(text: str) -> str:
    for words, replacement in (
        ("await the Delivery", "see Delivery.report"),
        ("await anext", "next"),
        ("await ", ""),
        ("async for", "for"),
    ):
        text = text.replace(words, replacement)
    return text


class Reading(Blocking, Generic[R]):
    """An object that reads, by calls that return records.

    If a read is interrupted when the loop has returned its records already, the next read has them.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._kept: deque[R] = deque()

    def _take(
        self, most: int, read: Callable[P, Coroutine[Any, Any, list[R]]], *args: P.args, **kwargs: P.kwargs
    ) -> list[R]:
        """Return up to ``most`` records of a read."""
        if self._kept:
            return [self._kept.popleft() for _ in range(min(most, len(self._kept)))]
        return self._thread().call(partial(read, *args, **kwargs), self._keep)

    def _take_next(self, read: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Return the next record of an iteration. Raises StopIteration at its end."""
        if self._kept:
            return self._kept.popleft()
        return self._next(read, lambda record: self._keep([record]))

    def _keep(self, records: Iterable[R]) -> None:
        """Keep the records of an interrupted read for the next one. Runs in the loop."""
        self._kept.extend(records)


class AsyncClient(Protocol):
    """An asyncio client, as its blocking counterpart sees it."""

    def start(self, timeout: float | None = None) -> Coroutine[Any, Any, None]: ...
    def close(self) -> Coroutine[Any, Any, None]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]: ...


class BlockingClient(Blocking):
    """A client that is started and closed: use it in ``with``, or call ``start`` and ``close``."""

    _inner: AsyncClient

    def __init__(self, inner: AsyncClient) -> None:
        Blocking.__init__(self, inner)
        self._started: LoopThread | None = None
        self._process = 0  # the generation of the process in which the client was started

    def __enter__(self) -> Self:
        self._begin(self._inner.start, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._inner.__aexit__, kind, error, traceback)

    def _closable(self) -> Closable:
        """Return what closes the client when the program does not."""
        return self._inner

    def _begin(self, start: Callable[[float | None], Coroutine[Any, Any, None]], timeout: float | None) -> None:
        """Start the client. It is kept until it is closed: its records are sent if the program drops it."""
        thread, closable = self._thread(), self._closable()

        async def begin() -> None:
            await start(timeout)
            thread.add(closable)

        # An interrupted caller has no started client, so it would never close one.
        thread.call(begin, keep=lambda _: thread.close_soon(closable))
        self._started, self._process = thread, forks.generation

    def _end(self, close: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Close the client."""
        thread, closable = self._thread(), self._closable()

        async def end() -> None:
            try:
                await close(*args, **kwargs)
            finally:
                thread.remove(closable)

        try:
            thread.call(end)
        finally:
            self._started = None

    def __del__(self) -> None:
        thread = getattr(self, "_started", None)  # the attribute is missing if the constructor raised
        if thread is None or self._process != forks.generation or sys.is_finalizing():
            return
        name = type(self).__name__
        warnings.warn(
            f"unclosed {name}: use it in 'with', or call its close()", ResourceWarning, source=self, stacklevel=2
        )
        with suppress(IllegalStateError):  # the loop has closed all clients
            thread.soon(partial(thread.close_soon, self._closable()))

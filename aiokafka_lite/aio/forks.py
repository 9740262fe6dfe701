"""What a forked process must leave alone: the tasks, the connections and the files of its parent.

A child has a copy of its parent's memory, and of its descriptors. Both processes would send on one connection, with one
producer id and one sequence of numbers, and a broker would drop records of one process as repetitions of the other.

Rule 1: A task continues only in the process that started it (``OwnProcess``). In a child that runs its parent's event
loop, the task waits for ever and never reaches its cleanup, which would leave the group or delete files.

Rule 2: A child's descriptors of connections, ports and files lead nowhere (``detach``). So the child neither reads nor
writes what its parent reads and writes, whichever code tries: not TLS that says goodbye, and not asyncio, which would
also remove the parent's descriptors from the epoll instance that both processes share. A port or a lock of the parent
is free as soon as the parent closes it, although the child lives on.

Rule 3: Every public call raises IllegalStateError in a child (``check_process``).

Nothing here takes time where records are sent: Python calls ``_forked`` in the child, before the child continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, CoroutineType, FrameType, TracebackType
from typing import Any, Protocol, TypeVar, cast

from ..errors import IllegalStateError

T = TypeVar("T")

generation: int = 0
"""How often this program forked on the way to this process. An object of another generation belongs to an ancestor."""


class Inherited(Protocol):
    """An object that must know when it is in a forked process."""

    def forked(self) -> None:
        """Use nothing of the parent any more. Runs in the child, before other code. Must not raise or wait."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def notify(owner: Inherited) -> None:
    """Call ``owner.forked()`` in each child that is forked while ``owner`` exists."""
    _inherited.add(owner)


def guard(connection: socket.socket) -> None:
    """Make the socket lead nowhere in each child."""
    _sockets.add(connection)


def text_of(component: object) -> str:
    """Return the error of a call in a forked process."""
    return (
        f"{component!r} belongs to another process: it was started before a fork; "
        "create and start a new one in each process, after the fork"
    )


def check_process(component: object, origin: int) -> None:
    """Raise IllegalStateError if this process was forked since the ``generation`` ``origin``."""
    if origin != generation:
        raise IllegalStateError(text_of(component))


class OwnProcess(Coroutine[Any, Any, T]):
    """A coroutine for a task that stops where a fork met it, in the child (rule 1).

    There it waits for a future that is never done. A cancellation ends the task without the rest of its code.
    """

    __slots__ = ("_coroutine", "_generation")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = cast("CoroutineType[Any, Any, T]", coroutine)
        self._generation = generation

    def send(self, value: Any) -> Any:
        if self._generation != generation:
            return self._wait_for_ever()
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        if self._generation != generation:
            _abandoned.append(self._coroutine)
            raise kind
        return self._coroutine.throw(kind)

    def close(self) -> None:
        if self._generation == generation:
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    # asyncio and anyio read these of a task's coroutine.

    @property
    def cr_code(self) -> CodeType:
        return self._coroutine.cr_code

    @property
    def cr_frame(self) -> FrameType | None:
        return self._coroutine.cr_frame

    @property
    def cr_running(self) -> bool:
        return self._coroutine.cr_running

    @property
    def cr_suspended(self) -> bool:
        return self._coroutine.cr_suspended

    @property
    def cr_await(self) -> Any:
        return self._coroutine.cr_await

    def _wait_for_ever(self) -> Any:
        _abandoned.append(self._coroutine)
        return next(iter(asyncio.get_running_loop().create_future()))


_abandoned: list[Coroutine[Any, Any, Any]] = []
"""Coroutines of the parent's tasks. A coroutine that is garbage-collected would run its cleanup."""


class _Nowhere:
    """Descriptors that take the place of inherited ones. Made when the first one is necessary."""

    def __init__(self) -> None:
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._port: socket.socket | None = None
        self._file: int | None = None

    def connection(self) -> int:
        """Open a connection to a peer that neither sends, nor reads, nor closes."""
        if self._pair is None:
            self._pair = socket.socketpair()
            self._pair[0].setblocking(False)
        return self._pair[0].fileno()

    def port(self) -> int:
        """Open a listening socket that nobody knows."""
        if self._port is None:
            self._port = socket.create_server(("127.0.0.1", 0))
            self._port.setblocking(False)
        return self._port.fileno()

    def file(self) -> int:
        """Open a file that is empty, and stays empty."""
        if self._file is None:
            self._file = os.open(os.devnull, os.O_RDWR)
        return self._file


_nowhere = _Nowhere()


def detach_connection(descriptor: int) -> None:
    """Make the descriptor of a connection lead nowhere, in a child."""
    if descriptor >= 0:
        os.dup2(_nowhere.connection(), descriptor, inheritable=False)


def detach_transport(transport: asyncio.BaseTransport) -> None:
    """Make the socket of a transport lead nowhere, in a child. A transport in memory has none."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        detach_connection(connection.fileno())


def detach_port(descriptor: int) -> None:
    """Make the descriptor of a listening socket lead nowhere, in a child."""
    if descriptor >= 0:
        os.dup2(_nowhere.port(), descriptor, inheritable=False)


def detach_server(server: asyncio.Server) -> None:
    """Make the ports of a server lead nowhere, in a child."""
    for port in server.sockets:
        detach_port(port.fileno())


def detach_file(descriptor: int) -> None:
    """Make the descriptor of a file lead nowhere, in a child. Releases the child's share of a lock."""
    if descriptor >= 0:
        os.dup2(_nowhere.file(), descriptor, inheritable=False)


CallLater = Callable[[float, Callable[[], object]], asyncio.TimerHandle]


def call_later(loop: asyncio.AbstractEventLoop) -> CallLater:
    """Return a function like ``loop.call_later``, whose callbacks do not run in a child."""
    origin = generation

    def run(function: Callable[[], object]) -> None:
        if origin == generation:
            function()

    return lambda delay, function: loop.call_later(delay, run, function)


def _forked() -> None:
    global _nowhere, generation
    generation += 1
    _nowhere = _Nowhere()
    for connection in list(_sockets):
        with contextlib.suppress(OSError):
            detach_connection(connection.fileno())
    for owner in list(_inherited):
        # RuntimeError: in debug mode, asyncio refuses to wake a task of a loop that runs in another thread.
        with contextlib.suppress(OSError, RuntimeError):
            owner.forked()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)

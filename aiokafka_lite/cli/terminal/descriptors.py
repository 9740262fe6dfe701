"""Standard input and output without blocking the event loop.

While a command waits for a pipe, signals can stop it and its group membership sends heartbeats.

The descriptors stay blocking. This process shares them with the shell, so a descriptor that is made non-blocking would
still be non-blocking in the shell after this process has ended.
"""

from __future__ import annotations

import asyncio
import io
import os
import queue
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar, cast

import anyio

from ...aio.light_event import result_of
from .run import is_broken_pipe

T = TypeVar("T")

READ_SIZE = 1 << 18

GRACE = 1.0
"""Seconds that a cancelled write may still take, so that a slow reader gets whole lines."""


class Reader:
    """Reads a descriptor, one ``read`` at a time.

    Where the event loop cannot wait for the descriptor, a thread reads: on Windows, and for the devices that kqueue
    refuses. The thread is a daemon and holds no lock, so a read that never ends does not keep the process alive.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._pending: asyncio.Future[bytes] | None = None  # of a thread; a cancelled call leaves it to the next one

    async def read(self) -> bytes:
        """Wait for bytes, and return all that are available; empty at the end. Cancelling loses no bytes."""
        # A read of a regular file does not block. epoll refuses such a file, and kqueue never reports its end.
        if self._is_file or (self._pending is None and await self._is_readable()):
            return os.read(self._descriptor, READ_SIZE)
        if self._pending is None:
            self._pending = _read_in_thread(self._descriptor)
        data = await result_of(self._pending)
        self._pending = None
        return data

    async def _is_readable(self) -> bool:
        """Wait until the descriptor is readable; return False at once if the event loop cannot wait for it."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _settle, readable, None, None)
        except (NotImplementedError, OSError):
            return False
        try:
            await readable
        finally:
            loop.remove_reader(self._descriptor)
        return True


def _read_in_thread(descriptor: int) -> asyncio.Future[bytes]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def run() -> None:
        data, error = b"", None
        try:
            data = _read_console() if _is_console(descriptor) else os.read(descriptor, READ_SIZE)
        except OSError as failure:
            error = failure
        with suppress(RuntimeError):  # the loop is closed, and no task waits for this read
            loop.call_soon_threadsafe(_settle, done, data, error)

    threading.Thread(target=run, name="reader", daemon=True).start()
    return done


def _is_console(descriptor: int) -> bool:
    return sys.platform == "win32" and os.isatty(descriptor)


def _read_console() -> bytes:
    """Read from the console of Windows, whose descriptor has another encoding than its stream, which has UTF-8."""
    raw = cast("io.BufferedReader", sys.stdin.buffer).raw
    return raw.read(READ_SIZE) or b""


def _write_console(data: memoryview) -> int:
    raw = cast("io.BufferedWriter", sys.stdout.buffer).raw
    return raw.write(data) or 0


@contextmanager
def while_read(descriptor: int) -> Iterator[None]:
    """Cancel the block and raise BrokenPipeError when the reader of a pipe closes it.

    A write reports this, too, but a command that waits for records writes nothing. On an event loop without
    ``add_reader``, such as the default one of Windows, only the next write reports the end.
    """
    with anyio.CancelScope() as scope:
        loop = asyncio.get_running_loop()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        if is_pipe:
            try:
                # The end of a pipe for writing is readable once it is broken.
                loop.add_reader(descriptor, scope.cancel)
            except (NotImplementedError, OSError):
                is_pipe = False
        try:
            yield
        finally:
            if is_pipe:
                loop.remove_reader(descriptor)
    if scope.cancelled_caught:
        raise BrokenPipeError("the reader has closed the pipe")


class Writer:
    """Writes pieces to a descriptor, in order, in a thread of its own.

    The thread is a daemon and holds no lock, so a write that is blocked by a full pipe does not keep the process alive.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._written: asyncio.Future[None] | None = None
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write a piece completely. Raises BrokenPipeError if the reader has closed the pipe.

        A cancelled call waits up to ``GRACE`` seconds for the end of the write; ``is_stuck`` then says that it did not
        end.
        """
        written = self._written = self._loop.create_future()
        self._work.put((data, written))
        try:
            await result_of(written)
        except asyncio.CancelledError:
            await asyncio.wait([written], timeout=GRACE)
            raise

    @property
    def is_stuck(self) -> bool:
        """Whether the last piece is not written yet, or failed."""
        written = self._written
        return written is not None and (not written.done() or written.exception() is not None)

    def _run(self) -> None:
        write = _write_console if _is_console(self._descriptor) else partial(os.write, self._descriptor)
        while True:
            data, written = self._work.get()
            error: OSError | None = None
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[write(rest) :]
            except OSError as failure:
                error = BrokenPipeError("the reader has closed the pipe") if is_broken_pipe(failure) else failure
            try:
                self._loop.call_soon_threadsafe(_settle, written, None, error)
            except RuntimeError:  # the loop is closed, and no task waits for this write
                return


def _settle(future: asyncio.Future[T], result: T, error: OSError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

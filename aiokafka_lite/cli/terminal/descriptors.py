"""Standard input and output without blocking the event loop.

While a command waits for a pipe, signals can stop it and its group membership sends heartbeats.

The descriptors stay blocking. This process shares them with the shell, so a descriptor that is made non-blocking would
still be non-blocking in the shell after this process has ended.
"""

from __future__ import annotations

import asyncio
import os
import queue
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from ...aio.light_event import result_of

READ_SIZE = 1 << 18

GRACE = 1.0
"""Seconds that a cancelled write may still take, so that a slow reader gets whole lines."""


async def read(descriptor: int) -> bytes:
    """Wait for bytes, and return all that are available; empty at the end. Cancelling loses no bytes."""
    await _until_readable(descriptor)
    return os.read(descriptor, READ_SIZE)


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _settle, readable, None)
    except PermissionError:
        # The selector refuses a regular file. No wait is needed, because a read of it does not block.
        return
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


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
            except NotImplementedError:
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
        while True:
            data, written = self._work.get()
            error = None
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError as failure:
                error = failure
            try:
                self._loop.call_soon_threadsafe(_settle, written, error)
            except RuntimeError:  # the loop is closed, and no task waits for this write
                return


def _settle(future: asyncio.Future[None], error: OSError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)

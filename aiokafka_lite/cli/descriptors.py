"""Standard input and output without a blocked event loop.

Whoever waits for a pipe can still be stopped, and a member of a group still sends its heartbeats.

Neither descriptor is made non-blocking: that would last beyond this process, and for the shell as well.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading

READ_SIZE = 1 << 18

GRACE = 1.0
"""Seconds that a write may take to end when the wait for it is cancelled. Somebody who reads on gets whole lines."""


async def read(descriptor: int) -> bytes:
    """What is there to read, waiting until something is; empty at the end. Nothing is lost when it is cancelled."""
    await _until_readable(descriptor)
    return os.read(descriptor, READ_SIZE)


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _settle, readable, None)
    except PermissionError:  # an ordinary file: the selector refuses it, and reading it does not wait
        return
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


class Writer:
    """Writes to a descriptor, one piece after the other, in a thread of its own.

    The thread is a daemon and holds no lock: one that is stuck in a pipe that nobody reads keeps nothing from ending.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._written: asyncio.Future[None] | None = None
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Return when all is written; BrokenPipeError when nobody reads any longer.

        When cancelled it waits a moment for the piece to be out; ``is_stuck`` tells that it was not.
        """
        written = self._written = self._loop.create_future()
        self._work.put((data, written))
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait([written], timeout=GRACE)
            raise

    @property
    def is_stuck(self) -> bool:
        """Whether a piece is not out yet, or never will be."""
        written = self._written
        return written is not None and (not written.done() or written.exception() is not None)

    def _run(self) -> None:
        while True:
            data, written = self._work.get()
            error = None
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError as failure:
                error = failure
            try:
                self._loop.call_soon_threadsafe(_settle, written, error)
            except RuntimeError:  # the loop is closed: the writer was given up
                return


def _settle(future: asyncio.Future[None], error: OSError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)

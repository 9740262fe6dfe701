"""Runs long calculations in threads, so that the event loop turns meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .virtual_time import VirtualTimeLoop

T = TypeVar("T")


class Calculations:
    """Runs functions that release the GIL, in the order of their start, in at most one thread for each CPU.

    The threads are its own: those of the event loop may all be busy with code that blocks. In virtual time, a function
    runs in the event loop, in the next turn: the clock would not wait for a thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads: ThreadPoolExecutor | None = None
        if not isinstance(self._loop, VirtualTimeLoop):
            self._threads = ThreadPoolExecutor(os.cpu_count() or 1, name)

    def start(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Start a function. It must change nothing that the event loop uses. Raises RuntimeError without a thread.

        A thread cannot be started in a system without room, after ``end``, and at the end of the program.
        """
        if self._threads is not None:
            return self._loop.run_in_executor(self._threads, function)
        result: asyncio.Future[T] = self._loop.create_future()
        self._loop.call_soon(_run, function, result)
        return result

    def end(self) -> None:
        """Cancel the functions that have not begun. Those that run are left alone."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _run(function: Callable[[], T], result: asyncio.Future[T]) -> None:
    if result.cancelled():
        return
    try:
        result.set_result(function())
    except Exception as error:  # noqa: BLE001 - the caller gets it
        result.set_exception(error)

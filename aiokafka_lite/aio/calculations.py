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
        self._name = name
        self._has_ended = False
        self._threads: ThreadPoolExecutor | None = None
        if not isinstance(self._loop, VirtualTimeLoop):
            self._threads = self._new_threads()

    def start(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Start a function. It must change nothing that the event loop uses. Raises RuntimeError without a thread.

        A thread cannot be started in a system without room, after ``end``, and at the end of the program. Then the
        functions that have not begun are cancelled, too. An error that no caller asks for is not logged.
        """
        if self._threads is None:
            result: asyncio.Future[T] = self._loop.create_future()
            self._loop.call_soon(_run, function, result)
        else:
            try:
                result = self._loop.run_in_executor(self._threads, function)
            except RuntimeError:
                # The executor keeps a function for which it could not start a thread, and all that the function holds.
                if not self._has_ended:
                    self._threads.shutdown(wait=False, cancel_futures=True)
                    self._threads = self._new_threads()
                raise
        result.add_done_callback(_observe)
        return result

    def end(self) -> None:
        """Cancel the functions that have not begun. Those that run are left alone."""
        self._has_ended = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _new_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count() or 1, self._name)


def _observe(result: asyncio.Future[T]) -> None:
    if not result.cancelled():
        result.exception()  # asyncio would log it if the caller has ended meanwhile


def _run(function: Callable[[], T], result: asyncio.Future[T]) -> None:
    if result.cancelled():
        return
    try:
        result.set_result(function())
    except Exception as error:  # noqa: BLE001 - the caller gets it
        result.set_exception(error)

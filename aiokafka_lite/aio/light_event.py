"""An event that takes less memory than asyncio's, 48 bytes instead of 850 while no task waits, and a shared future.

A client has twenty events, and tasks wait for few of them. It is the only event of the clients; the embedded broker and
the command line use asyncio's.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from .alarms import loop_alarms

T = TypeVar("T")


class LightEvent:
    """Works as ``asyncio.Event``, but ``wait`` returns None, and the event is not bound to a loop.

    It has no deque, and a list only while a task waits.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] | None = None

    def __repr__(self) -> str:
        return f"<LightEvent {'set' if self._is_set else 'not set'}, waiters={len(self._waiters or ())}>"

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all tasks that wait."""
        if self._is_set:
            return
        self._is_set = True
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Clear the event: from now on, tasks wait again."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the event is set. A task that was woken continues, even if the event was cleared meanwhile."""
        if self._is_set:
            return
        waiter = self._add_waiter()
        try:
            await waiter
        finally:
            self._remove(waiter)

    async def wait_until(self, when: float) -> bool:
        """Wait until the event is set, or until the loop's time ``when``. Return whether it is set."""
        if self._is_set:
            return True
        waiter = self._add_waiter()
        alarm = loop_alarms().at(when, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            alarm.call_off()
            self._remove(waiter)
        return self._is_set

    def _add_waiter(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        return waiter

    def _remove(self, waiter: asyncio.Future[None]) -> None:
        # ``set`` leaves the list as it is, so each waiter removes itself.
        assert self._waiters is not None, "a task waits"
        self._waiters.remove(waiter)
        if not self._waiters:
            self._waiters = None


async def result_of(future: asyncio.Future[T]) -> T:
    """Wait for the result of a future that others own; a cancelled caller leaves the future as it is.

    ``asyncio.shield`` does the same, but since Python 3.15 it reports the later error of a future whose waiter was
    cancelled to the event loop's exception handler, although another caller handles that error.
    """
    if not future.done():
        await asyncio.wait((future,))
    return future.result()

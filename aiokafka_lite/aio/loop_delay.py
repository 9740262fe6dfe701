"""The delay of an event loop: a timer that measures once a second how late it runs, one for all clients of the loop.

A blocked loop sends no heartbeats and reads no responses, and the errors that follow look like failures of brokers.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable

from . import forks

INTERVAL = 1.0
"""Seconds between two measurements."""

BLOCK = 1.0
"""The longest delay, in seconds, that does not count as a block."""

KEPT = 60
"""The number of measurements that are kept: one minute."""


class _LoopTimer:
    """The timer of one event loop. It runs while delays are measured. The loop and the ``LoopDelay`` objects own it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._generation = forks.generation
        self._callbacks: dict[Callable[[float], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether this is the timer of ``loop`` in this process. A new loop may have the identity of an old
        one."""
        return self._loop() is loop and self._generation == forks.generation

    def add(self, callback: Callable[[float], None]) -> None:
        self._callbacks[callback] = None
        if self._timer is None:
            self._measure_later(asyncio.get_running_loop())

    def remove(self, callback: Callable[[float], None]) -> None:
        self._callbacks.pop(callback, None)
        if not self._callbacks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + INTERVAL
        self._timer = forks.call_later(loop)(INTERVAL, self._measure)

    def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        delay = max(0.0, loop.time() - self._due)
        self._measure_later(loop)  # first, so that nothing in a call can end the measurement of the other clients
        for callback in tuple(self._callbacks):
            callback(delay)


_timers: weakref.WeakValueDictionary[int, _LoopTimer] = weakref.WeakValueDictionary()


def _timer_of(loop: asyncio.AbstractEventLoop) -> _LoopTimer:
    timer = _timers.get(id(loop))
    if timer is None or not timer.is_of(loop):
        timer = _timers[id(loop)] = _LoopTimer(loop)
    return timer


class LoopDelay:
    """Measures between ``start`` and ``stop``. Owned by one client. All clients of a loop share one timer.

    Measures nothing in a forked process, where the client and its listeners belong to the parent.
    """

    __slots__ = ("_listeners", "_longest", "_recent", "_timer", "blocked_time", "blocks")

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=KEPT)
        self._longest = 0.0
        self.blocks: int = 0
        """The number of delays of more than ``BLOCK`` seconds."""
        self.blocked_time: float = 0.0
        """The sum of these delays, in seconds."""
        self._timer: _LoopTimer | None = None
        self._listeners: list[Callable[[float], None]] = []

    def start(self) -> None:
        self._timer = _timer_of(asyncio.get_running_loop())
        self._timer.add(self._measure)

    def stop(self) -> None:
        """Stop measuring, and keep the measurements."""
        if self._timer is not None:
            self._timer.remove(self._measure)
            self._timer = None

    def on_measured(self, listener: Callable[[float], None]) -> None:
        """Call ``listener`` with each delay from now on. The loop was blocked for this time, or up to 1 s longer.

        An exception of the listener goes to the exception handler of the loop.
        """
        self._listeners.append(listener)

    @property
    def recent(self) -> tuple[float, ...]:
        """The delays of the last minute in seconds, the oldest first."""
        return tuple(self._recent)

    @property
    def longest(self) -> float:
        """The longest delay since the start, in seconds."""
        return self._longest

    def _measure(self, delay: float) -> None:
        self._recent.append(delay)
        self._longest = max(self._longest, delay)
        if delay > BLOCK:
            self.blocks += 1
            self.blocked_time += delay
        for listener in self._listeners:
            try:
                listener(delay)
            except Exception as error:  # noqa: BLE001 - the other listeners must be called
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a listener of the loop's delay failed", "exception": error}
                )

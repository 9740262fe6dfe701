"""The delay of an event loop: a timer that measures once a second how late it runs.

A blocked loop sends no heartbeats and reads no responses, and the errors that follow look like failures of brokers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

INTERVAL = 1.0
"""Seconds between two measurements."""

KEPT = 60
"""The number of measurements that are kept: one minute."""


class LoopDelay:
    """Measures between ``start`` and ``stop``. Owned by one client. Costs some microseconds a second."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=KEPT)
        self._longest = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[float], None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(INTERVAL, self._measure, loop, loop.time() + INTERVAL)

    def stop(self) -> None:
        """Stop measuring, and keep the measurements."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_measured(self, listener: Callable[[float], None]) -> None:
        """Call ``listener`` with each delay from now on. The loop was blocked for this time, or up to 1 s longer."""
        self._listeners.append(listener)

    @property
    def recent(self) -> tuple[float, ...]:
        """The delays of the last minute in seconds, the oldest first."""
        return tuple(self._recent)

    @property
    def longest(self) -> float:
        """The longest delay since the start, in seconds."""
        return self._longest

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        delay = max(0.0, loop.time() - due)
        self._recent.append(delay)
        self._longest = max(self._longest, delay)
        for listener in self._listeners:
            listener(delay)
        self._timer = loop.call_later(INTERVAL, self._measure, loop, loop.time() + INTERVAL)

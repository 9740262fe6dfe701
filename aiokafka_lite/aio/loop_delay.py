"""How late an event loop is: a timer that looks at its own lateness, once a second.

A loop that something blocks sends no heartbeats and reads no answers, and what follows looks like a trouble of brokers.
"""

from __future__ import annotations

import asyncio
from collections import deque

INTERVAL = 1.0
"""Seconds between two looks."""

KEPT = 60


class LoopDelay:
    """Owned by one client, between ``start`` and ``stop``; costs some microseconds a second."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=KEPT)
        self._longest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(INTERVAL, self._look, loop, loop.time() + INTERVAL)

    def stop(self) -> None:
        """Look no more; what was seen stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def recent(self) -> tuple[float, ...]:
        """Seconds of delay, the oldest first, of the last minute."""
        return tuple(self._recent)

    @property
    def longest(self) -> float:
        """The longest delay there ever was, in seconds."""
        return self._longest

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        delay = max(0.0, loop.time() - due)
        self._recent.append(delay)
        self._longest = max(self._longest, delay)
        self._timer = loop.call_later(INTERVAL, self._look, loop, loop.time() + INTERVAL)

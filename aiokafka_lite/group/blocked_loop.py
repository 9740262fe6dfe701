"""Warns when the event loop is blocked, because a member then sends no heartbeats and its session may end.

The delay of the loop is measured in any case, so a block is seen whatever the member waits for at that moment: the
next heartbeat, or the answer to the last one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from ..aio.loop_delay import LoopDelay

logger = logging.getLogger(__name__)

QUIET = 60.0
"""Seconds without another block after which a block is logged again. A program that often blocks would fill the log."""

NAMED = 1.0
"""Seconds of a block that are worth to be named as the cause of an eviction."""


class BlockedLoop:
    """Watches the event loop for one member. Owner: the task that sends its heartbeats.

    ``interval`` returns the seconds between two heartbeats: a shorter block is no reason for a warning.
    ``needs_heartbeats`` returns whether the member has a session now. ``consequence`` ends the warning.
    """

    def __init__(
        self,
        delay: LoopDelay,
        member: object,
        *,
        interval: Callable[[], float],
        needs_heartbeats: Callable[[], bool],
        consequence: str,
    ) -> None:
        self._delay = delay
        self._member = member
        self._interval = interval
        self._needs_heartbeats = needs_heartbeats
        self._consequence = consequence
        self._blocked_for = 0.0
        self._ended_at = self._warned_at = -math.inf  # the loop's time

    def watch(self) -> None:
        """Warn from now on, until the client closes."""
        self._delay.on_measured(self._measured)

    def was_blocked(self, *, since: float) -> bool:
        """Whether a block of more than a second ended after ``since`` (the loop's time)."""
        return self._ended_at > since

    def cause(self, *, since: float) -> str:
        """What a log line says about such a block; empty if there was none."""
        blocked = self.was_blocked(since=since)
        return f" after the event loop was blocked for {self._blocked_for:.1f} s" if blocked else ""

    def _measured(self, seconds: float) -> None:
        if seconds <= NAMED:
            return
        self._blocked_for, self._ended_at = seconds, asyncio.get_running_loop().time()
        if seconds <= self._interval() or not self._needs_heartbeats():
            return
        began = self._ended_at - seconds
        if began - self._warned_at > QUIET:
            logger.warning(
                "%r: the event loop was blocked for %.1f s and sent no heartbeat; %s",
                self._member,
                seconds,
                self._consequence,
            )
        self._warned_at = self._ended_at

"""Warns when the event loop is blocked, because a member then sends no heartbeats and its session may end.

The delay of the loop is always measured. So a block is detected both while the member waits for the time of the next
heartbeat and while it waits for an answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from ..aio.loop_delay import LoopDelay
from ..arguments import plural
from .heartbeat_thread import HeartbeatThread

logger = logging.getLogger(__name__)

QUIET = 60.0
"""Seconds without a block after which the next block is logged again, so that a program that often blocks does not fill
the log."""

NAMED = 1.0
"""The shortest block, in seconds, that a log line names as the cause of an eviction."""


class BlockedLoop:
    """Watches the event loop for one member. Owner: the task that sends its heartbeats.

    ``interval`` returns the seconds between two heartbeats: a shorter block causes no warning. ``needs_heartbeats``
    returns whether the member has a session now. ``consequence`` is the end of the warning's text. ``thread`` may have
    sent heartbeats meanwhile. ``confirm`` is called after each block that is long enough for a warning, also if it is
    not logged.
    """

    def __init__(
        self,
        delay: LoopDelay,
        member: object,
        *,
        interval: Callable[[], float],
        needs_heartbeats: Callable[[], bool],
        consequence: str,
        thread: HeartbeatThread,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self._delay = delay
        self._member = member
        self._interval = interval
        self._needs_heartbeats = needs_heartbeats
        self._consequence = consequence
        self._thread = thread
        self._confirm = confirm
        self._blocked_for = 0.0
        self._ended_at = self._warned_at = -math.inf  # the loop's time

    def watch(self) -> None:
        """Warn from now on, until the client closes."""
        self._thread.watch()
        self._delay.on_measured(self._measured)

    def was_blocked(self, *, since: float) -> bool:
        """Return whether a block of more than a second ended after ``since`` (the loop's time)."""
        return self._ended_at > since

    def cause(self, *, since: float) -> str:
        """Return the end of a log line about a block that ended after ``since``; empty if there was no such block."""
        blocked = self.was_blocked(since=since)
        return f" after the event loop was blocked for {self._blocked_for:.1f} s" if blocked else ""

    def _measured(self, seconds: float) -> None:
        if seconds <= NAMED:
            return
        self._blocked_for, self._ended_at = seconds, asyncio.get_running_loop().time()
        if seconds <= self._interval() or not self._needs_heartbeats():
            return
        self._confirm()
        began = self._ended_at - seconds
        sent = self._thread.take_count()
        if began - self._warned_at > QUIET and sent:
            logger.warning(
                "%r: the event loop was blocked for %.1f s; the heartbeat thread kept the session with %s",
                self._member,
                seconds,
                plural(sent, "heartbeat"),
            )
        elif began - self._warned_at > QUIET:
            logger.warning(
                "%r: the event loop was blocked for %.1f s and sent no heartbeat; %s",
                self._member,
                seconds,
                self._consequence,
            )
        self._warned_at = self._ended_at

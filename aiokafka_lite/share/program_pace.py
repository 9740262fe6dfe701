"""How fast the program reads, and whether it is too slow for the acquisition locks."""

from __future__ import annotations

import asyncio
import logging

from ..aio.pace import Pace
from ..settings.share import ShareConfig

logger = logging.getLogger(__name__)

FIRST = 16
"""Records of the first read. A program that takes a second for each of them needs half of the default lock."""

LOCK = 30.0
"""Seconds of a lock until a broker has told its own: ``share.record.lock.duration.ms`` of a new group."""

TURN = 0.02
"""Seconds that a program takes between two reads, after which a read yields to the event loop: renewals need it."""

SLOW_FOR = 2.0
"""Locks after which the program no longer counts as slow."""


class ProgramPace:
    """The reads of the program, and the time that it takes for the records. Owner: the ``ShareCore``."""

    def __init__(self, config: ShareConfig) -> None:
        self.lock_timeout: float | None = None
        """The seconds of the last acquisition lock; None before the first record."""
        self._config = config
        self._pace = Pace(FIRST)
        self._is_reading = False
        self._last_read_at: float | None = None  # the loop's time; None before the start
        self._max_records = 1  # of the present read
        self._slow_at: float | None = None  # when records did not reach the program in time; None after a while
        self._slow = ""

    @property
    def lock(self) -> float:
        """The seconds of a lock, as far as known."""
        return LOCK if self.lock_timeout is None else self.lock_timeout

    def start(self) -> None:
        """Begin to measure the time between reads."""
        self._last_read_at = asyncio.get_running_loop().time()

    def begin_read(self, max_records: int, *, may_renew: bool) -> bool:
        """Begin a read. Returns False if another task reads.

        The program may have a record for the time of a lock, or with ``may_renew``, of its renewals.
        """
        if self._is_reading:
            return False
        self._is_reading = True
        self._max_records = max_records
        window = max(self.lock, self._config.renew_locks_for) if may_renew else self.lock
        self._pace.begin_read(asyncio.get_running_loop().time(), window)
        return True

    def end_read(self) -> None:
        """End a read, which has returned records or has failed."""
        assert self._is_reading, "each read ends once"
        self._is_reading = False
        self._last_read_at = asyncio.get_running_loop().time()

    @property
    def must_yield(self) -> bool:
        """Whether the event loop needs a turn before the read that begins now, because the program may give it none."""
        return self._last_read_at is not None and asyncio.get_running_loop().time() - self._last_read_at > TURN

    @property
    def last_read_ago(self) -> float:
        """Seconds since the user last asked for records; 0 during a read, and before the start."""
        if self._is_reading or self._last_read_at is None:
            return 0.0
        from ..cluster.metrics import loop_time

        return loop_time() - self._last_read_at

    # Numbers of records.

    def most_acquired(self, fetchers: int) -> int:
        """Return how many records each of so many fetchers may acquire for the present read."""
        limit = self._config.max_fetch_records
        most = self._pace.most_acquired(self._max_records, self.lock, limit)
        # All fetchers acquire records for the same read.
        return max(1, most // fetchers) if most < limit else most

    def most_returned(self, max_records: int) -> int:
        """Return how many records the present read may return."""
        return self._pace.most_returned(max_records)

    def returned(self, count: int, now: float) -> None:
        """Record that the present read returns so many records."""
        self._pace.returned(count, now)

    def taken_within_lock(self, now: float) -> float:
        """Return the number of records that the program takes in the time of a lock."""
        return self._pace.taken_within(self.lock, now, self._max_records)

    # A slow program.

    def report_slow(self, what: str) -> None:
        """Record that records did not reach the program, or were not acknowledged, in time. Logs the first time."""
        now = asyncio.get_running_loop().time()
        is_new = self.slow_reason is None
        self._slow_at = now
        seconds = self._pace.seconds_per_record(now)
        self._slow = f"{what}: it takes {seconds:.3g} s a record, and a lock lasts {self.lock:g} s"
        if is_new:
            logger.warning(
                "share group %s: %s; process records faster or in more consumers, set a lower max_fetch_records, or "
                "raise share.record.lock.duration.ms of the group",
                *(self._config.group_id, self._slow),
            )

    @property
    def slow_reason(self) -> str | None:
        """What has lately kept the program from getting or acknowledging records in time; None if nothing."""
        if self._slow_at is None:
            return None
        from ..cluster.metrics import loop_time

        return self._slow if loop_time() - self._slow_at <= SLOW_FOR * self.lock else None

"""The pace of a program: how many records it may get at once, and how many are acquired for it. No I/O.

Brokers grant a time with records: the lock of a share group, the timeout of a transaction. Records that wait for longer
are lost for the program: each lock that ends costs a record one of its deliveries, and after the last one the brokers
archive it unseen; a transaction that is too slow is aborted, with all of its work. So a client gets no more records
than its program processes in a part of that time, its ``window``.

Rule 1: The first read, whose program is not known yet, is small.
Rule 2: A program that reads records one by one shows its pace: the seconds between two reads. They bound the records
        that are acquired ahead.
Rule 3: A program that reads many records in one call has all of them at once. Whether that was too many is seen by the
        seconds until its next read, and only then is the number lowered. A program that sleeps between its reads would
        otherwise get fewer records with each read, although it processes them at once.
"""

from __future__ import annotations

import math

GROWTH = 1_000
"""The largest factor by which the number of records grows from one read to the next."""


class Pace:
    """Owner: the client that reads. Times are times of the event loop's clock. ``first`` bounds the first read."""

    __slots__ = ("_allowed", "_average", "_count", "_first", "_returned_at", "last")

    def __init__(self, first: float) -> None:
        self._first = first
        self._allowed: float = first
        self._average: float | None = None  # a moving average of ``last``
        self.last: float = 0.0
        """The seconds for one record of the last read."""
        self._count = 0  # the records of the last read
        self._returned_at = 0.0

    def begin_read(self, now: float, window: float) -> None:
        """Measure the time since the last read. The program may have records for ``window`` seconds."""
        if not self._count:
            return
        took = max(now - self._returned_at, 1e-6)
        self.last = took / self._count
        self._average = self.last if self._average is None else (self._average + self.last) / 2
        if took <= window / 2:
            self._allowed = max(self._allowed, self._count * min(window / 2 / took, GROWTH))
        elif took > window * 3 / 4:
            self._allowed = max(1.0, self._count * window / 2 / took)
        self._count = 0

    def returned(self, count: int, now: float) -> None:
        """Record that a read has returned records to the program."""
        if count:
            self._count, self._returned_at = count, now

    def abandoned(self) -> None:
        """Record that the program has not processed the records of the last read, which shows no pace."""
        self._count = 0

    def seconds_per_record(self, now: float) -> float:
        """Return the seconds that the program takes for a record, including the present one; 0 if it is not known."""
        present = (now - self._returned_at) / self._count if self._count else 0.0
        return max(min(self._average or 0.0, self.last), present)

    def most_returned(self, max_records: int) -> int:
        """Return the number of records that a read for up to ``max_records`` records may return."""
        return max(1, int(min(max_records, self._allowed)))

    def most_acquired(self, max_records: int, lock: float, limit: int) -> int:
        """Return the number of records to acquire for a read for up to ``max_records`` records; at most ``limit``.

        Those that the read does not return wait for later reads, so they are what the program takes in half a lock.
        """
        ahead = self._first if self._average is None else lock / 2 / self._average
        return max(1, int(min(limit, max(self.most_returned(max_records), ahead))))

    def taken_within(self, seconds: float, now: float, max_records: int) -> float:
        """Return the number of records that the program takes in this time, in reads for up to ``max_records`` records.

        It is infinite if the pace is not known.
        """
        of_one = self.seconds_per_record(now)
        record_count = seconds / of_one if of_one else math.inf
        # A program that has not read for so long may never read again.
        will_read = now - self._returned_at <= seconds
        return max(record_count, self.most_returned(max_records)) if will_read else record_count

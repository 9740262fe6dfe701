"""Counters of the rebalances of a member."""

from __future__ import annotations

from collections import deque

from ..net.traffic import RequestCounters


class RebalanceCounters(RequestCounters):
    """The rebalances of one member. The task of its ``MemberRunner`` counts them.

    A rebalance begins when the member joins, and ends with an assignment. A rebalance that ends without an assignment
    has failed, even if the member begins the next rebalance at once. A retry of a request belongs to the same
    rebalance.
    """

    __slots__ = ("_began", "recent")

    def __init__(self) -> None:
        super().__init__()
        self.recent: deque[float] = deque(maxlen=6)
        """The loop's times at which the last rebalances began."""
        self._began: float | None = None

    def begin(self, now: float) -> None:
        """Begin a rebalance, because the member joins."""
        assert self._began is None, "the last rebalance has ended"
        self._began = now
        self.recent.append(now)

    def end(self, now: float) -> None:
        """End the rebalance with an assignment."""
        if self._began is not None:
            self.succeeded(self._began, now)
            self._began = None

    def fail(self) -> None:
        """End the rebalance without an assignment. Does nothing after ``end``."""
        if self._began is not None:
            self.failures += 1
            self._began = None

"""Counters of a membership and of its commits: counting is per request and per rebalance."""

from __future__ import annotations

from collections import deque

from ..net.traffic import Latencies


class RequestCounters:
    """One kind of request: the latencies of the successful ones, the failures, and the time of the last success."""

    __slots__ = ("failures", "last_success_at", "latencies")

    def __init__(self) -> None:
        self.latencies: Latencies = Latencies()
        self.failures: int = 0
        self.last_success_at: float | None = None
        """The loop's time of the last success."""

    def succeeded(self, began: float, now: float) -> None:
        """Count a success of the request that was sent at ``began``. Both are the loop's times."""
        self.latencies.add(now - began)
        self.last_success_at = now


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

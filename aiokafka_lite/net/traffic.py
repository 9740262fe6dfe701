"""Counters of the traffic between a client and each broker. Updates are cheap; a snapshot does the work."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .metrics import BrokerTraffic, LatencyMetrics, RequestMetrics

RECENT = 1_000
"""The number of latencies that are kept, of each broker and of each kind of work."""


class TrafficCounters:
    """The counters of one broker. Its connections update them, and they stay when the connections close."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connect_failures",
        "connects",
        "last_response_at",
        "latencies",
        "requests",
        "responses",
        "throttle_time",
    )

    def __init__(self) -> None:
        self.connects: int = 0
        self.connect_failures: int = 0
        self.requests: int = 0
        self.responses: int = 0
        self.bytes_sent: int = 0
        self.bytes_received: int = 0
        self.throttle_time: float = 0.0
        self.last_response_at: float | None = None  # the loop's time
        self.latencies: Latencies = Latencies()

    def include(self, traffic: BrokerTraffic) -> None:
        """Add the counts of another broker, but not its latencies."""
        self.connects += traffic.connects
        self.connect_failures += traffic.connect_failures
        self.requests += traffic.requests
        self.responses += traffic.responses
        self.bytes_sent += traffic.bytes_sent
        self.bytes_received += traffic.bytes_received
        self.throttle_time += traffic.throttle_time


class Latencies:
    """Counts durations in seconds, and keeps the last ``RECENT`` of them. A snapshot sorts them."""

    __slots__ = ("_recent", "count", "total")

    def __init__(self) -> None:
        self.count: int = 0
        self.total: float = 0.0
        self._recent: deque[float] | None = None  # made when it is needed: an empty one takes 760 bytes

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        if self._recent is None:
            self._recent = deque(maxlen=RECENT)
        self._recent.append(seconds)

    def at(self, *quantiles: float) -> list[float | None]:
        """Return the duration in seconds at each quantile, from 0 to 1; None if there are no durations."""
        ordered = sorted(self._recent or ())
        if not ordered:
            return [None] * len(quantiles)
        last = len(ordered) - 1
        return [ordered[min(last, int(quantile * len(ordered)))] for quantile in quantiles]

    def snapshot(self) -> LatencyMetrics:
        # Imported here: its dataclasses take a millisecond to import.
        from .metrics import LatencyMetrics

        return LatencyMetrics(self.count, self.total, *self.at(0.5, 0.99, 1.0))


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

    def snapshot(self, now: float) -> RequestMetrics:
        from .metrics import RequestMetrics

        ago = None if self.last_success_at is None else now - self.last_success_at
        return RequestMetrics(latency=self.latencies.snapshot(), failures=self.failures, last_success_ago=ago)

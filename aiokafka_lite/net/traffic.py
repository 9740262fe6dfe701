"""Counters of the traffic between a client and each broker, which cost next to nothing, and snapshots of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

RECENT = 1_000
"""The number of answers whose latencies are kept per broker."""


@dataclass(frozen=True, slots=True)
class BrokerTraffic:
    """The traffic with one broker, over all APIs and connections. Counters begin at 0 when the broker becomes known.

    ``node_id`` is negative for a bootstrap address. ``requests`` and ``bytes_sent`` count written requests, handshakes
    included; ``responses`` and ``bytes_received`` count the responses. ``requests_in_flight`` have no response yet.
    ``connects`` are attempts to connect, and ``connect_failures`` those of them that failed. Latencies are in seconds,
    from writing a request to its answer, over the last ``RECENT`` answers; None before the first one. They contain the
    time that a broker holds a Fetch or JoinGroup request on purpose. ``throttle_time`` is the sum, in seconds, of the
    pauses that the broker requested.
    """

    node_id: int
    address: str
    connections: int
    connects: int
    connect_failures: int
    requests: int
    requests_in_flight: int
    responses: int
    bytes_sent: int
    bytes_received: int
    latency_p50: float | None
    latency_p99: float | None
    latency_max: float | None
    throttle_time: float


class TrafficCounters:
    """The counters of one broker. Its connections count; they outlive the connections."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connect_failures",
        "connects",
        "latencies",
        "requests",
        "responses",
        "throttle_time",
    )

    def __init__(self) -> None:
        self.connects = 0
        self.connect_failures = 0
        self.requests = 0
        self.responses = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.throttle_time = 0.0
        self.latencies = Latencies()


class Latencies:
    """The last ``RECENT`` latencies. Each request costs one append; a snapshot sorts them."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        self._recent.append(seconds)

    def at(self, *shares: float) -> list[float | None]:
        """The latencies, in seconds, that these shares of the requests did not exceed; None if there are none."""
        ordered = sorted(self._recent)
        if not ordered:
            return [None] * len(shares)
        last = len(ordered) - 1
        return [ordered[min(last, int(share * len(ordered)))] for share in shares]

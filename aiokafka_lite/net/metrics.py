"""Snapshots of the traffic between a client and a broker. Imported at the first snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..snapshot import BYTES, SECONDS, Counter, Gauge, Snapshot


@dataclass(frozen=True, slots=True)
class LatencyMetrics(Snapshot):
    """Durations of requests or of other work, in seconds.

    ``count`` and ``total``, the sum, are over the life of the component. Percentiles and ``max`` are over the last
    ``RECENT`` durations, None before the first one.
    """

    count: int
    total: float
    p50: float | None
    p99: float | None
    max: float | None

    @property
    def average(self) -> float | None:
        """The average over the life of the component; None before the first duration."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics(Snapshot):
    """One kind of work for a group: commits, heartbeats or rebalances.

    ``latency`` counts the successful calls, and ``failures`` the failed ones. ``last_success_ago`` is in seconds, None
    before the first success.
    """

    latency: LatencyMetrics
    failures: int
    last_success_ago: float | None


@dataclass(frozen=True, slots=True)
class BrokerTraffic(Snapshot):
    """The traffic with one broker, over all APIs and connections. Counters begin at 0 when the broker becomes known.

    ``node_id`` is negative for a bootstrap address. ``requests`` and ``bytes_sent`` count written requests, handshakes
    included; ``responses`` and ``bytes_received`` count the responses. ``requests_in_flight`` have no response yet.
    ``connects`` are attempts to connect, and ``connect_failures`` the failed attempts. Latencies are in seconds, from
    writing a request to its answer, over the last ``RECENT`` answers; None before the first one. They include the time
    for which a broker holds a Fetch or JoinGroup request on purpose. ``latency_total`` is the sum of ``latency_count``
    latencies. ``throttle_time`` is the sum, in seconds, of the pauses that the broker requested.
    """

    node_id: int
    address: str
    connections: Annotated[int, Gauge("connections", "Open connections to the broker.")]
    connects: Annotated[int, Counter("connects", "Attempts to connect to the broker.")]
    connect_failures: Annotated[int, Counter("connect.failures", "Attempts to connect to the broker that failed.")]
    requests: Annotated[int, Counter("requests", "Requests to the broker.")]
    requests_in_flight: Annotated[int, Gauge("requests.in.flight", "Requests to the broker without a response.")]
    responses: int
    bytes_sent: Annotated[int, Counter("sent", "Size of the requests to the broker.", BYTES)]
    bytes_received: Annotated[int, Counter("received", "Size of the responses of the broker.", BYTES)]
    latency_p50: float | None
    latency_p99: Annotated[
        float | None, Gauge("request.latency.p99", "99th percentile of the times of the last 1,000 responses.", SECONDS)
    ]
    latency_max: Annotated[
        float | None, Gauge("request.latency.max", "Longest time of the last 1,000 responses.", SECONDS)
    ]
    throttle_time: Annotated[float, Counter("throttle.time", "Pauses that the broker requested.", SECONDS)]
    latency_count: Annotated[int, Counter("responses", "Responses of the broker, without responses to handshakes.")]
    latency_total: Annotated[
        float, Counter("request.time", "Sum of the times from requests to their responses.", SECONDS)
    ]

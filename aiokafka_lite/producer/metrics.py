"""What a producer has done so far and what it is doing: counters that cost next to nothing, and snapshots of them.

Counting is per batch and per request, never per record. Averages are over the producer's life; whoever wants those of
an interval takes two snapshots and divides what the counters have grown by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

RECENT = 1_000
"""Requests of a broker that its latencies are of."""


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """One broker, as a producer sees it.

    ``queued_bytes`` are closed batches that wait for the broker or for its answer. Latencies are in seconds, from
    writing a request to its answer, over the last `RECENT` answers; None before the first. ``throttle_time`` is how
    many seconds the broker has asked to be left alone for, in all.
    """

    node_id: int
    is_reachable: bool
    requests: int
    requests_in_flight: int
    queued_bytes: int
    latency_p50: float | None
    latency_p90: float | None
    latency_p99: float | None
    latency_max: float | None
    throttle_time: float


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """A producer at one moment. Bytes, counts and seconds; counters begin at 0 with the producer.

    ``buffered_bytes`` are what open, queued and unanswered batches hold of ``buffer_memory``, and ``senders_waiting``
    how many calls wait for room in it. ``records_sent``, ``batches_sent`` and ``bytes_sent`` count what went into
    requests, again for each retry; ``retries`` are batches that had to go again. A record that was accepted ends among
    ``records_delivered`` or ``records_failed``. Averages are None before the first request.
    """

    buffered_bytes: int
    buffer_memory: int
    senders_waiting: int
    batches_unsettled: int
    requests_in_flight: int
    requests_sent: int
    batches_sent: int
    records_sent: int
    bytes_sent: int
    records_delivered: int
    records_failed: int
    retries: int
    batch_size_average: float | None
    records_per_batch_average: float | None
    records_per_request_average: float | None
    throttle_time: float
    brokers: Mapping[int, BrokerMetrics]


class Counters:
    """What is counted as it happens, over all brokers. Owned by the router."""

    __slots__ = (
        "batches_sent",
        "bytes_sent",
        "records_delivered",
        "records_failed",
        "records_sent",
        "requests_sent",
        "retries",
    )

    def __init__(self) -> None:
        self.requests_sent = 0
        self.batches_sent = 0
        self.records_sent = 0
        self.bytes_sent = 0
        self.records_delivered = 0
        self.records_failed = 0
        self.retries = 0


class Latencies:
    """The last `RECENT` latencies: one append a request, sorted only when somebody asks."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        self._recent.append(seconds)

    def at(self, *shares: float) -> list[float | None]:
        """For each share of 1, the least latency that so many of the requests kept to."""
        ordered = sorted(self._recent)
        if not ordered:
            return [None] * len(shares)
        last = len(ordered) - 1
        return [ordered[min(last, int(share * len(ordered)))] for share in shares]


def average(total: int, count: int) -> float | None:
    """None of nothing."""
    return total / count if count else None

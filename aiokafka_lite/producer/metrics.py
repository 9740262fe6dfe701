"""Snapshots of a producer's counters.

Averages are over the producer's life. For the average of an interval, take two snapshots and divide the differences of
their counters. Imported at the first snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ..cluster.metrics import ClientMetrics
from ..snapshot import BYTES, SECONDS, Counter, Gauge, Pushed, Snapshot
from ..types import Node
from .counters import ProducerCounters


@dataclass(frozen=True, slots=True)
class SenderMetrics(Snapshot):
    """A producer's measurements of one broker.

    ``queued_bytes`` is the size of the sealed batches that wait for the broker or for its response. Latencies are in
    seconds, from writing a request to its answer, over the last 1,000 answers; None before the first answer.
    ``throttle_time`` is the sum of the throttle times in the broker's responses, in seconds.
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
class TransactionMetrics(Snapshot):
    """The transactions of a producer.

    ``state`` is the name of a state in docs/states.md, ``generation`` the generation of the protocol: 2 with KIP-890.
    ``coordinator`` is None while it is not known. ``open_for`` is the age of the open transaction in seconds, None if
    there is none, and ``partitions`` the number of its partitions. ``committed`` and ``aborted`` count transactions.
    """

    transactional_id: str
    state: str
    generation: int
    coordinator: Node | None
    open_for: Annotated[float | None, Gauge("open", "Age of the open transaction.", SECONDS)]
    partitions: int
    committed: Annotated[int, Counter("committed", "Transactions that were committed.")]
    aborted: Annotated[int, Counter("aborted", "Transactions that were aborted.")]


@dataclass(frozen=True, slots=True)
class ProducerMetrics(Snapshot):
    """A producer at one moment. Bytes, counts and seconds; counters begin at 0 with the producer.

    ``buffered_bytes`` is the part of ``buffer_memory`` that open, queued and unanswered batches use.
    ``senders_waiting`` is the number of calls that wait for room in ``buffer_memory``. ``records_sent``,
    ``batches_sent`` and ``bytes_sent`` count the content of requests, once more for each retry; ``retries`` counts
    batches that had to be sent again. Each accepted record is counted once at the end, in ``records_delivered`` or
    ``records_failed``. Averages are None before the first request. ``transactions`` is None without
    ``transactional_id``, and before the producer has started. ``client`` has the connections, the metadata and the
    event loop.
    """

    buffered_bytes: Annotated[int, Gauge("buffered", "Part of the buffer memory that is in use.", BYTES)]
    buffer_memory: Annotated[int, Gauge("buffer.memory", "Size of the buffer memory.", BYTES)]
    senders_waiting: Annotated[int, Gauge("senders.waiting", "Calls that wait for room in the buffer memory.")]
    batches_unsettled: Annotated[int, Gauge("batches.unsettled", "Batches that are neither delivered nor failed.")]
    requests_in_flight: int
    requests_sent: Annotated[int, Counter("requests", "Produce requests.")]
    batches_sent: Annotated[int, Counter("batches.sent", "Batches in requests. Each retry counts again.")]
    records_sent: Annotated[
        int,
        Counter("records.sent", "Records in requests. Each retry counts again."),
        Pushed("producer.record.send.total"),
    ]
    bytes_sent: Annotated[int, Counter("sent", "Size of the batches in requests. Each retry counts again.", BYTES)]
    records_delivered: Annotated[int, Counter("records.delivered", "Records that were acknowledged.")]
    records_failed: Annotated[
        int,
        Counter("records.failed", "Records that were accepted and not delivered."),
        Pushed("producer.record.error.total"),
    ]
    retries: Annotated[
        int, Counter("retries", "Batches that had to be sent again."), Pushed("producer.record.retry.total")
    ]
    batch_size_average: float | None
    records_per_batch_average: float | None
    records_per_request_average: float | None
    throttle_time: float
    brokers: Mapping[int, SenderMetrics]
    transactions: TransactionMetrics | None
    client: ClientMetrics


def average(total: int, count: int) -> float | None:
    return total / count if count else None


def snapshot(
    counters: ProducerCounters,
    brokers: dict[int, SenderMetrics],
    client: ClientMetrics,
    *,
    buffer_memory: int,
    buffered_bytes: int = 0,
    senders_waiting: int = 0,
    batches_unsettled: int = 0,
    transactions: TransactionMetrics | None = None,
) -> ProducerMetrics:
    """Return the current metrics: each counter, and the values computed from the counters."""
    return ProducerMetrics(
        **vars(counters),
        buffered_bytes=buffered_bytes,
        buffer_memory=buffer_memory,
        senders_waiting=senders_waiting,
        batches_unsettled=batches_unsettled,
        requests_in_flight=sum(broker.requests_in_flight for broker in brokers.values()),
        batch_size_average=average(counters.bytes_sent, counters.batches_sent),
        records_per_batch_average=average(counters.records_sent, counters.batches_sent),
        records_per_request_average=average(counters.records_sent, counters.requests_sent),
        throttle_time=sum(broker.throttle_time for broker in brokers.values()),
        brokers=brokers,
        transactions=transactions,
        client=client,
    )

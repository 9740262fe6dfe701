"""The instruments of the exporters: one table of names, units and meanings, and the samples of a snapshot.

Prometheus and OpenTelemetry derive their names from this table, and the page about metrics prints it. A latency becomes
a counter of the operations, a counter of their seconds, and gauges of the recent 99th percentile and maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ..cluster.metrics import ClientMetrics
from ..consumer.metrics import ConsumerMetrics, GroupMetrics
from ..processing.workers import WorkersMetrics
from ..producer.metrics import ProducerMetrics
from ..share.metrics import ShareConsumerMetrics

Measured = ProducerMetrics | ConsumerMetrics | ShareConsumerMetrics | ClientMetrics | WorkersMetrics
"""The snapshots that can be exported. ``ClientMetrics`` is the snapshot of an admin client."""

SECONDS, BYTES, NONE = "s", "By", ""
_SUFFIXES = {SECONDS: "_seconds", BYTES: "_bytes", NONE: ""}


@dataclass(frozen=True, slots=True)
class Instrument:
    """A counter or a gauge. ``unit`` is a unit of UCUM:

    ``s`` (seconds), ``By`` (bytes), or an empty string for a count.
    """

    name: str
    unit: str
    is_counter: bool
    description: str
    labels: tuple[str, ...]
    value_of: attrgetter[object]
    """Reads the value from the snapshot of the component that the labels name."""

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: ``kafka_consumer_fetch_time_seconds_total`` for ``consumer.fetch.time``."""
        return f"{self.family}{'_total' if self.is_counter else ''}"

    @property
    def family(self) -> str:
        """The name of the Prometheus metric family, without the suffix of a counter."""
        return f"kafka_{self.name.replace('.', '_')}{_SUFFIXES[self.unit]}"

    @property
    def opentelemetry_name(self) -> str:
        return f"kafka.{self.name}"


class Sample(NamedTuple):
    """A value of an instrument. ``labels`` are the values of the instrument's labels, in the same order."""

    instrument: Instrument
    labels: tuple[str, ...]
    value: float


class _Table:
    """The instruments of one kind of snapshot, whose names begin with ``prefix``."""

    def __init__(self, prefix: str, *labels: str) -> None:
        self.instruments: list[Instrument] = []
        self._prefix = prefix
        self._labels = ("client", *labels)

    def counter(self, name: str, field: str, description: str, unit: str = NONE) -> None:
        self._add(name, field, description, unit, is_counter=True)

    def gauge(self, name: str, field: str, description: str, unit: str = NONE) -> None:
        self._add(name, field, description, unit, is_counter=False)

    def latency(self, count: str, name: str, field: str, what: str) -> None:
        """Add the instruments of a ``LatencyMetrics``. ``count`` names the counter, ``name`` the durations."""
        self.counter(count, f"{field}.count", f"{what}.")
        self.counter(f"{name}.time", f"{field}.total", f"{what}: sum of their durations.", SECONDS)
        self.gauge(
            f"{name}.latency.p99", f"{field}.p99", f"{what}: 99th percentile of the last 1,000 durations.", SECONDS
        )
        self.gauge(f"{name}.latency.max", f"{field}.max", f"{what}: longest of the last 1,000 durations.", SECONDS)

    def samples(self, snapshot: object, *labels: str) -> Iterator[Sample]:
        """Yield the samples of a snapshot, without unknown values (None)."""
        for instrument in self.instruments:
            value = instrument.value_of(snapshot)
            if value is not None:
                yield Sample(instrument, labels, float(value))  # type: ignore[arg-type]

    def _add(self, name: str, field: str, description: str, unit: str, *, is_counter: bool) -> None:
        self.instruments.append(
            Instrument(f"{self._prefix}.{name}", unit, is_counter, description, self._labels, attrgetter(field))
        )


_PRODUCER = _Table("producer")
_PRODUCER.counter("records.sent", "records_sent", "Records in requests. Each retry counts again.")
_PRODUCER.counter("batches.sent", "batches_sent", "Batches in requests. Each retry counts again.")
_PRODUCER.counter("sent", "bytes_sent", "Size of the batches in requests. Each retry counts again.", BYTES)
_PRODUCER.counter("requests", "requests_sent", "Produce requests.")
_PRODUCER.counter("records.delivered", "records_delivered", "Records that were acknowledged.")
_PRODUCER.counter("records.failed", "records_failed", "Records that were accepted and not delivered.")
_PRODUCER.counter("retries", "retries", "Batches that had to be sent again.")
_PRODUCER.gauge("buffered", "buffered_bytes", "Part of the buffer memory that is in use.", BYTES)
_PRODUCER.gauge("buffer.memory", "buffer_memory", "Size of the buffer memory.", BYTES)
_PRODUCER.gauge("senders.waiting", "senders_waiting", "Calls that wait for room in the buffer memory.")
_PRODUCER.gauge("batches.unsettled", "batches_unsettled", "Batches that are neither delivered nor failed.")

_TRANSACTIONS = _Table("producer.transactions")
_TRANSACTIONS.counter("committed", "committed", "Transactions that were committed.")
_TRANSACTIONS.counter("aborted", "aborted", "Transactions that were aborted.")
_TRANSACTIONS.gauge("open", "open_for", "Age of the open transaction.", SECONDS)

_CONSUMER = _Table("consumer")
_CONSUMER.counter("records.consumed", "records_consumed", "Records that were returned to the program.")
_CONSUMER.counter(
    "consumed", "bytes_consumed", "Size of the batches of these records, as the brokers sent them.", BYTES
)
_CONSUMER.gauge("buffered", "buffered_bytes", "Fetched batches that are not unpacked yet.", BYTES)
_CONSUMER.latency("fetches", "fetch", "fetch_latency", "Fetch requests that were answered")
_CONSUMER.counter("fetch.failures", "fetch_failures", "Fetch requests without a response.")
_CONSUMER.gauge("records.lag.max", "lag_max", "Maximum of the lags of the assigned partitions.")

_PARTITION = _Table("consumer.partition", "topic", "partition")
_PARTITION.gauge("records.lag", "lag", "Offsets between the position and the end of the partition.")
_PARTITION.gauge("position", "position", "Offset of the next record to return.")
_PARTITION.counter(
    "records.consumed", "records_consumed", "Records of the partition that were returned to the program."
)
_PARTITION.gauge("buffered", "buffered_bytes", "Fetched batches of the partition that are not unpacked yet.", BYTES)

_COMMITS = _Table("consumer", "group")
_COMMITS.latency("commits", "commit", "commits.latency", "Requests that committed offsets")
_COMMITS.counter("commit.failures", "commits.failures", "Requests to commit offsets that failed or were refused.")

_MEMBER = _Table("consumer", "group")
_MEMBER.gauge("assigned.partitions", "assigned_partitions", "Partitions that the group has assigned to this member.")
_MEMBER.gauge("last.poll.ago", "last_poll_ago", "Time since the program last asked for records.", SECONDS)
_MEMBER.latency("rebalances", "rebalance", "rebalances.latency", "Rebalances that ended with an assignment")
_MEMBER.counter("rebalance.failures", "rebalances.failures", "Rebalances that ended without an assignment.")
_MEMBER.gauge("last.rebalance.ago", "rebalances.last_success_ago", "Time since the last rebalance.", SECONDS)
_MEMBER.latency("heartbeats", "heartbeat", "heartbeats.latency", "Heartbeats that renewed the session")
_MEMBER.counter("heartbeat.failures", "heartbeats.failures", "Heartbeats without an answer, or refused.")
_MEMBER.gauge("last.heartbeat.ago", "heartbeats.last_success_ago", "Time since the session was last renewed.", SECONDS)

_SHARE = _Table("share", "group")
_SHARE.gauge("assigned.partitions", "partitions_assigned", "Partitions that the group has assigned to this member.")
_SHARE.gauge("last.poll.ago", "last_poll_ago", "Time since the program last asked for records.", SECONDS)
_SHARE.counter("rebalances", "rebalances", "Changes of the partitions that are assigned to this member.")
_SHARE.counter("records.consumed", "records_consumed", "Records that were returned to the program.")
_SHARE.counter("records.acquired", "records_acquired", "Records that were acquired for this consumer.")
_SHARE.counter("records.redelivered", "records_redelivered", "Acquired records that had been delivered before.")
_SHARE.counter("records.expired", "records_expired", "Records whose lock ended before the program got them.")
_SHARE.counter("fetched", "bytes_fetched", "Size of the batches that were fetched.", BYTES)
_SHARE.gauge("records.buffered", "records_buffered", "Acquired records that the program has not got.")
_SHARE.gauge("records.in.flight", "records_in_flight", "Records that the program has got and not acknowledged.")
_SHARE.counter("records.accepted", "accepted", "Records that a broker has confirmed as accepted.")
_SHARE.counter("records.released", "released", "Records that a broker has confirmed as released.")
_SHARE.counter("records.rejected", "rejected", "Records that a broker has confirmed as rejected.")
_SHARE.counter("records.refused", "refused", "Records whose acknowledgement failed or was refused.")
_SHARE.counter("locks.renewed", "renewed", "Acquisition locks that were renewed.")
_SHARE.gauge("lock.timeout", "acquisition_lock_timeout", "Length of the last acquisition lock.", SECONDS)
_SHARE.latency("fetches", "fetch", "fetch_latency", "ShareFetch requests that were answered")
_SHARE.counter("fetch.failures", "fetch_failures", "ShareFetch requests without a response.")
_SHARE.latency("acknowledgements", "acknowledge", "acknowledge_latency", "ShareAcknowledge requests that were answered")
_SHARE.counter("acknowledge.failures", "acknowledge_failures", "ShareAcknowledge requests without a response.")
_SHARE.counter("sessions.opened", "sessions_opened", "Share sessions that were opened with brokers.")
_SHARE.counter("sessions.lost", "sessions_lost", "Share sessions that were lost, with all records of the broker.")
_SHARE.latency("heartbeats", "heartbeat", "heartbeats.latency", "Heartbeats that were answered")
_SHARE.counter("heartbeat.failures", "heartbeats.failures", "Heartbeats without an answer, or refused.")
_SHARE.gauge("last.heartbeat.ago", "heartbeats.last_success_ago", "Time since the last answer to a heartbeat.", SECONDS)

_WORKERS = _Table("workers")
_WORKERS.gauge("records.pending", "pending", "Records that were read and are not finished.")
_WORKERS.gauge("records.active", "active", "Records whose function runs now.")
_WORKERS.counter("records.processed", "processed", "Records whose function returned.")
_WORKERS.counter("records.failed", "failed", "Records whose last attempt failed.")
_WORKERS.counter("retries", "retries", "Attempts after the first one of a record.")

_CLIENT = _Table("client")
_CLIENT.gauge("connections", "connections", "Open connections.")
_CLIENT.gauge("outages", "outages", "Places, such as brokers, whose failures are being retried now.")
_CLIENT.gauge("metadata.age", "metadata_age", "Time since the last metadata.", SECONDS)
_CLIENT.gauge("last.response.ago", "last_response_ago", "Time since the last response of any broker.", SECONDS)
_CLIENT.gauge("loop.delay", "loop_delay", "Longest delay of the event loop in the last minute.", SECONDS)

_BROKER = _Table("client.broker", "broker")
_BROKER.gauge("connections", "connections", "Open connections to the broker.")
_BROKER.counter("connects", "connects", "Attempts to connect to the broker.")
_BROKER.counter("connect.failures", "connect_failures", "Attempts to connect to the broker that failed.")
_BROKER.counter("requests", "requests", "Requests to the broker.")
_BROKER.gauge("requests.in.flight", "requests_in_flight", "Requests to the broker without a response.")
_BROKER.counter("sent", "bytes_sent", "Size of the requests to the broker.", BYTES)
_BROKER.counter("received", "bytes_received", "Size of the responses of the broker.", BYTES)
_BROKER.counter("responses", "latency_count", "Responses of the broker, without responses to handshakes.")
_BROKER.counter("request.time", "latency_total", "Sum of the times from requests to their responses.", SECONDS)
_BROKER.gauge(
    "request.latency.p99", "latency_p99", "99th percentile of the times of the last 1,000 responses.", SECONDS
)
_BROKER.gauge("request.latency.max", "latency_max", "Longest time of the last 1,000 responses.", SECONDS)
_BROKER.counter("throttle.time", "throttle_time", "Pauses that the broker requested.", SECONDS)

_TABLES = (
    *(_PRODUCER, _TRANSACTIONS, _CONSUMER, _PARTITION, _COMMITS, _MEMBER),
    *(_SHARE, _WORKERS, _CLIENT, _BROKER),
)

INSTRUMENTS: Sequence[Instrument] = tuple(instrument for table in _TABLES for instrument in table.instruments)
"""All instruments. Each name is unique."""


def samples_of(snapshot: Measured, client: str) -> Iterator[Sample]:
    """Yield the samples of one snapshot. ``client`` is the value of the label ``client``."""
    match snapshot:
        case ProducerMetrics():
            yield from _PRODUCER.samples(snapshot, client)
            if snapshot.transactions is not None:
                yield from _TRANSACTIONS.samples(snapshot.transactions, client)
            yield from _samples_of_client(snapshot.client, client)
        case ConsumerMetrics():
            yield from _CONSUMER.samples(snapshot, client)
            for (topic, number), partition in snapshot.partitions.items():
                yield from _PARTITION.samples(partition, client, topic, str(number))
            if snapshot.group is not None:
                yield from _samples_of_group(snapshot.group, client)
            yield from _samples_of_client(snapshot.client, client)
        case ShareConsumerMetrics():
            yield from _SHARE.samples(snapshot, client, snapshot.group_id)
            yield from _samples_of_client(snapshot.client, client)
        case ClientMetrics():
            yield from _samples_of_client(snapshot, client)
        case WorkersMetrics():
            yield from _WORKERS.samples(snapshot, client)


def by_instrument(samples: Iterable[Sample]) -> Mapping[Instrument, list[Sample]]:
    """Return the samples by instrument, without instruments that have no sample."""
    found: dict[Instrument, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.instrument, []).append(sample)
    return found


def _samples_of_group(group: GroupMetrics, client: str) -> Iterator[Sample]:
    yield from _COMMITS.samples(group, client, group.group_id)
    if group.member is not None:
        yield from _MEMBER.samples(group.member, client, group.group_id)


def _samples_of_client(snapshot: ClientMetrics, client: str) -> Iterator[Sample]:
    yield from _CLIENT.samples(snapshot, client)
    for node_id, broker in snapshot.brokers.items():
        yield from _BROKER.samples(broker, client, str(node_id))

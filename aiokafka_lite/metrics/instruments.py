"""The instruments of the exporters, and the samples of a snapshot.

The fields of the snapshots declare them. Prometheus and OpenTelemetry derive their names from the declarations, and the
page about metrics prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ..cluster.metrics import ClientMetrics
from ..consumer.metrics import ConsumerMetrics, GroupMetrics, MemberMetrics, PartitionMetrics
from ..net.metrics import BrokerTraffic
from ..processing.workers import WorkersMetrics
from ..producer.metrics import ProducerMetrics, TransactionMetrics
from ..share.metrics import ShareConsumerMetrics
from ..snapshot import BYTES, NONE, SECONDS, Counter, Gauge, Latency, declarations

Measured = ProducerMetrics | ConsumerMetrics | ShareConsumerMetrics | ClientMetrics | WorkersMetrics
"""The snapshots that can be exported. ``ClientMetrics`` is the snapshot of an admin client."""

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
    """The instruments that a kind of snapshot declares. Their names begin with ``prefix``."""

    def __init__(self, kind: type, prefix: str, *labels: str) -> None:
        self.instruments: list[Instrument] = []
        self._prefix = prefix
        self._labels = ("client", *labels)
        for path, note in declarations(kind):
            if isinstance(note, Counter | Gauge):
                self._add(path, note)
            elif isinstance(note, Latency):
                for part, instrument in note.instruments():
                    self._add(f"{path}.{part}", instrument)

    def samples(self, snapshot: object, *labels: str) -> Iterator[Sample]:
        """Yield the samples of a snapshot, without unknown values (None)."""
        for instrument in self.instruments:
            value = instrument.value_of(snapshot)
            if value is not None:
                yield Sample(instrument, labels, float(value))  # type: ignore[arg-type]

    def _add(self, path: str, note: Counter | Gauge) -> None:
        name = f"{self._prefix}.{note.name}"
        is_counter = isinstance(note, Counter)
        self.instruments.append(
            Instrument(name, note.unit, is_counter, note.description, self._labels, attrgetter(path))
        )


_PRODUCER = _Table(ProducerMetrics, "producer")
_TRANSACTIONS = _Table(TransactionMetrics, "producer.transactions")
_CONSUMER = _Table(ConsumerMetrics, "consumer")
_PARTITION = _Table(PartitionMetrics, "consumer.partition", "topic", "partition")
_COMMITS = _Table(GroupMetrics, "consumer", "group")
_MEMBER = _Table(MemberMetrics, "consumer", "group")
_SHARE = _Table(ShareConsumerMetrics, "share", "group")
_WORKERS = _Table(WorkersMetrics, "workers")
_CLIENT = _Table(ClientMetrics, "client")
_BROKER = _Table(BrokerTraffic, "client.broker", "broker")

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
    by_kind: dict[Instrument, list[Sample]] = {}
    for sample in samples:
        by_kind.setdefault(sample.instrument, []).append(sample)
    return by_kind


def _samples_of_group(group: GroupMetrics, client: str) -> Iterator[Sample]:
    yield from _COMMITS.samples(group, client, group.group_id)
    if group.member is not None:
        yield from _MEMBER.samples(group.member, client, group.group_id)


def _samples_of_client(snapshot: ClientMetrics, client: str) -> Iterator[Sample]:
    yield from _CLIENT.samples(snapshot, client)
    for node_id, broker in snapshot.brokers.items():
        yield from _BROKER.samples(broker, client, str(node_id))

"""The metrics that clients push to brokers (KIP-714), under the names of Java's clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from operator import attrgetter

from ..snapshot import Pushed, Snapshot, declarations
from .metrics import ClientMetrics
from .otlp import Metric, MetricsReport

PREFIX = "org.apache.kafka."
"""The prefix of all metric names."""


def report_of(
    kind: str, snapshot: Snapshot, client: ClientMetrics, resource: Mapping[str, str], *more: Metric
) -> MetricsReport:
    """Return the report of a client; ``kind`` is ``producer`` or ``consumer``.

    ``more`` are metrics that no single field has.
    """
    return MetricsReport([*_client_report(kind, client), *_pushed(snapshot), *more], resource)


def _client_report(kind: str, client: ClientMetrics) -> Iterator[Metric]:
    """Yield the metrics of the connections; ``kind`` is ``producer`` or ``consumer``. Latencies are in milliseconds."""
    prefix = f"{PREFIX}{kind}."
    yield Metric(f"{prefix}connection.creation.total", client.connects, is_counter=True)
    for node_id, broker in client.brokers.items():
        if node_id >= 0 and broker.latency_count:
            node = (("node_id", str(node_id)),)
            average = broker.latency_total / broker.latency_count
            yield Metric(f"{prefix}node.request.latency.avg", average * 1000, attributes=node)
            yield Metric(f"{prefix}node.request.latency.max", (broker.latency_max or 0.0) * 1000, attributes=node)


def _pushed(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the metrics that the fields of a snapshot, and of the snapshots in it, declare as pushed."""
    kind: type = type(snapshot)
    for path, note in declarations(kind):
        if isinstance(note, Pushed):
            value = attrgetter(path)(snapshot)
            if value is not None:
                yield Metric(PREFIX + note.name, value * note.scale, is_counter=note.name.endswith(".total"))
    for field in fields(snapshot):  # type: ignore[arg-type]
        part = getattr(snapshot, field.name)
        if isinstance(part, Snapshot):
            yield from _pushed(part)

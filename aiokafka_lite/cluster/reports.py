"""The pushed metrics (KIP-714) that producers and consumers have in common."""

from __future__ import annotations

from collections.abc import Iterator

from ..net.metrics import LatencyMetrics
from .metrics import ClientMetrics
from .otlp import Metric

PREFIX = "org.apache.kafka."
"""The prefix of all metric names."""


def client_report(kind: str, client: ClientMetrics) -> Iterator[Metric]:
    """Yield the metrics of the connections; ``kind`` is ``producer`` or ``consumer``. Latencies are in milliseconds."""
    prefix = f"{PREFIX}{kind}."
    yield Metric(f"{prefix}connection.creation.total", client.connects, is_counter=True)
    for node_id, broker in client.brokers.items():
        if node_id >= 0 and broker.latency_count:
            node = (("node_id", str(node_id)),)
            average = broker.latency_total / broker.latency_count
            yield Metric(f"{prefix}node.request.latency.avg", average * 1000, attributes=node)
            yield Metric(f"{prefix}node.request.latency.max", (broker.latency_max or 0.0) * 1000, attributes=node)


def latency_report(name: str, latency: LatencyMetrics) -> Iterator[Metric]:
    """Yield the average and the maximum of some latencies, in milliseconds; ``name`` is the part before ``.avg``."""
    if latency.average is not None:
        yield Metric(f"{name}.avg", latency.average * 1000)
        yield Metric(f"{name}.max", (latency.max or 0.0) * 1000)

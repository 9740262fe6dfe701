"""The metrics that a producer pushes to brokers (KIP-714), under the names of Java's client."""

from __future__ import annotations

from ..cluster.otlp import Metric, MetricsReport
from ..cluster.reports import PREFIX, client_report
from .metrics import ProducerMetrics


def producer_report(metrics: ProducerMetrics) -> MetricsReport:
    """Return the current metrics."""
    counters = {
        "record.send.total": metrics.records_sent,
        "record.error.total": metrics.records_failed,
        "record.retry.total": metrics.retries,
    }
    transactions = metrics.transactions
    return MetricsReport(
        [
            *client_report("producer", metrics.client),
            *(Metric(f"{PREFIX}producer.{name}", value, is_counter=True) for name, value in counters.items()),
        ],
        {} if transactions is None else {"transactional_id": transactions.transactional_id},
    )

"""The metrics that a share consumer pushes to brokers (KIP-714), under the names of Java's share consumer."""

from __future__ import annotations

from ..cluster.otlp import Metric, MetricsReport
from ..cluster.reports import PREFIX, client_report, latency_report
from .metrics import ShareConsumerMetrics

_FETCHES = f"{PREFIX}consumer.share.fetch.manager."
_GROUP = f"{PREFIX}consumer.share.coordinator."


def share_consumer_report(metrics: ShareConsumerMetrics) -> MetricsReport:
    """Return the current metrics."""
    acknowledged = metrics.accepted + metrics.released + metrics.rejected + metrics.renewed
    counters = {
        f"{_FETCHES}fetch.total": metrics.fetch_latency.count,
        f"{_FETCHES}bytes.consumed.total": metrics.bytes_fetched,
        f"{_FETCHES}records.consumed.total": metrics.records_acquired,
        f"{_FETCHES}acknowledgements.send.total": acknowledged + metrics.refused,
        f"{_FETCHES}acknowledgements.error.total": metrics.refused,
        f"{_GROUP}heartbeat.total": metrics.heartbeats.latency.count,
        f"{_GROUP}rebalance.total": metrics.rebalances,
    }
    heartbeat = metrics.heartbeats
    gauges = {
        f"{PREFIX}consumer.share.last.poll.seconds.ago": metrics.last_poll_ago,
        f"{_GROUP}heartbeat.response.time.max": None if heartbeat.latency.max is None else heartbeat.latency.max * 1000,
        f"{_GROUP}last.heartbeat.seconds.ago": heartbeat.last_success_ago,
    }
    return MetricsReport(
        [
            *client_report("consumer", metrics.client),
            *(Metric(name, value, is_counter=True) for name, value in counters.items()),
            *(Metric(name, value) for name, value in gauges.items() if value is not None),
            *latency_report(f"{_FETCHES}fetch.latency", metrics.fetch_latency),
        ],
        {"group_id": metrics.group_id},
    )

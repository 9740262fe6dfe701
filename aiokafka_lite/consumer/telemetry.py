"""The metrics that a consumer pushes to brokers (KIP-714), under the names of Java's client."""

from __future__ import annotations

from collections.abc import Iterator

from ..cluster.otlp import Metric, MetricsReport
from ..cluster.reports import PREFIX, client_report, latency_report
from .metrics import ConsumerMetrics, GroupMetrics

_FETCHES = f"{PREFIX}consumer.fetch.manager."
_GROUP = f"{PREFIX}consumer.coordinator."


def consumer_report(metrics: ConsumerMetrics) -> MetricsReport:
    """Return the current metrics."""
    group = metrics.group
    return MetricsReport(
        [
            *client_report("consumer", metrics.client),
            *_fetches(metrics),
            *(() if group is None else _of_group(group)),
        ],
        {} if group is None else {"group_id": group.group_id},
    )


def _fetches(metrics: ConsumerMetrics) -> Iterator[Metric]:
    yield Metric(f"{_FETCHES}fetch.total", metrics.fetch_latency.count, is_counter=True)
    yield Metric(f"{_FETCHES}records.consumed.total", metrics.records_consumed, is_counter=True)
    yield Metric(f"{_FETCHES}bytes.consumed.total", metrics.bytes_consumed, is_counter=True)
    if metrics.lag_max is not None:
        yield Metric(f"{_FETCHES}records.lag.max", metrics.lag_max)
    yield from latency_report(f"{_FETCHES}fetch.latency", metrics.fetch_latency)


def _of_group(group: GroupMetrics) -> Iterator[Metric]:
    yield Metric(f"{_GROUP}commit.total", group.commits.latency.count, is_counter=True)
    yield from latency_report(f"{_GROUP}commit.latency", group.commits.latency)
    member = group.member
    if member is not None:
        rebalances = member.rebalances
        yield Metric(f"{_GROUP}assigned.partitions", member.assigned_partitions)
        yield Metric(f"{_GROUP}heartbeat.total", member.heartbeats.latency.count, is_counter=True)
        yield Metric(f"{_GROUP}rebalance.total", rebalances.latency.count, is_counter=True)
        yield Metric(f"{_GROUP}failed.rebalance.total", rebalances.failures, is_counter=True)
        yield Metric(f"{_GROUP}rebalance.latency.total", rebalances.latency.total * 1000, is_counter=True)
        yield from latency_report(f"{_GROUP}rebalance.latency", rebalances.latency)

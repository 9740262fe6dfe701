"""Metrics of the embedded brokers, near Kafka's BrokerTopicMetrics and ReplicaManager: ``cluster.metrics()``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from ..protocol.messages import REQUESTS
from ..snapshot import Snapshot
from .node import BrokerNode
from .replicas.broker_counters import TopicCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetrics(Snapshot):
    """The requests of clients for one topic. Replication between the brokers does not count.

    A request counts once for each of its partitions, and also if it fails. ``messages_in`` are the records that were
    appended, and ``bytes_in`` the size of their batches; ``bytes_out`` is the size of the batches in fetch responses.
    """

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics(Snapshot):
    """The requests of clients for one API, near Kafka's RequestMetrics.

    A time is in seconds of the event loop, from the arrival of a request until it was handled. So it contains waits for
    replicas and for data: a fetch without records takes up to ``fetch_max_wait``.
    """

    count: int = 0
    total_time: float = 0.0
    longest_time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics(Snapshot):
    """One broker. Counters begin at 0 with the cluster. ``requests`` are by the name of their API, such as "Fetch".

    ``produce_purgatory`` counts the requests that wait for replicas, ``fetch_purgatory`` for data. ``isr_expands`` and
    ``isr_shrinks`` count the changes of in-sync sets that this broker has proposed as the leader.
    ``under_replicated_partitions`` are led by this broker and have a replica out of sync. ``connections`` are the
    connections of clients.
    """

    topics: Mapping[str, TopicMetrics]
    requests: Mapping[str, RequestMetrics]
    produce_purgatory: int
    fetch_purgatory: int
    isr_expands: int
    isr_shrinks: int
    partitions: int
    leaders: int
    under_replicated_partitions: int
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetrics(Snapshot):
    """All brokers by their id, and the sums over the brokers for each topic."""

    brokers: Mapping[int, BrokerMetrics]
    topics: Mapping[str, TopicMetrics]


def cluster_metrics(nodes: Iterable[BrokerNode]) -> ClusterMetrics:
    brokers = {node.node_id: _of_broker(node) for node in nodes}
    names = sorted({name for broker in brokers.values() for name in broker.topics})
    topics = {
        name: _sum([broker.topics[name] for broker in brokers.values() if name in broker.topics]) for name in names
    }
    return ClusterMetrics(brokers=brokers, topics=topics)


def _of_broker(node: BrokerNode) -> BrokerMetrics:
    manager = node.replica_manager
    states = [partition.state for partition in manager.leading()]
    counters = manager.counters
    return BrokerMetrics(
        topics={name: _sum([topic]) for name, topic in counters.topics.items()},
        requests={
            REQUESTS[key].__name__.removesuffix("Request"): RequestMetrics(
                count=api.count, total_time=api.total_time, longest_time=api.longest_time
            )
            for key, api in sorted(counters.apis.items())
        },
        produce_purgatory=len(manager.produce_purgatory),
        fetch_purgatory=len(manager.fetch_purgatory),
        isr_expands=counters.isr_expands,
        isr_shrinks=counters.isr_shrinks,
        partitions=len(manager.partitions),
        leaders=len(states),
        under_replicated_partitions=sum(len(state.isr) < len(state.replicas) for state in states),
        connections=len(node.connections),
    )


def _sum(counted: Iterable[TopicCounters | TopicMetrics]) -> TopicMetrics:
    every = list(counted)
    return TopicMetrics(
        **{field.name: sum(getattr(one, field.name) for one in every) for field in fields(TopicMetrics)}
    )

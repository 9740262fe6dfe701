"""Producers for an embedded cluster, and the content of its logs."""

from __future__ import annotations

from random import Random
from typing import Any

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.protocol.records import RecordBatch
from aiokafka_lite.protocol.records.produced import single_batch


def producer_of(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    """Return a producer for the cluster, not started."""
    settings.setdefault("random", Random(1).random)
    return Producer(cluster.bootstrap_servers, connector=cluster.connector, **settings)


def batches_of(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[RecordBatch]:
    """Return the batches in the leader's log."""
    node = cluster.nodes[cluster.leader_of(topic, partition)]
    return [stored.view() for stored in node.replica_manager.require((topic, partition)).log.batches()]


def values_of(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values in the leader's log."""
    return [value for batch in batches_of(cluster, topic, partition) for value in batch.columns().values]


def batches_in(request: ProduceRequest) -> list[RecordBatch]:
    """Return the batches that a request carries."""
    return [
        single_batch(partition.records)
        for topic in request.topic_data
        for partition in topic.partition_data
        if partition.records is not None
    ]

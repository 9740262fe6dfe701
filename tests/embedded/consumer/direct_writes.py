"""Writing to the logs of an embedded cluster directly, including bytes that no broker would accept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.log.log import StoredBatch
from aiokafka_lite.embedded.replicas.partition import Partition
from aiokafka_lite.protocol.records import encode_batch, rewrite_header, split_batches
from aiokafka_lite.types import Record, TopicPartition
from tests.waiting import until

DEADLINE = 30.0


def consumer_of(cluster: EmbeddedCluster, **settings: Any) -> Consumer:
    """Return a consumer of the cluster, not started."""
    return Consumer(cluster.bootstrap_servers, connector=cluster.connector, **settings)


def leader(cluster: EmbeddedCluster, partition: TopicPartition) -> Partition:
    """Return the leader's replica."""
    return cluster.nodes[cluster.leader_of(*partition)].replica_manager.require(partition)


async def until_replicated(cluster: EmbeddedCluster, partition: TopicPartition) -> None:
    """Wait until every replica has all records and the high watermark of the leader."""
    first = leader(cluster, partition)
    replicas = [cluster.nodes[node].replica_manager.require(partition) for node in first.state.replicas]
    await until(
        lambda: all(replica.log.high_watermark == first.log.end_offset for replica in replicas),
        f"{partition} is replicated",
    )


def write_batch(cluster: EmbeddedCluster, partition: TopicPartition, data: bytes, *, damage: int | None = None) -> int:
    """Append a batch to the leader's log and return its offset; ``damage`` is a byte to flip, counted from the end."""
    replica = leader(cluster, partition)
    offset, epoch = replica.log.end_offset, replica.state.leader_epoch
    stored = bytearray(rewrite_header(data, offset, epoch))
    (batch,) = split_batches(bytes(stored))
    if damage is not None:
        stored[-damage] ^= 1
    replica.log.append(StoredBatch(offset, batch.last_offset, batch.max_timestamp, epoch, bytes(stored)))
    replica.try_advance_high_watermark()
    manager = cluster.nodes[replica.node_id].replica_manager
    manager.complete_delayed(replica.key)
    cluster.nodes[replica.node_id].in_sync.wake_followers(replica)
    return offset


def with_data(batch: StoredBatch, data: bytes) -> StoredBatch:
    """Return the same batch with other bytes."""
    return StoredBatch(batch.base_offset, batch.last_offset, batch.max_timestamp, batch.leader_epoch, data)


def write(cluster: EmbeddedCluster, partition: TopicPartition, values: Iterable[bytes | None], **settings: Any) -> int:
    """Write values as one batch, with timestamps a second apart, and return the first offset."""
    rows = [(1_000_000 + 1_000 * index, None, value, ()) for index, value in enumerate(values)]
    return write_batch(cluster, partition, encode_batch(rows, **settings))


def fill(cluster: EmbeddedCluster, partition: TopicPartition, count: int, batch_size: int = 10) -> None:
    """Write records whose values are their offsets."""
    for start in range(0, count, batch_size):
        write(cluster, partition, [b"%d" % offset for offset in range(start, min(count, start + batch_size))])


async def take(consumer: Consumer, count: int) -> list[Record]:
    """Return the next ``count`` records, one by one."""
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE):
        async for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records

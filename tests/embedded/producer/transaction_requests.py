"""Shared by tests of transactions: producers, requests of each generation, readers, and one whole transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.producer import TransactionMetrics
from aiokafka_lite.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import GroupMetadata
from tests.embedded.producer.producers_and_logs import producer_of

HERE = TopicPartition("t", 0)
THERE = TopicPartition("t", 1)
GROUP = GroupMetadata("billing")

generation_1 = pytest.mark.parametrize("generation", [1], indirect=True)
generation_2 = pytest.mark.parametrize("generation", [2], indirect=True)
_OF_BOTH: list[type[Request[Any]]] = [TxnOffsetCommitRequest, EndTxnRequest, ProduceRequest]
_OF_GENERATION_1: list[type[Request[Any]]] = [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest]
_REQUESTS = [
    *((2, request_type) for request_type in _OF_BOTH),
    *((1, request_type) for request_type in [*_OF_GENERATION_1, *_OF_BOTH]),
]
each_request = pytest.mark.parametrize(("generation", "request_type"), _REQUESTS, indirect=["generation"])
"""Each request of a transaction, in each generation that has it."""


async def use_generation(cluster: EmbeddedCluster, generation: int) -> None:
    """Make clients use a generation of the protocol, and create the topic ``t`` with two partitions."""
    if generation == 1:
        cluster.set_feature("transaction.version", 1)
    await cluster.create_topic("t", 2, 3)


def transactional(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    """Return a producer with a transactional id, not started."""
    return producer_of(cluster, **{"transactional_id": "orders-1", **settings})


def metrics_of(producer: Producer) -> TransactionMetrics:
    """Return the metrics of the producer's transactions."""
    metrics = producer.metrics().transactions
    assert metrics is not None
    return metrics


async def write(producer: Producer, number: int) -> None:
    """Write one transaction: a record in each partition, and an offset."""
    async with producer.transaction() as transaction:
        await transaction.send("t", b"%d" % number, partition=0)
        transaction.send_nowait("t", b"%d" % number, partition=1)
        await transaction.send_offsets({HERE: OffsetAndMetadata(number)}, GROUP)


async def committed_values(cluster: EmbeddedCluster, partition: TopicPartition = HERE) -> list[int]:
    """Return the values that a reader of committed records sees when no transaction is open."""
    reader = Consumer(cluster.bootstrap_servers, connector=cluster.connector)
    everything = Consumer(cluster.bootstrap_servers, connector=cluster.connector, isolation_level="read_uncommitted")
    async with reader, everything:
        async with asyncio.timeout(600):
            while (end := await reader.end_offsets([partition])) != await everything.end_offsets([partition]):
                await asyncio.sleep(0.05)
        reader.assign([partition])
        values: list[int] = []
        async with asyncio.timeout(60):
            while await reader.position(partition) < end[partition]:
                values += [int(record.value or b"-1") for record in await reader.poll(timeout=0.2)]
    return values


async def committed_offset(
    cluster: EmbeddedCluster, partition: TopicPartition = HERE, group_id: str = "billing"
) -> int | None:
    """Return the offset that the group has committed, by default for the first partition."""
    async with Consumer(cluster.bootstrap_servers, connector=cluster.connector, group_id=group_id) as consumer:
        offset = (await consumer.committed([partition]))[partition]
        return None if offset is None else offset.offset


async def check_three(cluster: EmbeddedCluster, numbers: list[int]) -> None:
    """Check that exactly these transactions of ``write`` are committed: both records, and the offset of the last."""
    assert await committed_values(cluster, HERE) == numbers
    assert await committed_values(cluster, THERE) == numbers
    assert await committed_offset(cluster) == numbers[-1]

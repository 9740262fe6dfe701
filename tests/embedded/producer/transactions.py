"""What tests of transactions share: an open cluster of a generation, readers, and one whole transaction."""

from __future__ import annotations

import asyncio

from aiokafka_lite import Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.types import GroupMetadata

HERE = TopicPartition("t", 0)
THERE = TopicPartition("t", 1)
GROUP = GroupMetadata("billing")


async def use_generation(cluster: EmbeddedCluster, generation: int) -> None:
    """Make clients use a generation of the protocol, and create the topic ``t`` with two partitions."""
    if generation == 1:
        cluster.set_feature("transaction.version", 1)
    await cluster.create_topic("t", 2, 3)


async def write(producer: Producer, number: int) -> None:
    """One transaction: a record in each partition, and an offset."""
    async with producer.transaction() as transaction:
        await transaction.send("t", b"%d" % number, partition=0)
        transaction.send_nowait("t", b"%d" % number, partition=1)
        await transaction.send_offsets({HERE: OffsetAndMetadata(number)}, GROUP)


async def committed_values(cluster: EmbeddedCluster, partition: TopicPartition = HERE) -> list[int]:
    """The values that a reader of committed records sees when no transaction is open."""
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


async def committed_offset(cluster: EmbeddedCluster) -> int | None:
    """The offset that the group has committed for the first partition."""
    async with Consumer(cluster.bootstrap_servers, connector=cluster.connector, group_id="billing") as consumer:
        found = (await consumer.committed([HERE]))[HERE]
        return None if found is None else found.offset

"""The records of transactions that readers see after a compaction, and while transactions end. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from tests.waiting import until

PARTITION = TopicPartition("accounts", 0)


def producer_of(cluster: EmbeddedCluster, name: str) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id=name, connector=cluster.connector)


def reader_of(cluster: EmbeddedCluster, isolation_level: str = "read_committed") -> Consumer[bytes, bytes]:
    return Consumer(
        cluster.bootstrap_servers,
        topics=[PARTITION.topic],
        isolation_level=isolation_level,  # type: ignore[arg-type]
        connector=cluster.connector,
    )


async def read_to_the_end(consumer: Consumer[bytes, bytes]) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values up to the end that the isolation level shows."""
    records: list[tuple[bytes | None, bytes | None]] = []
    while (await consumer.lag())[PARTITION]:
        records += [(record.key, record.value) for record in await consumer.poll(timeout=1.0)]
    return records


@pytest.mark.thorough
@pytest.mark.parametrize("compacted", [False, True])
async def test_a_compacted_log_shows_the_last_committed_value_of_each_key(
    cluster: EmbeddedCluster, compacted: bool
) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    }
    await cluster.create_topic("accounts", partitions=1, replication_factor=3, configs=settings)
    expected: dict[bytes, bytes | None] = {}
    async with producer_of(cluster, "a") as first, producer_of(cluster, "b") as second:
        for turn in range(40):
            for producer, name in ((first, b"a"), (second, b"b")):
                await producer.begin_transaction()
                for number in range(3):
                    key, value = b"%s-%d" % (name, number), None if turn == 30 else b"%d" % turn
                    await producer.send("accounts", value, key=key)
                    if turn % 3:
                        expected[key] = value
            await asyncio.sleep(1.0)  # longer than segment.ms
            for producer in (second, first):  # they overlap
                await (producer.commit_transaction() if turn % 3 else producer.abort_transaction())
    if compacted:
        await until(lambda: len(cluster.records("accounts")) == len(expected))
    async with reader_of(cluster) as consumer:
        records = await read_to_the_end(consumer)
        assert dict(records) == expected
        assert (await consumer.position(PARTITION)) == (await consumer.end_offsets([PARTITION]))[PARTITION]


async def test_lag_ends_at_the_first_record_of_the_oldest_open_transaction(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("accounts", partitions=1, replication_factor=3)
    async with (
        producer_of(cluster, "a") as first,
        producer_of(cluster, "b") as second,
        reader_of(cluster) as committed,
        reader_of(cluster, "read_uncommitted") as uncommitted,
    ):
        await first.begin_transaction()
        await first.send("accounts", b"open")
        async with second.transaction():
            await second.send("accounts", b"committed")
        assert [value for _, value in await read_to_the_end(uncommitted)] == [b"open", b"committed"]
        assert await committed.lag() == {PARTITION: 0}
        committed.pause()  # the leader is asked for the end now
        assert await committed.lag() == {PARTITION: 0}
        committed.resume()
        waiting = asyncio.create_task(committed.poll(timeout=60.0))
        await asyncio.sleep(10.0)
        assert not waiting.done()
        await first.commit_transaction()
        assert [record.value for record in await waiting] == [b"open", b"committed"]
        await until(lambda: committed.high_watermark(PARTITION) == 4)
        assert await read_to_the_end(committed) == []


async def test_a_marker_that_comes_late_delays_its_own_partition_only(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("accounts", partitions=2, replication_factor=3)
    async with producer_of(cluster, "a") as producer, reader_of(cluster) as consumer:
        with cluster.hold_markers("accounts", 0):
            await producer.begin_transaction()
            for number in range(2):
                await producer.send("accounts", b"%d" % number, partition=number)
            await producer.commit_transaction()
            assert [record.value for record in await consumer.poll(timeout=10.0)] == [b"1"]
            assert await consumer.poll(timeout=10.0) == []
        assert [record.value for record in await consumer.poll(timeout=10.0)] == [b"0"]

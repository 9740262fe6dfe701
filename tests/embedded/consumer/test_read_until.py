"""A bounded read: it stops at the ends, leaves the rest unread and uncommitted, and takes gaps and rebalances."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.consumer.interceptor import ConsumerInterceptor
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.log.log import StoredBatch
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.protocol.messages import FetchRequest
from aiokafka_lite.protocol.records import encode_batch, rewrite_header
from aiokafka_lite.types import Record
from tests.embedded.consumer.direct_writes import consumer_of, fill, leader
from tests.virtual import in_virtual_time
from tests.waiting import until

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def write(cluster: EmbeddedCluster, count: int, *, begin: int = 0) -> None:
    async with Producer(**cluster.client_settings()) as producer:
        for partition in (0, 1):
            values = [b"%d" % number for number in range(begin, begin + count)]
            await producer.send_many("orders", values, partition=partition)


def offsets(records: list[Record[Any, Any]]) -> dict[int, list[int]]:
    by_partition: dict[int, list[int]] = {0: [], 1: []}
    for record in records:
        by_partition[record.partition].append(record.offset)
    return by_partition


@in_virtual_time
async def test_it_returns_what_is_there_when_it_begins_and_stops() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        await write(cluster, 250)
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            read: list[Record[Any, Any]] = []
            reading = consumer.read_until(max_records=100)
            async for records in reading:
                if not read:
                    await write(cluster, 50, begin=250)
                assert len(records) <= 100
                assert len({record.partition for record in records}) == 1
                read += records
            assert offsets(read) == {0: list(range(250)), 1: list(range(250))}
            assert reading.ends == {FIRST: 250, SECOND: 250}
            assert [await consumer.position(partition) for partition in (FIRST, SECOND)] == [250, 250]
            assert {record.offset for record in await consumer.poll(timeout=1.0)} <= set(range(250, 300))


@in_virtual_time
async def test_runs_of_a_group_read_each_record_once_and_commit_up_to_the_end() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        seen: Counter[tuple[int, int]] = Counter()
        for run in range(3):
            await write(cluster, 40, begin=40 * run)
            async with Consumer(topics=["orders"], group_id="nightly", **cluster.client_settings()) as consumer:
                async for records in consumer.read_until():
                    seen.update((record.partition, record.offset) for record in records)
                    await write(cluster, 1)  # which belongs to the next run
                await consumer.commit()
                committed = await consumer.committed([FIRST, SECOND])
                positions = {partition: await consumer.position(partition) for partition in (FIRST, SECOND)}
                assert {partition: offset and offset.offset for partition, offset in committed.items()} == positions
        assert set(seen.values()) == {1}
        assert {partition for partition, _ in seen} == {0, 1}


@in_virtual_time
async def test_a_run_that_fails_leaves_its_last_list_to_the_next_run() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=1)
        async with Producer(**cluster.client_settings()) as producer:
            await producer.send_many("orders", [b"x"] * 10)
        settings: dict[str, Any] = {"topics": ["orders"], "group_id": "nightly", **cluster.client_settings()}
        with pytest.raises(RuntimeError):
            async with Consumer(**settings) as consumer:
                async for records in consumer.read_until(max_records=4):
                    if records[0].offset == 4:
                        raise RuntimeError
        async with Consumer(**settings) as consumer:
            lists = [[record.offset for record in records] async for records in consumer.read_until(max_records=4)]
        assert lists == [[4, 5, 6, 7], [8, 9]]


@in_virtual_time
async def test_given_ends_bound_single_partitions_and_the_others_are_not_read() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        await write(cluster, 100)
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            read = [record async for records in consumer.read_until({FIRST: 17}) for record in records]
            assert offsets(read) == {0: list(range(17)), 1: []}
            assert [records async for records in consumer.read_until({FIRST: 17, SECOND: 0})] == []
            read = [record async for records in consumer.read_until() for record in records]
            assert offsets(read) == {0: list(range(17, 100)), 1: list(range(100))}


@in_virtual_time
async def test_markers_and_aborted_records_at_the_end_are_passed() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=1)
        async with Producer(transactional_id="writer", **cluster.client_settings()) as producer:
            async with producer.transaction():
                await producer.send("orders", b"committed")
            with pytest.raises(RuntimeError):
                async with producer.transaction():
                    await producer.send_many("orders", [b"aborted"] * 3)
                    raise RuntimeError
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            values = [record.value async for records in consumer.read_until() for record in records]
            assert values == [b"committed"]
            assert await consumer.position(FIRST) == 6
            # The end is in the middle of the aborted records.
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            values = [record.value async for records in consumer.read_until({FIRST: 4}) for record in records]
            assert values == [b"committed"]


@in_virtual_time
async def test_a_seek_back_reads_a_partition_again_that_ended_with_a_gap() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=1)
        fill(cluster, FIRST, 10)
        log = leader(cluster, FIRST).log
        data = rewrite_header(encode_batch([(1_000_000, None, b"behind a gap", ())]), 20, 0)
        log.append(StoredBatch(20, 20, 1_000_000, 0, bytes(data)))  # as compaction leaves it
        leader(cluster, FIRST).try_advance_high_watermark()
        async with consumer_of(cluster, topics=["orders"]) as consumer:
            reading = consumer.read_until({FIRST: 15})
            assert [record.offset async for records in reading for record in records] == list(range(10))
            consumer.seek(FIRST, 8)
            assert [record.offset async for records in reading for record in records] == [8, 9]


@in_virtual_time
async def test_it_waits_for_records_before_the_end_and_a_cancelled_step_loses_none() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=1)
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            reading = consumer.read_until({FIRST: 2})
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5.0):
                    await anext(reading)
            async with Producer(**cluster.client_settings()) as producer:
                await producer.send_many("orders", [b"0", b"1", b"2"])
            assert [record.value async for records in reading for record in records] == [b"0", b"1"]


@in_virtual_time
async def test_a_broker_that_is_down_delays_it_and_no_record_is_lost() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        await write(cluster, 100)
        cluster.on(FetchRequest, times=5).disconnect()
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            read = [record async for records in consumer.read_until() for record in records]
        assert offsets(read) == {0: list(range(100)), 1: list(range(100))}


@in_virtual_time
async def test_a_partition_that_a_rebalance_takes_away_is_left_out() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        await write(cluster, 100)
        settings: dict[str, Any] = {"topics": ["orders"], "group_id": "nightly", **cluster.client_settings()}
        async with Consumer(**settings) as first, Consumer(**settings) as second:
            read: list[Record[Any, Any]] = []

            async def read_all(consumer: Consumer[bytes, bytes]) -> None:
                async for records in consumer.read_until(max_records=10):
                    read.extend(records)
                    await asyncio.sleep(1.0)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(read_all(first))
                await until(lambda: read and second.assignment)
                tasks.create_task(read_all(second))
        assert offsets(read) == {0: list(range(100)), 1: list(range(100))}


@in_virtual_time
async def test_deserializers_and_interceptors_apply() -> None:
    class Upper(ConsumerInterceptor):
        def on_consume(self, records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
            return [record._replace(value=record.value + "!") for record in records]

    async def decode(value: bytes) -> str:
        await asyncio.sleep(0.01)
        return value.decode()

    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=1)
        async with Producer(**cluster.client_settings()) as producer:
            await producer.send_many("orders", [b"a", b"b", b"c"])
        consumer: Consumer[bytes, str] = Consumer(
            topics=["orders"], value_deserializer=decode, interceptors=[Upper()], **cluster.client_settings()
        )
        async with consumer:
            read = [record.value async for records in consumer.read_until({FIRST: 2}) for record in records]
        assert read == ["a!", "b!"]


@in_virtual_time
async def test_wrong_arguments_and_a_closed_consumer_are_errors() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
            with pytest.raises(TypeError, match="ends"):
                consumer.read_until([FIRST])  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="end of orders-0"):
                consumer.read_until({FIRST: -1})
            with pytest.raises((TypeError, ValueError), match="max_records"):
                consumer.read_until(max_records=0)
            with pytest.raises(IllegalStateError, match="payments-0"):
                await anext(consumer.read_until({TopicPartition("payments", 0): 1}))
            consumer.partition("orders", 0)
            with pytest.raises(IllegalStateError, match="is read by the reader"):
                await anext(consumer.read_until())
        with pytest.raises(IllegalStateError, match="closed"):
            await anext(consumer.read_until())

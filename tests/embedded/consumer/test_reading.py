"""Records are returned once, in order and in turns, however they are read and whatever is cancelled."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.protocol.messages import FetchRequest
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Compression, Header, Record, TimestampType, TopicPartition
from tests.embedded.consumer.direct_writes import DEADLINE, consumer_of, fill, take, write, write_batch
from tests.waiting import until

FIRST = TopicPartition("orders", 0)


@pytest.fixture
async def partitions(cluster: EmbeddedCluster) -> list[TopicPartition]:
    """Six partitions on three brokers, with 100 records each."""
    await cluster.create_topic("orders", partitions=6)
    partitions = [TopicPartition("orders", number) for number in range(6)]
    for partition in partitions:
        fill(cluster, partition, 100)
    return partitions


def assert_each_once_and_in_order(records: list[Record], partitions: list[TopicPartition], count: int = 100) -> None:
    for partition in partitions:
        offsets = [record.offset for record in records if record.partition == partition.partition]
        assert offsets == list(range(count))
    assert len(records) == count * len(partitions)


async def test_every_record_comes_once_and_in_order(cluster: EmbeddedCluster, partitions: list[TopicPartition]) -> None:
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        records = await take(consumer, 600)
        assert_each_once_and_in_order(records, partitions)
        assert await consumer.poll(timeout=2.0) == []
        assert [await consumer.position(partition) for partition in partitions] == [100] * 6
        assert [consumer.high_watermark(partition) for partition in partitions] == [100] * 6


async def test_one_request_to_a_broker_asks_for_all_of_its_partitions(
    cluster: EmbeddedCluster, partitions: list[TopicPartition]
) -> None:
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        await take(consumer, 600)
    for node in cluster.nodes:
        first = cluster.history.of(FetchRequest, node=node)[0].request
        assert sum(len(topic.partitions) for topic in first.topics) == 2


async def test_partitions_take_turns(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=3)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    for partition in partitions:
        fill(cluster, partition, 5_000, batch_size=100)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        for partition in partitions:
            await until(lambda waiting=partition: consumer.metrics().partitions[waiting].buffered_bytes)  # type: ignore[misc]
        records = await take(consumer, 7_500)
    counts = [sum(record.partition == number for record in records) for number in range(3)]
    assert max(counts) - min(counts) <= 1_000


async def test_poll_returns_at_most_max_records(cluster: EmbeddedCluster, partitions: list[TopicPartition]) -> None:
    records: list[Record] = []
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        while len(records) < 600:
            polled = await consumer.poll(max_records=7, timeout=5.0)
            assert 0 < len(polled) <= 7
            records += polled
    assert_each_once_and_in_order(records, partitions)


@pytest.mark.parametrize("settings", [{}, {"value_deserializer": bytes.decode}], ids=["bytes", "deserialized"])
async def test_poll_may_be_limited_to_some_partitions(
    cluster: EmbeddedCluster, partitions: list[TopicPartition], settings: dict[str, Any]
) -> None:
    chosen, records = partitions[1:3], []
    async with consumer_of(cluster, topics=["orders"], **settings) as consumer:
        while len(records) < 200:
            records += await consumer.poll(30, timeout=5.0, partitions=chosen)
        assert_each_once_and_in_order(records, chosen)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await consumer.poll(timeout=2.0, partitions=chosen) == []  # although other partitions have records
        assert loop.time() - began == pytest.approx(2.0, abs=1e-6)
        while len(records) < 600:
            records += await consumer.poll(timeout=5.0)
    assert_each_once_and_in_order(records, partitions)


async def test_the_timeout_of_poll_is_a_hard_bound(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    loop = asyncio.get_running_loop()
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        for timeout in (0.0, 0.05, 3.0):
            began = loop.time()
            assert await consumer.poll(timeout=timeout) == []
            assert loop.time() - began == pytest.approx(timeout, abs=1e-6)


async def test_all_ways_of_reading_may_be_mixed(cluster: EmbeddedCluster, partitions: list[TopicPartition]) -> None:
    choice = random.Random(5)
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE), consumer_of(cluster, topics=["orders"]) as consumer:
        batches = aiter(consumer.batches(max_records=9))
        while len(records) < 600:
            match choice.randrange(4):
                case 0:
                    records.append(await anext(consumer))
                case 1:
                    records += await consumer.poll(max_records=5, timeout=1.0)
                case 2:
                    records += await anext(batches)
                case 3:
                    consumer.pause([choice.choice(partitions)])
                    consumer.resume()
    assert_each_once_and_in_order(records, partitions)


async def test_batches_are_columns_of_one_partition(cluster: EmbeddedCluster, partitions: list[TopicPartition]) -> None:
    records: list[Record] = []
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        async with asyncio.timeout(DEADLINE):
            async for batch in consumer.batches(max_records=25):
                assert 0 < len(batch) <= 25
                columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, batch.headers)
                assert {len(column) for column in columns} == {len(batch)}
                assert {record.partition for record in batch} == {batch.partition}
                records += batch
                if len(records) == 600:
                    break
    assert_each_once_and_in_order(records, partitions)


async def test_a_batch_waits_until_it_is_full_or_its_time_is_over(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    loop = asyncio.get_running_loop()
    async with consumer_of(cluster, topics=["orders"], fetch_max_wait=0.01) as consumer:
        write(cluster, FIRST, [b"a", b"b"])
        loop.call_later(1.0, write, cluster, FIRST, [b"c"])
        batches = aiter(consumer.batches(max_records=3, timeout=5.0))
        began = loop.time()
        assert len(await anext(batches)) == 3
        assert loop.time() - began < 1.5
        write(cluster, FIRST, [b"d"])
        began = loop.time()
        assert len(await anext(batches)) == 1
        assert loop.time() - began == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("compression", list(Compression))
async def test_each_compression_is_read(cluster: EmbeddedCluster, compression: Compression) -> None:
    await cluster.create_topic("orders")
    values = [b"%d" % number * 100 for number in range(50)]
    write(cluster, FIRST, values, compression=compression)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        assert [record.value for record in await take(consumer, 50)] == values


async def test_every_part_of_a_record_is_read(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    headers = (Header("a", b"1"), Header("a", None), Header("", b""))
    write_batch(cluster, FIRST, encode_batch([(5, b"key", b"value", headers), (6, None, None, ())]))
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        full, empty = await take(consumer, 2)
    assert full == Record("orders", 0, 0, 5, TimestampType.CREATE_TIME, b"key", b"value", headers, 0)
    assert empty == Record("orders", 0, 1, 6, TimestampType.CREATE_TIME, None, None, (), 0)


async def test_log_append_time_is_distinguished_from_create_time(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    data = encode_batch([(777, None, b"v", ())], timestamp_type=TimestampType.LOG_APPEND_TIME)
    write_batch(cluster, FIRST, data)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        (record,) = await take(consumer, 1)
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME


async def test_a_record_that_is_written_while_the_reader_waits_arrives_at_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    loop = asyncio.get_running_loop()
    async with consumer_of(cluster, topics=["orders"], fetch_max_wait=20.0) as consumer:
        assert await consumer.poll(timeout=1.0) == []
        loop.call_later(3.0, write, cluster, FIRST, [b"late"])
        began = loop.time()
        assert (await anext(consumer)).value == b"late"
        assert loop.time() - began == pytest.approx(3.0, abs=0.01)


async def test_a_cancelled_read_loses_nothing(cluster: EmbeddedCluster, partitions: list[TopicPartition]) -> None:
    """Each read is cancelled after a number of turns of the loop, so that every await is interrupted once."""
    records: list[Record] = []
    turns = 0
    async with consumer_of(cluster, topics=["orders"], max_partition_fetch_bytes=300) as consumer:
        batches = aiter(consumer.batches(max_records=4))
        while len(records) < 600:
            reads = [anext(consumer), consumer.poll(max_records=3, timeout=1.0), anext(batches)]
            for read in reads:
                task = asyncio.ensure_future(read)
                for _ in range(turns % 7):
                    await asyncio.sleep(0)
                turns += 1
                task.cancel()
                try:
                    result = await task
                except asyncio.CancelledError:
                    continue
                records += [result] if isinstance(result, Record) else list(result)
            await asyncio.sleep(0.001)
    assert_each_once_and_in_order(records, partitions)


async def test_several_consumers_share_a_loop_and_each_reads_all(
    cluster: EmbeddedCluster, partitions: list[TopicPartition]
) -> None:
    async def read() -> list[Record]:
        async with consumer_of(cluster, topics=["orders"]) as consumer:
            return await take(consumer, 600)

    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(read()) for _ in range(5)]
    for reading in reads:
        assert_each_once_and_in_order(reading.result(), partitions)


async def test_two_tasks_that_read_one_consumer_share_its_records(
    cluster: EmbeddedCluster, partitions: list[TopicPartition]
) -> None:
    records: list[Record] = []

    async def read(consumer: Consumer) -> None:
        while len(records) < 600:
            records.extend(await consumer.poll(max_records=10, timeout=0.5))

    async with consumer_of(cluster, topics=["orders"]) as consumer, asyncio.TaskGroup() as group:
        group.create_task(read(consumer))
        group.create_task(read(consumer))
    assert_each_once_and_in_order(sorted(records, key=lambda record: record.offset), partitions)


async def test_a_reader_that_never_waits_yields_to_other_tasks(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    fill(cluster, FIRST, 20_000, batch_size=500)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with consumer_of(cluster, topics=["orders"]) as consumer:
        while len(consumer._core.subscription.ready) == 0:
            await asyncio.sleep(0.001)
        counter = asyncio.ensure_future(count())
        await take(consumer, 20_000)
        counter.cancel()
    assert turns >= 9


# ---- lifetime


async def test_a_consumer_is_used_between_start_and_close_only(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    consumer = consumer_of(cluster, topics=["orders"])
    with pytest.raises(IllegalStateError):
        aiter(consumer)
    with pytest.raises(IllegalStateError):
        await consumer.poll()
    with pytest.raises(IllegalStateError):
        await consumer.end_offsets([FIRST])
    async with consumer:
        iterator = aiter(consumer)
    for call in (lambda: aiter(consumer), lambda: consumer.pause(), lambda: consumer.seek(FIRST, 0)):
        with pytest.raises(IllegalStateError):
            call()
    with pytest.raises(IllegalStateError):
        await anext(consumer)
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_close_ends_a_waiting_iteration_and_does_not_wait_for_the_long_poll(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    loop = asyncio.get_running_loop()
    async with consumer_of(cluster, topics=["orders"], fetch_max_wait=25.0) as consumer:
        seen: list[Record] = []

        async def read() -> None:
            seen.extend([record async for record in consumer])

        reading = asyncio.ensure_future(read())
        assert await consumer.poll(timeout=1.0) == []
        began = loop.time()
        await consumer.close()
        await reading
        assert loop.time() - began < 0.1
    assert seen == []


async def test_a_waiting_iteration_raises_the_failure_of_the_consumer(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")

    class Crash(Exception):
        pass

    async def crash() -> None:
        raise Crash

    consumer = consumer_of(cluster, topics=["orders"])
    await consumer.start()
    reading = asyncio.ensure_future(anext(consumer))
    await asyncio.sleep(1.0)
    consumer._service.start_child(crash)
    with pytest.raises(Crash):
        await reading
    with pytest.raises(Crash):
        await consumer.poll()
    with pytest.raises(Crash):
        await consumer.close()


def test_bad_settings_are_refused_by_the_constructor() -> None:
    with pytest.raises(ConfigurationError, match="topics must be a list of names, got 'orders'"):
        Consumer("localhost:9092", topics="orders")
    with pytest.raises(ConfigurationError, match=r"fetch_max_wait must be less than request_timeout=.*, got 30\.0"):
        Consumer("localhost:9092", fetch_max_wait=30.0)
    with pytest.raises(ConfigurationError, match="fetch_max_wiat"):
        Consumer("localhost:9092", fetch_max_wiat=1)  # type: ignore[call-arg]


async def test_a_read_of_one_record_does_not_pay_for_the_headers_of_its_batch(cluster: EmbeddedCluster) -> None:
    """The headers of the returned records count towards the number of records after which a read yields."""
    await cluster.create_topic("orders", partitions=1)
    headers = (Header("a", b"1"), Header("b", b"2"))
    write_batch(cluster, FIRST, encode_batch([(0, None, b"v", headers)] * 500))
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        assert len(await consumer.poll(1, timeout=5.0)) == 1
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(400):
            assert len(await consumer.poll(1)) == 1
        counting.cancel()
        assert turns <= 1


async def test_a_callback_that_fails_ends_a_read_that_waits(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        reading = asyncio.create_task(consumer.poll(timeout=60.0))
        await asyncio.sleep(1.0)
        consumer._core.on_callback_error(ValueError("the callback failed"))
        with pytest.raises(ValueError, match="the callback failed"):
            await asyncio.wait_for(reading, 1.0)
        assert await consumer.poll() == [], "it is raised once"

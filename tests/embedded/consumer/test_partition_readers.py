"""``Consumer.partition``: a reader of one partition, so that several tasks read one consumer at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer, PartitionReader
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import CorruptRecord, DeserializationError, IllegalStateError
from aiokafka_lite.protocol.messages import FetchRequest
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take, write, write_batch

FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster with a topic of three partitions, 100 records each."""
    await cluster.create_topic("orders", partitions=3)
    for partition in (FIRST, SECOND, THIRD):
        fill(cluster, partition, 100)
    return cluster


async def slow_int(data: bytes) -> int:
    await asyncio.sleep(0.01)
    return int(data)


async def collect(reader: PartitionReader[Any, Any], count: int) -> list[Any]:
    """Return the next values of a reader, one by one."""
    values: list[Any] = []
    async with asyncio.timeout(30.0):
        async for record in reader:
            assert TopicPartition(record.topic, record.partition) == reader.topic_partition
            values.append(record.value)
            if len(values) == count:
                break
    return values


@pytest.mark.parametrize("deserializer", [int, slow_int])
async def test_tasks_read_partitions_at_the_same_time_and_each_record_comes_once(
    orders: EmbeddedCluster, deserializer: Any
) -> None:
    async with consumer_of(orders, topics=["orders"], value_deserializer=deserializer) as consumer:
        readers = [consumer.partition("orders", number) for number in range(2)]
        read = asyncio.create_task(take(consumer, 100))
        first, second = await asyncio.gather(*(collect(reader, 100) for reader in readers))
        assert first == second == list(range(100))
        rest = await read
        assert [(record.partition, record.value) for record in rest] == [(2, number) for number in range(100)]
        assert readers[0].high_watermark == 100


async def test_two_tasks_that_deserialize_share_the_records_of_a_reader(orders: EmbeddedCluster) -> None:
    answered, waits = asyncio.Event(), asyncio.Event()
    is_cached = False

    async def ask(data: bytes) -> int:
        waits.set()
        await answered.wait()
        return int(data)

    def deserialize(data: bytes) -> Any:  # as for a schema that is in the cache later
        return int(data) if is_cached else ask(data)

    async with consumer_of(orders, value_deserializer=deserialize) as consumer:
        consumer.assign([FIRST, SECOND])
        reader, other = consumer.partition("orders", 0), consumer.partition("orders", 1)
        late = asyncio.create_task(anext(reader))
        await waits.wait()
        is_cached = True
        await anext(other)
        values = await collect(reader, 3)
        answered.set()
        values.append((await late).value)
        assert values + await collect(reader, 96) == list(range(100))


async def test_a_reader_polls_lists(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND])
        reader = consumer.partition("orders", 0)
        offsets = []
        while len(offsets) < 100:
            records = await reader.poll(max_records=7, timeout=5.0)
            assert 1 <= len(records) <= 7
            offsets += [record.offset for record in records]
        assert offsets == list(range(100))
        began = asyncio.get_running_loop().time()
        assert await reader.poll(timeout=2.0) == []
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.01)
        assert await reader.poll() == []
        write(orders, FIRST, [b"more"])
        assert [record.value for record in await reader.poll(timeout=5.0)] == [b"more"]


async def test_a_seek_a_pause_and_a_new_partition_take_effect_at_once(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        reader = consumer.partition("orders", 0)
        assert len(await collect(reader, 10)) == 10
        assert await consumer.position(FIRST) == 10
        consumer.seek(FIRST, 50)
        assert await collect(reader, 1) == [b"50"]
        consumer.pause([FIRST])
        assert await reader.poll(timeout=2.0) == []
        consumer.assign([FIRST, SECOND])
        consumer.resume([FIRST])
        assert await collect(reader, 1) == [b"51"]
        assert await collect(consumer.partition("orders", 0), 1) == [b"52"]
        assert {record.partition for record in await take(consumer, 100)} == {1}


async def test_a_reader_ends_with_the_assignment_of_its_partition(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND])
        reader = consumer.partition("orders", 0)
        await collect(reader, 100)
        waiting = asyncio.create_task(collect(reader, 1))
        await asyncio.sleep(1.0)
        consumer.assign([SECOND])
        assert await waiting == []
        with pytest.raises(IllegalStateError, match="orders-0 is not assigned to this consumer any more"):
            await reader.poll()
        with pytest.raises(IllegalStateError, match="orders-0 is not assigned"):
            consumer.partition("orders", 0)
        consumer.assign([FIRST])
        assert (await take(consumer, 1))[0].offset == 0  # the consumer's own read again


async def test_a_reader_ends_when_the_consumer_is_closed(orders: EmbeddedCluster) -> None:
    consumer: Consumer[Any, Any] = consumer_of(orders)
    consumer.assign([FIRST])
    reader = consumer.partition("orders", 0)
    async with consumer:
        await collect(reader, 100)
        waiting = asyncio.create_task(collect(reader, 1))
        await asyncio.sleep(1.0)
    assert await waiting == []
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    with pytest.raises(IllegalStateError, match="closed"):
        await reader.poll()


async def test_a_reader_raises_an_exception_of_on_offset_reset_once(orders: EmbeddedCluster) -> None:
    def refuse(*_: object) -> None:
        raise LookupError("my own")

    async with consumer_of(orders, on_offset_reset=refuse) as consumer:
        consumer.assign([FIRST])
        reader = consumer.partition("orders", 0)
        consumer.seek(FIRST, 1000)
        with pytest.raises(LookupError, match="my own"):
            await collect(reader, 300)
        consumer.seek(FIRST, 50)
        assert len(await collect(reader, 50)) == 50


async def test_a_damaged_batch_is_an_error_of_its_reader_alone(orders: EmbeddedCluster) -> None:
    offset = write_batch(orders, FIRST, encode_batch([(0, None, b"bad", ())] * 5), damage=3)
    write(orders, FIRST, [b"good"])
    async with consumer_of(orders, topics=["orders"]) as consumer:
        reader = consumer.partition("orders", 0)
        assert len(await collect(reader, 100)) == 100
        for _ in range(2):
            with pytest.raises(CorruptRecord) as caught:
                await collect(reader, 1)
            assert (caught.value.partition, caught.value.offset) == (0, offset)
        assert len(await take(consumer, 200)) == 200
        assert caught.value.next_offset is not None
        consumer.seek(FIRST, caught.value.next_offset)
        assert await collect(reader, 1) == [b"good"]


async def test_a_record_that_cannot_be_deserialized_is_an_error_of_its_reader(orders: EmbeddedCluster) -> None:
    write(orders, FIRST, [b"poison", b"100"])
    async with consumer_of(orders, topics=["orders"], value_deserializer=int) as consumer:
        reader = consumer.partition("orders", 0)
        assert len(await collect(reader, 100)) == 100
        with pytest.raises(DeserializationError, match="orders-0 at offset 100"):
            await collect(reader, 1)
        consumer.seek(FIRST, 101)
        assert await collect(reader, 1) == [100]


@pytest.mark.parametrize("deserializer", [None, slow_int])
async def test_a_cancelled_read_of_a_partition_loses_nothing(orders: EmbeddedCluster, deserializer: Any) -> None:
    orders.on(FetchRequest, times=None).delay(0.05)
    async with consumer_of(orders, value_deserializer=deserializer, max_partition_fetch_bytes=400) as consumer:
        consumer.assign([FIRST])
        reader = consumer.partition("orders", 0)
        offsets: list[int] = []
        turns = 0
        while len(offsets) < 100:
            reading = asyncio.create_task(reader.poll(max_records=3, timeout=60.0))
            turns = (turns + 1) % 40
            for _ in range(turns):
                await asyncio.sleep(0.002)
            reading.cancel()
            try:
                offsets += [record.offset for record in await reading]
            except asyncio.CancelledError:
                assert await consumer.position(FIRST) == len(offsets)
        assert offsets == list(range(100))


async def test_a_partition_with_a_reader_is_refused_elsewhere(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        with pytest.raises(IllegalStateError, match="orders-0 is not assigned"):
            consumer.partition("orders", 0)
        with pytest.raises(TypeError, match="partition must be"):
            consumer.partition("orders", "0")  # type: ignore[arg-type]
        consumer.assign([FIRST])
        reader = consumer.partition("orders", 0)
        with pytest.raises(IllegalStateError, match=r"orders-0 is read by the reader that partition\(\) returned"):
            await consumer.poll(partitions=[FIRST])
        with pytest.raises(ValueError, match="max_records"):
            await reader.poll(max_records=0)
        assert repr(reader).startswith("<PartitionReader orders-0 position=")
    async with consumer_of(orders, topics=["orders"], group_id="g") as member:
        with pytest.raises(IllegalStateError, match="ConsumerGroup"):
            member.partition("orders", 0)


async def test_marks_of_a_reader_are_committed(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, group_id="bookkeeping") as consumer:
        consumer.assign([FIRST])
        reader = consumer.partition("orders", 0)
        records = await reader.poll(max_records=5, timeout=5.0)
        assert len(records) == 5
        assert not (await consumer.commit()).committed
        assert not consumer.mark()  # another task could still process some of them
        assert not (await consumer.commit()).committed
        assert consumer.mark(records[3])
        assert (await consumer.commit()).committed[FIRST].offset == 4
        consumer.assign([SECOND])
        assert len(await consumer.poll(max_records=5, timeout=5.0)) == 5
        assert consumer.mark()
        assert (await consumer.commit()).committed[SECOND].offset == 5

"""A record goes into Kafka by our producer and comes back by our consumer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokafka_lite import KafkaError, Producer, TopicPartition
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.errors import OffsetOutOfRange
from aiokafka_lite.types import Header, TimestampType
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.read_topic import read, take
from tests.waiting import DEADLINE

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def skip_unless_spoken(kafka: Kafka, codec: str) -> None:
    if codec == "snappy":
        pytest.importorskip("cramjam")
    if codec == "zstd" and not kafka.speaks("2.1.0"):
        pytest.skip("Kafka has zstd since 2.1 (KIP-110)")


async def test_every_part_of_a_record_comes_back(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    headers = [Header("trace", b"\x00\xff"), Header("trace", b"again"), Header("empty", b""), Header("null", None)]
    async with Producer(kafka.bootstrap_servers) as producer:
        sent = await producer.send(
            topic, b"value", key=b"key", headers=headers, partition=1, timestamp=1_600_000_000_123
        )
    (record,) = await read(kafka, topic, 1)
    assert (record.topic, record.partition, record.offset) == (topic, 1, 0) == (sent.topic, sent.partition, sent.offset)
    assert (record.key, record.value, list(record.headers)) == (b"key", b"value", headers)
    assert (record.timestamp, record.timestamp_type) == (1_600_000_000_123, TimestampType.CREATE_TIME)
    assert sent.timestamp == 1_600_000_000_123
    assert (sent.serialized_key_size, sent.serialized_value_size) == (3, 5)


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
async def test_null_and_empty_are_different(kafka: Kafka, key: bytes | None, value: bytes | None) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(topic, value, key=key)
    (record,) = await read(kafka, topic, 1)
    assert (record.key, record.value) == (key, value)


async def test_a_record_gets_the_time_it_was_sent(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    before = time.time() * 1000
    async with Producer(kafka.bootstrap_servers) as producer:
        sent = await producer.send(topic, b"now")
    (record,) = await read(kafka, topic, 1)
    assert before - 1 <= record.timestamp <= time.time() * 1000
    assert record.timestamp == sent.timestamp
    assert record.timestamp_type is sent.timestamp_type is TimestampType.CREATE_TIME


async def test_log_append_time_is_the_brokers(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1, message_timestamp_type="LogAppendTime")
    async with Producer(kafka.bootstrap_servers) as producer:
        sent = await producer.send(topic, b"old", timestamp=1_000)
    (record,) = await read(kafka, topic, 1)
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert record.timestamp == sent.timestamp > 1_600_000_000_000
    assert sent.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", CODECS)
async def test_each_compression_comes_back(kafka: Kafka, codec: str) -> None:
    skip_unless_spoken(kafka, codec)
    topic = await kafka.create_topic(partitions=1)
    values = [b"%d " % number * 50 for number in range(200)]
    async with Producer(kafka.bootstrap_servers, compression=codec, linger=0.05) as producer:
        deliveries = [producer.send_nowait(topic, value) for value in values]
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == list(range(200))
    assert [record.value for record in await read(kafka, topic, 200)] == values


@pytest.mark.parametrize(("codec", "level"), [("gzip", None), ("lz4", 9), ("zstd", 6), ("zstd", None)])
async def test_records_of_mixed_sizes_keep_their_order_while_large_ones_are_compressed(
    kafka: Kafka, codec: str, level: int | None
) -> None:
    """The large ones are compressed in threads, except by zstd's fast default."""
    skip_unless_spoken(kafka, codec)
    topic = await kafka.create_topic(partitions=1)
    values = [b"%d " % number * (10, 100_000, 10, 30_000)[number % 4] for number in range(60)]
    settings: dict[str, Any] = {"compression": codec, "compression_level": level, "batch_size": 900_000}
    async with Producer(kafka.bootstrap_servers, **settings) as producer:
        deliveries = [await producer.put(topic, value) for value in values]
        assert [(await delivery).offset for delivery in deliveries] == list(range(60))
        assert producer.metrics().buffered_bytes == 0
    assert [record.value for record in await read(kafka, topic, 60)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_each_acks_delivers(kafka: Kafka, acks: int | str) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, acks=acks) as producer:  # type: ignore[arg-type]
        sent = [await producer.send(topic, b"%d" % number) for number in range(10)]
    assert [metadata.offset for metadata in sent] == ([-1] * 10 if acks == 0 else list(range(10)))
    assert [record.value for record in await read(kafka, topic, 10)] == [b"%d" % number for number in range(10)]


async def test_order_is_kept_in_each_partition_over_many_batches_in_flight(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=3)
    async with Producer(kafka.bootstrap_servers, batch_size=2_000) as producer:
        for number in range(6_000):
            producer.send_nowait(topic, b"%d" % number, key=b"%d" % (number % 50))
            if number % 500 == 0:
                await producer.drain()
        await producer.flush()
    records = await read(kafka, topic, 6_000)
    for partition in range(3):
        numbers = [int(record.value or b"") for record in records if record.partition == partition]
        assert numbers == sorted(numbers)
    assert sorted(int(record.value or b"") for record in records) == list(range(6_000))
    keys = {record.key: record.partition for record in records}
    assert all(keys[record.key] == record.partition for record in records)


async def test_flush_waits_for_what_was_queued(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, linger=60.0) as producer:
        delivery = producer.send_nowait(topic, b"waiting for company that will not come")
        async with asyncio.timeout(DEADLINE):
            await producer.flush()
        assert (await delivery).offset == 0


async def test_close_delivers_what_was_queued(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, linger=60.0) as producer:
        for number in range(100):
            producer.send_nowait(topic, b"%d" % number)
    assert len(await read(kafka, topic, 100)) == 100


async def test_one_producer_writes_to_many_topics_at_once(kafka: Kafka) -> None:
    topics = [await kafka.create_topic(partitions=2) for _ in range(4)]
    async with Producer(kafka.bootstrap_servers) as producer:
        await asyncio.gather(*(producer.send(topic, topic.encode()) for topic in topics for _ in range(5)))
    async with Consumer(kafka.bootstrap_servers, topics=topics) as consumer:
        records = await take(consumer, 20)
    assert sorted((record.topic, record.value) for record in records) == sorted(
        (topic, topic.encode()) for topic in topics for _ in range(5)
    )


async def filled(kafka: Kafka, count: int = 10, partitions: int = 1) -> str:
    """Return a topic whose records carry their number, and one second more of timestamp each."""
    topic = await kafka.create_topic(partitions=partitions)
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(
                topic, b"%d" % number, partition=number % partitions, timestamp=1_600_000_000_000 + number * 1000
            )
    return topic


async def test_a_consumer_reads_from_the_given_position(kafka: Kafka) -> None:
    topic = await filled(kafka)
    partition = TopicPartition(topic, 0)
    async with Consumer(kafka.bootstrap_servers) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 7)
        assert [record.offset for record in await take(consumer, 3)] == [7, 8, 9]
        assert await consumer.position(partition) == 10
        consumer.seek(partition, 2)
        assert [record.offset for record in await take(consumer, 2)] == [2, 3]
        await consumer.seek_to_beginning([partition])
        assert (await take(consumer, 1))[0].offset == 0
        await consumer.seek_to_end([partition])
        assert await consumer.position(partition) == 10
        assert await consumer.poll(max_records=1, timeout=0.3) == []


async def test_offsets_are_found_by_end_and_by_time(kafka: Kafka) -> None:
    topic = await filled(kafka)
    partition = TopicPartition(topic, 0)
    async with Consumer(kafka.bootstrap_servers) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}
        offsets = await consumer.offsets_for_times({partition: 1_600_000_003_500})
        position = offsets[partition]
        assert position is not None
        assert (position.offset, position.timestamp) == (4, 1_600_000_004_000)
        assert (await consumer.offsets_for_times({partition: 1_700_000_000_000}))[partition] is None


async def test_latest_sees_only_what_is_written_afterwards(kafka: Kafka) -> None:
    topic = await filled(kafka)
    partition = TopicPartition(topic, 0)
    async with (
        Producer(kafka.bootstrap_servers) as producer,
        Consumer(kafka.bootstrap_servers, auto_offset_reset="latest") as consumer,
    ):
        consumer.assign([partition])
        assert await consumer.position(partition) == 10
        await producer.send(topic, b"new")
        assert [record.value for record in await take(consumer, 1)] == [b"new"]


async def test_an_offset_outside_the_log_is_an_error_without_a_reset_policy(kafka: Kafka) -> None:
    topic = await filled(kafka)
    partition = TopicPartition(topic, 0)
    async with Consumer(kafka.bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000)
        with pytest.raises(OffsetOutOfRange, match=topic):
            await take(consumer, 1)


async def test_an_offset_outside_the_log_starts_again_where_the_policy_says(kafka: Kafka) -> None:
    topic = await filled(kafka)
    partition = TopicPartition(topic, 0)
    async with Consumer(kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000)
        assert (await take(consumer, 1))[0].offset == 0


async def test_a_paused_partition_is_silent_and_continues_where_it_stopped(kafka: Kafka) -> None:
    topic = await filled(kafka, count=20, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(kafka.bootstrap_servers) as consumer:
        consumer.assign([first, second])
        consumer.pause([second])
        assert {record.partition for record in await take(consumer, 10)} == {0}
        assert await consumer.poll(max_records=1, timeout=0.3) == []
        consumer.resume([second])
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))


async def test_records_come_one_by_one(kafka: Kafka) -> None:
    topic = await filled(kafka)
    values = []
    async with asyncio.timeout(DEADLINE), Consumer(kafka.bootstrap_servers, topics=[topic]) as consumer:
        async for record in consumer:
            values.append(record.value)
            if len(values) == 10:
                break
    assert values == [b"%d" % number for number in range(10)]


async def test_a_cancelled_wait_for_a_record_loses_none(kafka: Kafka) -> None:
    topic = await filled(kafka)
    async with (
        Producer(kafka.bootstrap_servers) as producer,
        Consumer(kafka.bootstrap_servers, topics=[topic]) as consumer,
    ):
        await take(consumer, 10)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(consumer)
        await producer.send(topic, b"after")
        async with asyncio.timeout(DEADLINE):
            assert (await anext(consumer)).value == b"after"


async def test_batches_are_bounded_and_complete(kafka: Kafka) -> None:
    topic = await filled(kafka, count=25)
    offsets: list[int] = []
    async with asyncio.timeout(DEADLINE), Consumer(kafka.bootstrap_servers, topics=[topic]) as consumer:
        async for batch in consumer.batches(max_records=10, timeout=1.0):
            assert len(batch) <= 10
            offsets += [record.offset for record in batch]
            if len(offsets) == 25:
                break
    assert offsets == list(range(25))


async def test_a_topic_of_many_partitions_is_read_whole(kafka: Kafka) -> None:
    topic = await filled(kafka, count=200, partitions=20)
    records = await read(kafka, topic, 200)
    assert sorted(int(record.value or b"") for record in records) == list(range(200))


async def test_a_value_larger_than_one_fetch_comes_back(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    values = [bytes([number]) * 700_000 for number in range(4)]
    async with Producer(kafka.bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value)
    records = await read(kafka, topic, 4, max_partition_fetch_bytes=1_000)
    assert [record.value for record in records] == values


async def test_a_codec_that_the_broker_lacks_is_an_error_that_names_it(kafka: Kafka) -> None:
    if kafka.speaks("2.1.0"):
        pytest.skip("this broker supports every codec")
    topic = await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, compression="zstd") as producer:
        with pytest.raises(KafkaError, match=r"(?i)zstd|compression"):
            await producer.send(topic, b"value")

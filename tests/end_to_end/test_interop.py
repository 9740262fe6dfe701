"""librdkafka and Kafka's console tools read our records, and we read theirs, in each compression."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest

from aiokafka_lite import Producer
from aiokafka_lite.types import Header
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.read_topic import DEADLINE, read
from tests.end_to_end.test_round_trip import CODECS, skip_unless_spoken


def librdkafka_writes(kafka: Kafka, topic: str, codec: str, pairs: list[tuple[bytes, bytes]]) -> None:
    settings = {"compression.type": codec, "linger.ms": 20, "partitioner": "murmur2_random", "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    for key, value in pairs:
        producer.produce(topic, value, key=key, headers=[("from", b"librdkafka"), ("null", None)])
    assert producer.flush(DEADLINE) == 0


def librdkafka_reads(kafka: Kafka, topic: str, count: int) -> list[confluent_kafka.Message]:
    settings = {"group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        messages: list[confluent_kafka.Message] = []
        while len(messages) < count:
            arrived = consumer.consume(count - len(messages), timeout=DEADLINE)
            assert arrived, f"nothing more came after {len(messages)} of {count}"
            assert not any(message.error() for message in arrived)
            messages += arrived
        return messages
    finally:
        consumer.close()


PAIRS = [(b"key-%d" % number, b"value %d " % number * 20) for number in range(300)]


@pytest.mark.parametrize("codec", CODECS)
async def test_librdkafka_reads_what_we_wrote(kafka: Kafka, codec: str) -> None:
    skip_unless_spoken(kafka, codec)
    topic = await kafka.create_topic(partitions=1)
    headers = [Header("from", b"us"), Header("null", None)]
    async with Producer(kafka.bootstrap_servers, compression=codec, linger=0.02) as producer:
        for key, value in PAIRS:
            producer.send_nowait(topic, value, key=key, headers=headers, timestamp=1_600_000_000_000)
        await producer.flush()
    messages = await asyncio.to_thread(librdkafka_reads, kafka, topic, len(PAIRS))
    assert [(message.key(), message.value()) for message in messages] == PAIRS
    assert {tuple(message.headers()) for message in messages} == {tuple(headers)}
    assert {message.timestamp() for message in messages} == {(1, 1_600_000_000_000)}


@pytest.mark.parametrize("codec", CODECS)
async def test_we_read_what_librdkafka_wrote(kafka: Kafka, codec: str) -> None:
    skip_unless_spoken(kafka, codec)
    topic = await kafka.create_topic(partitions=1)
    await asyncio.to_thread(librdkafka_writes, kafka, topic, codec, PAIRS)
    records = await read(kafka, topic, len(PAIRS))
    assert [(record.key, record.value) for record in records] == PAIRS
    assert {record.headers for record in records} == {(Header("from", b"librdkafka"), Header("null", None))}


async def test_a_key_lands_in_the_partition_where_other_clients_put_it(kafka: Kafka) -> None:
    ours, theirs = await kafka.create_topic(partitions=7), await kafka.create_topic(partitions=7)
    async with Producer(kafka.bootstrap_servers) as producer:
        for key, value in PAIRS:
            producer.send_nowait(ours, value, key=key)
        await producer.flush()
    await asyncio.to_thread(librdkafka_writes, kafka, theirs, "none", PAIRS)
    placed = [
        {record.key: record.partition for record in await read(kafka, topic, len(PAIRS))} for topic in (ours, theirs)
    ]
    assert placed[0] == placed[1]


async def test_the_console_consumer_reads_what_we_wrote_in_each_compression(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    written = []
    for codec in CODECS:
        if codec == "zstd" and not kafka.speaks("2.1.0"):
            continue
        async with Producer(kafka.bootstrap_servers, compression=codec, linger=0.02) as producer:
            for number in range(50):
                written.append(f"{codec} värde {number}")
                producer.send_nowait(topic, written[-1])
            await producer.flush()
    limits = ["--from-beginning", "--max-messages", str(len(written)), "--timeout-ms", str(int(DEADLINE * 1000))]
    output = await asyncio.to_thread(kafka.tool, "console-consumer", "--topic", topic, *limits)
    assert output.splitlines() == written


@pytest.mark.parametrize("codec", CODECS)
async def test_we_read_what_the_console_producer_wrote(kafka: Kafka, codec: str) -> None:
    skip_unless_spoken(kafka, codec)
    topic = await kafka.create_topic(partitions=1)
    lines = [f"värde {number}" for number in range(100)]
    arguments = ["--topic", topic, "--compression-codec", codec]
    await asyncio.to_thread(kafka.tool, "console-producer", *arguments, stdin="".join(f"{line}\n" for line in lines))
    records = await read(kafka, topic, 100)
    assert [record.value.decode() for record in records if record.value is not None] == lines

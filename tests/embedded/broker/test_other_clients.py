"""Other Kafka clients on the embedded cluster over TCP: every codec, every acks, and the records of other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.waiting import DEADLINE

COUNT = 60
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3) as started:
        await started.create_topic("t", 3, 3)
        yield started


def values(prefix: str) -> list[bytes]:
    return [f"{prefix}-{number}".encode() * 5 for number in range(COUNT)]


def confluent_produce(servers: str, prefix: str, **settings: object) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    failures = []
    producer = confluent.Producer({"bootstrap.servers": servers, "linger.ms": 1, **settings})
    for value in values(prefix):
        producer.produce("t", value, key=value, headers=[("h", b"1")], callback=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE) == 0
    assert failures == [None] * COUNT


def confluent_read(servers: str, count: int) -> list[bytes]:
    confluent = pytest.importorskip("confluent_kafka")
    consumer = confluent.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent.TopicPartition("t", index, 0) for index in range(3)])
    received: list[bytes] = []
    while len(received) < count:
        messages = consumer.consume(count - len(received), timeout=DEADLINE)
        assert messages, f"only {len(received)} of {count} came"
        assert all(message.error() is None for message in messages)
        received += [message.value() for message in messages]
    consumer.close()
    return received


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_librdkafka_writes_and_reads(cluster: EmbeddedCluster, compression: str, acks: str) -> None:
    settings = {"compression.type": compression, "acks": acks, "enable.idempotence": acks == "all"}
    await asyncio.to_thread(lambda: confluent_produce(cluster.bootstrap_servers, "c", **settings))
    received = await asyncio.to_thread(confluent_read, cluster.bootstrap_servers, COUNT)
    assert sorted(received) == sorted(values("c"))


@pytest.mark.parametrize("release", ["1.1.1", "2.4.1", "2.8.2", "3.3.2", "3.9.1", "4.0.1"])
async def test_librdkafka_works_with_each_release(release: str) -> None:
    async with EmbeddedCluster(brokers=2, as_kafka=release) as cluster:
        await cluster.create_topic("t", 3, 2)
        await asyncio.to_thread(confluent_produce, cluster.bootstrap_servers, "c")
        received = await asyncio.to_thread(confluent_read, cluster.bootstrap_servers, COUNT)
        assert sorted(received) == sorted(values("c"))


async def test_librdkafka_survives_a_leader_that_moves_and_a_broker_that_dies(cluster: EmbeddedCluster) -> None:
    async def break_the_cluster() -> None:
        for partition in range(3):
            await cluster.move_leader("t", partition)
        await cluster.kill(1)
        await asyncio.sleep(0.2)
        await cluster.start_node(1)

    producing = asyncio.to_thread(confluent_produce, cluster.bootstrap_servers, "c", **{"enable.idempotence": True})
    await asyncio.gather(producing, break_the_cluster())
    received = await asyncio.to_thread(confluent_read, cluster.bootstrap_servers, COUNT)
    assert sorted(received) == sorted(values("c"))


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_kafka_python_writes_and_reads(cluster: EmbeddedCluster, compression: str) -> None:
    kafka = pytest.importorskip("kafka")
    if compression == "snappy" and not kafka.codec.has_snappy():
        pytest.skip("kafka-python needs python-snappy for this")
    servers = cluster.bootstrap_servers

    def produce() -> None:
        chosen = None if compression == "none" else compression
        producer = kafka.KafkaProducer(bootstrap_servers=servers, acks="all", compression_type=chosen)
        sent = [producer.send("t", value) for value in values("k")]
        producer.flush(DEADLINE)
        assert all(future.succeeded() for future in sent)
        producer.close()

    def read() -> Iterator[bytes]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None
        )
        consumer.assign([kafka.TopicPartition("t", index) for index in range(3)])
        received: list[bytes] = []
        while len(received) < COUNT:
            polled = consumer.poll(timeout_ms=DEADLINE * 1000)
            assert polled, f"only {len(received)} of {COUNT} came"
            received += [record.value for records in polled.values() for record in records]
        consumer.close()
        return iter(received)

    await asyncio.to_thread(produce)
    assert sorted(await asyncio.to_thread(read)) == sorted(values("k"))


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_aiokafka_writes_and_librdkafka_reads(cluster: EmbeddedCluster, compression: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        enable_idempotence=True,
        compression_type=None if compression == "none" else compression,
    )
    await producer.start()
    sent = [await producer.send("t", value) for value in values("a")]
    await asyncio.gather(*sent)
    await producer.stop()
    received = await asyncio.to_thread(confluent_read, cluster.bootstrap_servers, COUNT)
    assert sorted(received) == sorted(values("a"))


async def test_librdkafka_administers_topics_and_settings() -> None:
    admin_module = pytest.importorskip("confluent_kafka.admin")

    def administer(servers: str) -> None:
        admin = admin_module.AdminClient({"bootstrap.servers": servers})
        new = admin_module.NewTopic("made", 4, 2, config={"retention.ms": "1000"})
        admin.create_topics([new])["made"].result(10)
        described = admin.list_topics("made", 10).topics["made"]
        assert len(described.partitions) == 4
        resource = admin_module.ConfigResource("topic", "made")
        settings = admin.describe_configs([resource])[resource].result(10)
        assert settings["retention.ms"].value == "1000"
        admin.create_partitions([admin_module.NewPartitions("made", 6)])["made"].result(10)
        admin.delete_topics(["made"])["made"].result(10)
        assert "made" not in admin.list_topics(timeout=DEADLINE).topics

    # librdkafka requests the metadata of a topic that it has just deleted, which must not create it again.
    async with EmbeddedCluster(brokers=3, auto_create_topics=False) as cluster:
        await asyncio.to_thread(administer, cluster.bootstrap_servers)

"""Other clients run their transactions on the embedded cluster: committed, aborted, with offsets, and fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol import messages as m
from tests.waiting import DEADLINE

RELEASES = ["1.1.1", "2.4.1", "2.8.2", "3.3.2", "3.9.1", "4.0.1", "4.3.1"]
INPUT = [b"%d" % number for number in range(12)]


@pytest.fixture(params=["2.8.2", "4.3.1"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with twelve records in the topic ``in``, and the empty topic ``out``."""
    async with EmbeddedCluster(brokers=3, as_kafka=request.param) as started:
        await fill(started)
        yield started


async def fill(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("in", 1, 3)
    await cluster.create_topic("out", 2, 3)
    for value in INPUT:
        await cluster.produce("in", value)


def outputs(cluster: EmbeddedCluster) -> list[bytes]:
    return sorted(record.value for record in cluster.records("out"))


def expected() -> list[bytes]:
    return sorted(b"done " + value for value in INPUT)


def committed(cluster: EmbeddedCluster, group: str) -> int:
    """Return the group's committed offset of the input, at the coordinator of the group."""
    groups = next(node.groups for node in cluster.nodes.values() if node.groups.check(group) == 0)
    return groups.committed(group)["in", 0].offset


async def until_committed(cluster: EmbeddedCluster, group: str) -> None:
    """Wait for the markers, which are written after the producer has its answer."""
    async with asyncio.timeout(DEADLINE):
        while ("in", 0) not in next(
            node.groups.committed(group) for node in cluster.nodes.values() if node.groups.check(group) == 0
        ) or committed(cluster, group) < len(INPUT):
            await asyncio.sleep(0.01)
        while len(cluster.records("out")) < len(INPUT):
            await asyncio.sleep(0.01)


def librdkafka_copies(servers: str) -> None:
    """Copy the input in transactions of three records; abort every second transaction once and repeat it."""
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent.Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed", **settings})
    consumer.subscribe(["in"])
    producer = confluent.Producer({"bootstrap.servers": servers, "transactional.id": "copier", "linger.ms": 0})
    producer.init_transactions(DEADLINE)
    batch: list[bytes] = []
    number = done = 0
    while done < len(INPUT):
        message = consumer.poll(DEADLINE)
        assert message is not None
        if message.error() is not None:
            continue  # librdkafka reports each failed request, and tries again
        batch.append(message.value())
        if len(batch) < 3:
            continue
        for attempt in range(1 + number % 2):
            producer.begin_transaction()
            for value in batch:
                producer.produce("out", b"done " + value, key=value)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), DEADLINE
            )
            (producer.abort_transaction if attempt < number % 2 else producer.commit_transaction)(DEADLINE)
        done += len(batch)
        number += 1
        batch.clear()
    consumer.close()


def kafka_python_copies(servers: str) -> None:
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        "in", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="copier")
    producer.init_transactions()
    done = 0
    while done < len(INPUT):
        records = [record for polled in consumer.poll(timeout_ms=1000, max_records=3).values() for record in polled]
        if not records:
            continue
        for attempt in range(2):
            producer.begin_transaction()
            for record in records:
                producer.send("out", b"done " + record.value, key=record.value)
            producer.flush(DEADLINE)
            offset = kafka.structs.OffsetAndMetadata(records[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction({kafka.TopicPartition("in", 0): offset}, consumer.group_metadata())
            producer.commit_transaction() if attempt else producer.abort_transaction()
        done += len(records)
    consumer.close()
    producer.close(DEADLINE)


async def aiokafka_copies(servers: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(
        "in", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="copier")
    await consumer.start()
    await producer.start()
    done = 0
    while done < len(INPUT):
        for partition, records in (await consumer.getmany(timeout_ms=1000, max_records=3)).items():
            for attempt in range(2):
                await producer.begin_transaction()
                for record in records:
                    await producer.send("out", b"done " + record.value, key=record.value)
                await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, "g")
                await (producer.commit_transaction() if attempt else producer.abort_transaction())
            done += len(records)
    await consumer.stop()
    await producer.stop()


@pytest.mark.parametrize("copies", [librdkafka_copies, kafka_python_copies])
async def test_a_client_copies_a_topic_in_transactions(cluster: EmbeddedCluster, copies: Callable[[str], None]) -> None:
    await asyncio.to_thread(copies, cluster.bootstrap_servers)
    await until_committed(cluster, "g")
    assert outputs(cluster) == expected()


async def test_aiokafka_copies_a_topic_in_transactions(cluster: EmbeddedCluster) -> None:
    await aiokafka_copies(cluster.bootstrap_servers)
    await until_committed(cluster, "g")
    assert outputs(cluster) == expected()


@pytest.mark.parametrize("release", RELEASES)
async def test_librdkafka_runs_transactions_with_each_release(release: str) -> None:
    async with EmbeddedCluster(brokers=3, as_kafka=release) as cluster:
        await fill(cluster)
        await asyncio.to_thread(librdkafka_copies, cluster.bootstrap_servers)
        await until_committed(cluster, "g")
        assert outputs(cluster) == expected()


async def test_librdkafka_runs_transactions_while_coordinators_and_leaders_move(cluster: EmbeddedCluster) -> None:
    copying = asyncio.create_task(asyncio.to_thread(librdkafka_copies, cluster.bootstrap_servers))
    while not copying.done():
        for topic in ("out", "__transaction_state"):
            topic_state = cluster.controller.topics.get(topic)
            for partition in range(0 if topic_state is None else len(topic_state.partitions)):
                await cluster.move_leader(topic, partition)
        await asyncio.sleep(1)
    await copying
    await until_committed(cluster, "g")
    assert outputs(cluster) == expected()


async def test_librdkafka_recognizes_that_it_is_fenced(cluster: EmbeddedCluster) -> None:
    confluent = pytest.importorskip("confluent_kafka")

    def fence() -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "id"}
        old, new = confluent.Producer(settings), confluent.Producer(settings)
        old.init_transactions(DEADLINE)
        old.begin_transaction()
        old.produce("out", b"old")
        old.flush(DEADLINE)
        new.init_transactions(DEADLINE)
        with pytest.raises(confluent.KafkaException) as caught:
            old.commit_transaction(DEADLINE)
        assert caught.value.args[0].fatal()
        new.begin_transaction()
        new.produce("out", b"new")
        new.commit_transaction(DEADLINE)

    await asyncio.to_thread(fence)
    async with asyncio.timeout(DEADLINE):
        while outputs(cluster) != [b"new"]:
            await asyncio.sleep(0.01)
    assert len(cluster.history.of(m.InitProducerIdRequest)) >= 2

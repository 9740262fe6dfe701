"""The client behind a producer, a consumer or an admin client: health checks and instrumentations use it."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka import AIOKafkaClient, AIOKafkaProducer
from aiokafka_lite.compat.aiokafka.errors import IllegalStateError, KafkaError
from tests.waiting import DEADLINE, LONGER_AND_LONGER, LOOK_AGAIN


async def test_a_health_check_fetches_metadata(library: Any, cluster: EmbeddedCluster) -> None:
    producer = library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    consumer = library.AIOKafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers)
    admin = library.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await consumer.start()
    await admin.start()
    try:
        for client in (producer.client, consumer._client, admin._client):
            cluster_metadata = await client.fetch_all_metadata()
            assert cluster_metadata.topics() == {"orders"}
            assert cluster_metadata.partitions_for_topic("orders") == {0, 1}
            assert cluster_metadata.partitions_for_topic("bills") is None
            assert {(broker.nodeId, broker.host) for broker in cluster_metadata.brokers()} == {
                (1, "127.0.0.1"),
                (2, "127.0.0.1"),
            }
            partition = library.TopicPartition("orders", 1)
            leader = cluster_metadata.leader_for_partition(partition)
            assert leader == cluster.leader_of("orders", 1)
            assert partition in cluster_metadata.partitions_for_broker(leader)
    finally:
        await admin.close()
        await consumer.stop()
        await producer.stop()


async def test_the_brokers_of_a_started_client_are_known(library: Any, cluster: EmbeddedCluster) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"two coffees")
        metadata = producer.client.cluster
        assert {broker.nodeId for broker in metadata.brokers()} == {1, 2}
        assert {str(broker.port) for broker in metadata.brokers()} <= set(
            cluster.bootstrap_servers.replace(",", ":").split(":")
        )
        assert metadata.partitions_for_topic("orders") == {0, 1}
        assert await producer.client.force_metadata_update()
        assert "orders" in producer.client.cluster.topics()


async def test_a_topic_that_a_producer_asked_for_is_known(library: Any, cluster: EmbeddedCluster) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.partitions_for("orders")
        assert producer.client.cluster.partitions_for_topic("orders") == {0, 1}


async def test_a_program_waits_until_the_cluster_answers(library: Any, cluster: EmbeddedCluster) -> None:
    client = library.AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, client_id="probe")
    await client.bootstrap()
    try:
        assert client.get_random_node() in (1, 2)
        assert client.cluster.broker_metadata(1).nodeId == 1
        await client.set_topics(["orders"])
        assert client.cluster.available_partitions_for_topic("orders") == {0, 1}
    finally:
        await client.close()


async def test_a_cluster_that_does_not_answer_is_an_error(library: Any) -> None:
    client = library.AIOKafkaClient(bootstrap_servers="127.0.0.1:9", request_timeout_ms=500)
    for _ in range(2):
        with pytest.raises(library.errors.KafkaConnectionError):
            await client.bootstrap()
    await client.close()


async def producer_in_contact(library: Any, servers: str) -> Any:
    """Return a producer whose health check succeeds, with the first of the timeouts that is long enough."""
    for timeout in LONGER_AND_LONGER:
        producer = library.AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=int(timeout * 1000))
        try:
            await producer.start()
            await producer.client.fetch_all_metadata()
        except library.errors.KafkaError:
            await producer.stop()
        else:
            return producer
    raise AssertionError(f"{servers} does not answer")


async def test_a_health_check_without_brokers_fails(library: Any) -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        producer = await producer_in_contact(library, cluster.bootstrap_servers)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(library.errors.KafkaError):
            await producer.client.fetch_all_metadata()
        await producer.stop()


async def test_a_client_of_a_stopped_producer_does_not_connect(cluster: EmbeddedCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await producer.stop()
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="the client was closed; create a new one"):
            await producer.client.fetch_all_metadata()
    assert not await producer.client.force_metadata_update()


async def test_a_client_that_is_closed_while_it_connects_stays_closed(cluster: EmbeddedCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    probe = asyncio.create_task(client.fetch_all_metadata())
    await asyncio.sleep(0)  # the probe begins
    await client.close()
    with pytest.raises(KafkaError):
        await probe
    with pytest.raises(IllegalStateError, match="the client was closed; create a new one"):
        await client.fetch_all_metadata()


async def test_an_update_of_the_metadata_continues_without_a_wait(library: Any, cluster: EmbeddedCluster) -> None:
    client = library.AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.bootstrap()
    try:
        for begin in (lambda: client.set_topics(["orders"]), lambda: client.add_topic("bills")):
            update = begin()
            assert isinstance(update, asyncio.Future)
            assert await update
        assert isinstance(client.force_metadata_update(), asyncio.Future)
    finally:
        await client.close()


def test_modules_of_the_client_have_the_same_names(library: Any) -> None:
    root = "aiokafka" if library.name == "aiokafka" else "aiokafka_lite.compat.aiokafka"
    assert importlib.import_module(f"{root}.client").AIOKafkaClient is library.AIOKafkaClient
    assert importlib.import_module(f"{root}.cluster").ClusterMetadata().brokers() == set()


async def test_an_instrumentation_reads_names_of_the_client(library: Any, cluster: EmbeddedCluster) -> None:
    """opentelemetry-instrumentation-aiokafka and ddtrace read these attributes at each record."""
    servers = [cluster.bootstrap_servers.split(",")[0]]
    producer = library.AIOKafkaProducer(bootstrap_servers=servers, client_id="writer", value_serializer=str.encode)
    consumer = library.AIOKafkaConsumer("orders", bootstrap_servers=servers, client_id="reader", group_id="billing")
    assert (producer.client._bootstrap_servers, producer.client._client_id) == (servers, "writer")
    assert (consumer._client._bootstrap_servers, consumer._client._client_id) == (servers, "reader")
    assert consumer._group_id == "billing"
    assert producer._key_serializer is None
    assert producer._value_serializer("v") == b"v"
    await consumer.stop()
    await producer.stop()


async def test_each_record_goes_through_the_methods_that_instrumentations_wrap(
    library: Any, cluster: EmbeddedCluster
) -> None:
    class Producer(library.AIOKafkaProducer):  # type: ignore[misc]
        async def send(self, *args: Any, **kwargs: Any) -> Any:
            sent.append(args)
            return await super().send(*args, **kwargs)

    class Consumer(library.AIOKafkaConsumer):  # type: ignore[misc]
        async def getone(self, *partitions: Any) -> Any:
            record = await super().getone(*partitions)
            read.append(record.value)
            return record

    sent: list[Any] = []
    read: list[bytes] = []
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        metadata = await producer.send_and_wait("orders", b"two coffees", partition=1)
    assert (metadata.partition, metadata.offset) == (1, 0)
    assert sent == [("orders", b"two coffees", None, 1, None, None)]
    async with Consumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            assert record.value == b"two coffees"
            break
    assert read == [b"two coffees"]


async def test_a_program_waits_for_a_topic_that_the_broker_creates(library: Any, cluster: EmbeddedCluster) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.client.add_topic("bills")
        async with asyncio.timeout(DEADLINE):
            while not (await producer.client.force_metadata_update() and "bills" in producer.client.cluster.topics()):
                await asyncio.sleep(LOOK_AGAIN)


async def test_a_topic_that_the_broker_does_not_create_does_not_end_updates(library: Any) -> None:
    async with (
        EmbeddedCluster(brokers=1, auto_create_topics=False) as cluster,
        library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        await cluster.create_topic("orders")
        await producer.client.set_topics(["bills", "orders"])
        assert producer.client.cluster.topics() == {"orders"}

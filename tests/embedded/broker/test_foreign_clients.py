"""Other Kafka clients on the embedded cluster over TCP: groups, administration, and old versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.admin import Admin, ConfigResource
from aiokafka_lite.embedded import EmbeddedCluster

COUNT = 60
PARTITIONS = 3
DEADLINE = 30


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    configs = {"group.consumer.min.heartbeat.interval.ms": "100"}
    async with EmbeddedCluster(brokers=3, configs=configs) as started:
        await started.create_topic("t", PARTITIONS, 3)
        yield started


VALUES = sorted(b"value-%d" % number for number in range(COUNT))


# Kafka-python.


def kafka_python_writes(servers: str, **settings: Any) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, **settings)
    try:
        sent = [producer.send("t", value, key=value, headers=[("h", b"1")]) for value in VALUES]
        producer.flush(DEADLINE)
        assert [future.exception for future in sent if not future.succeeded()] == []
    finally:
        producer.close(DEADLINE)


def kafka_python_reads_in_a_group(servers: str, group: str = "g", **settings: Any) -> list[bytes]:
    """Read all records in a group with one member, and commit."""
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    values: list[bytes] = []
    try:
        while len(values) < COUNT:
            polled = consumer.poll(timeout_ms=DEADLINE * 1000)
            assert polled, f"only {len(values)} of {COUNT} came"
            values += [record.value for records in polled.values() for record in records]
        consumer.commit()
    finally:
        consumer.close()
    return sorted(values)


@pytest.mark.parametrize("release", [(0, 11), (1, 0), (2, 0), (2, 3), (2, 8), (3, 6), (4, 0), None])
async def test_kafka_python_speaks_the_versions_of_any_release(
    cluster: EmbeddedCluster, release: tuple[int, int] | None
) -> None:
    servers = cluster.bootstrap_servers
    await asyncio.to_thread(kafka_python_writes, servers, api_version=release, acks="all", compression_type="gzip")
    assert await asyncio.to_thread(kafka_python_reads_in_a_group, servers, api_version=release) == VALUES


@pytest.mark.parametrize("release", ["1.1.1", "2.4.1", "2.8.2", "3.3.2", "3.9.1", "4.0.1"])
async def test_kafka_python_detects_the_release(release: str) -> None:
    async with EmbeddedCluster(brokers=2, as_kafka=release) as cluster:
        await cluster.create_topic("t", PARTITIONS, 2)
        await asyncio.to_thread(kafka_python_writes, cluster.bootstrap_servers)
        assert await asyncio.to_thread(kafka_python_reads_in_a_group, cluster.bootstrap_servers) == VALUES


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_kafka_python_writes_with_any_acks(cluster: EmbeddedCluster, acks: Any, idempotent: bool) -> None:
    if idempotent and acks != "all":
        pytest.skip("an idempotent producer requires acks=all")
    servers = cluster.bootstrap_servers
    await asyncio.to_thread(kafka_python_writes, servers, acks=acks, enable_idempotence=idempotent)
    assert await asyncio.to_thread(kafka_python_reads_in_a_group, servers) == VALUES


async def test_kafka_python_administers(cluster: EmbeddedCluster) -> None:
    kafka = pytest.importorskip("kafka")
    kafka_admin = pytest.importorskip("kafka.admin")
    servers = cluster.bootstrap_servers
    await asyncio.to_thread(kafka_python_writes, servers)
    await asyncio.to_thread(kafka_python_reads_in_a_group, servers)

    def administer() -> None:
        admin = kafka_admin.KafkaAdminClient(bootstrap_servers=servers)
        try:
            topics(admin)
            groups(admin)
        finally:
            admin.close()

    def topics(admin: Any) -> None:
        admin.create_topics({"made": {"num_partitions": 2, "replication_factor": 3, "configs": {"retention.ms": "1"}}})
        admin.create_partitions({"made": 4})
        (topic,) = admin.describe_topics(["made"])
        assert len(topic["partitions"]) == 4
        resource = kafka_admin.ConfigResource("TOPIC", "made", {"retention.ms": "77"})
        admin.alter_configs([resource])
        described = admin.describe_configs([kafka_admin.ConfigResource("TOPIC", "made")], config_filter="all")
        settings = next(iter(next(iter(described.values())).values()))
        assert settings["retention.ms"]["value"] == "77"
        assert settings["cleanup.policy"]["value"] == "delete"
        assert len(admin.describe_cluster()["brokers"]) == 3
        admin.delete_topics(["made"])
        assert "made" not in admin.list_topics()

    def groups(admin: Any) -> None:
        partitions = [kafka.TopicPartition("t", index) for index in range(PARTITIONS)]
        assert [group["group_id"] for group in admin.list_groups()] == ["g"]
        assert admin.describe_groups(["g"])["g"]["group_state"] == "Empty"
        committed = admin.list_group_offsets("g")["g"]
        assert sum(offset.offset for offset in committed.values()) == COUNT
        ends = admin.list_partition_offsets(dict.fromkeys(partitions, kafka_admin.OffsetSpec.LATEST))
        assert {partition: end.offset for partition, end in ends.items()} == {
            partition: offset.offset for partition, offset in committed.items()
        }
        admin.alter_group_offsets("g", {partitions[0]: kafka.OffsetAndMetadata(0, "", -1)})
        assert admin.list_group_offsets("g")["g"][partitions[0]].offset == 0
        admin.delete_records({partitions[1]: 3})
        starts = admin.list_partition_offsets({partitions[1]: kafka_admin.OffsetSpec.EARLIEST})
        assert starts[partitions[1]].offset == 3
        admin.delete_group_offsets("g", [partitions[0]])
        assert partitions[0] not in admin.list_group_offsets("g")["g"]
        admin.delete_groups(["g"])
        assert admin.list_groups() == []

    await asyncio.to_thread(administer)


# Confluent-kafka.


def confluent_writes(servers: str, **settings: Any) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    failures: list[Any] = []
    producer = confluent.Producer({"bootstrap.servers": servers, "log_level": 0, **settings})
    for value in VALUES:
        producer.produce("t", value, key=value, callback=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE) == 0
    assert failures == [None] * COUNT


def confluent_reads_in_a_group(servers: str, **settings: Any) -> list[bytes]:
    confluent = pytest.importorskip("confluent_kafka")
    defaults = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent.Consumer({"bootstrap.servers": servers, **defaults, **settings})
    consumer.subscribe(["t"])
    values: list[bytes] = []
    try:
        while len(values) < COUNT:
            messages = consumer.consume(COUNT, timeout=DEADLINE)
            assert messages, f"only {len(values)} of {COUNT} came"
            assert [message.error() for message in messages if message.error()] == []
            values += [message.value() for message in messages]
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(values)


@pytest.mark.parametrize("release", ["0.11.0", "1.0.0", "2.0.0"])
async def test_librdkafka_speaks_old_versions_without_api_versions(release: str) -> None:
    """The client then uses a setting instead of ApiVersions, as it would with a broker of that age."""
    settings = {"api.version.request": False, "broker.version.fallback": release}
    async with EmbeddedCluster(brokers=2, as_kafka="1.1.1") as cluster:
        await cluster.create_topic("t", PARTITIONS, 2)
        await asyncio.to_thread(confluent_writes, cluster.bootstrap_servers, **settings)
        assert await asyncio.to_thread(confluent_reads_in_a_group, cluster.bootstrap_servers, **settings) == VALUES


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("static", [False, True])
async def test_librdkafka_reads_in_a_group_of_two(cluster: EmbeddedCluster, strategy: str, static: bool) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    servers = cluster.bootstrap_servers

    def read() -> list[bytes]:
        members = []
        for number in range(2):
            settings = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
            settings |= {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000}
            settings |= {"group.instance.id": f"i{number}"} if static else {}
            members.append(confluent.Consumer({"bootstrap.servers": servers, **settings}))
            members[-1].subscribe(["t"])
        values: list[bytes] = []
        end = time.monotonic() + DEADLINE
        try:
            while {len(member.assignment()) for member in members} != {1, 2} or len(values) < COUNT:
                assert time.monotonic() < end, f"{len(values)} of {COUNT} came"
                for member in members:
                    values += [message.value() for message in member.consume(COUNT, timeout=0.1) if not message.error()]
        finally:
            for member in members:
                member.close()
        return values

    await asyncio.to_thread(confluent_writes, servers)
    assert set(await asyncio.to_thread(read)) == set(VALUES)


NEW_PROTOCOL = {"group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest", "log_level": 0}


def consume_until(members: list[Any], sizes: list[int], values: list[bytes], count: int = 0) -> None:
    """Poll until the members own these numbers of partitions, in any order, and ``count`` different values came."""
    end = time.monotonic() + DEADLINE
    while sorted(len(member.assignment()) for member in members) != sizes or len(set(values)) < count:
        assert time.monotonic() < end, f"{len(set(values))} came to {[member.assignment() for member in members]}"
        for member in members:
            values.extend(message.value() for message in member.consume(COUNT, timeout=0.1) if not message.error())


async def test_librdkafka_members_of_the_consumer_protocol_come_and_go(cluster: EmbeddedCluster) -> None:
    """Three members share the topic, one by a pattern; the others take over from two that leave."""
    confluent = pytest.importorskip("confluent_kafka")
    servers = cluster.bootstrap_servers
    values: list[bytes] = []

    def read() -> None:
        members = [confluent.Consumer({"bootstrap.servers": servers, **NEW_PROTOCOL}) for _ in range(3)]
        try:
            for member, topic in zip(members, ("t", "^t$", "t"), strict=True):
                member.subscribe([topic])
            consume_until(members, [1, 1, 1], values)
            members.pop().close()
            consume_until(members, [1, 2], values)
            members.pop(0).close()
            consume_until(members, [3], values)
            consume_until(members, [3], values, COUNT)
            members[0].commit(asynchronous=False)
        finally:
            for member in members:
                member.close()

    await asyncio.to_thread(confluent_writes, servers)
    await alter_group(cluster, {"consumer.heartbeat.interval.ms": 100, "consumer.assignment.interval.ms": 0})
    await asyncio.to_thread(read)
    assert sorted(set(values)) == VALUES
    async with Admin(servers) as admin:
        offsets = (await admin.groups.offsets("g"))["g"]
    assert sum(offset.offset for offset in offsets.values()) == COUNT


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_librdkafka_members_of_both_protocols_share_a_group(cluster: EmbeddedCluster, strategy: str) -> None:
    """A member of the consumer protocol and two classic members; the group is classic after the first one left.

    With ``range`` the classic members begin. With ``cooperative-sticky`` they cannot: librdkafka's assignments then
    have user data, and Kafka does not upgrade such a group.
    """
    confluent = pytest.importorskip("confluent_kafka")
    servers = cluster.bootstrap_servers
    both = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    classic = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 100, "session.timeout.ms": 6000}
    values: list[bytes] = []

    def read() -> None:
        new_protocol = [False, False, True] if strategy == "range" else [True, False, False]
        members: list[Any] = []
        try:
            for is_new, sizes in zip(new_protocol, ([3], [1, 2], [1, 1, 1]), strict=True):
                members.append(confluent.Consumer(both | (NEW_PROTOCOL if is_new else classic)))
                members[-1].subscribe(["t"])
                consume_until(members, sizes, values)
            members.pop(1).close()
            consume_until(members, [1, 2], values)
            members.pop(new_protocol.index(True) // 2).close()
            consume_until(members, [3], values)
            consume_until(members, [3], values, COUNT)
        finally:
            for member in members:
                member.close()

    await asyncio.to_thread(confluent_writes, servers)
    await alter_group(cluster, {"consumer.heartbeat.interval.ms": 100, "consumer.assignment.interval.ms": 0})
    await asyncio.to_thread(read)
    assert set(values) == set(VALUES)


async def alter_group(cluster: EmbeddedCluster, settings: dict[str, int]) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        (await admin.configs.alter({ConfigResource.group("g"): settings})).raise_for_errors()


async def test_librdkafka_administers_groups_and_offsets(cluster: EmbeddedCluster) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    module = pytest.importorskip("confluent_kafka.admin")
    servers = cluster.bootstrap_servers
    await asyncio.to_thread(confluent_writes, servers)
    await asyncio.to_thread(confluent_reads_in_a_group, servers)

    def administer() -> None:
        admin = module.AdminClient({"bootstrap.servers": servers, "log_level": 0})
        partitions = [confluent.TopicPartition("t", index) for index in range(PARTITIONS)]
        listed = admin.list_consumer_groups().result(DEADLINE)
        assert [group.group_id for group in listed.valid] == ["g"]
        described = admin.describe_consumer_groups(["g"], include_authorized_operations=True)["g"].result(DEADLINE)
        assert described.state == confluent.ConsumerGroupState.EMPTY
        group = confluent.ConsumerGroupTopicPartitions("g")
        committed = admin.list_consumer_group_offsets([group])["g"].result(DEADLINE)
        assert sum(topic_partition.offset for topic_partition in committed.topic_partitions) == COUNT
        moved = confluent.ConsumerGroupTopicPartitions("g", [confluent.TopicPartition("t", 0, 0)])
        admin.alter_consumer_group_offsets([moved])["g"].result(DEADLINE)
        latest = admin.list_offsets({partition: module.OffsetSpec.latest() for partition in partitions})
        ends = {partition.partition: result.result(DEADLINE).offset for partition, result in latest.items()}
        assert sum(ends.values()) == COUNT
        highest = admin.list_offsets({partition: module.OffsetSpec.max_timestamp() for partition in partitions})
        assert all(result.result(DEADLINE).offset >= 0 for result in highest.values())
        deleted = admin.delete_records([confluent.TopicPartition("t", 1, 2)])
        assert [result.result(DEADLINE).low_watermark for result in deleted.values()] == [2]
        resource = module.ConfigResource(
            module.ResourceType.TOPIC,
            "t",
            incremental_configs=[
                module.ConfigEntry("cleanup.policy", "compact", incremental_operation=module.AlterConfigOpType.APPEND)
            ],
        )
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE)
        settings = admin.describe_configs([resource])[resource].result(DEADLINE)
        assert settings["cleanup.policy"].value == "delete,compact"
        topic = admin.describe_topics(confluent.TopicCollection(["t"]))["t"].result(DEADLINE)
        assert [len(partition.isr) for partition in topic.partitions] == [3] * PARTITIONS
        cluster_seen = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE)
        assert len(cluster_seen.nodes) == 3
        admin.delete_consumer_groups(["g"])["g"].result(DEADLINE)
        assert admin.list_consumer_groups().result(DEADLINE).valid == []

    await asyncio.to_thread(administer)


# Aiokafka.


@pytest.mark.parametrize("idempotent", [True, False])
async def test_aiokafka_writes_and_reads_in_a_group(cluster: EmbeddedCluster, idempotent: bool) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=idempotent
    )
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send("t", value, key=value) for value in VALUES])
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        values: list[bytes] = []
        async with asyncio.timeout(DEADLINE):
            while len(values) < COUNT:
                polled = await consumer.getmany(timeout_ms=1000)
                values += [record.value for records in polled.values() for record in records]
        await consumer.commit()
    finally:
        await consumer.stop()
    assert sorted(values) == VALUES


async def test_aiokafka_administers(cluster: EmbeddedCluster) -> None:
    admin_module = pytest.importorskip("aiokafka.admin")
    structs = pytest.importorskip("aiokafka.structs")
    admin = admin_module.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([admin_module.NewTopic("made", 2, 3, topic_configs={"retention.ms": "1000"})])
        await admin.create_partitions({"made": admin_module.NewPartitions(3)})
        (topic,) = await admin.describe_topics(["made"])
        assert len(topic["partitions"]) == 3
        resource = admin_module.config_resource.ConfigResource("topic", "made", {"retention.ms": "55"})
        await admin.alter_configs([resource])
        (described,) = await admin.describe_configs(
            [admin_module.config_resource.ConfigResource("topic", "made", {"retention.ms": None})]
        )
        assert "55" in str(described)
        assert await admin.list_consumer_groups() == []
        offsets = await admin.list_consumer_group_offsets("g", partitions=[structs.TopicPartition("made", 0)])
        assert [offset.offset for offset in offsets.values()] == [-1]
        await admin.delete_topics(["made"])
        assert "made" not in await admin.list_topics()
    finally:
        await admin.close()

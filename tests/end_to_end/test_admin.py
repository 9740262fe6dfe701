"""Requests and changes of operators, on every broker. Kafka's own tools show the same afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import confluent_kafka
import pytest

from aiokafka_lite import BrokerError, Consumer, KafkaError, Producer, TopicPartition
from aiokafka_lite.admin import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    GroupState,
    GroupType,
    Match,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    Reset,
)
from aiokafka_lite.errors import ErrorCode, UnsupportedVersion
from tests.end_to_end.conftest import Kafka
from tests.real.jvm import java_problem, run_tool
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[Admin]:
    async with Admin(kafka.bootstrap_servers, api_timeout=DEADLINE) as admin:
        yield admin


def new_name(what: str = "topic") -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Repeat the request until the brokers have the change, which takes a moment."""
    async with asyncio.timeout(DEADLINE):
        while not await condition():
            await asyncio.sleep(0.05)


async def filled_topic(kafka: Kafka, count: int = 10) -> list[TopicPartition]:
    """Return two partitions with so many records each, a second apart."""
    topic = await kafka.create_topic(partitions=2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(count):
            for partition in partitions:
                await producer.send(topic, b"x", partition=partition.partition, timestamp=1_700_000_000_000 + number)
    return partitions


async def newest_tool(kafka: Kafka, name: str, *arguments: str) -> str:
    """Return the output of a tool of the newest Kafka: not every image has all tools, and old tools lack options."""
    if java_problem() is None:
        return await asyncio.to_thread(run_tool, NEWEST, name, kafka.bootstrap_servers, *arguments)
    return await asyncio.to_thread(kafka.tool, name, *arguments)


async def test_topics(kafka: Kafka, admin: Admin) -> None:
    name, odd = new_name(), new_name()
    new_topics = [NewTopic(name, 2, 1, configs={"retention.ms": 86400000}), NewTopic(odd, 1, 99)]
    checked = await admin.topics.create(new_topics, validate_only=True)
    created = await admin.topics.create(new_topics)
    for results in (checked, created):
        assert list(results.done) == [name]
        error = results.failed[odd]
        assert isinstance(error, BrokerError)
        assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    if kafka.speaks("2.4"):
        assert (created[name].partitions, created[name].replication_factor) == (2, 1)
        settings = created[name].configs
        assert settings is not None
        assert settings["retention.ms"].value == "86400000"
    (await admin.topics.add_partitions({name: 3})).raise_for_errors()

    async def has_three() -> bool:
        topic = (await admin.topics.describe(name)).done.get(name)
        return topic is not None and len(topic.partitions) == 3

    await until(has_three)
    described = (await admin.topics.describe(name))[name]
    assert described.topic_id == created[name].topic_id
    assert (described.topic_id is not None) == kafka.speaks("2.8")
    assert name in {topic.name for topic in await admin.topics.list()}
    pages = [page async for page in admin.topics.pages(name, size=2)]
    assert [[partition.partition for topic in page for partition in topic.partitions] for page in pages] == [
        [0, 1],
        [2],
    ]
    if kafka.speaks("2.2"):
        said = await asyncio.to_thread(kafka.tool, "topics", "--describe", "--topic", name)
        assert re.search(r"PartitionCount:\s*3", said), said
        assert "retention.ms=86400000" in said
        rows = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", said)
        assert rows == [
            (
                str(partition.partition),
                str(partition.leader),
                ",".join(map(str, partition.replicas)),
                ",".join(map(str, partition.in_sync)),
            )
            for partition in described.partitions
        ]
    await delete_and_see_it_gone(kafka, admin, name)


async def delete_and_see_it_gone(kafka: Kafka, admin: Admin, name: str) -> None:
    second = new_name()
    by_id = (await admin.topics.create(NewTopic(second, 1, 1)))[second].topic_id
    if by_id is not None and kafka.speaks("3.1"):

        async def is_known() -> bool:
            return by_id in (await admin.topics.describe(by_id)).done

        await until(is_known)
        assert (await admin.topics.describe(by_id))[by_id].name == second
    results = await admin.topics.delete([name, by_id or uuid.uuid4(), "missing-topic"])
    assert name in results.done
    if kafka.speaks("2.8"):
        assert by_id in results.done
    else:
        assert {type(error) for error in results.failed.values()} >= {UnsupportedVersion}
        (await admin.topics.delete(second)).raise_for_errors()

    async def are_gone() -> bool:
        return not {name, second} & {topic.name for topic in await admin.topics.list()}

    await until(are_gone)


async def test_topics_are_placed_where_they_are_assigned(kafka: Kafka, admin: Admin) -> None:
    name = new_name()
    node_id = (await admin.cluster.describe()).brokers[0].node_id
    (await admin.topics.create(NewTopic(name, assignments=[[node_id], [node_id]]))).raise_for_errors()

    async def is_known() -> bool:
        return name in (await admin.topics.describe(name)).done

    await until(is_known)
    assert [partition.replicas for partition in (await admin.topics.describe(name))[name].partitions] == [
        (node_id,)
    ] * 2


async def test_configs(kafka: Kafka, admin: Admin) -> None:
    name = await kafka.create_topic(partitions=1, retention_ms=1000, max_message_bytes=2000)
    topic, missing = ConfigResource.topic(name), ConfigResource.topic("missing-topic")
    changes: dict[str, Any] = {"retention.ms": None, "max.message.bytes": 3000, "cleanup.policy": "compact"}
    results = await admin.configs.alter({topic: changes, missing: {"retention.ms": 1}})
    assert list(results.done) == [topic]
    assert isinstance(results.failed[missing], KafkaError)
    added = ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)

    async def own() -> dict[str, str | None]:
        settings = (await admin.configs.describe(topic))[topic]
        return {name: setting.value for name, setting in settings.items() if setting.source is ConfigSource.TOPIC}

    async def is_compacted() -> bool:
        return (await own()).get("cleanup.policy") == "compact"

    await until(is_compacted)
    (await admin.configs.alter({topic: [added]})).raise_for_errors()
    changes = {"max.message.bytes": "3000", "cleanup.policy": "compact,delete"}

    async def is_changed() -> bool:
        return await own() == changes

    await until(is_changed)
    (setting,) = (await admin.configs.describe(topic, names=["max.message.bytes"]))[topic].values()
    assert setting.synonyms[0].source is ConfigSource.TOPIC
    node_id = (await admin.cluster.describe()).brokers[0].node_id
    broker = (await admin.configs.describe(ConfigResource.broker(node_id)))[ConfigResource.broker(node_id)]
    assert "log.retention.ms" in broker
    bad = await admin.configs.alter({topic: {"retention.ms": "soon"}})
    assert list(bad.failed) == [topic]
    if kafka.speaks("2.8"):
        arguments = ("--describe", "--entity-type", "topics", "--entity-name", name)
        said = await newest_tool(kafka, "configs", *arguments)
        told = dict(re.findall(r"^\s*([\w.]+)=(\S+) sensitive", said, flags=re.MULTILINE))
        assert told == changes


async def test_groups(kafka: Kafka, admin: Admin) -> None:
    partitions = await filled_topic(kafka)
    topic, group = partitions[0].topic, new_name("group")
    (await admin.groups.alter_offsets(group, dict.fromkeys(partitions, 4))).raise_for_errors()
    listed = {
        group_listing.group_id: group_listing for group_listing in await admin.groups.list(states=[GroupState.EMPTY])
    }
    assert listed[group].type is GroupType.CLASSIC
    assert group not in {group_listing.group_id for group_listing in await admin.groups.list(states=["Stable"])}
    described = await admin.groups.describe([group, "missing-group"])
    assert described[group].state is GroupState.EMPTY
    error = described.failed["missing-group"]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.GROUP_ID_NOT_FOUND
    planned = await admin.groups.reset_offsets(group, Reset.to_timestamp(1_700_000_000_007), dry_run=True)
    assert [move.after for move in planned.raise_for_errors().values()] == [7, 7]
    (await admin.groups.reset_offsets(group, Reset.shift_by(2), partitions=[partitions[1]])).raise_for_errors()
    lag = (await admin.groups.lag(group))[group]
    assert [(partition.committed, partition.end, partition.lag) for partition in lag.partitions] == [
        (4, 10, 6),
        (6, 10, 4),
    ]
    said = await asyncio.to_thread(kafka.tool, "consumer-groups", "--describe", "--group", group)
    rows = sorted(re.findall(rf"{topic}\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", said))
    assert rows == [("0", "4", "10", "6"), ("1", "6", "10", "4")], said
    if kafka.speaks("2.4"):
        (await admin.groups.delete_offsets(group, [partitions[0]])).raise_for_errors()
        assert list((await admin.groups.offsets(group))[group]) == [partitions[1]]
    (await admin.groups.delete(group)).raise_for_errors()
    assert group not in {group_listing.group_id for group_listing in await admin.groups.list()}


async def test_members_of_a_group(kafka: Kafka, admin: Admin) -> None:
    partitions = await filled_topic(kafka)
    topic, group = partitions[0].topic, new_name("group")
    async with Consumer(kafka.bootstrap_servers, topics=[topic], group_id=group, client_id="ours") as consumer:
        await anext(consumer)
        described = (await admin.groups.describe(group))[group]
        assert described.state is GroupState.STABLE
        (member,) = described.members
        assert (member.client_id, member.topics, member.assignment) == ("ours", (topic,), tuple(partitions))
        options = ("--describe", "--group", group, "--members", "--verbose")
        said = await asyncio.to_thread(kafka.tool, "consumer-groups", *options)
        assert re.search(rf"{member.member_id}\s+\S+\s+ours\s+2\s.*({topic}:0,1|\(0,1\))", said), said
        with pytest.raises(BrokerError, match=r"Stable with 1 member\b"):
            await admin.groups.reset_offsets(group, Reset.to_earliest())
        refused = (await admin.groups.delete(group)).failed[group]
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.NON_EMPTY_GROUP
        lag = (await admin.groups.lag(group))[group]
        assert [partition.member.client_id for partition in lag.partitions if partition.member] == ["ours", "ours"]


@since("4.0", "the consumer group protocol (KIP-848) needs Kafka 4.0")
async def test_a_group_of_the_new_protocol(kafka: Kafka, admin: Admin) -> None:
    partitions = await filled_topic(kafka)
    topic, group = partitions[0].topic, new_name("group")
    settings = {"group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    try:
        consumer.subscribe([topic])
        assert await asyncio.to_thread(consumer.consume, 1, DEADLINE)
        described = (await admin.groups.describe(group))[group]
        assert (described.type, described.state) == (GroupType.CONSUMER, GroupState.STABLE)
        assert described.epoch == described.assignment_epoch == described.members[0].epoch
        (member,) = described.members
        assert (member.topics, member.assignment, member.target) == ((topic,), tuple(partitions), tuple(partitions))
        listed = await admin.groups.list(types=[GroupType.CONSUMER])
        assert group in {listing.group_id for listing in listed}
    finally:
        await asyncio.to_thread(consumer.close)


async def test_cluster(kafka: Kafka, admin: Admin) -> None:
    cluster = await admin.cluster.describe()
    assert cluster.controller in cluster.brokers
    versions = (await admin.cluster.api_versions()).raise_for_errors()
    assert list(versions) == [node.node_id for node in cluster.brokers]
    apis = {api.name: api for api in versions[cluster.brokers[0].node_id]}
    assert apis["Produce"].used is not None
    if kafka.speaks("4.0"):
        features = await admin.cluster.features()
        assert features.finalized["transaction.version"].last == 2
        assert "metadata.version" in features.finalized
        assert (await admin.cluster.describe(include_fenced=True)).fenced == ()
    elif not kafka.speaks("2.4"):
        with pytest.raises(UnsupportedVersion, match=r"2\.7"):
            await admin.cluster.features()


async def test_offsets_and_records(kafka: Kafka, admin: Admin) -> None:
    first, second = await filled_topic(kafka)
    missing = TopicPartition("missing-topic", 0)
    results = await admin.offsets.list({first: 1_700_000_000_003, second: OffsetSpec.LATEST, missing: 0})
    assert [record_offset.offset for record_offset in results.done.values() if record_offset] == [3, 10]
    assert list(results.failed) == [missing]
    assert (await admin.offsets.list({first: 1_800_000_000_000}))[first] is None
    for spec, version, offset in (
        (OffsetSpec.EARLIEST, "1.1", 0),
        (OffsetSpec.MAX_TIMESTAMP, "3.0", 9),
        (OffsetSpec.EARLIEST_LOCAL, "3.4", 0),
        (OffsetSpec.LATEST_TIERED, "3.9", None),
        (OffsetSpec.EARLIEST_PENDING_UPLOAD, "4.2", None),
    ):
        listed = await admin.offsets.list({first: spec})
        if kafka.speaks(version):
            end_offset = listed[first]
            assert (None if end_offset is None else end_offset.offset) == offset, spec
        else:
            with pytest.raises(UnsupportedVersion, match=re.escape(version)):
                listed.raise_for_errors()
    if kafka.speaks("2.1"):
        end = (await admin.offsets.ends_of_epochs({first: 0}))[first]
        assert end is not None
        assert end.end_offset == 10
    deleted = await admin.records.delete({first: 4, second: None})
    assert deleted.raise_for_errors() == {first: 4, second: 10}
    begin = (await admin.offsets.list({first: OffsetSpec.EARLIEST}))[first]
    assert begin is not None
    assert begin.offset == 4
    if kafka.speaks("2.8"):
        said = await newest_tool(kafka, "get-offsets", "--topic", first.topic, "--time", "earliest")
        assert sorted(said.split()) == [f"{first.topic}:0:4", f"{first.topic}:1:10"]


async def test_leaders_replicas_and_disks(kafka: Kafka, admin: Admin) -> None:
    first, second = await filled_topic(kafka)
    node_id = (await admin.topics.describe(first.topic)).done[first.topic].partitions[0].replicas[0]
    described = await admin.log_dirs.describe([node_id], partitions=[first, second])
    if kafka.speaks("2.0"):
        on_disk = {replica.partition: replica for log_dir in described[node_id] for replica in log_dir.replicas}
        assert on_disk[first].size > 0
        if kafka.speaks("2.8"):
            options = ("--describe", "--broker-list", str(node_id), "--topic-list", first.topic)
            told = json.loads((await newest_tool(kafka, "log-dirs", *options)).splitlines()[-1])
            (log_dirs,) = [broker["logDirs"] for broker in told["brokers"]]
            assert {
                replica["partition"]: replica["size"] for log_dir in log_dirs for replica in log_dir["partitions"]
            } == {str(replica): on_disk[replica].size for replica in on_disk}
    else:
        with pytest.raises(UnsupportedVersion, match=r"2\.0"):
            described.raise_for_errors()
    if kafka.speaks("2.4"):
        assert (await admin.leaders.elect([first])).raise_for_errors() == {first: False}
        assert (await admin.leaders.elect()).failed == {}
        (await admin.reassignments.alter({first: [node_id]})).raise_for_errors()
        assert await admin.reassignments.list([second]) == {}
        refused = (await admin.reassignments.alter({second: [99]})).failed[second]
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    else:
        with pytest.raises(UnsupportedVersion, match=r"2\.2"):
            await admin.leaders.elect()
        with pytest.raises(UnsupportedVersion, match=r"2\.4"):
            (await admin.reassignments.alter({first: [node_id]})).raise_for_errors()


async def test_quotas(kafka: Kafka, admin: Admin) -> None:
    entity = QuotaEntity(user=new_name("user"), client_id=Match.DEFAULT)
    limits = {"producer_byte_rate": 1e9, "request_percentage": 500.0}
    altered = await admin.quotas.alter({entity: dict(limits)})
    if not kafka.speaks("2.6"):
        with pytest.raises(UnsupportedVersion, match=r"2\.6"):
            altered.raise_for_errors()
        return
    altered.raise_for_errors()

    async def described() -> Any:
        return dict(await admin.quotas.describe(user=entity.user)).get(entity, {})

    async def is_set() -> bool:
        return bool(await described() == limits)

    await until(is_set)
    options = ("--describe", "--entity-type", "users", "--entity-name", str(entity.user))
    said = await newest_tool(kafka, "configs", *options, "--entity-type", "clients", "--entity-default")
    told = dict(re.findall(r"(\w+)=([\d.E]+)", said))
    assert {name: float(value) for name, value in told.items()} == limits, said
    (await admin.quotas.alter({entity: dict.fromkeys(limits)})).raise_for_errors()

    async def is_removed() -> bool:
        return not await described()

    await until(is_removed)


async def test_an_address_without_a_broker_is_named(kafka: Kafka) -> None:
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        async with asyncio.timeout(DEADLINE):
            async with Admin("127.0.0.1:1", api_timeout=1.0):
                pass
    with contextlib.suppress(KafkaError):
        async with Admin(kafka.bootstrap_servers) as admin:
            assert await admin.topics.list() is not None

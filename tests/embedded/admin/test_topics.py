"""Topics are created, changed, described and deleted. Each one has its own error."""

from __future__ import annotations

import uuid

import pytest

from aiokafka_lite import BrokerError
from aiokafka_lite.admin import Admin, ConfigSource, ItemsFailed, NewTopic
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, InvalidTopic, UnknownTopic, UnsupportedVersion


async def test_a_topic_is_created_as_requested(admin: Admin) -> None:
    topic = NewTopic("orders", partitions=4, replication_factor=2, configs={"retention.ms": 1000})
    created = (await admin.topics.create(topic))["orders"]
    assert (created.partitions, created.replication_factor) == (4, 2)
    assert created.configs is not None
    assert (created.configs["retention.ms"].value, created.configs["retention.ms"].source) == (
        "1000",
        ConfigSource.TOPIC,
    )
    described = (await admin.topics.describe("orders"))["orders"]
    assert described.topic_id == created.topic_id
    assert [len(partition.replicas) for partition in described.partitions] == [2, 2, 2, 2]
    assert all(partition.leader in partition.in_sync for partition in described.partitions)


async def test_replicas_are_created_where_they_are_assigned(admin: Admin) -> None:
    await admin.topics.create(NewTopic("orders", assignments=[[3, 1], [2, 3]]))
    described = (await admin.topics.describe("orders"))["orders"]
    assert [(partition.leader, partition.replicas) for partition in described.partitions] == [(3, (3, 1)), (2, (2, 3))]


async def test_validating_creates_nothing(admin: Admin) -> None:
    results = await admin.topics.create([NewTopic("fine", 1), NewTopic("wide", 1, 9)], validate_only=True)
    assert list(results.done) == ["fine"]
    assert list(results.failed) == ["wide"]
    assert await admin.topics.list() == ()


async def test_one_invalid_topic_does_not_affect_the_others(admin: Admin) -> None:
    await admin.topics.create("there")
    results = await admin.topics.create(["new", "there", NewTopic("odd", 1, configs={"no.such": "x"})])
    assert list(results) == ["new", "there", "odd"]
    assert results["new"].partitions == 1
    with pytest.raises(BrokerError, match=r"'there'.*TOPIC_ALREADY_EXISTS"):
        results["there"]
    with pytest.raises(ItemsFailed, match="2 of 3") as caught:
        results.raise_for_errors()
    assert {name: getattr(error, "code", None) for name, error in caught.value.errors.items()} == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "odd": ErrorCode.INVALID_CONFIG,
    }


async def test_topics_are_deleted_by_name_and_by_id(admin: Admin) -> None:
    created = (await admin.topics.create(["by-name", "by-id", "kept"])).raise_for_errors()
    unknown = uuid.uuid4()
    topic_id = created["by-id"].topic_id
    assert topic_id is not None
    results = await admin.topics.delete(["by-name", topic_id, unknown, "missing"])
    assert list(results.done) == ["by-name", topic_id]
    assert list(results.failed) == [unknown, "missing"]
    with pytest.raises(UnknownTopic):
        results["missing"]
    assert [topic.name for topic in await admin.topics.list()] == ["kept"]


async def test_partitions_are_added_up_to_a_total(admin: Admin) -> None:
    await admin.topics.create([NewTopic("grows", 1), NewTopic("placed", 1), NewTopic("shrinks", 3)])
    results = await admin.topics.add_partitions(
        {"grows": 3, "placed": 2, "shrinks": 1, "missing": 2}, assignments={"placed": [[2]]}
    )
    assert list(results.done) == ["grows", "placed"]
    assert {name: getattr(error, "code", None) for name, error in results.failed.items()} == {
        "shrinks": ErrorCode.INVALID_PARTITIONS,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    described = (await admin.topics.describe(["grows", "placed"])).raise_for_errors()
    assert len(described["grows"].partitions) == 3
    assert described["placed"].partitions[1].replicas == (2,)


async def test_an_unknown_topic_is_not_created_by_describing_it(admin: Admin, cluster: EmbeddedCluster) -> None:
    assert cluster.nodes[1].settings.enabled("auto.create.topics.enable")
    results = await admin.topics.describe(["missing", "bad name"])
    with pytest.raises(UnknownTopic, match="missing"):
        results["missing"]
    with pytest.raises(InvalidTopic):
        results["bad name"]
    assert await admin.topics.list() == ()


async def test_a_topic_that_is_deleted_by_name_and_by_id_at_once_has_the_error_of_the_controller_twice(
    admin: Admin,
) -> None:
    topic_id = (await admin.topics.create("orders"))["orders"].topic_id
    assert topic_id is not None
    results = await admin.topics.delete(["orders", topic_id])
    for item in ("orders", topic_id):
        with pytest.raises(BrokerError, match=r"by name and by id \(INVALID_REQUEST\)"):
            results[item]


async def test_topics_are_described_by_id(admin: Admin) -> None:
    topic_id = (await admin.topics.create("orders"))["orders"].topic_id
    assert topic_id is not None
    results = await admin.topics.describe([topic_id, "orders"])
    assert results[topic_id] == results["orders"]


async def test_results_of_many_items_have_a_short_repr(admin: Admin) -> None:
    await admin.topics.create([NewTopic(f"t{number:02}", partitions=50) for number in range(12)])
    results = await admin.topics.describe(
        [f"t{number:02}" for number in range(12)] + [f"missing-{n}" for n in range(9)]
    )
    text = repr(results)
    assert len(text) < 3_000
    assert "'t00': TopicDescription(" in text
    assert "and 7 more" in text
    assert "'missing-0': UnknownTopic(" in text
    assert "and 4 more" in text


@pytest.mark.parametrize("named", [None, ["a", "b", "c"]])
async def test_pages_have_at_most_their_size(admin: Admin, named: list[str] | None) -> None:
    await admin.topics.create([NewTopic("a", 3), NewTopic("b", 5), NewTopic("c", 1)])
    pages = [page async for page in admin.topics.pages(named, size=2)]
    sizes = [sum(len(topic.partitions) for topic in page) for page in pages]
    assert sizes == [2, 2, 2, 2, 1]
    partitions = [
        (topic.name, partition.partition) for page in pages for topic in page for partition in topic.partitions
    ]
    assert partitions == [*(("a", n) for n in range(3)), *(("b", n) for n in range(5)), ("c", 0)]


async def test_pages_of_a_missing_topic_raise_its_error(admin: Admin) -> None:
    with pytest.raises(UnknownTopic, match="missing"):
        await anext(admin.topics.pages("missing"))


async def test_old_kafka_returns_only_the_names_of_created_topics(old_admin: Admin) -> None:
    results = await old_admin.topics.create([NewTopic("orders", 2), "no-count"])
    assert results["orders"].topic_id is None
    with pytest.raises(UnsupportedVersion, match=r"2\.4"):
        results["no-count"]
    some_id = uuid.uuid4()
    described = await old_admin.topics.describe(["orders", some_id])
    assert len(described["orders"].partitions) == 2
    with pytest.raises(UnsupportedVersion, match=r"3\.1"):
        described[some_id]
    deleted = await old_admin.topics.delete(["orders", some_id])
    assert list(deleted.done) == ["orders"]
    with pytest.raises(UnsupportedVersion, match=r"2\.8"):
        deleted[some_id]
    assert await old_admin.topics.list() == ()


async def test_topics_of_old_kafka_are_described_in_pages_too(old_admin: Admin) -> None:
    await old_admin.topics.create([NewTopic("a", 3), NewTopic("b", 2)])
    pages = [page async for page in old_admin.topics.pages(size=4)]
    assert [[(topic.name, len(topic.partitions)) for topic in page] for page in pages] == [
        [("a", 3), ("b", 1)],
        [("b", 1)],
    ]

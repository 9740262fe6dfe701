"""With ``auto_offset_reset="latest"``, no record is skipped that was written after the start of a member: partitions
that are added, and topics that are created, are read from their beginning.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiokafka_lite import ConsumerGroup, Workers
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.group import MemberState
from aiokafka_lite.group.classic_protocol import LOOKUPS
from aiokafka_lite.protocol.messages import DescribeGroupsRequest, JoinGroupRequest, ListOffsetsRequest, MetadataRequest
from aiokafka_lite.types import Record, TopicPartition
from tests.embedded.consumer.direct_writes import write
from tests.embedded.group.recording_members import each_protocol, member_of
from tests.waiting import until

ADDED = TopicPartition("orders", 6)
LATEST = {"auto_offset_reset": "latest", "metadata_max_age": 5.0}
POLICIES = [LATEST, {**LATEST, "auto_offset_reset": "by_duration:PT0.001S"}]


def add_partition(cluster: EmbeddedCluster, *values: bytes) -> None:
    """Add a partition, and write to it before any member knows it."""
    cluster.controller.create_partitions("orders", 7, None)
    write(cluster, ADDED, values)


async def values_of(consumer: Any, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with asyncio.timeout(60.0):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(timeout=1.0)]
    return values


@each_protocol
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["auto_offset_reset"])
async def test_an_added_partition_is_read_from_its_beginning(
    cluster: EmbeddedCluster, protocol: dict[str, Any], policy: dict[str, Any]
) -> None:
    write(cluster, TopicPartition("orders", 0), [b"older than the member"])
    async with member_of(cluster, **protocol, **policy) as consumer:
        await consumer.wait_assigned()
        await asyncio.sleep(1.0)
        add_partition(cluster, b"first", b"second")
        assert await values_of(consumer, 2) == [b"first", b"second"]


@each_protocol
async def test_an_added_partition_is_read_from_its_beginning_by_a_handler(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    values: list[bytes | None] = []

    async def handle(record: Record) -> None:
        values.append(record.value)

    settings = {"connector": cluster.connector, "group_id": "g", **protocol, **LATEST}
    async with ConsumerGroup(cluster.bootstrap_servers, **settings) as group:
        consuming = asyncio.create_task(group.consume(["orders"], Workers(handle)))
        await until(lambda: group.health().is_ready)
        add_partition(cluster, b"first", b"second")
        await until(lambda: len(values) == 2)
    await consuming
    assert values == [b"first", b"second"]


@each_protocol
async def test_a_new_partition_that_moves_to_another_member_is_read_completely(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    settings = {**protocol, "auto_commit": False, **LATEST}
    async with member_of(cluster, **settings) as second, member_of(cluster, **settings) as first:
        await asyncio.gather(first.wait_assigned(), second.wait_assigned())
        await until(lambda: first.assignment and second.assignment)
        add_partition(cluster, b"first", b"second")
        await until(lambda: ADDED in {*first.assignment, *second.assignment})
        # Whichever member got the partition, the other one takes it over. Nothing was read or committed.
        owner, heir = (first, second) if ADDED in first.assignment else (second, first)
        await owner.close()
        assert await values_of(heir, 2) == [b"first", b"second"]


@each_protocol
async def test_a_member_that_joins_later_reads_on_where_an_idle_member_began(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    settings = {**protocol, **LATEST}
    first = member_of(cluster, **settings)
    async with first:
        await first.wait_assigned()
    # Between the members, nobody knows the end of the partition but the group.
    write(cluster, TopicPartition("orders", 0), [b"between two members"])
    async with member_of(cluster, **settings) as second:
        assert await values_of(second, 1) == [b"between two members"]


async def test_a_move_by_the_listener_replaces_the_offset_at_which_reading_began(cluster: EmbeddedCluster) -> None:
    partition = TopicPartition("orders", 0)
    write(cluster, partition, [b"old"])
    async with member_of(cluster, **LATEST) as first:
        await first.wait_assigned()
        first.seek(partition, 0)
    async with member_of(cluster, **LATEST, group_id="test") as second:
        await second.wait_assigned()
        assert (await second.committed([partition]))[partition] is None


async def test_a_topic_that_matches_a_pattern_later_is_new(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, topics=re.compile("order.*"), **LATEST) as consumer:
        await consumer.wait_assigned()
        await asyncio.sleep(10.0)
        await cluster.create_topic("orders-eu", partitions=1)
        write(cluster, TopicPartition("orders-eu", 0), [b"first"])
        assert await values_of(consumer, 1) == [b"first"]


async def test_a_topic_that_did_not_exist_at_the_start_is_new(cluster: EmbeddedCluster) -> None:
    settings = {"topics": ["later"], "allow_auto_create_topics": False, **LATEST}
    async with member_of(cluster, **settings) as consumer:
        await asyncio.sleep(1.0)
        await cluster.create_topic("later", partitions=1)
        write(cluster, TopicPartition("later", 0), [b"first"])
        assert await values_of(consumer, 1) == [b"first"]


async def test_a_topic_that_was_created_again_is_new(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, allow_auto_create_topics=False, **LATEST) as consumer:
        await consumer.wait_assigned()
        await cluster.delete_topic("orders")
        await asyncio.sleep(20.0)
        await cluster.create_topic("orders", partitions=1)
        write(cluster, TopicPartition("orders", 0), [b"first"])
        assert await values_of(consumer, 1) == [b"first"]


@pytest.mark.parametrize("topics", [["orders"], re.compile("order.*")], ids=["names", "pattern"])
async def test_one_answer_without_the_topic_does_not_make_it_new(cluster: EmbeddedCluster, topics: Any) -> None:
    write(cluster, TopicPartition("orders", 0), [b"old"])
    fault = cluster.on(MetadataRequest, topic="orders", times=1)
    with fault.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        async with member_of(cluster, topics=topics, **LATEST, allow_auto_create_topics=False) as consumer:
            await consumer.wait_assigned()
            await consumer.position(TopicPartition("orders", 0))
            write(cluster, TopicPartition("orders", 0), [b"younger than the member"])
            assert await values_of(consumer, 1) == [b"younger than the member"]


async def test_outdated_metadata_while_the_member_reads_does_not_make_a_topic_new(cluster: EmbeddedCluster) -> None:
    partition = TopicPartition("orders", 0)
    write(cluster, partition, [b"old"])
    async with member_of(cluster, auto_commit=False, **LATEST) as consumer:
        await consumer.wait_assigned()
        with cluster.on(MetadataRequest, topic="orders", times=None).fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await asyncio.sleep(30.0)
        await asyncio.sleep(30.0)
        await consumer.wait_assigned()
        write(cluster, partition, [b"younger"])
        assert await values_of(consumer, 1) == [b"younger"]


async def test_an_added_partition_that_is_assigned_by_hand_is_read_from_its_beginning(
    cluster: EmbeddedCluster,
) -> None:
    async with member_of(cluster, topics=(), group_id=None, **LATEST) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.position(TopicPartition("orders", 0))
        add_partition(cluster, b"first")
        consumer.assign([TopicPartition("orders", 0), ADDED])
        assert await values_of(consumer, 1) == [b"first"]


async def test_a_new_partition_has_its_beginning_although_the_leader_answers_late(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, **LATEST) as consumer:
        await consumer.wait_assigned()
        with cluster.on(ListOffsetsRequest, times=3).fail(ErrorCode.LEADER_NOT_AVAILABLE):
            add_partition(cluster, b"first")
            await until(lambda: ADDED in consumer.assignment)
            write(cluster, ADDED, [b"second"])
            assert await values_of(consumer, 2) == [b"first", b"second"]


@pytest.mark.parametrize("join_version", [5, 8, 9])
async def test_a_static_leader_that_returns_finds_partitions_that_were_added_meanwhile(join_version: int) -> None:
    versions = {**default_versions(), JoinGroupRequest.api_key: (0, join_version)}
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders", partitions=6)
        leader = member_of(cluster, group_instance_id="a")
        await leader.start()
        await leader.wait_assigned()
        async with member_of(cluster, group_instance_id="a-b") as other:
            await until(lambda: len(leader.assignment) == len(other.assignment) == 3)
            generation = other.group_metadata().generation_id
            await leader.close()

            leader = member_of(cluster, group_instance_id="a")
            await leader.start()
            await leader.wait_assigned()
            await asyncio.sleep(10.0)
            assert other.group_metadata().generation_id == generation  # nothing was added, so nobody rebalanced
            await leader.close()

            cluster.controller.create_partitions("orders", 8, None)
            async with member_of(cluster, group_instance_id="a") as leader:
                await until(lambda: len(leader.assignment) == len(other.assignment) == 4)


@pytest.mark.parametrize("strategies", [["range"], ["cooperative-sticky"], ["sticky"]], ids=lambda names: names[0])
@pytest.mark.parametrize("returns", ["leader", "other"])
async def test_a_static_member_that_returns_with_other_topics_gets_their_partitions(
    cluster: EmbeddedCluster, strategies: list[str], returns: str
) -> None:
    """Brokers keep its former assignment (KAFKA-12759), so it asks for a new one."""
    await cluster.create_topic("customers", partitions=2)
    await cluster.create_topic("refunds", partitions=2)
    settings: dict[str, Any] = {"strategies": strategies, "topics": ["orders", "customers"]}
    leader = member_of(cluster, group_instance_id="leader", **settings)
    await leader.start()
    await leader.wait_assigned()
    other = member_of(cluster, group_instance_id="other", **settings)
    await other.start()
    await until(lambda: len(leader.assignment) + len(other.assignment) == 8 and other.assignment)
    leaves, stays = (leader, other) if returns == "leader" else (other, leader)
    await leaves.close()
    settings["topics"] = ["orders", "refunds"]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(stays.close)
        back = await stack.enter_async_context(member_of(cluster, group_instance_id=returns, **settings))
        await until(lambda: len(back.assignment) + len(stays.assignment) == 10)
        topics = [{partition.topic for partition in consumer.assignment} for consumer in (stays, back)]
        assert topics == [{"orders", "customers"}, {"orders", "refunds"}]


@pytest.mark.parametrize(
    ("fault", "lookups", "warnings"),
    [
        (lambda rule: rule.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), 1, 1),
        (lambda rule: rule.fail(ErrorCode.GROUP_ID_NOT_FOUND), 1, 0),
        (lambda rule: rule.fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), LOOKUPS, 0),
        (lambda rule: rule.disconnect(), LOOKUPS, 0),
    ],
    ids=["refused", "another protocol", "loading", "disconnected"],
)
async def test_a_static_member_stays_although_nobody_says_what_is_assigned(
    cluster: EmbeddedCluster,
    caplog: pytest.LogCaptureFixture,
    fault: Callable[[Any], object],
    lookups: int,
    warnings: int,
) -> None:
    fault(cluster.on(DescribeGroupsRequest, times=None))
    async with member_of(cluster, group_instance_id="a", session_timeout=6.0) as consumer:
        await consumer.wait_assigned()
        await asyncio.sleep(60.0)
        assert consumer.membership is MemberState.STABLE
        assert consumer.group_metadata().generation_id == 1
    assert len(cluster.history.of(DescribeGroupsRequest)) == lookups
    assert sum("all partitions are assigned" in record.message for record in caplog.records) == warnings

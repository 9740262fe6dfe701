"""The consumer group protocol (KIP-848), request by request: the embedded broker answers as Apache Kafka does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, TypeVar

import pytest

from aiokafka_lite import Consumer, SubscriptionPattern
from aiokafka_lite.admin import Admin, ConfigResource
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.errors import BrokerError, ErrorCode
from aiokafka_lite.group import CooperativeStickyStrategy
from aiokafka_lite.protocol.codec import decode_versioned, encode_versioned
from aiokafka_lite.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokafka_lite.protocol.schema import Request, Response
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.group import GroupProtocolName
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.test_groups import write
from tests.end_to_end.test_share_group_requests import connection
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE

R = TypeVar("R", bound=Response)

INTERVAL_MS = 6000


class Answer(NamedTuple):
    """The answer to a heartbeat; ``assignment`` are the numbers of the partitions, None if it has none."""

    error: ErrorCode
    text: str | None
    member_id: str | None
    epoch: int
    interval_ms: int
    assignment: tuple[int, ...] | None


def accepted(member_id: str, epoch: int, assignment: tuple[int, ...] | None = None) -> Answer:
    return Answer(ErrorCode.NONE, None, member_id, epoch, INTERVAL_MS, assignment)


def left(member_id: str, epoch: int) -> Answer:
    return Answer(ErrorCode.NONE, None, member_id, epoch, 0, None)


def refused(error: ErrorCode, text: str) -> Answer:
    return Answer(error, text, None, 0, 0, None)


class RawGroup:
    """A group, and heartbeats to its coordinator."""

    def __init__(self, client: Client, topic: str, topic_id: bytes, group_id: str) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = topic_id
        self.group_id = group_id

    async def heartbeat(
        self, member_id: str, epoch: int, *, owns: tuple[int, ...] | None = None, **fields: Any
    ) -> Answer:
        """Send a heartbeat. ``owns`` are the numbers of the partitions in the request."""
        owned = None if owns is None else []
        if owns:
            owned = [ConsumerGroupHeartbeatTopicPartitions(topic_id=self.topic_id, partitions=list(owns))]
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": self.group_id, "member_id": member_id, "member_epoch": epoch, "topic_partitions": owned}
            | fields
        )
        answer = await self.send(request)
        assigned = None
        if answer.assignment is not None:
            assert all(
                topic_partition.topic_id == self.topic_id for topic_partition in answer.assignment.topic_partitions
            )
            assigned = tuple(
                sorted(partition for topic in answer.assignment.topic_partitions for partition in topic.partitions)
            )
        return Answer(
            ErrorCode(answer.error_code),
            answer.error_message,
            answer.member_id,
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assigned,
        )

    async def send(self, request: Request[R]) -> R:
        broker = await self.client.coordinator(self.group_id)
        return await self.client.send(request, node=broker.node, retry=False)

    async def join(self, member_id: str, **fields: Any) -> Answer:
        subscription = {"rebalance_timeout_ms": 60000, "subscribed_topic_names": [self.topic]}
        return await self.heartbeat(member_id, 0, owns=(), **subscription | fields)

    # Members of the classic protocol.

    async def classic_join(self, member_id: str, *, owns: tuple[int, ...] = ()) -> JoinGroupResponse:
        """Send JoinGroup. ``owns`` are the numbers of the partitions in the subscription."""
        owned = [ConsumerProtocolSubscriptionTopicPartition(topic=self.topic, partitions=list(owns))] if owns else []
        subscription = ConsumerProtocolSubscription(topics=[self.topic], owned_partitions=owned)
        protocol = JoinGroupRequestProtocol(name="cooperative-sticky", metadata=encode_versioned(subscription, 1))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=30000,
            rebalance_timeout_ms=60000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return await self.send(request)

    async def classic_sync(
        self, member_id: str, generation: int, assignment: tuple[int, ...] | None = None
    ) -> tuple[ErrorCode, tuple[int, ...]]:
        """Return the error and the numbers of the partitions. A leader sends its own ``assignment``."""
        own = [ConsumerProtocolAssignmentTopicPartition(topic=self.topic, partitions=list(assignment or ()))]
        data = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=own), 1)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=data)] if assignment else [],
        )
        answer = await self.send(request)
        partitions = decode_versioned(ConsumerProtocolAssignment, answer.assignment)[0].assigned_partitions
        return ErrorCode(answer.error_code), tuple(
            sorted(number for topic in partitions for number in topic.partitions)
        )

    async def classic_heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=generation, member_id=member_id)
        return ErrorCode((await self.send(request)).error_code)


only_on_the_newest = since(NEWEST, "Kafka's answers and their texts change between releases")


@pytest.fixture
async def group(kafka: Kafka) -> AsyncIterator[RawGroup]:
    """A new group with settings of its own, and a topic with four partitions. Assignments are not delayed."""
    topic = await kafka.create_topic(partitions=4)
    group_id = f"group-of-{topic}"
    config = ClientConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with Admin(kafka.bootstrap_servers) as admin, Client(config) as client:
        group = RawGroup(client, topic, (await client.topic(topic)).topic_id, group_id)
        settings = {"consumer.assignment.interval.ms": "0", "consumer.heartbeat.interval.ms": str(INTERVAL_MS)}
        (await admin.configs.alter({ConfigResource.group(group_id): settings})).raise_for_errors()
        async with asyncio.timeout(DEADLINE):
            while (await group.join("probe")).interval_ms != INTERVAL_MS:
                await group.heartbeat("probe", -1)
        await group.heartbeat("probe", -1)
        (await admin.groups.delete(group_id)).raise_for_errors()
        yield group


@only_on_the_newest
async def test_members_join_share_and_leave(group: RawGroup) -> None:
    assert await group.join("a") == accepted("a", 2, (0, 1, 2, 3))
    assert await group.heartbeat("a", 2) == accepted("a", 2)
    assert await group.join("b") == accepted("b", 3, ())
    asked_to_revoke = await group.heartbeat("a", 2)
    kept = asked_to_revoke.assignment
    assert kept is not None
    assert len(kept) == 2
    assert asked_to_revoke == accepted("a", 2, kept)
    assert await group.heartbeat("b", 3) == accepted("b", 3)
    assert await group.heartbeat("a", 2, owns=kept) == accepted("a", 3)
    assert await group.heartbeat("b", 3) == accepted("b", 3, tuple(sorted({0, 1, 2, 3} - set(kept))))
    assert await group.heartbeat("a", -1) == left("a", -1)
    assert await group.heartbeat("b", 3) == accepted("b", 4, (0, 1, 2, 3))


@only_on_the_newest
async def test_epochs_are_fenced(group: RawGroup) -> None:
    assert await group.join("a") == accepted("a", 2, (0, 1, 2, 3))
    await group.join("b")
    kept = (await group.heartbeat("a", 2, owns=(0, 1, 2, 3))).assignment
    assert await group.heartbeat("a", 2, owns=kept) == accepted("a", 3)
    assert await group.heartbeat("a", 2, owns=kept) == accepted("a", 3)
    reason = "the one known by the group coordinator (3). The member must abandon all its partitions and rejoin."
    for owns in ((0, 1, 2, 3), None):
        assert await group.heartbeat("a", 2, owns=owns) == refused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"The consumer group member has a smaller member epoch (2) than {reason}"
        )
    assert await group.heartbeat("a", 4) == refused(
        ErrorCode.FENCED_MEMBER_EPOCH, f"The consumer group member has a greater member epoch (4) than {reason}"
    )
    assert await group.join("a") == accepted("a", 3, kept)


@only_on_the_newest
async def test_requests_that_are_refused(group: RawGroup) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    missing = f"Consumer group {group.group_id} not found."
    assert await group.heartbeat("a", 1) == refused(ErrorCode.GROUP_ID_NOT_FOUND, missing)
    assert await group.join("") == refused(invalid, "MemberId can't be empty.")
    assert await group.join("a", group_id="") == refused(invalid, "GroupId can't be empty.")
    assert await group.join("a", instance_id="") == refused(invalid, "InstanceId can't be empty.")
    assert await group.join("a", rack_id="") == refused(invalid, "RackId can't be empty.")
    assert await group.join("a", rebalance_timeout_ms=-1) == refused(
        invalid, "RebalanceTimeoutMs must be provided in first request."
    )
    assert await group.join("a", topic_partitions=None) == refused(
        invalid, "TopicPartitions must be empty when (re-)joining."
    )
    assert await group.join("a", subscribed_topic_names=None) == refused(
        invalid, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    )
    assert await group.heartbeat("a", -1) == refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} not found.")
    assert await group.heartbeat("a", -2) == refused(invalid, "InstanceId can't be null.")
    assert await group.heartbeat("a", -3) == refused(invalid, "MemberEpoch is invalid.")
    assert await group.join("a", server_assignor="best") == refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor best is not supported. Supported assignors: uniform, range.",
    )
    await group.join("a")
    assert await group.heartbeat("b", 1) == refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member b is not a member of group {group.group_id}."
    )
    assert await group.heartbeat("b", -1) == refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member b is not a member of group {group.group_id}."
    )


@only_on_the_newest
async def test_version_0_requires_an_id_of_members_and_for_epoch_minus_1_alone(group: RawGroup) -> None:
    node = (await group.client.coordinator(group.group_id)).node
    outcomes = {}
    async with connection(f"{node.host}:{node.port}") as coordinator:
        for epoch in (1, -1, -2, -3):
            request = ConsumerGroupHeartbeatRequest(group_id=group.group_id, member_id="", member_epoch=epoch)
            answer = await coordinator.ask(request, version=0)
            outcomes[epoch] = answer.error_message
    assert outcomes == {
        1: "MemberId can't be empty.",
        -1: "MemberId can't be empty.",
        -2: "InstanceId can't be null.",
        -3: "MemberEpoch is invalid.",
    }


@only_on_the_newest
@pytest.mark.parametrize(
    ("pattern", "description"),
    [
        ("a++", "invalid nested repetition operator"),
        ("(?=a)b", "invalid or unsupported Perl syntax"),
        (r"(a)\1", "invalid escape sequence"),
    ],
)
async def test_patterns_that_re2_refuses(group: RawGroup, pattern: str, description: str) -> None:
    assert await group.join("a", subscribed_topic_names=None, subscribed_topic_regex=pattern) == refused(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}.",
    )


@only_on_the_newest
async def test_a_consumer_reads_the_topics_that_the_brokers_match(kafka: Kafka) -> None:
    prefix = f"match-{uuid.uuid4()}"
    for name in ("a", "b"):
        await kafka.create_topic(f"{prefix}-{name}", partitions=1)
    await write(kafka, f"{prefix}-a", 1, 2)
    settings: dict[str, Any] = {"group_protocol": "consumer", "group_id": prefix, "auto_offset_reset": "earliest"}
    pattern = SubscriptionPattern(f"{prefix}-[ab]")
    async with Consumer(kafka.bootstrap_servers, topics=pattern, **settings) as consumer, asyncio.timeout(DEADLINE):
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for record in await consumer.poll(timeout=1.0)]
        assert values == [b"0", b"1"]
        assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
    with pytest.raises(BrokerError, match=r"is not a valid regular expression") as caught:
        async with Consumer(kafka.bootstrap_servers, topics=SubscriptionPattern("("), **settings) as consumer:
            await consumer.poll(timeout=DEADLINE)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@only_on_the_newest
@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "*", "a**", "a\\"])
async def test_patterns_that_are_not_valid(group: RawGroup, pattern: str) -> None:
    answer = await group.join("a", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION


@only_on_the_newest
async def test_a_member_without_topics_owns_nothing(group: RawGroup) -> None:
    assert await group.join("a", subscribed_topic_names=[]) == accepted("a", 1, ())
    assert await group.heartbeat("a", 1, subscribed_topic_names=["no-such-topic"]) == accepted("a", 2)
    assert await group.heartbeat("a", 2, subscribed_topic_names=[group.topic]) == accepted("a", 3, (0, 1, 2, 3))
    assert await group.heartbeat("a", 3, subscribed_topic_names=[]) == accepted("a", 3, ())
    assert await group.heartbeat("a", 3, owns=()) == accepted("a", 4)


@only_on_the_newest
async def test_a_static_member_returns_to_its_partitions(group: RawGroup) -> None:
    assert await group.join("a", instance_id="i") == accepted("a", 2, (0, 1, 2, 3))
    assert await group.join("b", instance_id="i") == refused(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member b with instance id i cannot join the group because the instance id is owned by a member.",
    )
    assert await group.heartbeat("b", 2, instance_id="i") == refused(
        ErrorCode.FENCED_INSTANCE_ID, "Static member b with instance id i was fenced by member a."
    )
    assert await group.heartbeat("a", 2, instance_id="j") == refused(
        ErrorCode.UNKNOWN_MEMBER_ID, "Instance id j is unknown."
    )
    assert await group.heartbeat("a", -2, instance_id="i") == left("a", -2)
    assert await group.join("b", instance_id="i") == accepted("b", 2, (0, 1, 2, 3))
    assert await group.heartbeat("a", 2) == refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member a is not a member of group {group.group_id}."
    )
    assert await group.heartbeat("b", -1, instance_id="i") == left("b", -1)


@only_on_the_newest
async def test_a_member_revokes_before_it_moves_on(group: RawGroup) -> None:
    await group.join("a")
    await group.join("b", server_assignor="range")
    kept = (await group.heartbeat("a", 2)).assignment
    assert kept is not None
    full = {"rebalance_timeout_ms": 60000, "subscribed_topic_names": [group.topic]}
    assert await group.heartbeat("a", 2, owns=(0, 1, 2, 3), **full) == accepted("a", 2, kept)
    assert await group.heartbeat("b", -1) == left("b", -1)
    assert await group.heartbeat("a", 2) == accepted("a", 2)
    assert await group.heartbeat("a", 2, owns=kept) == accepted("a", 4, (0, 1, 2, 3))


@only_on_the_newest
async def test_offsets_are_checked_by_member_epoch(group: RawGroup) -> None:
    async def commit(member_id: str, epoch: int, partition: int = 0) -> ErrorCode:
        offset = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group.group_id,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(topic_id=group.topic_id, name=group.topic, partitions=[offset])],
        )
        answer = await group.send(request)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def fetch(member_id: str | None, epoch: int) -> tuple[ErrorCode, list[int]]:
        topics = [OffsetFetchRequestTopics(topic_id=group.topic_id, name=group.topic, partition_indexes=[0])]
        request_group = OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=member_id, member_epoch=epoch, topics=topics
        )
        (answer,) = (await group.send(OffsetFetchRequest(groups=[request_group]))).groups
        offsets = [partition.committed_offset for topic in answer.topics for partition in topic.partitions]
        return ErrorCode(answer.error_code), offsets

    await group.join("a")
    assert await commit("a", 2) is ErrorCode.NONE
    assert await commit("a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert await commit("a", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert await commit("x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await fetch("a", 2) == (ErrorCode.NONE, [7])
    assert await fetch(None, -1) == (ErrorCode.NONE, [7])
    assert await fetch("a", 1) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert await fetch("x", 2) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    await group.join("b")
    kept = (await group.heartbeat("a", 2)).assignment
    await group.heartbeat("a", 2, owns=kept)
    assert kept is not None
    assert await commit("a", 2, kept[0]) is ErrorCode.NONE, "it has had the partition since epoch 2"
    revoked = next(number for number in range(4) if number not in kept)
    assert await commit("a", 2, revoked) is ErrorCode.STALE_MEMBER_EPOCH


@only_on_the_newest
async def test_requests_of_the_classic_protocol(group: RawGroup) -> None:
    await group.join("a", instance_id="i")
    (described,) = (await group.send(DescribeGroupsRequest(groups=[group.group_id]))).groups
    assert (ErrorCode(described.error_code), described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id} is not a classic group.",
    )
    beat = HeartbeatRequest(group_id=group.group_id, generation_id=2, member_id="a")
    assert ErrorCode((await group.send(beat)).error_code) is ErrorCode.UNKNOWN_MEMBER_ID
    (deleted,) = (await group.send(DeleteGroupsRequest(groups_names=[group.group_id]))).results
    assert ErrorCode(deleted.error_code) is ErrorCode.NON_EMPTY_GROUP
    leave = LeaveGroupRequest(
        group_id=group.group_id, members=[LeaveGroupRequestMember(member_id="", group_instance_id="i")]
    )
    (removed,) = (await group.send(leave)).members
    assert ErrorCode(removed.error_code) is ErrorCode.NONE
    about = ConsumerGroupDescribeRequest(group_ids=[group.group_id], include_authorized_operations=False)
    (described,) = (await group.send(about)).groups
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 3, 2)


@only_on_the_newest
async def test_a_classic_member_in_a_consumer_group_that_becomes_classic_and_a_consumer_group_again(
    group: RawGroup,
) -> None:
    none, rebalances = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
    every = (0, 1, 2, 3)
    assert await group.join("a") == accepted("a", 2, every)
    joined = await group.classic_join("")
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id = joined.member_id
    joined = await group.classic_join(member_id)
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (none, 3, "", [])
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "cooperative-sticky")
    assert await group.classic_sync(member_id, 3) == (none, ())
    assert await group.classic_heartbeat(member_id, 3) is none, "a has not revoked"
    assert await group.classic_heartbeat(member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert await group.classic_heartbeat("a", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    kept = (await group.heartbeat("a", 2)).assignment
    assert kept is not None
    assert await group.heartbeat("a", 2, owns=kept) == accepted("a", 3)
    assert await group.classic_heartbeat(member_id, 3) is rebalances, "what it waits for is free"
    assert (await group.classic_join(member_id)).generation_id == 3
    assert await group.classic_sync(member_id, 3) == (
        none,
        tuple(partition for partition in every if partition not in kept),
    )
    assert await group.classic_heartbeat(member_id, 3) is none

    assert await group.heartbeat("a", -1) == left("a", -1)
    assert await group.classic_heartbeat(member_id, 3) is rebalances, "the group has become classic"
    assert await group.heartbeat("a", 3) == refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
    )
    joined = await group.classic_join(member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (none, 4, member_id)
    assert await group.classic_sync(member_id, 4, every) == (none, every)
    assert await group.classic_heartbeat(member_id, 4) is none

    assert await group.join("d") == accepted("d", 5, ())
    assert await group.classic_heartbeat(member_id, 4) is rebalances, "the group is a consumer group again"
    assert (await group.classic_join(member_id, owns=every)).generation_id == 4
    error, mine = await group.classic_sync(member_id, 4)
    assert (error, len(mine)) == (none, 2)
    assert await group.classic_heartbeat(member_id, 4) is rebalances, "it has to join again when it has revoked"
    assert await group.heartbeat("d", 5) == accepted("d", 5)
    assert (await group.classic_join(member_id, owns=mine)).generation_id == 5
    assert await group.classic_sync(member_id, 5) == (none, mine)
    assert await group.heartbeat("d", 5) == accepted(
        "d", 5, tuple(partition for partition in every if partition not in mine)
    )
    about = ConsumerGroupDescribeRequest(group_ids=[group.group_id], include_authorized_operations=False)
    (described,) = (await group.send(about)).groups
    assert {member.member_id: member.member_type for member in described.members} == {"d": 1, member_id: 0}
    leave = LeaveGroupRequest(group_id=group.group_id, members=[LeaveGroupRequestMember(member_id=member_id)])
    (removed,) = (await group.send(leave)).members
    assert ErrorCode(removed.error_code) is none
    assert await group.heartbeat("d", 5) == accepted("d", 6, every)


@only_on_the_newest
async def test_classic_requests_that_a_consumer_group_refuses(group: RawGroup) -> None:
    await group.join("a")
    member_id = (await group.classic_join("")).member_id
    await group.classic_join(member_id)
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id=group.group_id,
        member_id=member_id,
        generation_id_or_member_epoch=99,
        topics=[OffsetCommitRequestTopic(topic_id=group.topic_id, name=group.topic, partitions=[offset])],
    )
    answer = await group.send(commit)
    assert ErrorCode(answer.topics[0].partitions[0].error_code) is ErrorCode.ILLEGAL_GENERATION
    await group.join("b")
    sync = SyncGroupRequest(
        group_id=group.group_id,
        generation_id=3,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    assert ErrorCode((await group.send(sync)).error_code) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sync.protocol_name = "cooperative-sticky"
    assert ErrorCode((await group.send(sync)).error_code) is ErrorCode.REBALANCE_IN_PROGRESS
    sync.generation_id = 2
    assert ErrorCode((await group.send(sync)).error_code) is ErrorCode.ILLEGAL_GENERATION
    sync.member_id = "a"
    assert ErrorCode((await group.send(sync)).error_code) is ErrorCode.UNKNOWN_MEMBER_ID


@only_on_the_newest
async def test_three_classic_members_are_replaced_one_after_the_other(kafka: Kafka, group: RawGroup) -> None:
    """The group is never without members, and reads every record."""
    topic = await kafka.create_topic(partitions=6)
    seen: set[tuple[int, int]] = set()

    async def read(consumer: Consumer) -> None:
        async for record in consumer:
            seen.add((record.partition, record.offset))

    async def until_shared(members: list[Consumer]) -> None:
        while sorted(partition.partition for member in members for partition in member.assignment) != list(range(6)):
            await asyncio.sleep(0.05)  # between looks at the members

    members: list[Consumer] = []
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        for number in range(6):
            if number >= 3:
                await members.pop(0).close()
            protocol: GroupProtocolName = "classic" if number < 3 else "consumer"
            strategies = [CooperativeStickyStrategy()] if number < 3 else None
            member = Consumer(
                kafka.bootstrap_servers,
                topics=[topic],
                group_id=group.group_id,
                group_protocol=protocol,
                strategies=strategies,
                auto_offset_reset="earliest",
            )
            await member.start()
            members.append(member)
            tasks.create_task(read(member))
            await until_shared(members)
            await write(kafka, topic, 6, 5, first=5 * number)
        while len(seen) < 6 * 30:
            await asyncio.sleep(0.05)
        for member in members:
            await member.close()

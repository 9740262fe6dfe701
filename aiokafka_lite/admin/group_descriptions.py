"""The descriptions of groups, and the requests that list and describe them at one broker.

- States are listed since Kafka 2.6 (KIP-518), types with the consumer group protocol (KIP-848). On an older broker,
  groups are described to find their states, and all are of the classic type. So the filters work with every broker.
- Groups of the new type are described by ConsumerGroupDescribe, since Kafka 4.0.
- Groups of Kafka Streams whose coordinator assigns tasks (KIP-1071) are described by StreamsGroupDescribe, since Kafka
  4.2.
- Before Kafka 4.0, brokers describe a group that does not exist as dead. Here the error is always GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..errors import ErrorCode, KafkaError, ProtocolError, error_for
from ..group.payloads import PROTOCOL_TYPE, read_assignment, read_subscription
from ..protocol.messages import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribeGroup,
    StreamsGroupDescribeRequest,
    StreamsTaskIds,
)
from ..types import Node, TopicPartition
from .answers import has_code, raise_for
from .open_enum import OpenEnum
from .peer import Peer

G = TypeVar("G", ConsumerGroupDescribeGroup, StreamsGroupDescribeGroup)


class GroupState(OpenEnum):
    """The state of a group.

    ``GroupState`` of ``embedded`` is the state that a coordinator keeps.
    """

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(OpenEnum):
    """The protocol of a group's members."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A listed group.

    ``protocol_type`` is ``consumer`` for consumers, ``connect`` for workers of Connect, and empty for a group that only
    has offsets."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """Tasks of a member of a streams group: for each subtopology, the numbers of the partitions that it processes.

    An active task processes records. A standby task keeps a copy of a store, and a warm-up task builds one.
    """

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member. Topics and assignment are None if they cannot be read, for example in groups of Kafka Connect.

    ``target`` is the assignment at the end of the rebalance. ``epoch`` is the member epoch: while it is below the
    group's ``assignment_epoch``, the member does not have its new assignment yet. Both are None in a classic group,
    whose members have no assignment during a rebalance.

    A member of a streams group (KIP-1071) has ``tasks`` and ``target_tasks``, and no topics and partitions; the members
    of a process have the same ``process_id``. These are None for members of other groups.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None = None
    topic_pattern: str | None = None
    epoch: int | None = None
    tasks: StreamsTasks | None = None
    target_tasks: StreamsTasks | None = None
    process_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. ``strategy`` is the name of the present assignment strategy, empty if there is none.

    ``epoch`` and ``assignment_epoch`` are None in a classic group. While ``assignment_epoch`` is below ``epoch``, the
    group waits for a new assignment.

    ``subtopologies`` of a streams group has the topics that the tasks of each subtopology read. It is None for other
    groups, and before the first member has sent the topics.
    """

    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    strategy: str
    coordinator: Node
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    subtopologies: Mapping[str, tuple[str, ...]] | None = None


async def list_groups(peer: Peer, states: set[GroupState], types: set[GroupType]) -> list[GroupListing]:
    """List the groups of one broker. An old broker ignores the filters."""
    lists_states = peer.speaks(ListGroupsRequest.STATES)
    lists_types = peer.speaks(ListGroupsRequest.TYPES)
    request = ListGroupsRequest(
        states_filter=sorted(state.value for state in states) if lists_states else [],
        types_filter=sorted(group_type.value.lower() for group_type in types) if lists_types else [],
    )
    answer = await peer.send(request)
    raise_for(answer.error_code, f"listing groups of broker {peer.node_id}")
    if lists_states:
        return [_listing(group, GroupState(group.group_state), lists_types) for group in answer.groups]
    descriptions = await peer.send(DescribeGroupsRequest(groups=[group.group_id for group in answer.groups]))
    state_of = {group.group_id: GroupState(group.group_state) for group in descriptions.groups if not group.error_code}
    return [_listing(group, state_of.get(group.group_id, GroupState.UNKNOWN), lists_types) for group in answer.groups]


def _listing(group: ListedGroup, state: GroupState, lists_types: bool) -> GroupListing:
    kind = GroupType(group.group_type) if lists_types else GroupType.CLASSIC
    return GroupListing(group.group_id, group.protocol_type, state, kind)


async def describe_groups(peer: Peer, items: list[str]) -> dict[str, GroupDescription | KafkaError]:
    """Describe classic, consumer and streams groups at their coordinator."""
    answers = await _describe_classic(peer, items)
    for request, describe in (
        (ConsumerGroupDescribeRequest, _describe_consumer),
        (StreamsGroupDescribeRequest, _describe_streams),
    ):
        missing_groups = [name for name, answer in answers.items() if has_code(answer, ErrorCode.GROUP_ID_NOT_FOUND)]
        if missing_groups and peer.speaks(request):
            descriptions = await describe(peer, missing_groups)
            # A broker may offer the request and refuse it, because the protocol is not enabled: Kafka 3.7 to 3.9 for
            # consumer groups, 4.1 for streams groups. Then there are no such groups.
            for name, answer in descriptions.items():
                if not has_code(answer, ErrorCode.UNSUPPORTED_VERSION):
                    answers[name] = answer
    return answers


async def _describe_classic(peer: Peer, items: list[str]) -> dict[str, GroupDescription | KafkaError]:
    answers: dict[str, GroupDescription | KafkaError] = {}
    for group in (await peer.send(DescribeGroupsRequest(groups=items))).groups:
        what = f"describing group {group.group_id!r}"
        if group.error_code:
            answers[group.group_id] = error_for(group.error_code, what)
        elif GroupState(group.group_state) is GroupState.DEAD:
            answers[group.group_id] = error_for(ErrorCode.GROUP_ID_NOT_FOUND, what)
        else:
            answers[group.group_id] = _classic(group, peer.node)
    return answers


def _classic(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    members = tuple(_classic_member(member, group.protocol_type) for member in group.members)
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        GroupState(group.group_state),
        group.protocol_type,
        group.protocol_data,
        coordinator,
        members,
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    topics, assignment = None, None
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = tuple(sorted(read_assignment(member.member_assignment)))
            metadata = member.member_metadata
            topics = read_subscription(member.member_id, None, metadata).topics if metadata else None
        except ProtocolError:
            pass  # members of other clients may send any bytes
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, topics, assignment
    )


async def _describe_consumer(peer: Peer, items: list[str]) -> dict[str, GroupDescription | KafkaError]:
    request = ConsumerGroupDescribeRequest(group_ids=items, include_authorized_operations=False)
    return {group.group_id: _described(group, _consumer, peer.node) for group in (await peer.send(request)).groups}


async def _describe_streams(peer: Peer, items: list[str]) -> dict[str, GroupDescription | KafkaError]:
    request = StreamsGroupDescribeRequest(group_ids=items, include_authorized_operations=False)
    return {group.group_id: _described(group, _streams, peer.node) for group in (await peer.send(request)).groups}


def _described(group: G, describe: Callable[[G, Node], GroupDescription], peer: Node) -> GroupDescription | KafkaError:
    if group.error_code:
        return error_for(group.error_code, f"describing group {group.group_id!r}")
    return describe(group, peer)


def _consumer(group: ConsumerGroupDescribeGroup, coordinator: Node) -> GroupDescription:
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(member.subscribed_topic_names),
            _assigned(member.assignment),
            _assigned(member.target_assignment),
            member.subscribed_topic_regex or None,
            member.member_epoch,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        GroupState(group.group_state),
        PROTOCOL_TYPE,
        group.assignor_name,
        coordinator,
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


def _assigned(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic_partition.topic_name, number)
            for topic_partition in assignment.topic_partitions
            for number in topic_partition.partitions
        )
    )


def _streams(group: StreamsGroupDescribeGroup, coordinator: Node) -> GroupDescription:
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            None,
            None,
            epoch=member.member_epoch,
            tasks=_tasks(member.assignment),
            target_tasks=_tasks(member.target_assignment),
            process_id=member.process_id,
        )
        for member in group.members
    )
    subtopologies = None if group.topology is None else group.topology.subtopologies
    return GroupDescription(
        group.group_id,
        GroupType.STREAMS,
        GroupState(group.group_state),
        "streams",
        "",
        coordinator,
        members,
        group.group_epoch,
        group.assignment_epoch,
        None
        if subtopologies is None
        else {
            subtopology.subtopology_id: (
                *subtopology.source_topics,
                *(topic.name for topic in subtopology.repartition_source_topics),
            )
            for subtopology in subtopologies
        },
    )


def _tasks(assignment: StreamsGroupDescribeAssignment) -> StreamsTasks:
    return StreamsTasks(
        _numbers(assignment.active_tasks), _numbers(assignment.standby_tasks), _numbers(assignment.warmup_tasks)
    )


def _numbers(tasks: list[StreamsTaskIds]) -> dict[str, tuple[int, ...]]:
    return {
        task.subtopology_id: tuple(sorted(task.partitions))
        for task in sorted(tasks, key=lambda task: task.subtopology_id)
    }

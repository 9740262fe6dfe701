"""Groups of consumers: list, describe, delete; their offsets, how far behind they are, and moving them.

A broker knows the groups that it coordinates, and no others: all are asked for the list, and each group's coordinator
for everything else.

- States are listed since Kafka 2.6 (KIP-518), types with the new protocol (KIP-848). From an older broker states are
  found by describing what it lists, and every group there is of the classic type. The filters work everywhere.
- Groups of the new type are described by ConsumerGroupDescribe, since Kafka 4.0.
- Before Kafka 4.0 a group that does not exist was described as a dead one; here it is GROUP_ID_NOT_FOUND always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from ..errors import BrokerError, ErrorCode, KafkaError, ProtocolError, error_for
from ..group.events import NO_MEMBER
from ..group.offset_requests import commit_request, read_commit, read_fetch
from ..group.payloads import PROTOCOL_TYPE, read_assignment, read_subscription
from ..protocol.messages import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ..types import IsolationLevel, Node, OffsetAndMetadata, TopicPartition
from . import arguments
from .calls import Ask, Calls, Deadline, Peer, Place, Places, answer_of
from .offsets import FoundOffset, OffsetsOfPartitions, OffsetSpec
from .resets import Reset, ResetOffset, bounded, needs_lookup
from .results import Results
from .topics import Topics

V = TypeVar("V")

LISTS_STATES = 4
LISTS_TYPES = 5
ALL_TOPICS = 2


class _Named(Enum):
    """Names that a newer broker may add to; upper and lower case do not matter."""

    @classmethod
    def _missing_(cls, value: object) -> _Named | None:
        if not isinstance(value, str):
            return None
        lower = value.lower()
        found = next((each for each in cls if str(each.value).lower() == lower or each.name.lower() == lower), None)
        return found or cls.__members__["UNKNOWN"]


class GroupState(_Named):
    """What a group is doing."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(_Named):
    """Which protocol a group's members speak."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in short. ``protocol_type`` is "consumer" for consumers, "connect" for Connect's workers, and empty for
    a group that only keeps offsets."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member. Topics and assignment are None where they cannot be read, as in groups that are not of consumers.

    ``target`` is what it will have when the group is done, None unless the coordinator assigns. While a classic group
    rebalances its members have nothing yet.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None = None
    topic_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. ``strategy`` is the one that assigns, empty while there is none."""

    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    strategy: str
    coordinator: Node
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is with a partition.

    ``committed`` is the offset to read next, None if there is none; ``end`` the end of the partition, None if it cannot
    be told; ``lag`` their difference, None without both. ``member`` is who has the partition.
    """

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member: MemberDescription | None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is, in order of topics and partitions."""

    group_id: str
    state: GroupState
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The sum over the partitions of which it is known."""
        return sum(each.lag for each in self.partitions if each.lag is not None)


class Groups:
    """What ``admin.groups`` does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._offsets = OffsetsOfPartitions(calls)

    # ---- groups

    async def list(
        self,
        *,
        states: Iterable[GroupState | str] = (),
        types: Iterable[GroupType | str] = (),
        timeout: float | None = None,
    ) -> tuple[GroupListing, ...]:
        """All groups that this client may see, or those in one of the states and of one of the types, by name.

        Raises what kept any broker from answering, as the list would not be whole.
        """
        wanted_states = _members(GroupState, states)
        wanted_types = _members(GroupType, types)

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, list[GroupListing] | KafkaError]:
            return {peer.node_id: await _list(peer, wanted_states, wanted_types)}

        deadline = self._calls.deadline(timeout)
        merged: dict[str, GroupListing] = {}
        for listed in (await self._of_all_brokers("listing groups", ask, deadline)).values():
            merged.update((each.group_id, each) for each in listed)
        return tuple(
            merged[name]
            for name in sorted(merged)
            if (not wanted_states or merged[name].state in wanted_states)
            and (not wanted_types or merged[name].type in wanted_types)
        )

    async def _of_all_brokers(self, what: str, ask: Ask[int, V], deadline: Deadline) -> Mapping[int, V]:
        """What every broker says. When one leaves the cluster others take over what it had, so all are asked again."""
        while True:
            nodes = await self._calls.all_brokers(deadline)
            answers = await self._calls.settle(what, nodes, self._calls.brokers, ask, deadline)
            if not any(_has_left(error) for error in answers.failed.values()):
                return answers.raise_for_errors()

    async def describe(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, GroupDescription]:
        """Groups with their members and what these have."""
        return await self._describe(arguments.names(groups, "group"), self._calls.deadline(timeout))

    async def _describe(self, wanted: Iterable[str], deadline: Deadline) -> Results[str, GroupDescription]:
        async def ask(peer: Peer, items: list[str]) -> Mapping[str, GroupDescription | KafkaError]:
            answers = await _describe_classic(peer, items)
            others = [name for name, answer in answers.items() if _is_missing(answer)]
            if others and peer.speaks(ConsumerGroupDescribeRequest):
                found = await _describe_consumer(peer, others)
                # Kafka 3.7 to 3.9 speak it, and refuse it unless the new groups were switched on: so there are none.
                answers.update({name: answer for name, answer in found.items() if not _is_unsupported(answer)})
            return answers

        return await self._calls.settle(
            "describing groups", wanted, self._calls.coordinators, ask, deadline, group_of=str
        )

    async def delete(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete groups that have no members, with their offsets (NON_EMPTY_GROUP for others)."""

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, KafkaError | None]:
            answer = await peer.send(DeleteGroupsRequest(groups_names=items))
            return {
                each.group_id: answer_of(each.error_code, f"deleting group {each.group_id!r}", None)
                for each in answer.results
            }

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle(
            "deleting groups",
            arguments.names(groups, "group"),
            self._calls.coordinators,
            ask,
            deadline,
            already={ErrorCode.GROUP_ID_NOT_FOUND: lambda _: None},
            group_of=str,
        )

    # ---- offsets

    async def offsets(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed, of all partitions; nothing for a group that does not exist."""
        return await self._committed(arguments.names(groups, "group"), self._calls.deadline(timeout))

    async def _committed(
        self, wanted: Iterable[str], deadline: Deadline
    ) -> Results[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        async def ask(
            peer: Peer, items: list[str]
        ) -> Mapping[str, Mapping[TopicPartition, OffsetAndMetadata] | KafkaError]:
            return await _fetch(peer, items)

        return await self._calls.settle(
            "asking for committed offsets", wanted, self._calls.coordinators, ask, deadline, group_of=str
        )

    async def alter_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group that has no members, which makes the group if need be.

        A group with members refuses with UNKNOWN_MEMBER_ID.
        """
        wanted = {each: _offset(given) for each, given in arguments.by_partition(offsets).items()}
        return await self._commit(_group(group), wanted, self._calls.deadline(timeout))

    async def _commit(
        self, group_id: str, wanted: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline
    ) -> Results[TopicPartition, None]:
        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            share = {item: wanted[item] for item in items}
            request = commit_request(group_id, NO_MEMBER, share, self._calls.client.view)
            answer = await peer.send(request, at_most=OffsetCommitRequest.TOPIC_IDS.before)
            what = f"committing for group {group_id!r}"
            return {
                item: answer_of(code, f"{what}, {item}", None) for item, code in read_commit(share, answer, {}).items()
            }

        return await self._of_group(group_id, "committing offsets", wanted, ask, deadline)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Forget offsets of topics that no member subscribes to (GROUP_SUBSCRIBED_TO_TOPIC). Since Kafka 2.4."""
        group_id = _group(group)

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            peer.require(OffsetDeleteRequest, 0, "deleting offsets of groups", "2.4")
            topics = [
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
                )
                for name, numbers in arguments.by_topic(items).items()
            ]
            answer = await peer.send(OffsetDeleteRequest(group_id=group_id, topics=topics))
            what = f"deleting offsets of group {group_id!r}"
            if answer.error_code:
                raise error_for(answer.error_code, what)
            return {
                TopicPartition(topic.name, each.partition_index): answer_of(
                    each.error_code, f"{what}, {topic.name}-{each.partition_index}", None
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        deadline = self._calls.deadline(timeout)
        return await self._of_group(group_id, "deleting offsets", arguments.partitions(partitions), ask, deadline)

    async def _of_group(
        self,
        group_id: str,
        what: str,
        items: Iterable[TopicPartition],
        ask: Ask[TopicPartition, V],
        deadline: Deadline,
    ) -> Results[TopicPartition, V]:
        """Ask one group's coordinator about partitions."""
        return await self._calls.settle(
            what, items, self._coordinator_of(group_id), ask, deadline, group_of=lambda item: group_id
        )

    def _coordinator_of(self, group_id: str) -> Place:
        async def place(items: list[TopicPartition], deadline: Deadline) -> Places:
            found = await self._calls.coordinators([group_id], deadline)
            if found.errors:
                raise found.errors[group_id]
            return Places({node_id: list(items) for node_id in found.by_node})

        return place

    async def reset_offsets(
        self,
        group: str,
        to: Reset,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Results[TopicPartition, ResetOffset]:
        """Move a group that has no members; ``dry_run`` only tells where to.

        What is moved are the partitions named and all of the topics named, or what the reset itself names (as a file
        does), or else all partitions that the group has committed. Each goes no farther than the partition's begin or
        end. Raises BrokerError (NON_EMPTY_GROUP) while the group has members.
        """
        if not isinstance(to, Reset):
            raise TypeError(f"{to!r} is not a Reset, as Reset.to_earliest() gives")
        group_id = _group(group)
        deadline = self._calls.deadline(timeout)
        chosen = None if partitions is None and topics is None else arguments.partitions(partitions or ())
        names = None if topics is None else arguments.names(topics, "topic")
        await self._require_empty(group_id, deadline)
        committed = (await self._committed([group_id], deadline))[group_id]
        if names is not None and chosen is not None:
            chosen += await self._partitions_of(names, deadline)
        wanted = to.chosen(committed) if chosen is None else list(dict.fromkeys(chosen))
        planned = await self._plan(to, wanted, committed, deadline)
        if dry_run or not planned.done:
            return planned
        moves = {item: OffsetAndMetadata(move.after) for item, move in planned.done.items()}
        made = await self._commit(group_id, moves, deadline)
        return Results({item: planned.done[item] for item in made.done}, {**planned.failed, **made.failed})

    async def _require_empty(self, group_id: str, deadline: Deadline) -> None:
        described = await self._describe([group_id], deadline)
        missing = described.failed.get(group_id)
        if missing is not None:
            if _is_missing(missing):
                return
            raise missing
        group = described[group_id]
        if group.members or group.state not in (GroupState.EMPTY, GroupState.DEAD):
            text = f"group {group_id!r} is {group.state.value} with {len(group.members)} members, stop them first"
            raise error_for(ErrorCode.NON_EMPTY_GROUP, text)

    async def _partitions_of(self, names: Sequence[str], deadline: Deadline) -> Sequence[TopicPartition]:
        described = (await Topics(self._calls).describe(names, timeout=max(deadline.left, 0.001))).raise_for_errors()
        return [TopicPartition(topic.name, each.partition) for topic in described.values() for each in topic.partitions]

    async def _plan(
        self,
        to: Reset,
        wanted: Iterable[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> Results[TopicPartition, ResetOffset]:
        isolation = IsolationLevel.READ_UNCOMMITTED
        items = list(wanted)
        part = deadline.first_part
        starts = await self._offsets.look_up(dict.fromkeys(items, OffsetSpec.EARLIEST), isolation, part())
        ends = await self._offsets.look_up(dict.fromkeys(starts.done, OffsetSpec.LATEST), isolation, part())
        time = needs_lookup(to)
        found = None
        if time is not None:
            found = await self._offsets.look_up(dict.fromkeys(ends.done, time), isolation, part())
        done: dict[TopicPartition, ResetOffset] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for item in items:
            try:
                start, end = starts[item], ends[item]
                first = 0 if start is None else start.offset
                last = first if end is None else end.offset
                by_time = None if found is None else found[item]
                before = committed[item].offset if item in committed else None
                after = to.target(item, before, first, last, None if by_time is None else by_time.offset)
                done[item] = ResetOffset(before, bounded(after, first, last))
            except KafkaError as error:
                failed[item] = error
        return Results(done, failed)

    # ---- lag

    async def lag(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, GroupLag]:
        """How far groups are behind, by partition: all that they have committed or that members have."""
        wanted = arguments.names(groups, "group")
        deadline = self._calls.deadline(timeout)
        described = await self._describe(wanted, deadline.first_part())
        committed = await self._committed(described.done, deadline.first_part())
        failed = {**described.failed, **committed.failed}
        holders = {group_id: _holders(described[group_id]) for group_id in committed.done}
        wanted_ends = {
            item: int(OffsetSpec.LATEST)
            for group_id, offsets in committed.done.items()
            for item in (*offsets, *holders[group_id])
        }
        ends = await self._offsets.look_up(wanted_ends, IsolationLevel.READ_UNCOMMITTED, deadline)
        done = {
            group_id: GroupLag(
                group_id,
                described[group_id].state,
                tuple(
                    _lag(item, offsets.get(item), ends, holders[group_id].get(item))
                    for item in sorted({*offsets, *holders[group_id]})
                ),
            )
            for group_id, offsets in committed.done.items()
        }
        return Results({name: done[name] for name in wanted if name in done}, failed)


# ---- arguments


N = TypeVar("N", bound=_Named)


def _members(kind: type[N], given: Iterable[N | str]) -> set[N]:
    listed = [given] if isinstance(given, str) else arguments.several(given, f"{kind.__name__} or their names")
    for each in listed:
        if not isinstance(each, kind | str):
            raise TypeError(f"{each!r} is not a {kind.__name__}")
    found = {each if isinstance(each, kind) else kind(each) for each in listed}
    if any(each.name == "UNKNOWN" for each in found):
        known = ", ".join(str(each.value) for each in kind if each.name != "UNKNOWN")
        raise ValueError(f"{listed!r}: use some of {known}")
    return found


def _group(given: object) -> str:
    return arguments.text("group", given)


def _offset(given: OffsetAndMetadata | int) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        arguments.whole("offset", given.offset, 0, arguments.INT64_MAX)
        arguments.text("metadata", given.metadata)
        if given.leader_epoch is not None:
            arguments.whole("leader_epoch", given.leader_epoch, 0, arguments.INT32_MAX)
        return given
    return OffsetAndMetadata(arguments.whole("offset", given, 0, arguments.INT64_MAX))


# ---- requests and answers


async def _list(peer: Peer, states: set[GroupState], types: set[GroupType]) -> list[GroupListing]:
    tells_states = peer.speaks(ListGroupsRequest, LISTS_STATES)
    tells_types = peer.speaks(ListGroupsRequest, LISTS_TYPES)
    request = ListGroupsRequest(
        states_filter=sorted(each.value for each in states) if tells_states else [],
        types_filter=sorted(each.value.lower() for each in types) if tells_types else [],
    )
    answer = await peer.send(request)
    if answer.error_code:
        raise error_for(answer.error_code, f"listing groups of broker {peer.node_id}")
    if tells_states:
        return [_listing(each, GroupState(each.group_state), tells_types) for each in answer.groups]
    found = await peer.send(DescribeGroupsRequest(groups=[each.group_id for each in answer.groups]))
    described = {each.group_id: GroupState(each.group_state) for each in found.groups if not each.error_code}
    return [_listing(each, described.get(each.group_id, GroupState.UNKNOWN), tells_types) for each in answer.groups]


def _listing(given: ListedGroup, state: GroupState, tells_types: bool) -> GroupListing:
    kind = GroupType(given.group_type) if tells_types else GroupType.CLASSIC
    return GroupListing(given.group_id, given.protocol_type, state, kind)


def _has_left(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def _is_unsupported(answer: GroupDescription | KafkaError) -> bool:
    return isinstance(answer, BrokerError) and answer.code is ErrorCode.UNSUPPORTED_VERSION


def _is_missing(answer: object) -> bool:
    return isinstance(answer, BrokerError) and answer.code is ErrorCode.GROUP_ID_NOT_FOUND


async def _describe_classic(peer: Peer, items: list[str]) -> dict[str, GroupDescription | KafkaError]:
    answers: dict[str, GroupDescription | KafkaError] = {}
    for each in (await peer.send(DescribeGroupsRequest(groups=items))).groups:
        what = f"describing group {each.group_id!r}"
        if each.error_code:
            answers[each.group_id] = error_for(each.error_code, what)
        elif GroupState(each.group_state) is GroupState.DEAD:
            answers[each.group_id] = error_for(ErrorCode.GROUP_ID_NOT_FOUND, what)
        else:
            answers[each.group_id] = _classic(each, peer.node)
    return answers


def _classic(given: DescribedGroup, coordinator: Node) -> GroupDescription:
    members = tuple(_classic_member(each, given.protocol_type) for each in given.members)
    return GroupDescription(
        given.group_id,
        GroupType.CLASSIC,
        GroupState(given.group_state),
        given.protocol_type,
        given.protocol_data,
        coordinator,
        members,
    )


def _classic_member(given: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    topics, assignment = None, None
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = tuple(sorted(read_assignment(given.member_assignment)))
            metadata = given.member_metadata
            topics = read_subscription(given.member_id, None, metadata).topics if metadata else None
        except ProtocolError:
            pass  # other people's members may carry what they like
    return MemberDescription(
        given.member_id, given.group_instance_id, given.client_id, given.client_host, topics, assignment
    )


async def _describe_consumer(peer: Peer, items: list[str]) -> dict[str, GroupDescription | KafkaError]:
    request = ConsumerGroupDescribeRequest(group_ids=items, include_authorized_operations=False)
    return {
        each.group_id: error_for(each.error_code, f"describing group {each.group_id!r}")
        if each.error_code
        else _consumer(each, peer.node)
        for each in (await peer.send(request)).groups
    }


def _consumer(given: ConsumerGroupDescribeGroup, coordinator: Node) -> GroupDescription:
    members = tuple(
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(each.subscribed_topic_names),
            _assigned(each.assignment),
            _assigned(each.target_assignment),
            each.subscribed_topic_regex or None,
        )
        for each in given.members
    )
    return GroupDescription(
        given.group_id,
        GroupType.CONSUMER,
        GroupState(given.group_state),
        PROTOCOL_TYPE,
        given.assignor_name,
        coordinator,
        members,
    )


def _assigned(given: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(each.topic_name, number) for each in given.topic_partitions for number in each.partitions)
    )


async def _fetch(peer: Peer, items: list[str]) -> dict[str, Mapping[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """Committed offsets: of many groups in one request since Kafka 3.0, one after the other before."""
    answers: dict[str, Mapping[TopicPartition, OffsetAndMetadata] | KafkaError] = {}
    many = peer.speaks(OffsetFetchRequest, OffsetFetchRequest.MANY_GROUPS)
    for share in [items] if many else [[item] for item in items]:
        if many:
            groups = [OffsetFetchRequestGroup(group_id=item, topics=None) for item in share]
            request = OffsetFetchRequest(groups=groups)
        else:
            request = OffsetFetchRequest(group_id=share[0], topics=None)
        response = await peer.send(request, at_most=OffsetFetchRequest.TOPIC_IDS.before)
        for item in share:
            answer = read_fetch(item, (), response, {})
            code = answer.whole or next(iter(answer.errors.values()), ErrorCode.NONE)
            offsets = {each: found for each, found in sorted(answer.found.items()) if found is not None}
            missing = code is ErrorCode.GROUP_ID_NOT_FOUND
            answers[item] = answer_of(0 if missing else code, f"committed offsets of group {item!r}", offsets)
    return answers


# ---- lag


def _holders(group: GroupDescription) -> dict[TopicPartition, MemberDescription]:
    return {item: member for member in group.members for item in member.assignment or ()}


def _lag(
    item: TopicPartition,
    committed: OffsetAndMetadata | None,
    ends: Results[TopicPartition, FoundOffset | None],
    member: MemberDescription | None,
) -> PartitionLag:
    offset = None if committed is None else committed.offset
    if item in ends.failed:
        return PartitionLag(item, offset, None, None, member, ends.failed[item])
    found = ends[item]
    end = None if found is None else found.offset
    lag = None if offset is None or end is None else max(0, end - offset)
    return PartitionLag(item, offset, end, lag, member)

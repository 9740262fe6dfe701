"""Groups of consumers: list, describe, delete; their committed offsets, their lag, and resets of their offsets.

A broker knows only the groups that it coordinates. So all brokers are asked for the list, and the coordinator of a
group for all other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from .. import arguments
from ..cluster.coordinators import CoordinatorKind
from ..errors import ErrorCode, KafkaError, error_for
from ..group.events import NO_MEMBER
from ..group.offset_requests import commit_request, read_commit, read_fetch
from ..protocol.messages import (
    DeleteGroupsRequest,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ..types import IsolationLevel, Node, OffsetAndMetadata, TopicPartition
from .answers import answer_of, has_code, raise_for
from .batch_markers import is_marker
from .calls import Calls
from .group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    describe_groups,
    list_groups,
)
from .offsets import FoundOffset, OffsetsOfPartitions, OffsetSpec, isolation_of
from .open_enum import members_of
from .peer import Deadline, Peer
from .reset_plan import partitions_of, plan_reset
from .resets import Reset, ResetOffset
from .results import Results


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition.

    ``committed`` is the committed offset, None if there is none. ``end`` is the end of the partition, None if it is not
    known; ``error`` says why. ``lag`` is ``end - committed``, None unless both are known, and for a marker of Spark's
    exactly-once sink, whose offset is the number of a batch. ``member`` is the owner.
    """

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member: MemberDescription | None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group, in order of topics and partitions. ``members`` are all, also those without partitions."""

    group_id: str
    state: GroupState
    partitions: tuple[PartitionLag, ...]
    members: tuple[MemberDescription, ...] = ()

    @property
    def total(self) -> int:
        """The sum of the known lags, in records."""
        return sum(partition.lag for partition in self.partitions if partition.lag is not None)


class Groups:
    """The calls of ``admin.groups``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._offsets = OffsetsOfPartitions(calls)

    # Groups.

    async def list(
        self,
        *,
        states: Iterable[GroupState | str] = (),
        types: Iterable[GroupType | str] = (),
        timeout: float | None = None,
    ) -> tuple[GroupListing, ...]:
        """List all groups that this client may see, by name. ``states`` and ``types`` select some of them.

        Raises the error if one broker did not answer, since the list would not be complete.
        """
        wanted_states = members_of(GroupState, states)
        wanted_types = members_of(GroupType, types)

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, list[GroupListing] | KafkaError]:
            return {peer.node_id: await list_groups(peer, wanted_states, wanted_types)}

        deadline = self._calls.deadline(timeout)
        by_name: dict[str, GroupListing] = {}
        for groups in (await self._calls.of_all_brokers("listing groups", ask, deadline)).values():
            by_name.update((group.group_id, group) for group in groups)
        return tuple(
            by_name[name]
            for name in sorted(by_name)
            if (not wanted_states or by_name[name].state in wanted_states)
            and (not wanted_types or by_name[name].type in wanted_types)
        )

    async def describe(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, GroupDescription]:
        """Describe classic, consumer and streams groups, with their members and assignments."""
        return await self._describe(arguments.names(groups, "group"), self._calls.deadline(timeout))

    async def _describe(self, groups: Iterable[str], deadline: Deadline) -> Results[str, GroupDescription]:
        return await self._calls.at_coordinators(
            CoordinatorKind.GROUP, "describing groups", groups, describe_groups, deadline
        )

    async def coordinators(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, Node]:
        """Find the broker that coordinates each group, whether the group exists or not."""
        names = arguments.names(groups, "group")
        return await self._calls.coordinators(CoordinatorKind.GROUP, names, self._calls.deadline(timeout))

    async def delete(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete groups and their offsets. A group with members fails with NON_EMPTY_GROUP."""

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, KafkaError | None]:
            answer = await peer.send(DeleteGroupsRequest(groups_names=items))
            return {
                result.group_id: answer_of(result.error_code, f"deleting group {result.group_id!r}", None)
                for result in answer.results
            }

        deadline = self._calls.deadline(timeout)
        names = arguments.names(groups, "group")
        return await self._calls.at_coordinators(
            CoordinatorKind.GROUP, "deleting groups", names, ask, deadline, already=(ErrorCode.GROUP_ID_NOT_FOUND,)
        )

    # Offsets.

    async def offsets(
        self,
        groups: str | Iterable[str],
        *,
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Results[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        """Read the committed offsets of groups in these partitions, or in all. A group that does not exist has none.

        With ``require_stable``, the call waits for the end of transactions that commit offsets of these partitions
        (Kafka 2.5; older brokers do not wait). Without ``partitions``, it waits only for partitions that already have a
        committed offset. Brokers do not find a partition whose first commit is in an open transaction.
        """
        names = arguments.names(groups, "group")
        selection = None if partitions is None else arguments.partitions(partitions)
        deadline = self._calls.deadline(timeout)
        return await self._committed(names, deadline, partitions=selection, require_stable=require_stable)

    async def _committed(
        self,
        groups: Iterable[str],
        deadline: Deadline,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
    ) -> Results[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        topics = None if partitions is None else arguments.by_topic(partitions)
        ask = partial(_fetch_offsets, topics=topics, require_stable=require_stable)
        return await self._calls.at_coordinators(
            CoordinatorKind.GROUP, "asking for committed offsets", groups, ask, deadline
        )

    async def alter_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group without members. Creates the group if it does not exist.

        A group with members refuses with UNKNOWN_MEMBER_ID.
        """
        checked_offsets = {
            partition: _offset(offset) for partition, offset in arguments.by_partition("offsets", offsets).items()
        }
        return await self._commit(arguments.text("group", group), checked_offsets, self._calls.deadline(timeout))

    async def _commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline
    ) -> Results[TopicPartition, None]:
        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            share = {item: offsets[item] for item in items}
            request = commit_request(group_id, NO_MEMBER, share, self._calls.client.view)
            answer = await peer.send(request, at_most=OffsetCommitRequest.TOPIC_IDS.before)
            codes = read_commit(share, answer, {})
            return {
                item: _committed(code, f"committing offsets of group {group_id!r}, {item}")
                for item, code in codes.items()
                if code is not None
            }

        return await self._calls.of_group("committing offsets", group_id, offsets, ask, deadline)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets (Kafka 2.4). A topic with subscribers fails with GROUP_SUBSCRIBED_TO_TOPIC."""
        group_id = arguments.text("group", group)

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            peer.require(OffsetDeleteRequest.INTRODUCED, "deleting offsets of groups")
            topics = [
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
                )
                for name, numbers in arguments.by_topic(items).items()
            ]
            response = await peer.send(OffsetDeleteRequest(group_id=group_id, topics=topics))
            return _deleted_offsets(f"deleting offsets of group {group_id!r}", response)

        deadline = self._calls.deadline(timeout)
        items_to_delete = arguments.partitions(partitions)
        return await self._calls.of_group("deleting offsets", group_id, items_to_delete, ask, deadline)

    async def remove_members(
        self, group: str, members: Iterable[str] = (), *, instances: Iterable[str] = (), timeout: float | None = None
    ) -> Results[str, None]:
        """Remove members by their ids, and static members by their instance ids (Kafka 2.4); the results are by id.

        A member that still runs joins again. An id that the group does not have fails with UNKNOWN_MEMBER_ID. In the
        consumer protocol (KIP-848) brokers remove only static members: another member fails in the same way.
        """
        group_id = arguments.text("group", group)
        leaving = {name: LeaveGroupRequestMember(member_id=name) for name in arguments.names(members, "member")} | {
            name: LeaveGroupRequestMember(group_instance_id=name) for name in arguments.names(instances, "instance")
        }

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, KafkaError | None]:
            peer.require(LeaveGroupRequest.MANY_MEMBERS, "removing members of groups")
            answer = await peer.send(LeaveGroupRequest(group_id=group_id, members=[leaving[item] for item in items]))
            what = f"removing members of group {group_id!r}"
            raise_for(answer.error_code, what)
            answers = {member.group_instance_id or member.member_id: member.error_code for member in answer.members}
            return {item: answer_of(code, f"{what}, {item}", None) for item, code in answers.items()}

        deadline = self._calls.deadline(timeout)
        return await self._calls.of_group(
            "removing members", group_id, leaving, ask, deadline, already=(ErrorCode.UNKNOWN_MEMBER_ID,)
        )

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
        """Reset the committed offsets of a group without members. ``dry_run`` changes nothing.

        Resets ``partitions`` and all partitions of ``topics``. Without both, it resets the partitions that ``to``
        names, for example by a file, or else all partitions that the group has committed. New offsets stay within the
        range of the partition. Raises BrokerError (NON_EMPTY_GROUP) if the group has members.
        """
        if not isinstance(to, Reset):
            raise TypeError(arguments.must_be("to", "a Reset such as Reset.to_earliest()", to))
        group_id = arguments.text("group", group)
        deadline = self._calls.deadline(timeout)
        selection = None if partitions is None and topics is None else arguments.partitions(partitions or ())
        names = None if topics is None else arguments.names(topics, "topic")
        await self._require_empty(group_id, deadline)
        committed = (await self._committed([group_id], deadline))[group_id]
        if names is not None and selection is not None:
            selection += await partitions_of(self._calls, names, deadline)
        targets = to.chosen(committed) if selection is None else list(dict.fromkeys(selection))
        before = {item: offset.offset for item, offset in committed.items()}
        planned = await plan_reset(self._offsets, to, targets, before, deadline)
        if dry_run or not planned.done:
            return planned
        moves = {item: OffsetAndMetadata(move.after) for item, move in planned.done.items()}
        commits = await self._commit(group_id, moves, deadline)
        return Results({item: planned.done[item] for item in commits.done}, {**planned.failed, **commits.failed})

    async def _require_empty(self, group_id: str, deadline: Deadline) -> None:
        descriptions = await self._describe([group_id], deadline)
        error = descriptions.failed.get(group_id)
        if error is not None:
            if has_code(error, ErrorCode.GROUP_ID_NOT_FOUND):
                return
            raise error
        group = descriptions[group_id]
        if group.members or group.state not in (GroupState.EMPTY, GroupState.DEAD):
            members = arguments.plural(len(group.members), "member")
            text = f"group {group_id!r} is {group.state.value} with {members}; stop them first"
            raise error_for(ErrorCode.NON_EMPTY_GROUP, text)

    # Lag.

    async def lag(
        self,
        groups: str | Iterable[str],
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> Results[str, GroupLag]:
        """Compute the lag of groups in each partition that has a committed offset or belongs to a member.

        For a streams group, the result has only partitions with a committed offset.

        The lag counts up to the high watermark, or with ``isolation_level="read_committed"`` up to the last stable
        offset: the first record of the oldest open transaction.
        """
        isolation = isolation_of(isolation_level)
        names = arguments.names(groups, "group")
        deadline = self._calls.deadline(timeout)
        descriptions = await self._describe(names, deadline.first_part())
        committed = await self._committed(descriptions.done, deadline.first_part())
        failed = {**descriptions.failed, **committed.failed}
        owners = {group_id: _owners(descriptions[group_id], committed[group_id]) for group_id in committed.done}
        wanted_ends = {
            item: int(OffsetSpec.LATEST)
            for group_id, offsets in committed.done.items()
            for item in (*offsets, *owners[group_id])
        }
        ends = await self._offsets.look_up(wanted_ends, isolation, deadline)
        done = {
            group_id: GroupLag(
                group_id,
                descriptions[group_id].state,
                tuple(
                    _lag(item, offsets.get(item), ends, owners[group_id].get(item))
                    for item in sorted({*offsets, *owners[group_id]})
                ),
                descriptions[group_id].members,
            )
            for group_id, offsets in committed.done.items()
        }
        return Results({name: done[name] for name in names if name in done}, failed)


def _offset(offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    if isinstance(offset, OffsetAndMetadata):
        arguments.offset(offset.offset)
        arguments.text("metadata", offset.metadata)
        if offset.leader_epoch is not None:
            arguments.whole("leader_epoch", offset.leader_epoch)
        return offset
    return OffsetAndMetadata(arguments.offset(offset))


def _committed(code: ErrorCode, what: str) -> KafkaError | None:
    # The usual text is about a member that was removed, but the caller is not a member.
    refused = code is ErrorCode.UNKNOWN_MEMBER_ID
    return answer_of(code, what, None, "the group has members, and takes commits only from them" if refused else None)


def _deleted_offsets(what: str, response: OffsetDeleteResponse) -> dict[TopicPartition, KafkaError | None]:
    raise_for(response.error_code, what)
    answers: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            item = TopicPartition(topic.name, partition.partition_index)
            answers[item] = answer_of(partition.error_code, f"{what}, {item}", None)
    return answers


async def _fetch_offsets(
    peer: Peer, items: list[str], *, topics: Mapping[str, list[int]] | None, require_stable: bool
) -> dict[str, Mapping[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """Fetch committed offsets: in one request since Kafka 3.0, in one request for each group before."""
    of_one: list[OffsetFetchRequestTopic] | None = None
    of_many: list[OffsetFetchRequestTopics] | None = None
    if topics is not None:
        of_one = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
        of_many = [OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    answers: dict[str, Mapping[TopicPartition, OffsetAndMetadata] | KafkaError] = {}
    many = peer.speaks(OffsetFetchRequest.MANY_GROUPS)
    stable = require_stable and peer.speaks(OffsetFetchRequest.REQUIRE_STABLE)
    for share in [items] if many else [[item] for item in items]:
        if many:
            groups = [OffsetFetchRequestGroup(group_id=item, topics=of_many) for item in share]
            request = OffsetFetchRequest(groups=groups, require_stable=stable)
        else:
            request = OffsetFetchRequest(group_id=share[0], topics=of_one, require_stable=stable)
        response = await peer.send(request, at_most=OffsetFetchRequest.TOPIC_IDS.before)
        for item in share:
            answer = read_fetch(item, None, response, {})
            code = answer.group_error or next(iter(answer.errors.values()), ErrorCode.NONE)
            offsets = {partition: offset for partition, offset in sorted(answer.offsets.items()) if offset is not None}
            is_missing = code is ErrorCode.GROUP_ID_NOT_FOUND
            answers[item] = answer_of(0 if is_missing else code, f"committed offsets of group {item!r}", offsets)
    return answers


# Lag


def _owners(group: GroupDescription, committed: Iterable[TopicPartition]) -> dict[TopicPartition, MemberDescription]:
    """Return the member that owns each partition.

    In a streams group, a member owns the committed partitions that its tasks read.
    """
    owners = {item: member for member in group.members for item in member.assignment or ()}
    tasks = {
        (subtopology, number): member
        for member in group.members
        if member.tasks is not None
        for subtopology, numbers in member.tasks.active.items()
        for number in numbers
    }
    if tasks:
        readers: dict[str, list[str]] = {}  # the subtopologies that read each topic
        for subtopology, topics in (group.subtopologies or {}).items():
            for topic in topics:
                readers.setdefault(topic, []).append(subtopology)
        for item in committed:
            for subtopology in readers.get(item.topic, ()):
                if (subtopology, item.partition) in tasks:
                    owners[item] = tasks[subtopology, item.partition]
    return owners


def _lag(
    item: TopicPartition,
    committed: OffsetAndMetadata | None,
    ends: Results[TopicPartition, FoundOffset | None],
    member: MemberDescription | None,
) -> PartitionLag:
    offset = None if committed is None else committed.offset
    if item in ends.failed:
        return PartitionLag(item, offset, None, None, member, ends.failed[item])
    log_end = ends[item]
    end = None if log_end is None else log_end.offset
    is_position = committed is not None and not is_marker(committed.metadata)
    lag = max(0, end - committed.offset) if committed is not None and is_position and end is not None else None
    return PartitionLag(item, offset, end, lag, member)

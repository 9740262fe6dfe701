"""Share groups (KIP-932): list, describe, delete; the start offsets of their partitions, and resets of them.

The start offset of a partition is the offset of the first record that the group may still deliver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import arguments
from ..cluster.coordinators import CoordinatorKind
from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    ShareGroupDescribeGroup,
    ShareGroupDescribeRequest,
)
from ..types import Node, TopicPartition
from .answers import answer_of, none_if_negative
from .calls import Calls
from .group_descriptions import GroupListing, GroupState, GroupType
from .groups import Groups
from .offsets import OffsetsOfPartitions
from .peer import Deadline, Peer
from .reset_plan import partitions_of, plan_reset
from .resets import Reset, ResetOffset
from .results import Results


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group. Several members may have the same partition."""

    member_id: str
    client_id: str
    host: str
    rack: str | None
    epoch: int
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group. ``assignment_epoch`` is below ``epoch`` while the coordinator computes the next assignment."""

    group_id: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: Node
    members: tuple[ShareMemberDescription, ...]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a share group in one partition, None before the group has read it.

    ``lag`` is the number of records that are not delivered or not acknowledged; None before Kafka 4.2, and while the
    broker does not know it.
    """

    offset: int | None
    leader_epoch: int | None
    lag: int | None


class ShareGroups:
    """The calls of ``admin.share_groups``. They require Kafka 4.1 or newer."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._groups = Groups(calls)
        self._offsets = OffsetsOfPartitions(calls)

    async def list(
        self, *, states: Iterable[GroupState | str] = (), timeout: float | None = None
    ) -> tuple[GroupListing, ...]:
        """List all share groups that this client may see, by name. ``states`` selects some of them.

        Raises the error if one broker did not answer, since the list would not be complete.
        """
        return await self._groups.list(states=states, types=(GroupType.SHARE,), timeout=timeout)

    async def describe(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, ShareGroupDescription]:
        """Describe share groups, with their members and assignments."""
        return await self._describe(arguments.names(groups, "group"), self._calls.deadline(timeout))

    async def _describe(self, groups: Iterable[str], deadline: Deadline) -> Results[str, ShareGroupDescription]:
        async def ask(peer: Peer, items: list[str]) -> Mapping[str, ShareGroupDescription | KafkaError]:
            peer.require(ShareGroupDescribeRequest.INTRODUCED, "describing share groups")
            answer = await peer.send(ShareGroupDescribeRequest(group_ids=items, include_authorized_operations=False))
            return {group.group_id: _described(group, peer.node) for group in answer.groups}

        return await self._calls.at_coordinators(
            CoordinatorKind.GROUP, "describing share groups", groups, ask, deadline
        )

    async def delete(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete share groups and their offsets. A group with members fails with NON_EMPTY_GROUP."""
        return await self._groups.delete(groups, timeout=timeout)

    # Offsets.

    async def offsets(
        self, groups: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, Mapping[TopicPartition, ShareOffset]]:
        """Read the start offsets of share groups in all partitions that they have read."""
        return await self._read_offsets(arguments.names(groups, "group"), self._calls.deadline(timeout))

    async def _read_offsets(
        self, names: Iterable[str], deadline: Deadline
    ) -> Results[str, Mapping[TopicPartition, ShareOffset]]:
        async def ask(peer: Peer, items: list[str]) -> Mapping[str, Mapping[TopicPartition, ShareOffset] | KafkaError]:
            peer.require(DescribeShareGroupOffsetsRequest.INTRODUCED, "offsets of share groups")
            groups = [DescribeShareGroupOffsetsRequestGroup(group_id=item, topics=None) for item in items]
            answer = await peer.send(DescribeShareGroupOffsetsRequest(groups=groups))
            return {group.group_id: _offsets_of(group) for group in answer.groups}

        return await self._calls.at_coordinators(
            CoordinatorKind.GROUP, "asking for offsets of share groups", names, ask, deadline
        )

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group without members. A group with members fails with NON_EMPTY_GROUP."""
        checked_offsets = {
            partition: arguments.offset(offset)
            for partition, offset in arguments.by_partition("offsets", offsets).items()
        }
        return await self._alter(arguments.text("group", group), checked_offsets, self._calls.deadline(timeout))

    async def _alter(
        self, group_id: str, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> Results[TopicPartition, None]:
        what = f"setting offsets of share group {group_id!r}"

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError | None]:
            peer.require(AlterShareGroupOffsetsRequest.INTRODUCED, "setting offsets of share groups")
            topics = [
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=number, start_offset=offsets[TopicPartition(name, number)]
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in arguments.by_topic(items).items()
            ]
            answer = await peer.send(AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics))
            if answer.error_code:
                return dict.fromkeys(items, error_for(answer.error_code, what, reason=answer.error_message))
            return {
                TopicPartition(topic.topic_name, partition.partition_index): answer_of(
                    partition.error_code,
                    f"{what}, {topic.topic_name}-{partition.partition_index}",
                    None,
                    partition.error_message,
                )
                for topic in answer.responses
                for partition in topic.partitions
            }

        return await self._calls.of_group(what, group_id, offsets, ask, deadline)

    async def delete_offsets(
        self, group: str, topics: str | Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Delete the offsets of topics in a share group without members.

        The group then reads the topics from its start policy.
        """
        group_id = arguments.text("group", group)
        what = f"deleting offsets of share group {group_id!r}"

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, KafkaError | None]:
            peer.require(DeleteShareGroupOffsetsRequest.INTRODUCED, "deleting offsets of share groups")
            request_topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=item) for item in items]
            answer = await peer.send(DeleteShareGroupOffsetsRequest(group_id=group_id, topics=request_topics))
            if answer.error_code:
                return dict.fromkeys(items, error_for(answer.error_code, what, reason=answer.error_message))
            return {
                response.topic_name: answer_of(
                    response.error_code, f"{what}, {response.topic_name}", None, response.error_message
                )
                for response in answer.responses
            }

        names = arguments.names(topics, "topic")
        return await self._calls.of_group(what, group_id, names, ask, self._calls.deadline(timeout))

    async def reset_offsets(
        self,
        group: str,
        to: Reset,
        *,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Results[TopicPartition, ResetOffset]:
        """Reset the start offsets of a share group without members. By default, all topics that it has read.

        New offsets stay within the range of the partition. ``dry_run`` changes nothing. Raises BrokerError
        (NON_EMPTY_GROUP) if the group has members.
        """
        if not isinstance(to, Reset):
            raise TypeError(arguments.must_be("to", "a Reset such as Reset.to_earliest()", to))
        group_id = arguments.text("group", group)
        names = None if topics is None else arguments.names(topics, "topic")
        deadline = self._calls.deadline(timeout)
        description = (await self._describe([group_id], deadline))[group_id]
        if description.members:
            members = arguments.plural(len(description.members), "member")
            text = f"share group {group_id!r} has {members}; stop them first"
            raise error_for(ErrorCode.NON_EMPTY_GROUP, text)
        present = (await self._read_offsets([group_id], deadline))[group_id]
        partitions = list(present) if names is None else await partitions_of(self._calls, names, deadline)
        before = {item: offset.offset for item, offset in present.items() if offset.offset is not None}
        planned = await plan_reset(self._offsets, to, partitions, before, deadline)
        if dry_run or not planned.done:
            return planned
        altered = await self._alter(group_id, {item: move.after for item, move in planned.done.items()}, deadline)
        return Results({item: planned.done[item] for item in altered.done}, {**planned.failed, **altered.failed})


def _described(group: ShareGroupDescribeGroup, coordinator: Node) -> ShareGroupDescription | KafkaError:
    if group.error_code:
        return error_for(group.error_code, f"describing share group {group.group_id!r}", reason=group.error_message)
    members = tuple(
        ShareMemberDescription(
            member.member_id,
            member.client_id,
            member.client_host,
            member.rack_id,
            member.member_epoch,
            tuple(member.subscribed_topic_names),
            tuple(
                sorted(
                    TopicPartition(topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                )
            ),
        )
        for member in group.members
    )
    return ShareGroupDescription(
        group.group_id,
        GroupState(group.group_state),
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        coordinator,
        members,
    )


def _offsets_of(group: DescribeShareGroupOffsetsResponseGroup) -> Mapping[TopicPartition, ShareOffset] | KafkaError:
    what = f"offsets of share group {group.group_id!r}"
    if group.error_code:
        return error_for(group.error_code, what, reason=group.error_message)
    offsets: dict[TopicPartition, ShareOffset] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return error_for(
                    partition.error_code,
                    f"{what}, {topic.topic_name}-{partition.partition_index}",
                    reason=partition.error_message,
                )
            offsets[TopicPartition(topic.topic_name, partition.partition_index)] = ShareOffset(
                none_if_negative(partition.start_offset),
                none_if_negative(partition.leader_epoch),
                none_if_negative(partition.lag),
            )
    return dict(sorted(offsets.items()))

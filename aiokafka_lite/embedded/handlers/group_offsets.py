"""OffsetCommit, OffsetFetch and OffsetDelete: what groups remember.

- OffsetCommit v2 to v4 may say how long to keep the offset; v6 adds leader epochs; v10 names topics by id.
- OffsetFetch v2 asks for all with a null and has an error for the whole; v8 asks for many groups; v10 names topics by
  id. A partition without a committed offset is answered with offset -1 and no error.
- OffsetDelete removes offsets of topics that the group is not subscribed to (KIP-496).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...errors import ErrorCode, ProtocolError
from ...protocol.codec import decode_versioned
from ...protocol.messages import (
    ConsumerProtocolSubscription,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ...protocol.schema import ZERO_UUID
from ..authoriser import Operation, Resource, ResourceType
from ..group import Group, GroupState
from ..group_coordinator import CommittedOffset
from ..topics import PartitionKey
from .group_membership import may

if TYPE_CHECKING:
    from ..connection import RequestContext

MAX_METADATA = 4096
NAMES_MISSING_GROUPS = 9
TOPIC_IDS = 10
MANY_GROUPS = 8
NOTHING_COMMITTED = CommittedOffset(-1, -1, "", -1)


async def offset_commit(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    groups = context.node.groups
    offsets: dict[PartitionKey, CommittedOffset] = {}
    results: dict[tuple[str, bytes, int], ErrorCode] = {}
    error: ErrorCode | None = None  # the group is asked only when a partition is there to commit
    for topic in request.topics:
        name, topic_error = _name_of(context, topic)
        for partition in topic.partitions:
            refusal = topic_error
            if refusal is ErrorCode.NONE and context.node.partition_state((name, partition.partition_index)) is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if refusal is ErrorCode.NONE:
                error = _check_group(context, request) if error is None else error
                refusal = error or _check_metadata(partition)
            results[topic.name, topic.topic_id, partition.partition_index] = refusal
            if refusal is ErrorCode.NONE:
                offsets[name, partition.partition_index] = _committed(context, request, partition)
    if offsets:
        written = await groups.commit(request.group_id, offsets)
        results = {key: refusal or written for key, refusal in results.items()}
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=results[topic.name, topic.topic_id, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _name_of(
    context: RequestContext, topic: OffsetCommitRequestTopic | OffsetFetchRequestTopics
) -> tuple[str, ErrorCode]:
    """The topic's name, by id from v10 on, and what is wrong with it as a whole."""
    name: str | None = topic.name
    if context.version >= TOPIC_IDS:
        name = context.node.topic_name(topic.topic_id)
    if name is None:
        return "", ErrorCode.UNKNOWN_TOPIC_ID
    allows = context.node.cluster.authoriser.allows
    if not allows(context.principal, Operation.READ, Resource(ResourceType.TOPIC, name)):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, ErrorCode.NONE


def _check_group(context: RequestContext, request: OffsetCommitRequest) -> ErrorCode:
    if not may(context, Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return context.node.groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        names_missing=context.version >= NAMES_MISSING_GROUPS,
    )


def _check_metadata(partition: OffsetCommitRequestPartition) -> ErrorCode:
    # Kafka counts as Java does, in units of UTF-16.
    units = len((partition.committed_metadata or "").encode("utf-16-le")) // 2
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if units > MAX_METADATA else ErrorCode.NONE


def _committed(
    context: RequestContext, request: OffsetCommitRequest, partition: OffsetCommitRequestPartition
) -> CommittedOffset:
    now = context.node.now_ms()
    expires_at = now + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now,
        expires_at,
    )


def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= MANY_GROUPS:
        return OffsetFetchResponse(groups=[_fetch_group(context, group) for group in request.groups])
    error = _check_fetch(context, request.group_id)
    if error is not ErrorCode.NONE and context.version >= 2:
        return OffsetFetchResponse(error_code=error)
    committed = context.node.groups.committed(request.group_id) if error is ErrorCode.NONE else {}
    wanted = (
        _all_of(committed)
        if request.topics is None
        else [(topic.name, topic.partition_indexes) for topic in request.topics]
    )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=error,
                    )
                    for index in indexes
                    for found in (committed.get((name, index), NOTHING_COMMITTED),)
                ],
            )
            for name, indexes in wanted
        ]
    )


def _check_fetch(context: RequestContext, group_id: str) -> ErrorCode:
    if not may(context, Operation.DESCRIBE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return context.node.groups.check(group_id)


def _all_of(committed: Mapping[PartitionKey, CommittedOffset]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(committed):
        topics.setdefault(name, []).append(index)
    return list(topics.items())


def _fetch_group(context: RequestContext, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    error = _check_fetch(context, group.group_id)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
    committed = context.node.groups.committed(group.group_id)
    wanted: list[tuple[str, bytes, Iterable[int], ErrorCode]] = []
    if group.topics is None:
        for name, indexes in _all_of(committed):
            known = context.node.topics.get(name)
            wanted.append((name, ZERO_UUID if known is None else known.topic_id, indexes, ErrorCode.NONE))
    else:
        for topic in group.topics:
            name, problem = _name_of(context, topic)
            wanted.append((name, topic.topic_id, topic.partition_indexes, problem))
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=problem,
                    )
                    for index in indexes
                    for found in (NOTHING_COMMITTED if problem else committed.get((name, index), NOTHING_COMMITTED),)
                ],
            )
            for name, topic_id, indexes, problem in wanted
        ],
    )


async def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    groups = context.node.groups
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if may(context, Operation.DELETE, request.group_id):
        error = groups.check(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    group = groups.group(request.group_id)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if error is not ErrorCode.NONE or group is None:
        return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])
    busy = _subscribed(group)
    if busy is None:
        return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, throttle_time_ms=0, topics=[])
    results = {
        (topic.name, partition.partition_index): (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if context.node.partition_state((topic.name, partition.partition_index)) is None
            else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if topic.name in busy
            else ErrorCode.NONE
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    await groups.delete_offsets(request.group_id, [key for key, problem in results.items() if not problem])
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        throttle_time_ms=0,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=results[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _subscribed(group: Group) -> set[str] | None:
    """The topics that members subscribe to; None where that cannot be told, as the group is not of consumers."""
    if group.state is GroupState.EMPTY:
        return set()
    if group.protocol_type != "consumer":
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(decode_versioned(ConsumerProtocolSubscription, member.subscription(group.protocol))[0].topics)
        except ProtocolError:
            return None
    return topics


HANDLERS = {
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
    OffsetDeleteRequest: offset_delete,
}

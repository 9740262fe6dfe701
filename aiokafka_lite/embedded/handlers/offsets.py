"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, by time and by epoch.

- ListOffsets timestamps: -1 latest, -2 earliest, -3 the record with the highest timestamp (v7, KIP-734), -4 earliest
  local and -5 latest tiered (v8, v9; there is no tiered storage here, so that -4 is -2 and -5 finds nothing), -6 the
  earliest that is to be uploaded (v11). Others: the first record at that time or later; none is offset -1.
- v2 adds the isolation level: "latest" is the last stable offset or the high watermark. v4 adds leader epochs.
- A partition asked for twice is answered once, with INVALID_REQUEST.
- A time in the future, or later than all records, gives offset -1 and no error.
- OffsetForLeaderEpoch gives the end of the largest epoch at or below the one asked for (KIP-279); v3 names the replica.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from ..authoriser import Operation, Resource, ResourceType
from ..partition import NotLeader, Partition
from ..topics import PartitionKey

if TYPE_CHECKING:
    from ..connection import RequestContext

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION_WITH = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
CONSUMER = -1


def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    topics: dict[str, ListOffsetsResponseTopic] = {}
    for topic in request.topics:
        answer = topics.setdefault(topic.name, ListOffsetsResponseTopic(name=topic.name, partitions=[]))
        for wanted in topic.partitions:
            count = asked.pop((topic.name, wanted.partition_index), 0)
            if count == 1:
                answer.partitions.append(_list_one(context, request, topic.name, wanted))
            elif count > 1:
                answer.partitions.append(_failed(wanted.partition_index, ErrorCode.INVALID_REQUEST))
    return ListOffsetsResponse(topics=list(topics.values()))


def _failed(index: int, code: ErrorCode) -> ListOffsetsResponsePartition:
    return ListOffsetsResponsePartition(partition_index=index, error_code=code)


def _list_one(
    context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsRequestPartition
) -> ListOffsetsResponsePartition:
    answer = ListOffsetsResponsePartition(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)
    if wanted.timestamp < EARLIEST_PENDING_UPLOAD or context.version < FIRST_VERSION_WITH.get(wanted.timestamp, 0):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    try:
        partition = _require(context, (topic, wanted.partition_index), wanted.current_leader_epoch)
    except NotLeader as error:
        answer.error_code = error.code
        return answer
    _look_up(partition, request, wanted.timestamp, answer)
    if context.version < 4:
        answer.leader_epoch = -1
    return answer


def _look_up(
    partition: Partition, request: ListOffsetsRequest, timestamp: int, answer: ListOffsetsResponsePartition
) -> None:
    log = partition.log
    end = log.end_offset
    if request.replica_id == CONSUMER:
        end = partition.last_stable_offset if request.isolation_level else log.high_watermark
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, partition.state.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.start_offset
        answer.leader_epoch = log.epoch_at(log.start_offset)
    elif timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
        if found is not None and found.offset < end:
            answer.timestamp, answer.offset, answer.leader_epoch = found


def _require(context: RequestContext, key: PartitionKey, current_leader_epoch: int) -> Partition:
    """The replica that leads here; raises NotLeader with whatever code fits."""
    node = context.node
    resource = Resource(ResourceType.TOPIC, key[0])
    if not node.cluster.authoriser.allows(context.principal, Operation.DESCRIBE, resource):
        raise NotLeader(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    if node.partition_state(key) is None:
        raise NotLeader(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {key}")
    partition = node.replica_manager.require(key)
    partition.require_leader(current_leader_epoch)
    return partition


def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[_end_of_epoch(context, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _end_of_epoch(
    context: RequestContext, topic: str, wanted: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    try:
        partition = _require(context, (topic, wanted.partition), wanted.current_leader_epoch)
    except NotLeader as error:
        return OffsetForLeaderEpochResponsePartition(error_code=error.code, partition=wanted.partition)
    end = partition.end_of_epoch(wanted.leader_epoch)
    return OffsetForLeaderEpochResponsePartition(
        error_code=ErrorCode.NONE, partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )


HANDLERS = {ListOffsetsRequest: list_offsets, OffsetForLeaderEpochRequest: offset_for_leader_epoch}

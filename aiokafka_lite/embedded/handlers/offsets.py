"""ListOffsets and OffsetForLeaderEpoch: offsets by time and by leader epoch.

ListOffsets finds the first record with a timestamp or a later one, or a special offset:

- -1: latest. -2: earliest.
- -3: the record with the highest timestamp (v7, KIP-734).
- -4: earliest local (v8). There is no tiered storage here, so it is the same as -2.
- -5: latest tiered (v9). -6: earliest pending upload (v11). Both find nothing here.

The versions and special cases:

- v0 returns a list of at most ``max_num_offsets`` offsets, the latest first. For "earliest": the start of the log.
  For "latest": the end, and the starts of all segments. For a time: the starts of the segments without
  records after that time.
- v2 adds the isolation level: "latest" is the last stable offset or the high watermark. v4 adds leader epochs.
- If no record is found, the offset is -1, without an error.
- A new leader does not know at once which records are committed: its high watermark may be lower than the end that the
  former leader returned. Until it has reached the start of the leader's epoch, "latest" and times without a committed
  record get OFFSET_NOT_AVAILABLE (KIP-207); LEADER_NOT_AVAILABLE before v5. Otherwise the end of a log would go back,
  and a reader that planned with the former end would take records for lost.
- A partition that is named twice gets one answer, INVALID_REQUEST.

OffsetForLeaderEpoch finds the end of the largest epoch that is not above the requested one (KIP-279). v3 adds the
replica id.
"""

from __future__ import annotations

from collections import Counter

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.schema import Response
from ..error_responses import error_response
from ..replicas.partition import NotLeader, Partition
from ..request_context import RequestContext, handles
from .fetch import READ_COMMITTED, READ_UNCOMMITTED

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSIONS = {
    MAX_TIMESTAMP: m.ListOffsetsRequest.MAX_TIMESTAMP,
    EARLIEST_LOCAL: m.ListOffsetsRequest.EARLIEST_LOCAL,
    LATEST_TIERED: m.ListOffsetsRequest.LATEST_TIERED,
    EARLIEST_PENDING_UPLOAD: m.ListOffsetsRequest.EARLIEST_PENDING_UPLOAD,
}
CONSUMER = -1


@handles(m.ListOffsetsRequest)
def list_offsets(context: RequestContext, request: m.ListOffsetsRequest) -> Response | None:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.version)
    denied = {topic.name for topic in request.topics if not context.allows_topic(AclOperation.DESCRIBE, topic.name)}
    counts = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    topics: dict[str, m.ListOffsetsResponseTopic] = {}
    for topic in filter(lambda topic: topic.partitions, request.topics):
        answer = topics.setdefault(topic.name, m.ListOffsetsResponseTopic(name=topic.name, partitions=[]))
        for partition in topic.partitions:
            count = counts.pop((topic.name, partition.partition_index), 0)
            if topic.name in denied:
                answer.partitions.append(_failed(partition.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif count == 1:
                answer.partitions.append(_list_one(context, request, topic.name, partition))
            elif count > 1:
                answer.partitions.append(_failed(partition.partition_index, ErrorCode.INVALID_REQUEST))
    return m.ListOffsetsResponse(topics=list(topics.values()))


def _failed(index: int, code: ErrorCode) -> m.ListOffsetsResponsePartition:
    return m.ListOffsetsResponsePartition(partition_index=index, error_code=code)


def _list_one(
    context: RequestContext, request: m.ListOffsetsRequest, topic: str, request_partition: m.ListOffsetsRequestPartition
) -> m.ListOffsetsResponsePartition:
    answer = m.ListOffsetsResponsePartition(
        partition_index=request_partition.partition_index, error_code=ErrorCode.NONE
    )
    if request_partition.timestamp < EARLIEST_PENDING_UPLOAD or context.version < FIRST_VERSIONS.get(
        request_partition.timestamp, 0
    ):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    try:
        partition = context.leader(
            (topic, request_partition.partition_index), None, request_partition.current_leader_epoch
        )
    except NotLeader as error:
        answer.error_code = error.code
        return answer
    if context.version < m.ListOffsetsRequest.ONE_OFFSET:
        answer.old_style_offsets = _starts(partition, request_partition.timestamp)[
            : max(0, request_partition.max_num_offsets)
        ]
        return answer
    _look_up(partition, request, request_partition.timestamp, answer)
    is_behind = request.replica_id == CONSUMER and partition.epoch_start > partition.log.high_watermark
    is_by_time = request_partition.timestamp >= 0 or request_partition.timestamp == MAX_TIMESTAMP
    if is_behind and (request_partition.timestamp == LATEST or (is_by_time and answer.offset < 0)):
        is_new = context.version >= m.ListOffsetsRequest.OFFSET_NOT_AVAILABLE
        return _failed(
            request_partition.partition_index,
            ErrorCode.OFFSET_NOT_AVAILABLE if is_new else ErrorCode.LEADER_NOT_AVAILABLE,
        )
    if context.version < m.ListOffsetsRequest.LEADER_EPOCHS:
        answer.leader_epoch = -1
    return answer


def _starts(partition: Partition, timestamp: int) -> list[int]:
    """Return the start offsets of segments, as v0 returns them."""
    log = partition.log
    if timestamp == EARLIEST:
        return [log.start_offset]
    latest = timestamp == LATEST
    segments = [segment for segment in log.segments if latest or -1 < segment.max_timestamp <= timestamp]
    starts = {max(segment.base_offset, log.start_offset) for segment in segments}
    return sorted({*starts, log.high_watermark} if latest else starts, reverse=True)


def _look_up(
    partition: Partition, request: m.ListOffsetsRequest, timestamp: int, answer: m.ListOffsetsResponsePartition
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
        record = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
        if record is not None and record.offset < end:
            answer.timestamp, answer.offset, answer.leader_epoch = record


@handles(m.OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    context: RequestContext, request: m.OffsetForLeaderEpochRequest
) -> m.OffsetForLeaderEpochResponse:
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[_end_of_epoch(context, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _end_of_epoch(
    context: RequestContext, topic: str, request: m.OffsetForLeaderEpochRequestPartition
) -> m.OffsetForLeaderEpochResponsePartition:
    operation = None if context.allows(AclOperation.CLUSTER_ACTION) else AclOperation.DESCRIBE
    try:
        partition = context.leader((topic, request.partition), operation, request.current_leader_epoch)
    except NotLeader as error:
        return m.OffsetForLeaderEpochResponsePartition(error_code=error.code, partition=request.partition)
    end = partition.end_of_epoch(request.leader_epoch)
    return m.OffsetForLeaderEpochResponsePartition(
        error_code=ErrorCode.NONE, partition=request.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )

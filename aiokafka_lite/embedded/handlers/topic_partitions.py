"""DescribeTopicPartitions: topics in pages (KIP-966).

- Topics come in order of their names, all of them if none is named; partitions in order of their numbers.
- A page ends after as many partitions as the request allows, and never after more than the broker allows. The cursor
  names the partition that the next page begins with.
- The partition of a cursor counts only if its topic is still there.
- Which replicas are eligible to lead without being in sync is not kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicPartitionCursor,
)
from ...protocol.schema import ZERO_UUID
from ..authoriser import Operation, Resource, ResourceType
from ..topics import NO_LEADER, PartitionState, is_legal_name
from .metadata import TOPIC_OPERATIONS

if TYPE_CHECKING:
    from ..connection import RequestContext

LIMIT = 2000


def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    every = not request.topics
    names = {name for name in context.node.topics if _may_describe(context, name)} if every else _named(request)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    room = max(1, min(request.response_partition_limit, LIMIT))
    for name in sorted(names):
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
        if not room:
            response.next_cursor = TopicPartitionCursor(topic_name=name, partition_index=0)
            break
        topic = _describe(context, name, first, room)
        response.topics.append(topic)
        room -= len(topic.partitions)
        known = context.node.topics.get(name)
        end = first + len(topic.partitions)
        if known is not None and not topic.error_code and end < len(known.partitions):
            response.next_cursor = TopicPartitionCursor(topic_name=name, partition_index=end)
            break
    return response


def _named(request: DescribeTopicPartitionsRequest) -> set[str]:
    return {topic.name for topic in request.topics}


def _may_describe(context: RequestContext, name: str) -> bool:
    return context.node.cluster.authoriser.allows(
        context.principal, Operation.DESCRIBE, Resource(ResourceType.TOPIC, name)
    )


def _describe(context: RequestContext, name: str, first: int, room: int) -> DescribeTopicPartitionsResponseTopic:
    described = DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    topic = context.node.topics.get(name)
    if not is_legal_name(name):
        described.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif not _may_describe(context, name):
        described.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        described.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        described.topic_id = topic.topic_id
        states = list(enumerate(topic.partitions))[first : first + room]
        described.partitions = [_partition(context, index, state) for index, state in states]
    return described


def _partition(context: RequestContext, index: int, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
    brokers = context.node.brokers
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[each for each in state.replicas if not (known := brokers.get(each)) or not known.alive],
    )


HANDLERS = {DescribeTopicPartitionsRequest: describe_topic_partitions}

"""DescribeTopicPartitions: topics in pages (KIP-966).

- Topics are sorted by name, partitions by number. A request that names no topic means all topics.
- The request and the broker both limit the number of partitions on a page. The cursor names the first partition of the
  next page; its partition number counts only if its topic still exists.
- The last known leader of a partition without an in-sync set is in ``last_known_elr``, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicPartitionCursor,
)
from ...protocol.schema import ZERO_UUID
from ..metadata.controller import Refused
from ..metadata.topics import NO_LEADER, PartitionRegistration, is_legal_name
from ..request_context import RequestContext, handles
from ..security.authorizer import Resource

LIMIT = 2000


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or TopicPartitionCursor(topic_name="", partition_index=0)
    if request.cursor is not None and (cursor.partition_index < 0 or not cursor.topic_name):
        raise Refused(ErrorCode.INVALID_REQUEST, f"the cursor must be a topic and a partition, got {cursor}")
    names = {topic.name for topic in request.topics}
    names_from_cursor = [name for name in sorted(names or context.broker.metadata.topics) if name >= cursor.topic_name]
    described = [name for name in names_from_cursor if context.allows_topic(AclOperation.DESCRIBE, name)]
    response = _page(context, described, cursor, max(1, min(request.response_partition_limit, LIMIT)))
    if names:  # denied topics are on every page, as in Kafka
        response.topics += [_denied(name) for name in names_from_cursor if name not in described]
    return response


def _page(
    context: RequestContext, names: Iterable[str], cursor: TopicPartitionCursor, room: int
) -> DescribeTopicPartitionsResponse:
    """Return the first partitions of these topics, from the cursor on: at most ``room`` of them."""
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        first = cursor.partition_index if name == cursor.topic_name else 0
        if not room:
            response.next_cursor = TopicPartitionCursor(topic_name=name, partition_index=0)
            break
        topic = _describe(context, name, first, room)
        response.topics.append(topic)
        room -= len(topic.partitions)
        registered = context.broker.metadata.topics.get(name)
        end = first + len(topic.partitions)
        if registered is not None and not topic.error_code and end < len(registered.partitions):
            response.next_cursor = TopicPartitionCursor(topic_name=name, partition_index=end)
            break
    return response


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_UUID, partitions=[]
    )


def _describe(context: RequestContext, name: str, first: int, room: int) -> DescribeTopicPartitionsResponseTopic:
    described = DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=context.allowed_operations(Resource(AclResourceType.TOPIC, name)),
    )
    topic = context.broker.metadata.topics.get(name)
    if not is_legal_name(name):
        described.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif topic is None:
        described.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        described.topic_id = topic.topic_id
        states = list(enumerate(topic.partitions))[first : first + room]
        described.partitions = [_partition(context, index, state) for index, state in states]
    return described


def _partition(
    context: RequestContext, index: int, state: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    metadata = context.broker.metadata
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[] if state.last_leader == NO_LEADER else [state.last_leader],
        offline_replicas=[replica for replica in state.replicas if not metadata.is_alive(replica)],
    )

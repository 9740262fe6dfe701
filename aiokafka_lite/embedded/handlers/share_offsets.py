"""The offsets of share groups (KIP-932): describe, alter and delete them. The coordinator of the group answers.

- DescribeShareGroupOffsets v1 adds the lag (KIP-1226). The start offset of a share partition is -1 until a record of it
  is acknowledged or released. A missing group, and a group of another type, has no offsets and no error.
- AlterShareGroupOffsets makes a group that does not exist. A group with members is NON_EMPTY_GROUP.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...acls import AclOperation
from ...arguments import by_topic
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.schema import ZERO_UUID
from ..coordinators.groups.heartbeat_group import GroupRefusal
from ..coordinators.share.group import ShareGroup, ShareGroupState
from ..metadata.features import SHARE_VERSION
from ..request_context import RequestContext, handles, refusal_in
from .share_groups import require_share_group

UNKNOWN = "This server does not host this topic-partition."


@handles(m.DescribeShareGroupOffsetsRequest, feature=SHARE_VERSION)
def describe_share_group_offsets(
    context: RequestContext, request: m.DescribeShareGroupOffsetsRequest
) -> m.DescribeShareGroupOffsetsResponse:
    return m.DescribeShareGroupOffsetsResponse(groups=[_described(context, group) for group in request.groups])


def _described(
    context: RequestContext, request: m.DescribeShareGroupOffsetsRequestGroup
) -> m.DescribeShareGroupOffsetsResponseGroup:
    response = m.DescribeShareGroupOffsetsResponseGroup(group_id=request.group_id, topics=[], error_code=ErrorCode.NONE)
    with refusal_in(response):
        if not context.allows_group(AclOperation.DESCRIBE, request.group_id):
            raise GroupRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        context.broker.groups.require(request.group_id)
        if request.topics is not None:
            _require_partitions(context, request.group_id, request.topics)
        group = context.broker.share_groups.find(request.group_id)
        topics = _topics_of(context, group) if request.topics is None else _merged(request.topics)
        for topic in topics:
            is_allowed = context.allows_topic(AclOperation.DESCRIBE, topic.topic_name)
            if is_allowed or request.topics is not None:
                response.topics.append(_described_topic(context, group, topic, is_allowed=is_allowed))
    return response


def _require_partitions(
    context: RequestContext, group_id: str, topics: Iterable[m.DescribeShareGroupOffsetsRequestTopic]
) -> None:
    """Raise GroupRefusal for a request that Kafka's share coordinator refuses with UNKNOWN_SERVER_ERROR."""
    for topic in topics:
        is_known = topic.topic_name in context.broker.metadata.topics
        if is_known and (not group_id or min(topic.partitions, default=-1) < 0):
            raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.description)


def _merged(
    topics: Iterable[m.DescribeShareGroupOffsetsRequestTopic],
) -> list[m.DescribeShareGroupOffsetsRequestTopic]:
    """Return each topic, and each of its partitions, once."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        named.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
    return [
        m.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))
        for name, partitions in named.items()
    ]


def _topics_of(context: RequestContext, group: ShareGroup | None) -> list[m.DescribeShareGroupOffsetsRequestTopic]:
    partitions = () if group is None else sorted(group.states)
    named = ((context.broker.metadata.topic_name(topic_id), index) for topic_id, index in partitions)
    topics = by_topic((name, index) for name, index in named if name is not None)
    return [
        m.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes) for name, indexes in topics.items()
    ]


def _described_topic(
    context: RequestContext,
    group: ShareGroup | None,
    request: m.DescribeShareGroupOffsetsRequestTopic,
    *,
    is_allowed: bool,
) -> m.DescribeShareGroupOffsetsResponseTopic:
    topic = context.broker.metadata.topics.get(request.topic_name) if is_allowed else None
    topic_id = ZERO_UUID if topic is None else topic.topic_id
    partitions = []
    for index in request.partitions:
        partition = m.DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=-1, leader_epoch=0, error_code=ErrorCode.NONE
        )
        state = None if group is None else group.states.get((topic_id, index))
        if not is_allowed:
            partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partition.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED.description
        elif topic is not None and state is not None and state.start_offset >= 0:
            end = context.broker.share_groups.end_offset((topic.name, index))
            partition.start_offset = state.start_offset
            partition.leader_epoch = topic.partitions[index].leader_epoch
            done = state.delivery_complete_count
            partition.lag = -1 if end is None or done < 0 else end - state.start_offset - done
        partitions.append(partition)
    return m.DescribeShareGroupOffsetsResponseTopic(
        topic_name=request.topic_name, topic_id=topic_id, partitions=partitions
    )


@handles(m.AlterShareGroupOffsetsRequest, feature=SHARE_VERSION)
def alter_share_group_offsets(
    context: RequestContext, request: m.AlterShareGroupOffsetsRequest
) -> m.AlterShareGroupOffsetsResponse:
    response = m.AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=[])
    answers: dict[str, m.AlterShareGroupOffsetsResponseTopic] = {}
    groups = context.broker.share_groups
    with refusal_in(response):
        _require_idle(context, request.group_id, AclOperation.READ)
        for topic in request.topics:
            registered = context.broker.metadata.topics.get(topic.topic_name)
            is_allowed = context.allows_topic(AclOperation.READ, topic.topic_name)
            topic_id = registered.topic_id if registered is not None and is_allowed else ZERO_UUID
            answer = m.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=topic_id, partitions=[]
            )
            answer = answers.setdefault(topic.topic_name, answer)
            for partition in topic.partitions:
                index = partition.partition_index
                result = m.AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=ErrorCode.NONE)
                with refusal_in(result):
                    _check_topic(context, topic.topic_name)
                    if context.broker.metadata.partition_state((topic.topic_name, index)) is None:
                        raise GroupRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
                    groups.set_start_offset(request.group_id, (topic_id, index), partition.start_offset)
                answer.partitions.append(result)
    response.responses = list(answers.values())
    return response


def _check_topic(context: RequestContext, name: str) -> None:
    """Raise GroupRefusal unless the client may read a topic."""
    if not context.allows_topic(AclOperation.READ, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise GroupRefusal(error, error.description)


def _require_idle(context: RequestContext, group_id: str, operation: AclOperation) -> ShareGroup | None:
    """Return the group, None if there is none. Raises GroupRefusal unless its offsets may be changed here."""
    if not context.allows_group(operation, group_id):
        raise GroupRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if not group_id:
        raise GroupRefusal(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    require_share_group(context, group_id)
    group = context.broker.share_groups.find(group_id)
    if group is not None and group.state is not ShareGroupState.EMPTY:
        raise GroupRefusal(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return group


@handles(m.DeleteShareGroupOffsetsRequest, feature=SHARE_VERSION)
def delete_share_group_offsets(
    context: RequestContext, request: m.DeleteShareGroupOffsetsRequest
) -> m.DeleteShareGroupOffsetsResponse:
    response = m.DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=[])
    with refusal_in(response):
        group = _require_idle(context, request.group_id, AclOperation.DELETE)
        if group is None:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            result = m.DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=ZERO_UUID, error_code=ErrorCode.NONE, error_message=None
            )
            with refusal_in(result):
                _check_topic(context, name)
                topic = context.broker.metadata.topics.get(name)
                if topic is None:
                    raise GroupRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
                if not context.broker.share_groups.delete_topic(group, topic.topic_id):
                    text = "There is no offset information to delete."
                    raise GroupRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                result.topic_id = topic.topic_id
            response.responses.append(result)
    return response

"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose coordinator assigns (KIP-848). ``consumer_group`` has
the rules.

- In ConsumerGroupHeartbeat v0 the coordinator may choose the member id. Since v1 a member chooses its own (KIP-1082).
- Since v1 a member may subscribe by a regular expression, which matches only topics that the member may describe.
- ConsumerGroupDescribe v1 shows the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...acls import AclOperation
from ...arguments import by_topic
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.assignors import TopicIdPartition
from ..coordinators.groups.consumer_group import ConsumerGroup, MemberHeartbeat
from ..coordinators.groups.consumer_group_members import LEAVE_STATIC
from ..coordinators.groups.heartbeat_group import JOIN, LEAVE, GroupRefusal
from ..request_context import RequestContext, handles
from .group_admin import DESCRIBED_TOPICS, check_described_topics, describe_each, missing_text

CLASSIC_PROTOCOL, CONSUMER_PROTOCOL = 0, 1
"""The types of members in ConsumerGroupDescribe."""


@handles(m.ConsumerGroupHeartbeatRequest)
async def consumer_group_heartbeat(
    context: RequestContext, request: m.ConsumerGroupHeartbeatRequest
) -> m.ConsumerGroupHeartbeatResponse:
    groups = context.broker.groups
    try:
        _check_permissions(context, request)
        _check_request(request, groups.hosted.assignors(), context.version)
        if context.broker.share_groups.find(request.group_id) is not None:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if request.member_epoch in (LEAVE, LEAVE_STATIC):
            departure = groups.consumer_leave(
                request.group_id, request.member_id, request.instance_id, request.member_epoch
            )
            await groups.until_replicated(request.group_id)
            return m.ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.NONE,
                member_id=departure.member_id,
                member_epoch=departure.epoch,
                heartbeat_interval_ms=0,
            )
        answer = groups.consumer_heartbeat(
            request.group_id,
            _heartbeat(context, request),
            lambda name: context.allows_topic(AclOperation.DESCRIBE, name),
        )
        await groups.until_replicated(request.group_id)
    except GroupRefusal as refusal:
        return m.ConsumerGroupHeartbeatResponse(
            error_code=refusal.error, error_message=refusal.text, member_epoch=0, heartbeat_interval_ms=0
        )
    return m.ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=groups.heartbeat_interval_ms(request.group_id),
        assignment=None
        if answer.assignment is None
        else m.ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                m.ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(sorted(answer.assignment)).items()
            ]
        ),
    )


def _check_permissions(context: RequestContext, request: m.ConsumerGroupHeartbeatRequest) -> None:
    if not context.allows_group(AclOperation.READ, request.group_id):
        raise GroupRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if not all(context.allows_topic(AclOperation.DESCRIBE, name) for name in request.subscribed_topic_names or ()):
        raise GroupRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def _check_request(request: m.ConsumerGroupHeartbeatRequest, assignors: list[str], version: int) -> None:
    """Raise GroupRefusal, with Kafka's texts, for a request that is invalid in every group."""
    joins = request.member_epoch == JOIN
    # In v0 the coordinator chooses the id. Kafka requires one of members and for epoch -1, not for the other epochs.
    is_member = request.member_epoch > JOIN or request.member_epoch == LEAVE
    needs_id = version >= m.ConsumerGroupHeartbeatRequest.MEMBER_CHOOSES_ID or is_member
    without_topics = request.subscribed_topic_names is None and request.subscribed_topic_regex is None
    problems = {
        "MemberId can't be empty.": needs_id and not request.member_id.strip(),
        "GroupId can't be empty.": not request.group_id.strip(),
        "InstanceId can't be empty.": request.instance_id is not None and not request.instance_id.strip(),
        "RackId can't be empty.": request.rack_id is not None and not request.rack_id.strip(),
        "RebalanceTimeoutMs must be provided in first request.": joins and request.rebalance_timeout_ms == -1,
        "TopicPartitions must be empty when (re-)joining.": joins and request.topic_partitions != [],
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.": (
            joins and without_topics
        ),
        "InstanceId can't be null.": request.member_epoch == LEAVE_STATIC and request.instance_id is None,
        "MemberEpoch is invalid.": request.member_epoch < LEAVE_STATIC,
    }
    for text, applies in problems.items():
        if applies:
            raise GroupRefusal(ErrorCode.INVALID_REQUEST, text)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = f"Supported assignors: {', '.join(assignors)}."
        text = f"ServerAssignor {request.server_assignor} is not supported. {supported}"
        raise GroupRefusal(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _heartbeat(context: RequestContext, request: m.ConsumerGroupHeartbeatRequest) -> MemberHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return MemberHeartbeat(
        request.member_id,
        request.member_epoch,
        context.client_id,
        context.client.client_host,
        request.instance_id,
        request.rack_id,
        None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms / 1000,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None
        if owned is None
        else frozenset((topic.topic_id, number) for topic in owned for number in topic.partitions),
    )


@handles(m.ConsumerGroupDescribeRequest)
def consumer_group_describe(
    context: RequestContext, request: m.ConsumerGroupDescribeRequest
) -> m.ConsumerGroupDescribeResponse:
    described = [
        m.ConsumerGroupDescribeGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
        for group_id in request.group_ids
    ]
    describe_each(context, described, _describe, with_operations=request.include_authorized_operations)
    return m.ConsumerGroupDescribeResponse(groups=described)


def _describe(context: RequestContext, described: m.ConsumerGroupDescribeGroup) -> None:
    group = context.broker.groups.replicated_group(described.group_id)
    if not isinstance(group, ConsumerGroup):
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, missing_text(context, described.group_id, "consumer"))
    check_described_topics(context, group.subscribed_topics(), DESCRIBED_TOPICS)
    described.group_state = group.state.wire_name
    described.group_epoch, described.assignment_epoch = group.epoch, group.assignment_epoch
    described.assignor_name = group.assignor
    described.members = [
        m.ConsumerGroupDescribeMember(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.regex or "",
            assignment=_assignment(context, [*member.assigned, *member.revoking]),
            target_assignment=_assignment(context, group.targets.get(member_id, ())),
            member_type=CONSUMER_PROTOCOL if member.classic is None else CLASSIC_PROTOCOL,
        )
        for member_id, member in group.members.items()
    ]


def _assignment(context: RequestContext, partitions: Iterable[TopicIdPartition]) -> m.ConsumerGroupDescribeAssignment:
    """Return the partitions whose topics exist."""
    topic_name = context.broker.metadata.topic_name
    return m.ConsumerGroupDescribeAssignment(
        topic_partitions=[
            m.ConsumerGroupDescribeTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, numbers in by_topic(sorted(partitions)).items()
            if (name := topic_name(topic_id)) is not None
        ]
    )

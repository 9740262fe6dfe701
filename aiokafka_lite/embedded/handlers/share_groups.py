"""ShareGroupHeartbeat and ShareGroupDescribe: membership of share groups (KIP-932). ``share.group`` has the rules.

A share group has the same coordinator as any other group with its id. A group id belongs to one type of group: requests
of the other types get GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from ...acls import AclOperation
from ...arguments import by_topic
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.heartbeat_group import GroupRefusal
from ..coordinators.share.group import ASSIGNOR, JOIN_EPOCH, LEAVE_EPOCH, LONGEST_MEMBER_ID, ShareHeartbeat, ShareMember
from ..metadata.features import SHARE_VERSION
from ..request_context import RequestContext, handles
from .group_admin import DESCRIBED_TOPICS, check_described_topics, describe_each


@handles(m.ShareGroupHeartbeatRequest, feature=SHARE_VERSION)
async def share_group_heartbeat(
    context: RequestContext, request: m.ShareGroupHeartbeatRequest
) -> m.ShareGroupHeartbeatResponse:
    try:
        _check(context, request)
        groups = context.broker.share_groups
        if request.member_epoch == LEAVE_EPOCH:
            groups.leave(request.group_id, request.member_id)
            await context.broker.groups.until_replicated(request.group_id)
            return m.ShareGroupHeartbeatResponse(
                error_code=ErrorCode.NONE,
                member_id=request.member_id,
                member_epoch=LEAVE_EPOCH,
                heartbeat_interval_ms=0,
            )
        heartbeat = ShareHeartbeat(
            request.member_id,
            request.member_epoch,
            request.rack_id,
            request.subscribed_topic_names,
            context.client_id,
            context.client.client_host,
        )
        member = groups.heartbeat(request.group_id, heartbeat)
        member_id, epoch, assigned = member.member_id, member.epoch, member.take_assignment()
        await context.broker.groups.until_replicated(request.group_id)
    except GroupRefusal as refusal:
        return m.ShareGroupHeartbeatResponse(
            error_code=refusal.error, error_message=refusal.text, member_epoch=0, heartbeat_interval_ms=0
        )
    return m.ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=groups.number(request.group_id, "share.heartbeat.interval.ms"),
        assignment=None
        if assigned is None
        else m.ShareGroupHeartbeatAssignment(
            topic_partitions=[
                m.ShareGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(sorted(assigned)).items()
            ]
        ),
    )


def _check(context: RequestContext, request: m.ShareGroupHeartbeatRequest) -> None:
    """Raise GroupRefusal unless the client may send this heartbeat to this broker."""
    group_id, topics = request.group_id, request.subscribed_topic_names
    if not context.allows_group(AclOperation.READ, group_id):
        raise GroupRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not all(context.allows_topic(AclOperation.DESCRIBE, name) for name in topics or ()):
        raise GroupRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refusals = {
        "GroupId can't be empty.": not group_id.strip(),
        "MemberId can't be empty.": not request.member_id.strip(),
        f"MemberId can't have more than {LONGEST_MEMBER_ID} characters.": len(request.member_id) > LONGEST_MEMBER_ID,
        "MemberEpoch is invalid.": request.member_epoch < LEAVE_EPOCH,
        "RackId can't be empty.": request.rack_id is not None and not request.rack_id.strip(),
        "SubscribedTopicNames must be set in first request.": request.member_epoch == JOIN_EPOCH and not topics,
    }
    for refusal, applies in refusals.items():
        if applies:
            raise GroupRefusal(ErrorCode.INVALID_REQUEST, refusal)
    require_share_group(context, group_id)


def require_share_group(context: RequestContext, group_id: str) -> None:
    """Raise GroupRefusal if this broker does not coordinate the group, or if the group has another type."""
    context.broker.groups.require(group_id)
    if context.broker.groups.group(group_id) is not None:
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")


@handles(m.ShareGroupDescribeRequest, feature=SHARE_VERSION)
def share_group_describe(context: RequestContext, request: m.ShareGroupDescribeRequest) -> m.ShareGroupDescribeResponse:
    described = [
        m.ShareGroupDescribeGroup(
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
    return m.ShareGroupDescribeResponse(groups=described)


def _describe(context: RequestContext, described: m.ShareGroupDescribeGroup) -> None:
    require_share_group(context, described.group_id)
    group = context.broker.share_groups.replicated(described.group_id)
    if group is None:
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {described.group_id} not found.")
    topics = {name for member in group.members.values() for name in member.topics}
    check_described_topics(context, topics, DESCRIBED_TOPICS)
    described.group_state = group.state.wire_name
    described.group_epoch = group.epoch
    described.assignment_epoch = group.assignment_epoch
    described.assignor_name = ASSIGNOR
    described.members = [_member(context, member) for member in group.members.values()]


def _member(context: RequestContext, member: ShareMember) -> m.ShareGroupDescribeMember:
    return m.ShareGroupDescribeMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=m.ShareGroupDescribeAssignment(
            topic_partitions=[
                m.ShareGroupDescribeTopicPartitions(
                    topic_id=topic_id,
                    topic_name=context.broker.metadata.topic_name(topic_id) or "",
                    partitions=partitions,
                )
                for topic_id, partitions in by_topic(sorted(member.assigned)).items()
            ]
        ),
    )

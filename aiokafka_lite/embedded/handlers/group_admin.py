"""DescribeGroups, ListGroups and DeleteGroups. Each node answers for the groups that it coordinates.

- DescribeGroups describes a missing group as DEAD, from v6 on with the error GROUP_ID_NOT_FOUND. v3 adds the operations
  that the client is allowed, v4 static members.
- With ACLs, ListGroups shows the groups that the client may describe; all of them if it may describe the cluster.
- ListGroups v4 filters by state, v5 by type: "classic", "consumer", "share" or "streams".
- For DescribeGroups a group of another type is a missing group, as a classic group is for ConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.group import Group, GroupState
from ..coordinators.groups.heartbeat_group import GroupRefusal
from ..coordinators.groups.hosted_groups import AnyGroup
from ..coordinators.share.group import ShareGroup
from ..request_context import RequestContext, handles, refusal_in
from ..security.authorizer import Resource

D = TypeVar("D", m.ConsumerGroupDescribeGroup, m.ShareGroupDescribeGroup, m.StreamsGroupDescribeGroup)

DESCRIBED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


@handles(m.DescribeGroupsRequest)
def describe_groups(context: RequestContext, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
    described = [_describe(context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        add_authorized_operations(context, described)
    return m.DescribeGroupsResponse(groups=described)


def describe_each(
    context: RequestContext, described: Sequence[D], fill: Callable[[RequestContext, D], None], *, with_operations: bool
) -> None:
    """Fill in the description of each group, or its error. For the groups whose members send only heartbeats.

    ``fill`` raises GroupRefusal before it sets a field.
    """
    for group in described:
        with refusal_in(group):
            if not context.allows_group(AclOperation.DESCRIBE, group.group_id):
                raise GroupRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not group.group_id:
                raise GroupRefusal(ErrorCode.INVALID_GROUP_ID)
            context.broker.groups.require(group.group_id)
            fill(context, group)
    if with_operations:
        add_authorized_operations(context, described)


def check_described_topics(context: RequestContext, names: Iterable[str], text: str) -> None:
    """Raise GroupRefusal with ``text`` unless the client may describe all topics of a group."""
    if not all(context.allows_topic(AclOperation.DESCRIBE, name) for name in names):
        raise GroupRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)


def add_authorized_operations(context: RequestContext, described: Iterable[m.DescribedGroup | D]) -> None:
    """Add the operations that the client may do on each group that has no error."""
    for group in described:
        if group.error_code == ErrorCode.NONE:
            resource = Resource(AclResourceType.GROUP, group.group_id)
            group.authorized_operations = context.allowed_operations(resource)


def _describe(context: RequestContext, group_id: str) -> m.DescribedGroup:
    described = m.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
    if not context.allows_group(AclOperation.DESCRIBE, group_id):
        described.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return described
    described.error_code = context.broker.groups.check(group_id)
    if described.error_code != ErrorCode.NONE:
        return described
    group = context.broker.groups.group(group_id)
    if not isinstance(group, Group):
        described.group_state = GroupState.DEAD.wire_name
        if context.version >= m.DescribeGroupsRequest.GROUP_ID_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = missing_text(context, group_id, "classic")
        return described
    described.group_state = group.state.wire_name
    described.protocol_type = group.protocol_type or ""
    is_stable = group.state is GroupState.STABLE
    described.protocol_data = (group.protocol or "") if is_stable else ""
    described.members = [
        m.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription(group.protocol) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return described


def missing_text(context: RequestContext, group_id: str, kind: str) -> str:
    """Return the text of GROUP_ID_NOT_FOUND, for a missing group or a group of another type."""
    broker = context.broker
    is_missing = broker.groups.group(group_id) is None and broker.share_groups.find(group_id) is None
    return f"Group {group_id} not found." if is_missing else f"Group {group_id} is not a {kind} group."


@handles(m.ListGroupsRequest)
def list_groups(context: RequestContext, request: m.ListGroupsRequest) -> m.ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    shows_all = context.allows(AclOperation.DESCRIBE)
    broker = context.broker
    share_groups = [group for group in broker.share_groups if broker.groups.check(group.group_id) is ErrorCode.NONE]
    groups: list[AnyGroup | ShareGroup] = [*broker.groups.groups(), *share_groups]
    return m.ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            m.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.wire_name,
                group_type=group.type,
            )
            for group in groups
            if (not states or group.state.wire_name.lower() in states)
            and (not types or group.type in types)
            and (shows_all or context.allows_group(AclOperation.DESCRIBE, group.group_id))
        ],
    )


@handles(m.DeleteGroupsRequest)
async def delete_groups(context: RequestContext, request: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if context.allows_group(AclOperation.DELETE, group_id):
            error = await _delete(context, group_id)
        results.append(m.DeletableGroupResult(group_id=group_id, error_code=error))
    return m.DeleteGroupsResponse(results=results)


async def _delete(context: RequestContext, group_id: str) -> ErrorCode:
    error = context.broker.groups.check(group_id)
    if error is ErrorCode.NONE and context.broker.share_groups.find(group_id) is not None:
        return context.broker.share_groups.delete(group_id)
    return await context.broker.groups.delete_group(group_id)

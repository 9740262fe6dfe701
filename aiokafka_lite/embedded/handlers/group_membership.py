"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic group protocol. ``group`` has the rules.

- JoinGroup v0 has one timeout for the session and the rebalance.
- From JoinGroup v4 on, a new member gets a member id with MEMBER_ID_REQUIRED, and joins again with it (KIP-394).
- JoinGroup v5 adds static members. v9 asks a static leader that returned to keep the assignment (KIP-814).
- SyncGroup v5 names the protocol, which must be the group's.
- LeaveGroup before v3 names one member, and its error is the error of the response.

As in Kafka, these responses wait until the replicas have the records behind them: SyncGroup for the assignments,
JoinGroup for a static member that returned, and LeaveGroup for a group that it has emptied. A JoinGroup that completes
a rebalance writes no record. A Heartbeat waits for the records of earlier requests, because its answer shows the state
after them.
"""

from __future__ import annotations

import asyncio

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.heartbeat_group import GroupRefusal
from ..coordinators.groups.members import JoiningMember, SyncResult
from ..request_context import RequestContext, handles


@handles(m.JoinGroupRequest)
async def join_group(context: RequestContext, request: m.JoinGroupRequest) -> m.JoinGroupResponse:
    version = context.version
    if not context.allows_group(AclOperation.READ, request.group_id):
        return _refused(request.member_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
    session = request.session_timeout_ms / 1000
    joining = JoiningMember(
        request.member_id,
        request.group_instance_id,
        context.client_id,
        context.client.client_host,
        session,
        request.rebalance_timeout_ms / 1000 if version >= m.JoinGroupRequest.REBALANCE_TIMEOUT else session,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
    )
    answer = context.broker.groups.join(
        request.group_id,
        joining,
        require_member_id=version >= m.JoinGroupRequest.MEMBER_ID_REQUIRED,
        is_share_group=context.broker.share_groups.find(request.group_id) is not None,
    )
    result = await answer if isinstance(answer, asyncio.Future) else answer
    error = result.error
    # An answer that was a future has waited for the replicas already.
    if error is ErrorCode.NONE and not isinstance(answer, asyncio.Future):
        error = await _replicated(context, request.group_id)
    if error is not ErrorCode.NONE:
        return _refused(result.member_id, error, version)
    members = result.members
    leader = result.leader
    skips_assignment = bool(result.former_leader) and version >= m.JoinGroupRequest.SKIP_ASSIGNMENT
    if result.former_leader and not skips_assignment:
        # Without the flag an old client would assign partitions again, so it must not take itself for the leader.
        members, leader = (), result.former_leader
    return m.JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        leader=leader,
        skip_assignment=skips_assignment,
        member_id=result.member_id,
        members=[
            m.JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in members
        ],
    )


async def _replicated(context: RequestContext, group_id: str) -> ErrorCode:
    """Wait until the replicas have what was written for the members of a group. Returns an error if they do not."""
    try:
        await context.broker.groups.until_replicated(group_id)
    except GroupRefusal as refusal:
        return refusal.error
    return ErrorCode.NONE


def _refused(member_id: str, error: ErrorCode, version: int) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        error_code=error,
        protocol_name=None if version >= m.JoinGroupRequest.NULLABLE_PROTOCOL else "",
        leader="",
        member_id=member_id,
        members=[],
    )


@handles(m.SyncGroupRequest)
async def sync_group(context: RequestContext, request: m.SyncGroupRequest) -> m.SyncGroupResponse:
    if context.version >= m.SyncGroupRequest.PROTOCOL_NAMES and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return m.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    if not context.allows_group(AclOperation.READ, request.group_id):
        return m.SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, assignment=b"")
    try:
        answer = context.broker.groups.classic_group(request.group_id).sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            {assignment.member_id: assignment.assignment for assignment in request.assignments},
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
        )
        result = await answer if isinstance(answer, asyncio.Future) else answer
        # As above: a future has waited for the replicas already.
        if result.error is ErrorCode.NONE and not isinstance(answer, asyncio.Future):
            await context.broker.groups.until_replicated(request.group_id)
    except GroupRefusal as refusal:
        result = SyncResult(refusal.error)
    return m.SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


@handles(m.HeartbeatRequest)
async def heartbeat(context: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
    if not context.allows_group(AclOperation.READ, request.group_id):
        return m.HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        group = context.broker.groups.classic_group(request.group_id)
        error = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            await context.broker.groups.until_replicated(request.group_id)
    except GroupRefusal as refusal:
        error = refusal.error
    return m.HeartbeatResponse(error_code=error)


@handles(m.LeaveGroupRequest)
async def leave_group(context: RequestContext, request: m.LeaveGroupRequest) -> m.LeaveGroupResponse:
    if not context.allows_group(AclOperation.READ, request.group_id):
        return m.LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = context.broker.groups
    if context.version < m.LeaveGroupRequest.MANY_MEMBERS:
        error = _leave(context, request.group_id, request.member_id, None)
        return m.LeaveGroupResponse(error_code=error or await _replicated(context, request.group_id))
    error = groups.check(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return m.LeaveGroupResponse(error_code=error)
    members = [
        m.LeaveGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=_leave(context, request.group_id, member.member_id, member.group_instance_id),
        )
        for member in request.members
    ]
    error = await _replicated(context, request.group_id)
    return m.LeaveGroupResponse(error_code=error, members=members if error is ErrorCode.NONE else [])


def _leave(context: RequestContext, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
    """Remove one member. Each member asks for the group again, because the departure of one may replace the group."""
    try:
        return context.broker.groups.classic_group(group_id).leave(member_id, instance_id)
    except GroupRefusal as refusal:
        return refusal.error

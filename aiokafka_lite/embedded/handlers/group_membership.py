"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic group protocol. The rules are in ``group``.

- JoinGroup v0 has one timeout for session and rebalance. From v4 on a new member is sent back with the id to join with
  (KIP-394); v5 has static members; v9 tells a static leader that came back to leave the assignment alone (KIP-814).
- SyncGroup v5 names the protocol, which must be the group's.
- LeaveGroup before v3 takes one member, whose error is that of the whole.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..authoriser import Operation, Resource, ResourceType
from ..group import JoiningMember

if TYPE_CHECKING:
    from ..connection import RequestContext

REQUIRES_MEMBER_ID = 4
HAS_MEMBER_LIST = 3
NAMES_PROTOCOL = 5
SKIPS_ASSIGNMENT = 9
NULLABLE_PROTOCOL = 7


def may(context: RequestContext, operation: Operation, group_id: str) -> bool:
    """Whether the client may do this with the group."""
    allows = context.node.cluster.authoriser.allows
    return allows(context.principal, operation, Resource(ResourceType.GROUP, group_id))


async def join_group(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.version
    if not may(context, Operation.READ, request.group_id):
        return _refused(request.member_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
    session = request.session_timeout_ms / 1000
    joining = JoiningMember(
        request.member_id,
        request.group_instance_id,
        context.client_id,
        context.connection.client_host,
        session,
        request.rebalance_timeout_ms / 1000 if version >= 1 else session,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
    )
    answer = context.node.groups.join(request.group_id, joining, require_member_id=version >= REQUIRES_MEMBER_ID)
    result = await answer if isinstance(answer, asyncio.Future) else answer
    if result.error is not ErrorCode.NONE:
        return _refused(result.member_id, result.error, version)
    members = result.members
    leader = result.leader
    if result.skip_assignment and version < SKIPS_ASSIGNMENT:
        # A client that cannot be told to skip the assignment must not believe that it leads.
        members, leader = (), ""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        leader=leader,
        skip_assignment=result.skip_assignment and version >= SKIPS_ASSIGNMENT,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in members
        ],
    )


def _refused(member_id: str, error: ErrorCode, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        protocol_name=None if version >= NULLABLE_PROTOCOL else "",
        leader="",
        member_id=member_id,
        members=[],
    )


async def sync_group(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if not may(context, Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, assignment=b"")
    if context.version >= NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    answer = context.node.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        {each.member_id: each.assignment for each in request.assignments},
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    result = await answer if isinstance(answer, asyncio.Future) else answer
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if not may(context, Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = context.node.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)


def leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not may(context, Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = context.node.groups
    if context.version < HAS_MEMBER_LIST:
        return LeaveGroupResponse(error_code=groups.leave(request.group_id, request.member_id, None))
    error = groups.check(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=groups.leave(request.group_id, member.member_id, member.group_instance_id),
            )
            for member in request.members
        ],
    )


HANDLERS = {
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave_group,
}

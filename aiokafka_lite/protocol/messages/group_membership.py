"""group_membership"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, boolean, int8, int16, int32, message, string, struct


@struct
class FindCoordinatorResponseCoordinator:
    """Each coordinator result in the response."""

    key: str = string("4+", default="")
    node_id: int = int32("4+", default=0)
    host: str = string("4+", default="")
    port: int = int32("4+", default=0)
    error_code: int = int16("4+", default=0)
    error_message: str | None = string("4+", nullable="4+", default="", ignorable=True)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Response):
    """FindCoordinatorResponse"""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default="", ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[FindCoordinatorResponseCoordinator] = array(FindCoordinatorResponseCoordinator, "4+", default=[])


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """FindCoordinatorRequest"""

    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array(string, "4+", default=[])


@struct
class JoinGroupResponseMember:
    """The group members."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = blob()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Response):
    """JoinGroupResponse"""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@struct
class JoinGroupRequestProtocol:
    """The list of protocols that the member supports."""

    name: str = string()
    metadata: bytes = blob()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """JoinGroupRequest"""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse(Response):
    """SyncGroupResponse"""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = blob()


@struct
class SyncGroupRequestAssignment:
    """Each assignment."""

    member_id: str = string()
    assignment: bytes = blob()


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Request[SyncGroupResponse]):
    """SyncGroupRequest"""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse(Response):
    """HeartbeatResponse"""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Request[HeartbeatResponse]):
    """HeartbeatRequest"""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@struct
class LeaveGroupResponseMember:
    """List of leaving member responses."""

    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default="")
    error_code: int = int16("3+", default=0)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Response):
    """LeaveGroupResponse"""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    members: list[LeaveGroupResponseMember] = array(LeaveGroupResponseMember, "3+", default=[])


@struct
class LeaveGroupRequestMember:
    """List of leaving member identities."""

    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """LeaveGroupRequest"""

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[LeaveGroupRequestMember] = array(LeaveGroupRequestMember, "3+", default=[])

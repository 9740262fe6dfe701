"""The classic group protocol: find the coordinator, join, synchronise, stay alive, leave.

FindCoordinator:

- v1: the kind of the key: a group or a transactional id.
- v3: flexible.
- v4: many keys in one request (KIP-699); the fields for a single key are removed.
- v6: share groups.

JoinGroup:

- v1: the rebalance timeout is separate from the session timeout.
- v4: a new member must join again with the id from the first response (KIP-394).
- v5: static members (KIP-345).
- v6: flexible.
- v8: the reason for joining (KIP-800).
- v9: the leader may skip the assignment (KIP-814).

SyncGroup and Heartbeat: v3 has static members, v4 is flexible. SyncGroup v5 checks that both sides use the same
protocol (KIP-559).

LeaveGroup: v3 has many members, v4 is flexible, v5 has a reason.
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, boolean, int8, int16, int32, message, since, string, struct


@struct
class FindCoordinatorResponseCoordinator:
    """The coordinator of one key, or an error."""

    key: str = string("4+", default="")
    node_id: int = int32("4+", default=0)
    host: str = string("4+", default="")
    port: int = int32("4+", default=0)
    error_code: int = int16("4+", default=0)
    error_message: str | None = string("4+", nullable="4+", default="", ignorable=True)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Response):
    """Coordinators: one in the first fields before v4, a list since v4."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default="", ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[FindCoordinatorResponseCoordinator] = array(FindCoordinatorResponseCoordinator, "4+", default=[])


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Find coordinators. ``key_type`` is 0 for groups, 1 for transactions, 2 for share partitions.

    ``key`` is for versions below 4, ``coordinator_keys`` for the others.
    """

    MANY_KEYS = since(4)
    SHARE_PARTITIONS = since(6)

    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array(string, "4+", default=[])


@struct
class JoinGroupResponseMember:
    """A member and its subscription. Only the leader receives the members."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = blob()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Response):
    """The new generation, with its leader and protocol.

    The leader is the member whose ``member_id`` equals ``leader``; ``members`` is empty for all others.
    MEMBER_ID_REQUIRED comes with the member id to join again with. ``protocol_name`` is null if joining failed.
    """

    CLIENT_THROTTLES = since(3)

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
    """An assignment strategy that the member supports, with its subscription."""

    name: str = string()
    metadata: bytes = blob()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Join the group, or join again.

    The response comes when all members have joined, or at the end of the rebalance timeout. So the request timeout must
    be longer. v0 uses the session timeout for both. Protocols are in order of preference.
    """

    REBALANCE_TIMEOUT = since(1)
    MEMBER_ID_REQUIRED = since(4)
    STATIC_MEMBERS = since(5, kafka="2.3")
    NULLABLE_PROTOCOL = since(7)
    SKIP_ASSIGNMENT = since(9)

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
    """The assignment of this member, in the group's own protocol."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = blob()


@struct
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: str = string()
    assignment: bytes = blob()


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Send all assignments (the leader) or none (the other members), and wait for the member's own assignment."""

    PROTOCOL_NAMES = since(5)

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse(Response):
    """Whether the member is still in the group. REBALANCE_IN_PROGRESS asks it to join again."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Keep the member in the group."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@struct
class LeaveGroupResponseMember:
    """Whether one member has left."""

    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default="")
    error_code: int = int16("3+", default=0)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Response):
    """The top-level error, and since v3 an error for each member."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    members: list[LeaveGroupResponseMember] = array(LeaveGroupResponseMember, "3+", default=[])


@struct
class LeaveGroupRequestMember:
    """A member to remove: by id, or a static one by its instance id."""

    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Leave now, before the session expires. ``member_id`` is for versions below 3."""

    MANY_MEMBERS = since(3)
    REASON = since(5)

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[LeaveGroupRequestMember] = array(LeaveGroupRequestMember, "3+", default=[])

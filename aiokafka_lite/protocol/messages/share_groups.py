"""Membership of share groups (KIP-932): join, stay alive, leave; and the description of a group.

Version 0 of both was for early access in Kafka 4.0. Version 1 is the first stable one, of Kafka 4.1.
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int16, int32, message, nested, since, string, struct, uuid
from .group_admin import UNKNOWN_OPERATIONS


@struct
class ShareGroupHeartbeatTopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@struct
class ShareGroupHeartbeatAssignment:
    """All partitions that the member reads."""

    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = array(ShareGroupHeartbeatTopicPartitions, default=[])


@message(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse(Response):
    """The epoch of the member. ``assignment`` is null if it did not change."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ShareGroupHeartbeatAssignment | None = nested(
        ShareGroupHeartbeatAssignment, nullable="0+", default=None
    )


@message(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Request[ShareGroupHeartbeatResponse]):
    """Join with epoch 0, stay alive with the last known epoch, leave with -1. Send it to the coordinator of the group.

    The member makes its own id. ``rack_id`` and ``subscribed_topic_names`` are null if they did not change.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


@struct
class ShareGroupDescribeTopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class ShareGroupDescribeAssignment:
    """The partitions that a member reads."""

    topic_partitions: list[ShareGroupDescribeTopicPartitions] = array(ShareGroupDescribeTopicPartitions, default=[])


@struct
class ShareGroupDescribeMember:
    """A member."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: ShareGroupDescribeAssignment = nested(ShareGroupDescribeAssignment)


@struct
class ShareGroupDescribeGroup:
    """A group with its members, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ShareGroupDescribeMember] = array(ShareGroupDescribeMember)
    authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@message(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse(Response):
    """A description of each requested group."""

    throttle_time_ms: int = int32(default=0)
    groups: list[ShareGroupDescribeGroup] = array(ShareGroupDescribeGroup)


@message(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest(Request[ShareGroupDescribeResponse]):
    """Describe share groups, at their coordinator."""

    INTRODUCED = since(1, kafka="4.1")

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()

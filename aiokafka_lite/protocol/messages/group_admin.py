"""Describe, list and delete groups.

DescribeGroups:

- v3: authorized operations.
- v4: static members.
- v5: flexible.
- v6: GROUP_ID_NOT_FOUND for a missing group, which older versions describe as dead.

ListGroups. A broker lists only the groups that it coordinates, so the request goes to all brokers:

- v3: flexible.
- v4: filters by state (KIP-518).
- v5: filters by type (KIP-848).

DeleteGroups v2 is flexible.

ConsumerGroupDescribe describes only groups of the protocol whose coordinator assigns (KIP-848). v1 marks members with
the classic protocol (KIP-1099).
"""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    array,
    blob,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    since,
    string,
    struct,
    uuid,
)

UNKNOWN_OPERATIONS = -(2**31)


@struct
class DescribedGroupMember:
    """A member of a group. Metadata and assignment are in the group's own protocol."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


@struct
class DescribedGroup:
    """A group with its members, or an error."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=UNKNOWN_OPERATIONS)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse(Response):
    """A description of each requested group."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """Describe groups, at their coordinator."""

    GROUP_ID_NOT_FOUND = since(6)

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


@struct
class ListedGroup:
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Response):
    """The groups that this broker coordinates."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Request[ListGroupsResponse]):
    """List groups. An empty filter matches all."""

    STATES = since(4)
    TYPES = since(5)

    states_filter: list[str] = array(string, "4+", default=[])
    types_filter: list[str] = array(string, "5+", default=[])


@struct
class DeletableGroupResult:
    """Whether one group was deleted."""

    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse(Response):
    """A result for each group."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Delete groups that have no members, with their offsets."""

    groups_names: list[str] = array(string)


@struct
class ConsumerGroupDescribeTopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class ConsumerGroupDescribeAssignment:
    """The current or target assignment of a member."""

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions, default=[]
    )


@struct
class ConsumerGroupDescribeMember:
    """A member. ``member_type`` is 0 for the classic protocol, 1 for the new one, -1 for unknown."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = nested(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = nested(ConsumerGroupDescribeAssignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


@struct
class ConsumerGroupDescribeGroup:
    """A group with its members, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Response):
    """A description of each requested group."""

    throttle_time_ms: int = int32(default=0)
    groups: list[ConsumerGroupDescribeGroup] = array(ConsumerGroupDescribeGroup)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    """Describe groups of the new protocol, at their coordinator."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()

"""Look at groups from outside, and delete them.

- DescribeGroups v3 adds authorized operations, v4 static members, v5 is flexible, v6 says GROUP_ID_NOT_FOUND with a
  text where older versions describe a missing group as a dead one.
- ListGroups v3 is flexible, v4 filters by state (KIP-518), v5 by type (KIP-848). A broker lists only the groups that
  it coordinates: all must be asked.
- DeleteGroups v2 is flexible.
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, boolean, int16, int32, message, string, struct

UNKNOWN_OPERATIONS = -(2**31)


@struct
class DescribedGroupMember:
    """A member as its coordinator sees it. Metadata and assignment are in the group's own protocol."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


@struct
class DescribedGroup:
    """A group with its members, or why it cannot be described."""

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
    """A description for each group that was asked for."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """Ask a coordinator about groups that it coordinates."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


@struct
class ListedGroup:
    """A group in short."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Response):
    """The groups that this broker coordinates, and no others."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Ask for groups, all of them when a filter is empty."""

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

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Delete groups that have no members, with their offsets."""

    groups_names: list[str] = array(string)

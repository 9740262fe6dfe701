"""Create, describe and delete access control lists (KIP-140).

``aiokafka_lite.acls`` has the numbers of types, patterns, operations and permissions. The versions:

- v1: the type of the pattern (KIP-290).
- v2: flexible.
- v3: resources of the type user (KIP-373).
"""

from __future__ import annotations

from ..schema import Request, Response, array, int8, int16, int32, message, since, string, struct


@struct
class AclCreationResult:
    """Whether one ACL was created."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsResponse(Response):
    """A result for each ACL, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult)


@struct
class AclCreation:
    """An ACL to create."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsRequest(Request[CreateAclsResponse]):
    """Create ACLs."""

    PATTERN_TYPES = since(1, kafka="2.0")
    USERS = since(3, kafka="3.3")

    creations: list[AclCreation] = array(AclCreation)


@struct
class AclDescription:
    """An ACL of a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource:
    """The ACLs of one pattern of resources."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsResponse(Response):
    """The matching ACLs, by pattern."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """Request the ACLs that a filter matches. Null matches every value."""

    PATTERN_TYPES = since(1, kafka="2.0")
    USERS = since(3, kafka="3.3")

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@struct
class DeleteAclsMatchingAcl:
    """An ACL that a filter matches, and whether it was deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DeleteAclsFilterResult:
    """The ACLs that one filter deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsResponse(Response):
    """A result for each filter, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


@struct
class DeleteAclsFilter:
    """The ACLs to delete. Null matches every value."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """Delete the ACLs that filters match."""

    PATTERN_TYPES = since(1, kafka="2.0")
    USERS = since(3, kafka="3.3")

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)

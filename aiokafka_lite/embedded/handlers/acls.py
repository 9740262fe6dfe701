"""DescribeAcls, CreateAcls and DeleteAcls (KIP-140).

- Without an authorizer the error is SECURITY_DISABLED.
- Any node accepts these requests, as Kafka's brokers forward them to the controller.
- An ACL or a filter with a number that does not exist has the error INVALID_REQUEST. If the number is 0, which Java's
  client calls UNKNOWN, Kafka closes the connection.
- v0 has only literal patterns. v1 adds prefixed ones (KIP-290), v3 resources of the type user (KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...acls import CLUSTER_NAME, AclBinding, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from ...errors import ErrorCode
from ...protocol import messages as m
from ..error_responses import error_response
from ..metadata.controller import Refused
from ..request_context import Answer, CloseConnection, RequestContext, handles, refusal_in

UNKNOWN = 0


@handles(m.DescribeAclsRequest, requires=AclOperation.DESCRIBE)
def describe_acls(context: RequestContext, request: m.DescribeAclsRequest) -> Answer:
    acls = context.broker.authorizer.acls
    acl_filter = _filter(request)
    if acls is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, context.version)
    by_pattern: dict[tuple[int, str, int], m.DescribeAclsResource] = {}
    for binding in acls.find(acl_filter):
        pattern = (binding.resource_type, binding.resource_name, binding.pattern_type)
        resource = by_pattern.get(pattern)
        if resource is None:
            resource = by_pattern[pattern] = m.DescribeAclsResource(
                resource_type=binding.resource_type,
                resource_name=binding.resource_name,
                pattern_type=binding.pattern_type,
                acls=[],
            )
        resource.acls.append(
            m.AclDescription(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
        )
    return m.DescribeAclsResponse(error_code=ErrorCode.NONE, error_message="", resources=list(by_pattern.values()))


@handles(m.CreateAclsRequest, requires=AclOperation.ALTER)
def create_acls(context: RequestContext, request: m.CreateAclsRequest) -> Answer:
    acls = context.broker.authorizer.acls
    bindings = [_binding(creation) for creation in request.creations]
    if acls is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, context.version)
    if any(_has_value_of_filters(binding) for binding in bindings):
        # Kafka fails here with an IllegalArgumentException, so none of the ACLs is created.
        return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.version)
    results = []
    for binding in bindings:
        result = m.AclCreationResult(error_code=ErrorCode.NONE, error_message="")
        with refusal_in(result):
            _check(binding)
            acls.create(binding)
        results.append(result)
    context.broker.controller.metadata_changed()
    return m.CreateAclsResponse(results=results)


@handles(m.DeleteAclsRequest, requires=AclOperation.ALTER)
def delete_acls(context: RequestContext, request: m.DeleteAclsRequest) -> Answer:
    acls = context.broker.authorizer.acls
    filters = [_filter(item) for item in request.filters]
    if acls is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, context.version)
    results = []
    doomed: dict[AclBinding, None] = {}
    for acl_filter in filters:
        result = m.DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=[])
        with refusal_in(result):
            _check_filter(acl_filter)
            matching = acls.find(acl_filter)
            doomed.update(dict.fromkeys(matching))
            result.matching_acls = [_deleted(binding) for binding in matching]
        results.append(result)
    acls.delete(doomed)  # after all filters: as in Kafka, two filters may find the same ACL
    context.broker.controller.metadata_changed()
    return m.DeleteAclsResponse(filter_results=results)


def _binding(creation: m.AclCreation) -> AclBinding:
    _close_if_unknown(
        (creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)
    )
    return AclBinding(
        AclResourceType(creation.resource_type),
        creation.resource_name,
        creation.principal,
        AclOperation(creation.operation),
        AclPermission(creation.permission_type),
        creation.host,
        AclPatternType(creation.resource_pattern_type),
    )


def _filter(request: m.DescribeAclsRequest | m.DeleteAclsFilter) -> AclFilter:
    _close_if_unknown(
        (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    )
    return AclFilter(
        AclResourceType(request.resource_type_filter),
        request.resource_name_filter,
        request.principal_filter,
        AclOperation(request.operation),
        AclPermission(request.permission_type),
        request.host_filter,
        AclPatternType(request.pattern_type_filter),
    )


def _close_if_unknown(numbers: Iterable[int]) -> None:
    if UNKNOWN in numbers:
        raise CloseConnection("a request has an unknown type of resource, pattern, operation or permission")


def _has_value_of_filters(binding: AclBinding) -> bool:
    """Return whether an ACL has ANY or MATCH, which only filters may have."""
    return (
        binding.resource_type is AclResourceType.ANY
        or binding.pattern_type in (AclPatternType.ANY, AclPatternType.MATCH)
        or binding.operation is AclOperation.ANY
        or binding.permission is AclPermission.ANY
    )


def _check(binding: AclBinding) -> None:
    """Raise Refused unless an ACL can have these values."""
    if binding.resource_type is AclResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        raise Refused(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    unknown = {
        "resourceType": binding.resource_type is AclResourceType.UNKNOWN,
        "patternType": binding.pattern_type is AclPatternType.UNKNOWN,
        "operation": binding.operation is AclOperation.UNKNOWN,
        "permissionType": binding.permission is AclPermission.UNKNOWN,
    }
    for name, is_unknown in unknown.items():
        if is_unknown:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Invalid {name} UNKNOWN")
    if ":" not in binding.principal:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{binding.principal}` "
            "(no colon is present separating the principal type from the principal name)",
        )


def _check_filter(acl_filter: AclFilter) -> None:
    if acl_filter.resource_type is AclResourceType.UNKNOWN or acl_filter.pattern_type is AclPatternType.UNKNOWN:
        raise Refused(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if acl_filter.operation is AclOperation.UNKNOWN or acl_filter.permission is AclPermission.UNKNOWN:
        raise Refused(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")


def _deleted(binding: AclBinding) -> m.DeleteAclsMatchingAcl:
    return m.DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )

"""Access control lists: describe, create and delete them (KIP-140). The cluster needs an authorizer.

``AclBinding`` is one access rule, ``AclFilter`` finds rules; both are in ``aiokafka_lite.acls``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from .. import arguments
from ..acls import AclBinding, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from ..errors import BrokerError, KafkaError
from ..protocol.messages import (
    AclCreation,
    AclDescription,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
)
from .answers import answer_of, raise_for
from .calls import Calls
from .peer import Peer
from .results import Results

_EVERY = AclFilter()
_AclRequest = type[CreateAclsRequest] | type[DescribeAclsRequest] | type[DeleteAclsRequest]
T = TypeVar("T")


class Acls:
    """The calls of ``admin.acls``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(self, acl_filter: AclFilter = _EVERY, *, timeout: float | None = None) -> tuple[AclBinding, ...]:
        """List the ACLs that a filter matches, by default all ACLs."""
        if not isinstance(acl_filter, AclFilter):
            raise TypeError(arguments.must_be("acl_filter", "an AclFilter", acl_filter))

        async def ask(peer: Peer) -> tuple[AclBinding, ...]:
            answer = await peer.send(DescribeAclsRequest(**_fields(peer, DescribeAclsRequest, acl_filter)))
            raise_for(answer.error_code, "describing ACLs", answer.error_message)
            return tuple(_described(resource, acl) for resource in answer.resources for acl in resource.acls)

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing ACLs", self._calls.any_broker, ask, deadline)

    async def create(
        self, bindings: AclBinding | Iterable[AclBinding], *, timeout: float | None = None
    ) -> Results[AclBinding, None]:
        """Create ACLs. An ACL that exists already counts as created."""
        acls = _several(bindings, AclBinding)

        async def ask(peer: Peer, items: list[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
            for item in items:
                _check(peer, CreateAclsRequest, item.resource_type, item.pattern_type)
            answer = await peer.send(CreateAclsRequest(creations=list(map(_creation, items))))
            return {
                item: answer_of(result.error_code, f"creating the ACL {item}", None, result.error_message)
                for item, result in zip(items, answer.results)
            }

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("creating ACLs", acls, self._calls.controller, ask, deadline)

    async def delete(
        self, filters: AclFilter | Iterable[AclFilter], *, timeout: float | None = None
    ) -> Results[AclFilter, tuple[AclBinding, ...]]:
        """Delete the ACLs that filters match. The result of a filter is the ACLs that it deleted, perhaps none."""
        acl_filters = _several(filters, AclFilter)

        async def ask(peer: Peer, items: list[AclFilter]) -> Mapping[AclFilter, tuple[AclBinding, ...] | KafkaError]:
            request_filters = [DeleteAclsFilter(**_fields(peer, DeleteAclsRequest, item)) for item in items]
            answer = await peer.send(DeleteAclsRequest(filters=request_filters))
            return {item: _deletion(result) for item, result in zip(items, answer.filter_results)}

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("deleting ACLs", acl_filters, self._calls.controller, ask, deadline)


def _several(values: T | Iterable[T], kind: type[T]) -> list[T]:
    items = [values] if isinstance(values, kind) else arguments.several(values, f"{kind.__name__}s")  # type: ignore[arg-type]
    for value in items:
        if not isinstance(value, kind):
            raise TypeError(arguments.must_be(kind.__name__, f"an {kind.__name__}", value))
    return items


def _check(peer: Peer, request: _AclRequest, resource_type: AclResourceType, pattern: AclPatternType) -> None:
    """Raise UnsupportedVersion if the broker is too old for a type of resource or of pattern."""
    if resource_type is AclResourceType.USER:
        peer.require(request.USERS, "an ACL for users")
    if pattern not in (AclPatternType.LITERAL, AclPatternType.ANY):
        peer.require(request.PATTERN_TYPES, f"an ACL with the pattern type {pattern.name}")


def _fields(peer: Peer, request: _AclRequest, acl_filter: AclFilter) -> dict[str, Any]:
    """Return the fields of the filter in a request. A broker without pattern types has only literal patterns."""
    _check(peer, request, acl_filter.resource_type, acl_filter.pattern_type)
    has_types = peer.speaks(request.PATTERN_TYPES)
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.resource_name,
        "pattern_type_filter": acl_filter.pattern_type if has_types else AclPatternType.LITERAL,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }


def _creation(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _described(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    return AclBinding(
        AclResourceType(resource.resource_type),
        resource.resource_name,
        acl.principal,
        AclOperation(acl.operation),
        AclPermission(acl.permission_type),
        acl.host,
        AclPatternType(resource.pattern_type),
    )


def _deletion(result: DeleteAclsFilterResult) -> tuple[AclBinding, ...] | KafkaError:
    """Return the deleted ACLs, or the error of the filter or of the first ACL that could not be deleted."""
    for matching_acl in result.matching_acls:
        failed = answer_of(
            matching_acl.error_code,
            f"deleting the ACL {_described(matching_acl, matching_acl)}",
            None,
            matching_acl.error_message,
        )
        if isinstance(failed, BrokerError):
            return failed
    deleted = tuple(_described(matching_acl, matching_acl) for matching_acl in result.matching_acls)
    return answer_of(result.error_code, "deleting ACLs", deleted, result.error_message)

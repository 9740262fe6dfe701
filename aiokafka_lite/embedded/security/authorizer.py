"""Authorization: the operations that a client may do.

Without ACLs, a client may do every operation that a test has not denied.
"""

from __future__ import annotations

from typing import NamedTuple

from ...acls import CLUSTER_NAME, AclOperation, AclResourceType
from .acl_authorizer import AclAuthorizer


class Resource(NamedTuple):
    """The resource of an operation."""

    type: AclResourceType
    name: str


CLUSTER = Resource(AclResourceType.CLUSTER, CLUSTER_NAME)

OPERATIONS: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that a response can list as allowed, by type of resource. Other types have no such list."""


class Authorizer:
    """Decides what a principal at an IP address may do. Owner: the EmbeddedCluster.

    A test may deny operations to every principal. For all other operations, ``acls`` decide; without them, every
    operation is allowed.
    """

    def __init__(self, acls: AclAuthorizer | None = None) -> None:
        self.acls = acls
        self._denied: set[tuple[AclOperation, Resource]] = set()

    @property
    def allows_everything(self) -> bool:
        """Whether there are neither ACLs nor denied operations."""
        return self.acls is None and not self._denied

    def allows(self, principal: str, host: str, operation: AclOperation, resource: Resource) -> bool:
        if self._denied and (operation, resource) in self._denied:
            return False
        return self.acls is None or self.acls.allows(principal, host, operation, *resource)

    def allows_any(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        """Return whether the operation is allowed on at least one resource of a type."""
        return self.acls is None or self.acls.allows_any(principal, host, operation, kind)

    def deny(self, operation: AclOperation, resource: Resource) -> None:
        """Deny an operation on a resource to every principal."""
        self._denied.add((operation, resource))

    def deny_topic(self, name: str, *operations: AclOperation) -> None:
        """Deny operations on a topic; all operations if none is given."""
        for operation in operations or OPERATIONS[AclResourceType.TOPIC]:
            self.deny(operation, Resource(AclResourceType.TOPIC, name))

"""Access control lists: an operation that a principal may do, or may not do, on resources.

The admin client and the embedded broker share these values. The numbers are from Kafka's protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from . import arguments

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
]

ANY_NAME = "*"
"""Stands for every resource of a type in a literal pattern, for every host, and in ``User:*`` for every user."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class _Unknown(IntEnum):
    """An enumeration that newer brokers may extend. Its member UNKNOWN stands for the numbers that it does not have."""

    @classmethod
    def _missing_(cls, value: object) -> _Unknown | None:
        return cls.__members__["UNKNOWN"] if isinstance(value, int) else None


class AclResourceType(_Unknown):
    """The types of resources. ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(_Unknown):
    """How a pattern matches names of resources. ANY and MATCH are only for filters."""

    UNKNOWN = 0
    ANY = 1
    """In a filter: literal and prefixed patterns with exactly this name."""
    MATCH = 2
    """In a filter: all patterns that match the named resource."""
    LITERAL = 3
    """The resource of this name; with the name ``*``, every resource of the type."""
    PREFIXED = 4
    """Every resource whose name begins with this text."""


class AclOperation(_Unknown):
    """The operations of a principal. An ACL for ALL covers every operation. ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Unknown):
    """Whether an ACL allows or denies. An ACL that denies overrides all ACLs that allow. ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One access rule: ``principal``, from ``host``, may (or may not) do ``operation`` on the resources of a pattern.

    A principal is ``User:<name>``; ``User:*`` is every user. ``host`` is the client's IP address, or ``*`` for any.
    The constructor raises TypeError or ValueError for a wrong argument.
    """

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = ANY_NAME
    pattern_type: AclPatternType = AclPatternType.LITERAL

    def __post_init__(self) -> None:
        _check(self)

    def __str__(self) -> str:
        pattern = "" if self.pattern_type is AclPatternType.LITERAL else f" ({self.pattern_type.name.lower()})"
        return (
            f"{self.permission.name} {self.principal} from {self.host} {self.operation.name} on "
            f"{self.resource_type.name} {self.resource_name}{pattern}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """The ACLs with these values. None, and the member ANY of an enumeration, match every value.

    ``pattern_type`` MATCH finds the ACLs that affect the resource ``resource_name``: also prefixed and wildcard ones.
    The constructor raises TypeError or ValueError for a wrong argument.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def of(cls, binding: AclBinding) -> AclFilter:
        """Return the filter that matches one ACL only."""
        return cls(
            binding.resource_type,
            binding.resource_name,
            binding.principal,
            binding.operation,
            binding.permission,
            binding.host,
            binding.pattern_type,
        )

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter finds the ACL."""
        return (
            self.resource_type in (AclResourceType.ANY, binding.resource_type)
            and self._matches_pattern(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermission.ANY, binding.permission)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        pattern_type = self.pattern_type
        if pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, binding.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if pattern_type is not AclPatternType.MATCH:
            return self.resource_name == binding.resource_name
        return covers(binding, self.resource_name)


def _check(acl: AclBinding | AclFilter) -> None:
    for name, kind in _KINDS.items():
        value = getattr(acl, name)
        if not isinstance(value, kind):
            raise TypeError(arguments.must_be(name, f"an {kind.__name__}", value))
    for name in ("resource_name", "principal", "host"):
        value = getattr(acl, name)
        if isinstance(acl, AclBinding) or value is not None:
            arguments.text(name, value)


_KINDS = {
    "resource_type": AclResourceType,
    "operation": AclOperation,
    "permission": AclPermission,
    "pattern_type": AclPatternType,
}


def covers(binding: AclBinding, resource_name: str) -> bool:
    """Return whether the pattern of an ACL matches the name of a resource."""
    if binding.pattern_type is AclPatternType.PREFIXED:
        return resource_name.startswith(binding.resource_name)
    return binding.resource_name in (resource_name, ANY_NAME)

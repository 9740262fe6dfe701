"""Authorization: a cluster allows every operation that a test has not denied. Access rules plug in here."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class Operation(IntEnum):
    """Operations, numbered as in Kafka."""

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


class ResourceType(IntEnum):
    """Types of resources, numbered as in Kafka."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """The resource of an operation."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


class Authorizer(Protocol):
    """Answers at once whether a principal may do an operation."""

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool: ...


class AllowAll:
    """Allows every operation except the denied ones, to every principal."""

    def __init__(self) -> None:
        self._denied: set[tuple[Operation, Resource]] = set()

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return (operation, resource) not in self._denied

    def deny(self, operation: Operation, resource: Resource) -> None:
        self._denied.add((operation, resource))

    def deny_topic(self, name: str, *operations: Operation) -> None:
        """Deny operations on a topic; all operations if none is given."""
        for operation in operations or Operation:
            self.deny(operation, Resource(ResourceType.TOPIC, name))

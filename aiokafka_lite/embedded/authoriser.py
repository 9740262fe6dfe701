"""Who may do what. Everything is allowed unless a test denies it; real access rules plug in at the same place."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class Operation(IntEnum):
    """Operations as Kafka numbers them."""

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
    """Kinds of resources as Kafka numbers them."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


class Authoriser(Protocol):
    """Answers yes or no, at once."""

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool: ...


class AllowAll:
    """Allows everything but what has been denied."""

    def __init__(self) -> None:
        self._denied: set[tuple[Operation, Resource]] = set()

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return (operation, resource) not in self._denied

    def deny(self, operation: Operation, resource: Resource) -> None:
        self._denied.add((operation, resource))

    def deny_topic(self, name: str, *operations: Operation) -> None:
        """Deny operations on a topic; none named is all."""
        for operation in operations or Operation:
            self.deny(operation, Resource(ResourceType.TOPIC, name))

    def permit_again(self) -> None:
        """Forget all denials."""
        self._denied.clear()

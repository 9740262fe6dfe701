"""The values that ``AIOKafkaAdminClient`` takes and returns.

aiokafka returns responses of the protocol. The responses here have the same field of tuples, which programs read, and
the method ``to_object()``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple


@dataclass
class NewTopic:
    """A topic to create: numbers of partitions and replicas, or ``{partition: [broker, ...]}`` and -1 for both."""

    name: str
    num_partitions: int
    replication_factor: int
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass
class NewPartitions:
    """The new total number of partitions of a topic, and the replicas of each new partition."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass
class RecordsToDelete:
    """Delete the records before this offset; -1 means all."""

    before_offset: int


class ConfigResourceType(IntEnum):
    """A kind of resource with settings."""

    TOPIC = 2
    BROKER = 4


class ConfigResource:
    """A topic, or a broker by its id, with names of settings to describe or with values to set."""

    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str | int,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs


Entry = tuple[Any, ...]
Names = tuple[str | tuple[str, Any], ...]
"""The names of the fields of an entry. A field that is a list of entries is a pair: its name, and the names of their
fields."""


def _objects(entries: Sequence[Entry], names: Names) -> Iterator[dict[str, Any]]:
    for entry in entries:
        fields = {}
        for name, value in zip(names, entry):
            if isinstance(name, str):
                fields[name] = value
            else:
                fields[name[0]] = list(_objects(value, name[1]))
        yield fields


class TopicErrors(NamedTuple):
    """``topic_errors`` has a topic, an error code (0 is success) and a text or None for each topic."""

    topic_errors: list[tuple[str, int, str | None]]

    def to_object(self) -> dict[str, Any]:
        return {"topic_errors": list(_objects(self.topic_errors, ("topic", "error_code", "error_message")))}


class TopicErrorCodes(NamedTuple):
    """``topic_error_codes`` has a topic and an error code (0 is success) for each topic."""

    topic_error_codes: list[tuple[str, int]]

    def to_object(self) -> dict[str, Any]:
        return {"topic_error_codes": list(_objects(self.topic_error_codes, ("topic", "error_code")))}


_RESOURCE: Names = ("error_code", "error_message", "resource_type", "resource_name")
_SYNONYM: Names = ("config_name", "config_value", "config_source")
_SETTING: Names = (
    "config_names",
    "config_value",
    "read_only",
    "config_source",
    "is_sensitive",
    ("config_synonyms", _SYNONYM),
)


class DescribedConfigs(NamedTuple):
    """``resources`` has an error code, a text or None, the type, the name and the settings of each resource.

    A setting has these fields: name, value, read-only flag, number of the source, secret flag, and synonyms. A synonym
    has a name, a value and the number of a source.
    """

    resources: list[Entry]

    def to_object(self) -> dict[str, Any]:
        return {"resources": list(_objects(self.resources, (*_RESOURCE, ("config_entries", _SETTING))))}


class AlteredConfigs(NamedTuple):
    """``resources`` has an error code (0 is success), a text or None, the type and the name of each resource."""

    resources: list[Entry]

    def to_object(self) -> dict[str, Any]:
        return {"resources": list(_objects(self.resources, _RESOURCE))}


_MEMBER: Names = ("member_id", "client_id", "client_host", "member_metadata", "member_assignment")
_GROUP: Names = ("error_code", "group", "state", "protocol_type", "protocol", ("members", _MEMBER))


class DescribedGroups(NamedTuple):
    """``groups`` has an error code, the name, the state, the protocol type, the strategy and the members of each group.

    A member has these fields: member id, client id, host, and as bytes the subscription and the assignment.
    """

    groups: list[Entry]

    def to_object(self) -> dict[str, Any]:
        return {"groups": list(_objects(self.groups, _GROUP))}

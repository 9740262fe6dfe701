"""Schemas as values: their text and references, the answers of the registry, and the names of subjects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..arguments import must_be
from ..errors import ConfigurationError

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
Part = Literal["key", "value"]
CompatibilityLevel = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
Mode = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"]


class SchemaReference(NamedTuple):
    """A reference from one schema to another: ``name`` in the text means version ``version`` of ``subject``."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its type, and the schemas that it refers to. Raises ConfigurationError."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise ConfigurationError(must_be("text", "the text of a schema", self.text))
        if self.type not in ("AVRO", "JSON", "PROTOBUF"):
            raise ConfigurationError(must_be("type", "'AVRO', 'JSON' or 'PROTOBUF'", self.type))
        object.__setattr__(self, "references", tuple(SchemaReference(*reference) for reference in self.references))


class RegisteredSchema(NamedTuple):
    """A schema with its place in the registry.

    ``guid`` is None with registries before Confluent Platform 8. ``version`` is None if the answer has none, for
    example the answer of an older registry to a registration.
    """

    subject: str
    schema_id: int
    schema: Schema
    version: int | None = None
    guid: str | None = None


class Compatibility(NamedTuple):
    """The answer to a compatibility check. ``messages`` lists the incompatible parts."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


SubjectStrategy = Callable[[str, Part, str], str]
"""Returns the subject for a topic, ``"key"`` or ``"value"``, and the full name of the record type."""


def topic_name(topic: str, part: Part, record: str) -> str:
    """Return ``orders-value``: one schema, which may evolve, for each topic. The default."""
    return f"{topic}-{part}"


def record_name(topic: str, part: Part, record: str) -> str:
    """Return ``com.example.Order``: one schema for each type, in all topics."""
    return record


def topic_record_name(topic: str, part: Part, record: str) -> str:
    """Return ``orders-com.example.Order``: several types in a topic, each with its own schema."""
    return f"{topic}-{record}"

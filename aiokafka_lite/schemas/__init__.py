"""Schemas of a schema registry: its client, and serializers and deserializers for Avro, JSON Schema and Protobuf.

They work as ``key_serializer``, ``value_serializer``, ``key_deserializer`` and ``value_deserializer``. See
``docs/schemas.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy

if TYPE_CHECKING:
    from .avro import AvroDeserializer, AvroSerializer
    from .client import SchemaRegistryClient
    from .json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from .protobuf import ProtobufDeserializer, ProtobufSerializer
    from .schema import (
        Compatibility,
        CompatibilityLevel,
        RegisteredSchema,
        Schema,
        SchemaReference,
        SubjectStrategy,
        record_name,
        topic_name,
        topic_record_name,
    )

_HOMES = {
    "avro": ("AvroDeserializer", "AvroSerializer"),
    "client": ("SchemaRegistryClient",),
    "json_schema": ("JsonSchemaDeserializer", "JsonSchemaSerializer"),
    "protobuf": ("ProtobufDeserializer", "ProtobufSerializer"),
    "schema": (
        "Compatibility",
        "CompatibilityLevel",
        "RegisteredSchema",
        "Schema",
        "SchemaReference",
        "SubjectStrategy",
        "record_name",
        "topic_name",
        "topic_record_name",
    ),
}

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "Compatibility",
    "CompatibilityLevel",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "Schema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SubjectStrategy",
    "record_name",
    "topic_name",
    "topic_record_name",
]

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)

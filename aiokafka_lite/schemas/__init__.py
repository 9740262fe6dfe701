"""Schemas of a schema registry: its client, and serializers and deserializers for Avro, JSON Schema and Protobuf.

They work as ``key_serializer``, ``value_serializer``, ``key_deserializer`` and ``value_deserializer``. See
``docs/schemas.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy

if TYPE_CHECKING:
    from .avro import AvroDeserializer as AvroDeserializer
    from .avro import AvroSerializer as AvroSerializer
    from .client import SchemaRegistryClient as SchemaRegistryClient
    from .json_schema import JsonSchemaDeserializer as JsonSchemaDeserializer
    from .json_schema import JsonSchemaSerializer as JsonSchemaSerializer
    from .protobuf import ProtobufDeserializer as ProtobufDeserializer
    from .protobuf import ProtobufSerializer as ProtobufSerializer
    from .schema import Compatibility as Compatibility
    from .schema import CompatibilityLevel as CompatibilityLevel
    from .schema import RegisteredSchema as RegisteredSchema
    from .schema import Schema as Schema
    from .schema import SchemaReference as SchemaReference
    from .schema import SubjectStrategy as SubjectStrategy
    from .schema import record_name as record_name
    from .schema import topic_name as topic_name
    from .schema import topic_record_name as topic_record_name
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".avro": "AvroDeserializer AvroSerializer",
            ".client": "SchemaRegistryClient",
            ".json_schema": "JsonSchemaDeserializer JsonSchemaSerializer",
            ".protobuf": "ProtobufDeserializer ProtobufSerializer",
            ".schema": """
                Compatibility CompatibilityLevel RegisteredSchema Schema SchemaReference SubjectStrategy record_name
                topic_name topic_record_name
            """,
        },
    )

"""Keys and values as Avro, with schemas of a registry. Needs the extra ``avro``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigurationError
from ..extras import extra
from .avro_names import resolved
from .avro_reading import reader
from .avro_writing import writer
from .client import SchemaRegistryClient
from .schema import Schema, SubjectStrategy, topic_name
from .serializing import (
    IdIn,
    Read,
    Resolve,
    SchemaDeserializer,
    SchemaSerializer,
    T,
    Write,
    check_type,
    given_schema,
    referenced,
)

_SCHEMA_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What a text that is JSON and no schema causes."""

GivenAvro = str | Mapping[str, Any] | list[Any] | Schema
"""A schema of Avro: JSON text, the parsed JSON, or a ``Schema``, which may have references."""


class AvroSerializer(SchemaSerializer[T]):
    """Writes dicts, and other types of Avro, in Confluent's wire format. Needs the extra ``avro``.

    ``schema`` is JSON text, the parsed JSON, or a ``Schema`` with references. ``to_dict``, for example
    ``dataclasses.asdict``, converts other objects to the data that the schema describes.

    ``subject`` names the subject: ``topic_name``, ``record_name``, ``topic_record_name`` or a function of your own.
    ``resolve`` finds the id. ``"register"`` registers the schema before the first record of a topic. ``"lookup"``
    requires that the schema is registered. ``"latest"`` writes with the newest schema of the subject, which is read
    once, and needs no ``schema``. With ``normalize``, the registry ignores the layout when it compares schemas.
    ``id_in`` is ``"prefix"``, or ``"header"`` for the schema's GUID in a header of the record (Confluent Platform 8).

    The constructor raises ConfigurationError. A send raises SerializationError, whose cause is the error of the
    registry or of the data.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: GivenAvro | None = None,
        *,
        to_dict: Callable[[T], object] | None = None,
        subject: SubjectStrategy = topic_name,
        resolve: Resolve = "register",
        normalize: bool = False,
        id_in: IdIn = "prefix",
    ) -> None:
        super().__init__(registry, subject=subject, resolve=resolve, normalize=normalize, id_in=id_in, to_dict=to_dict)
        extra("fastavro", "avro")
        if schema is None and resolve != "latest":
            raise ConfigurationError("schema is required, unless resolve is 'latest'")
        self._schema = None if schema is None else _checked(schema)
        self._name = "" if self._schema is None else _name_of(json.loads(self._schema.text))
        if subject is not topic_name and not self._name:
            raise ConfigurationError(
                "subject requires a schema of a record, enum or fixed: the subject is named after this type"
            )

    async def _writer(self, schema: Schema) -> Write:
        check_type(schema, "AVRO", "AvroSerializer")
        # The data has the shape of this serializer's schema. The registry's newer schema must be able to represent it.
        return _writer_of(await resolve_references(self._registry, schema))


class AvroDeserializer(SchemaDeserializer[T]):
    """Reads Avro in Confluent's wire format, by the schema that it was written with. Needs the extra ``avro``.

    ``schema`` is the schema of the reader, as for ``AvroSerializer``: fields that the writer did not have get their
    defaults, and other fields are dropped. ``from_dict`` makes an object of each result.

    The constructor raises ConfigurationError. A read raises DeserializationError, whose cause is the error of the
    registry or of the data.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: GivenAvro | None = None,
        *,
        from_dict: Callable[[Any], T] | None = None,
    ) -> None:
        super().__init__(registry, from_dict=from_dict)
        extra("fastavro", "avro")
        self._schema = None if schema is None else _checked(schema)

    async def _reader(self, schema: Schema) -> Read:
        check_type(schema, "AVRO", "AvroDeserializer")
        written_with = await resolve_references(self._registry, schema)
        if _is_bytes(written_with):
            return _read_raw_bytes
        read_with = None if self._schema is None else await resolve_references(self._registry, self._schema)
        return _reader_of(written_with, read_with)


def _is_bytes(schema: Any) -> bool:
    """Return whether the schema is "bytes" itself. Confluent's format has no length before such bytes."""
    return schema == "bytes" or (isinstance(schema, Mapping) and schema["type"] == "bytes")


def _read_raw_bytes(data: bytes, start: int) -> object:
    return data[start:]


def _checked(argument: GivenAvro) -> Schema:
    """Parse the schema. Raises ConfigurationError if it is not JSON, or not an Avro schema."""
    schema, parsed = given_schema(argument, "AVRO", (Mapping, list), "JSON text, a dict, a list or a Schema")
    if not schema.references:  # a schema with references is resolved when the registry has sent the referenced schemas
        _writer_of(_parse(_resolve(parsed, [])))
    return schema


async def resolve_references(registry: SchemaRegistryClient, schema: Schema) -> Any:
    """Resolve the types that the schema refers to. Raises ConfigurationError."""
    schemas = await referenced(registry, schema)
    try:
        parsed = [json.loads(document.text) for document in (*schemas.values(), schema)]
    except (ValueError, RecursionError) as error:
        raise _wrong_schema(error) from None
    return _resolve(parsed.pop(), parsed)


def _resolve(schema: Any, referenced_schemas: list[Any]) -> Any:
    try:
        return resolved(schema, referenced_schemas)
    except _SCHEMA_ERRORS as error:
        raise _wrong_schema(error) from None


def _writer_of(schema: Any) -> Write:
    try:
        return writer(schema)
    except _SCHEMA_ERRORS as error:
        raise _wrong_schema(error) from None


def _reader_of(written_with: Any, read_with: Any | None) -> Read:
    fastavro = extra("fastavro", "avro")
    try:
        return reader(written_with, read_with)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *_SCHEMA_ERRORS) as error:
        raise _wrong_schema(error) from None


def _parse(schema: Any) -> Any:
    fastavro = extra("fastavro", "avro")
    try:
        return fastavro.parse_schema(schema)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *_SCHEMA_ERRORS) as error:
        raise _wrong_schema(error) from None


def _wrong_schema(error: Exception) -> ConfigurationError:
    return ConfigurationError(f"schema must be a schema of Avro: {type(error).__name__}: {error}")


def _name_of(schema: Any) -> str:
    """Return the full name of a named type, else an empty string."""
    name = schema.get("name", "") if isinstance(schema, Mapping) else ""
    namespace = schema.get("namespace", "") if name and "." not in name else ""
    return f"{namespace}.{name}" if namespace else name

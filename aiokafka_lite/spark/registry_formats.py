"""Avro, JSON Schema and Protobuf as columns: for each format the column type, and how a record is read and written.

``record_format`` asks the registry for what the driver and each executor needs. The values that ``reader`` returns and
``writer`` takes are those that Arrow makes columns of.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from ..errors import ConfigurationError
from ..schemas.avro import AvroDeserializer, AvroSerializer, resolve_references
from ..schemas.client import SchemaRegistryClient
from ..schemas.schema import Schema
from ..schemas.serializing import Read, Write, check_type, referenced
from ..schemas.wire import prefix, read_indexes, write_indexes
from .column_types import ColumnType


class RecordFormat(ABC):
    """A format with a schema: ``kind`` is its column type."""

    kind: ColumnType

    @abstractmethod
    async def reader(self, schema_id: int) -> Read:
        """Return the function that reads records of the schema with this id, from the byte after the id.

        Raises SchemaRegistryError, and ConfigurationError if the schema has another format.
        """

    @abstractmethod
    async def writer(self, subject: str) -> Write:
        """Return the function that writes records with the id that the schema has in a subject."""


async def record_format(client: SchemaRegistryClient, schema: Schema, message: str | None) -> RecordFormat:
    """Make the format of a schema. ``message`` is the full name of a message in a file of Protobuf.

    Raises ConfigurationError for a schema that has no column type, and if an extra is missing.
    """
    if message is not None and schema.type != "PROTOBUF":
        raise ConfigurationError(f"message is for schemas of type PROTOBUF, got a schema of type {schema.type}")
    if schema.type == "AVRO":
        from .avro_columns import column_type as avro_type

        return _Avro(client, schema, avro_type(await resolve_references(client, schema)))
    if schema.type == "JSON":
        from .json_columns import column_type as json_type

        documents = {name: json.loads(part.text) for name, part in (await referenced(client, schema)).items()}
        return _Json(client, schema, json_type(json.loads(schema.text), documents))
    from ..schemas.protobuf_files import protobuf_file

    file = await protobuf_file(client, schema)
    if not file.names:
        raise ConfigurationError("the schema has no message")
    name = message or file.names[0]
    try:
        message_class, path = file.message(name), file.path_of(name)
    except ValueError as error:
        raise ConfigurationError(f"message: {error}") from None
    return _Protobuf(client, schema, message_class, path)


class _Avro(RecordFormat):
    def __init__(self, client: SchemaRegistryClient, schema: Schema, kind: ColumnType) -> None:
        self._client = client
        self._schema = schema
        self.kind = kind
        self._deserializer = AvroDeserializer[Any](client, schema)

    async def reader(self, schema_id: int) -> Read:
        return _converted(await self._deserializer.reader(schema_id), self.kind)

    async def writer(self, subject: str) -> Write:
        serializer = AvroSerializer[Any](self._client, self._schema, subject=lambda *_: subject, resolve="lookup")
        return _restored(await serializer.writer(""), self.kind, b"")


class _Json(RecordFormat):
    def __init__(self, client: SchemaRegistryClient, schema: Schema, kind: ColumnType) -> None:
        from ..schemas.json_schema import JsonSchemaDeserializer

        self._client = client
        self._schema = schema
        self.kind = kind
        self._deserializer = JsonSchemaDeserializer[Any](client)

    async def reader(self, schema_id: int) -> Read:
        return _converted(await self._deserializer.reader(schema_id), self.kind)

    async def writer(self, subject: str) -> Write:
        from ..schemas.json_schema import json_check

        registered = await self._client.lookup(subject, self._schema)
        check = await json_check(self._client, registered.schema)
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

        def write(value: object) -> bytes:
            check(value)
            return encode(value).encode()

        return _restored(write, self.kind, prefix(registered.schema_id))


class _Protobuf(RecordFormat):
    def __init__(self, client: SchemaRegistryClient, schema: Schema, message_class: Any, path: list[int]) -> None:
        from .protobuf_columns import message_type

        self._client = client
        self._schema = schema
        self._class = message_class
        self._path = path
        self.kind = message_type(message_class)

    async def reader(self, schema_id: int) -> Read:
        from ..schemas.protobuf_names import message_types

        schema = await self._client.by_id(schema_id)
        check_type(schema, "PROTOBUF", "from_registry")
        types = message_types(schema.text)
        parse, expected = self._class.FromString, self._class.DESCRIPTOR.full_name
        checked_paths = set[tuple[int, ...]]()

        def read(data: bytes, start: int) -> Any:
            path, start = read_indexes(data, start)
            if path not in checked_paths:
                name = types.name_at(path)
                if name != expected:
                    raise ValueError(f"the record is a {name}, and no {expected}")
                checked_paths.add(path)
            return parse(data[start:])

        return _converted(read, self.kind)

    async def writer(self, subject: str) -> Write:
        registered = await self._client.lookup(subject, self._schema)

        def write(message: Any) -> bytes:
            data: bytes = message.SerializeToString()
            return data

        return _restored(write, self.kind, prefix(registered.schema_id) + write_indexes(self._path))


def _converted(read: Read, kind: ColumnType) -> Read:
    convert = kind.convert
    if convert is None:
        return read

    def read_and_convert(data: bytes, start: int) -> Any:
        record = read(data, start)
        return None if record is None else convert(record)

    return read_and_convert


def _restored(write: Write, kind: ColumnType, start: bytes) -> Write:
    restore = kind.restore
    if restore is None:
        return lambda value: start + write(value)
    return lambda value: start + write(restore(value))

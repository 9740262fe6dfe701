"""Keys and values of a registry as JSON, whatever their schemas are: for tools, which have no classes of a program.

Avro becomes what ``avro_json`` describes, JSON Schema is JSON already, and Protobuf is its JSON form with the names of
the file and with whole numbers as numbers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import ConfigurationError
from ..extras import extra
from ..types import Header
from .avro import AvroDeserializer, resolve_references
from .avro_json import from_json, to_json
from .avro_writing import writer
from .client import SchemaRegistryClient
from .json_schema import JsonSchemaDeserializer, json_check
from .json_values import check_json
from .protobuf_files import ProtobufFile, protobuf_file
from .schema import Part, RegisteredSchema, Schema
from .wire import find_header, prefix, read_indexes, read_name, write_indexes

ToJson = Callable[[str, bytes, tuple[Header, ...]], Any]
FromJson = Callable[[Any], bytes]


def schema_name(part: Part, data: bytes, headers: tuple[Header, ...]) -> int | str:
    """Return the id or the GUID of the schema of a key or value. Raises ValueError if it has none."""
    in_header = find_header(part, headers) if headers else None
    return read_name(data if in_header is None else in_header).name


class JsonForms:
    """Reads keys and values of any schema as JSON, and writes JSON with a schema. Owner: one command or call.

    ``registry`` stays the caller's.
    """

    def __init__(self, registry: SchemaRegistryClient) -> None:
        self._registry = registry
        self._readers: dict[tuple[Part, int | str], ToJson] = {}

    def __repr__(self) -> str:
        return f"<JsonForms readers={len(self._readers)}>"

    async def read(self, topic: str, part: Part, data: bytes, headers: tuple[Header, ...]) -> object:
        """Return a key or value as an object that JSON can hold.

        Raises ValueError for bytes without the id of a schema, and for bytes that the schema does not describe;
        ConfigurationError for a schema that cannot be used; SchemaRegistryError and KafkaTimeout of the registry.
        """
        name = schema_name(part, data, headers)
        reader = self._readers.get((part, name))
        if reader is None:
            schema = await (self._registry.by_id(name) if isinstance(name, int) else self._registry.by_guid(name))
            reader = self._readers[part, name] = await self._reader(part, schema)
        try:
            value = reader(topic, data, headers)
            return to_json(await value) if isinstance(value, Awaitable) else value
        except (ConfigurationError, ValueError):
            raise
        except (LookupError, TypeError, ArithmeticError, EOFError, RecursionError) as error:
            raise ValueError(f"the bytes are not of their schema: {type(error).__name__}: {error}") from None

    async def _reader(self, part: Part, schema: Schema) -> ToJson:
        if schema.type == "JSON":
            # Unchecked: a tool shows what there is.
            return JsonSchemaDeserializer[Any](self._registry, validate=False).for_part(part).deserialize
        if schema.type == "PROTOBUF":
            return _protobuf_reader(part, await protobuf_file(self._registry, schema))
        avro = AvroDeserializer[Any](self._registry).for_part(part)

        def read(topic: str, data: bytes, headers: tuple[Header, ...]) -> Any:
            value = avro.deserialize(topic, data, headers)
            return value if isinstance(value, Awaitable) else to_json(value)

        return read

    async def writer(self, registered: RegisteredSchema, message: str | None = None) -> FromJson:
        """Return the function that writes a JSON value with a schema, in Confluent's wire format.

        ``message`` is the full name of a message of Protobuf; by default, the first of the file. The function raises
        ValueError, with the place, for a value that the schema does not describe.
        """
        schema, start = registered.schema, prefix(registered.schema_id)
        if schema.type == "PROTOBUF":
            return _protobuf_writer(await protobuf_file(self._registry, schema), message, start)
        if message is not None:
            raise ConfigurationError(f"a schema of type {schema.type} has no message {message!r}")
        if schema.type == "JSON":
            check = await json_check(self._registry, schema)

            def write_json(value: Any) -> bytes:
                check_json(value)
                check(value)
                return start + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

            return write_json
        resolved = await resolve_references(self._registry, schema)
        write = writer(resolved)
        return lambda value: start + write(from_json(resolved, value))


def _protobuf_reader(part: Part, file: ProtobufFile) -> ToJson:
    json_format = extra("google.protobuf.json_format", "protobuf")
    decode_error = extra("google.protobuf.message", "protobuf").DecodeError

    def read(topic: str, data: bytes, headers: tuple[Header, ...]) -> Any:
        in_header = find_header(part, headers) if headers else None
        if in_header is None:
            path, end = read_indexes(data, read_name(data).end)
        else:
            path, end = read_indexes(in_header, read_name(in_header).end)[0], 0
        try:
            message = file.message_at(path).FromString(data[end:])
            form = json_format.MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except (decode_error, json_format.Error, TypeError) as error:
            raise ValueError(f"the bytes are not a {file.message_at(path).DESCRIPTOR.full_name}: {error}") from None
        return _with_numbers(form, message.DESCRIPTOR)

    return read


def _protobuf_writer(file: ProtobufFile, message: str | None, start: bytes) -> FromJson:
    json_format = extra("google.protobuf.json_format", "protobuf")
    names = file.names
    if not names:
        raise ConfigurationError("the schema has no message")
    name = message or names[0]
    try:
        message_class, head = file.message(name), start + write_indexes(file.path_of(name))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None

    def write(value: Any) -> bytes:
        try:
            content: bytes = json_format.ParseDict(value, message_class()).SerializeToString()
        except (json_format.Error, AttributeError, TypeError, OverflowError) as error:
            raise ValueError(f"the value is not a {name}: {error}") from None
        except SystemError as error:  # upb looks a name up that has half a surrogate pair, and forgets its own error
            raise ValueError(f"the value is not a {name}: {error.__cause__ or error}") from None
        return head + content

    return write


def _with_numbers(form: Any, descriptor: Any) -> Any:
    """Return the JSON form of a message with 64-bit integers as numbers; Protobuf writes them as texts."""
    if not isinstance(form, dict) or descriptor.full_name.startswith("google.protobuf."):
        return form
    for field in descriptor.fields:
        if field.name in form:
            form[field.name] = _field_with_numbers(form[field.name], field)
    return form


def _field_with_numbers(value: Any, field: Any) -> Any:
    if isinstance(value, list):
        return [_field_with_numbers(item, field) for item in value]
    if field.message_type is None:
        is_long = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
        return int(value) if is_long and isinstance(value, str) else value
    if field.message_type.GetOptions().map_entry and isinstance(value, dict):
        item = field.message_type.fields_by_name["value"]
        return {key: _field_with_numbers(content, item) for key, content in value.items()}
    return _with_numbers(value, field.message_type)

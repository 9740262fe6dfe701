"""Reads Avro's binary encoding with fastavro, where it reads a record in another way than Java.

1. fastavro returns the default of a field as the JSON of the schema has it: bytes as a str, a timestamp as an int, a
   record without the defaults of its own fields. Here a default is encoded and decoded once, as Java does, so that it
   has the type of any other value of its field.
2. fastavro gives the same list or dict to all records. Here each record gets a copy, which a program may change.
3. A schema that is no longer valid may be in a registry. Java needs no default of the writer, and takes the plain type
   in place of an invalid logical type. fastavro refuses both, so neither reaches it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from ..extras import extra
from .avro_depth import depth_check
from .avro_logical import is_invalid_decimal
from .avro_names import for_fastavro, resolved
from .avro_writing import encoded_defaults
from .serializing import Read

_ROOT, _VALUE = "__aiokafka_lite_root__", "value"
"""The record around a schema that is no record, and its field. It has no namespace: its types would take it over."""

_RECORDS = ("record", "error")


def reader(writer_schema: Any, reader_schema: Any | None) -> Read:
    """Return the function that reads what the first schema describes as the second one describes it.

    Both are resolved schemas. Raises ValueError, and the errors of fastavro for a schema.
    """
    fastavro = extra("fastavro", "avro")
    if reader_schema == writer_schema:
        reader_schema = None
    # A record alone has the bytes of its only field. In a record, fastavro looks up each type by its name and parses
    # no schema again for each value.
    is_record = all(_is_record(schema) for schema in (writer_schema, reader_schema) if schema is not None)
    written_with = _parsed(writer_schema, is_record=is_record, with_defaults=False)
    read_with = None if reader_schema is None else _parsed(reader_schema, is_record=is_record, with_defaults=True)
    shared = frozenset(map(id, _set_defaults(reader_schema, read_with)))
    check_depth = depth_check(writer_schema)
    schemaless_reader = fastavro.schemaless_reader

    def read(data: bytes, start: int) -> object:
        if check_depth is not None:
            check_depth(data, start)
        buffer = io.BytesIO(data)
        buffer.seek(start)
        value = schemaless_reader(buffer, written_with, read_with)
        if shared:
            _copy_shared(value, shared)
        return value if is_record else value[_VALUE]

    return read


def _is_record(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema["type"] in _RECORDS


def _parsed(schema: Any, *, is_record: bool, with_defaults: bool) -> Any:
    prepared = _prepared(for_fastavro(schema), with_defaults=with_defaults)
    if not is_record:
        prepared = {"type": "record", "name": _ROOT, "fields": [{"name": _VALUE, "type": prepared}]}
    return extra("fastavro", "avro").parse_schema(prepared)


def _prepared(schema: Any, *, with_defaults: bool) -> Any:
    """Copy a schema without what fastavro refuses and Java ignores."""
    if isinstance(schema, list):
        return [_prepared(branch, with_defaults=with_defaults) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    copied = dict(schema)
    if is_invalid_decimal(schema):
        del copied["logicalType"]
    for key in ("items", "values"):
        if key in copied and copied["type"] in ("array", "map"):
            copied[key] = _prepared(copied[key], with_defaults=with_defaults)
    if copied["type"] in _RECORDS:
        copied["fields"] = [
            {key: value for key, value in field.items() if key != "default" or with_defaults}
            | {"type": _prepared(field["type"], with_defaults=with_defaults)}
            for field in copied["fields"]
        ]
    return copied


def _set_defaults(schema: Any, parsed: Any) -> list[Any]:
    """Replace the defaults in the parsed form of a reader's schema by values. Returns those that may be changed."""
    if schema is None:
        return []
    named = for_fastavro(schema)
    defaults = encoded_defaults(named)
    types = {(record["name"], field["name"]): field["type"] for record in _records(named) for field in record["fields"]}
    mutable = []
    for record in _records(parsed):
        for field in record["fields"]:
            name = record["name"], field["name"]
            if name in defaults:
                value = reader(resolved(types[name], [named]), None)(defaults[name], 0)
                field["default"] = value
                if isinstance(value, list | dict):
                    mutable.append(value)
    return mutable


def _records(schema: Any) -> Iterator[Any]:
    """Yield the definitions of all records."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch)
    elif isinstance(schema, Mapping):
        if schema["type"] in _RECORDS:
            yield schema
            for field in schema["fields"]:
                yield from _records(field["type"])
        elif schema["type"] in ("array", "map"):
            yield from _records(schema["items" if schema["type"] == "array" else "values"])


def _copy_shared(value: Any, shared: frozenset[int]) -> None:
    """Replace each list and dict inside a value that other values contain as well. The value may be nested deeply."""
    containers = [value]
    while containers:
        container = containers.pop()
        for key, inner in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(inner, dict | list):
                if id(inner) in shared:
                    container[key] = deepcopy(inner)
                else:
                    containers.append(inner)

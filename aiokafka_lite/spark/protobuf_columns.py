"""The type of a Spark column for a message of Protobuf, and the conversions between messages and Arrow's values.

The types are those of Spark's own ``from_protobuf``, except that unsigned numbers have the next larger type, wrappers
are nullable values, and ``google.protobuf.Struct`` is the text of its JSON. A field without presence has its default.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow

from ..extras import extra
from ..schemas.mismatch import Mismatch, wrong
from .column_types import ColumnType, list_of, map_of, struct_of, without_type

_INT = ColumnType("int", pyarrow.int32())
_LONG = ColumnType("bigint", pyarrow.int64())
_TEXT = ColumnType("string", pyarrow.string())
_PLAIN = {
    "double": ColumnType("double", pyarrow.float64()),
    "float": ColumnType("float", pyarrow.float32()),
    "bool": ColumnType("boolean", pyarrow.bool_()),
    "string": _TEXT,
    "bytes": ColumnType("binary", pyarrow.binary()),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INT),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), _LONG),
    **dict.fromkeys(("uint64", "fixed64"), ColumnType("decimal(20,0)", pyarrow.decimal128(20, 0), Decimal, int)),
}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}

Get = Callable[[Any], Any]
"""Returns Arrow's value of a message, or of an element."""
Put = Callable[[Any, Any], None]
"""Sets a field of a message to Arrow's value, which is not null. Or fills a whole message with it."""


class _Message(NamedTuple):
    """The type of a message: how it becomes Arrow's value, and how an empty message is filled with such a value."""

    kind: ColumnType
    convert: Get
    fill: Put


def message_type(message: Any) -> ColumnType:
    """Return the column type of a message class.

    ``convert`` takes a message, and ``restore`` returns one. Raises ConfigurationError, which names the field, for a
    message that contains itself, and for one without fields.
    """
    kind, convert, fill = _message(message.DESCRIPTOR, "", ())

    def restore(record: Any) -> Any:
        instance = message()
        fill(instance, record)
        return instance

    return kind._replace(convert=convert, restore=restore)


def _message(descriptor: Any, path: str, inside: tuple[str, ...]) -> _Message:
    name = descriptor.full_name
    special = _special(name)
    if special is not None:
        return special
    if name in _WRAPPERS:
        kind = _scalar(descriptor.fields_by_name["value"])
        return _Message(
            kind,
            lambda message: _get_scalar(kind, message.value),
            lambda message, value: setattr(message, "value", _put_scalar(kind, value)),
        )
    if name in inside:
        raise without_type(path, f"{name}, which contains itself")
    if not descriptor.fields:
        raise without_type(path, f"{name}, a message without fields")
    fields = {
        field.name: _field(field, f"{path}.{field.name}".lstrip("."), (*inside, name)) for field in descriptor.fields
    }
    names = {field: accessors[0] for field, accessors in fields.items()}
    getters = [(field, get) for field, (_, get, _) in fields.items()]
    setters = [(field, put) for field, (_, _, put) in fields.items()]
    choices = [[field.name for field in oneof.fields] for oneof in descriptor.oneofs if len(oneof.fields) > 1]

    def convert(message: Any) -> dict[str, Any]:
        return {field: get(message) for field, get in getters}

    def fill(message: Any, record: dict[str, Any]) -> None:
        if not isinstance(record, dict):
            raise wrong(f"a struct with the fields of {name}", record)
        if not record.keys() <= fields.keys():
            field = next(field for field in record if field not in fields)
            raise Mismatch(f"is not a field of {name}").inside(field)
        for choice in choices:
            chosen = [field for field in choice if record.get(field) is not None]
            if len(chosen) > 1:
                raise Mismatch(f"must be null, because {chosen[0]} is not: {name} has only one of them").inside(
                    chosen[1]
                )
        for field, put in setters:
            if (value := record.get(field)) is not None:
                put(message, value)

    return _Message(struct_of(names), convert, fill)


def _special(name: str) -> _Message | None:
    if name == "google.protobuf.Timestamp":
        return _Message(
            ColumnType("timestamp", pyarrow.timestamp("us", "UTC")),
            lambda message: message.seconds * 1_000_000 + message.nanos // 1000,
            lambda message, time: message.FromDatetime(time),
        )
    if name == "google.protobuf.Duration":
        return _Message(
            ColumnType("interval day to second", pyarrow.duration("us")),
            lambda message: timedelta(seconds=message.seconds, microseconds=message.nanos // 1000),
            lambda message, duration: message.FromTimedelta(duration),
        )
    if name in _JSON:
        json_format = extra("google.protobuf.json_format", "protobuf")
        return _Message(
            _TEXT,
            lambda message: json_format.MessageToJson(message, indent=None),
            lambda message, text: json_format.Parse(text, message),
        )
    return None


def _field(field: Any, path: str, inside: tuple[str, ...]) -> tuple[ColumnType, Get, Put]:
    """Return the type of a field, with the functions that get it from a message and set it."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, path, inside)
    if field.message_type is None:
        kind = _scalar(field)
        if _is_repeated(field):

            def extend(message: Any, values: Any) -> None:
                getattr(message, name).extend(_put_scalar(kind, value) for value in values)

            return list_of(kind), lambda message: [_get_scalar(kind, item) for item in getattr(message, name)], extend
        has_presence = field.has_presence

        def get(message: Any) -> Any:
            if has_presence and not message.HasField(name):
                return None
            return _get_scalar(kind, getattr(message, name))

        return kind, get, lambda message, value: setattr(message, name, _put_scalar(kind, value))
    kind, convert, fill = _message(field.message_type, path, inside)
    if _is_repeated(field):

        def add(message: Any, records: Any) -> None:
            for record in records:
                fill(getattr(message, name).add(), record)

        return list_of(kind), lambda message: list(map(convert, getattr(message, name))), add

    def put(message: Any, record: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        fill(part, record)

    return kind, lambda message: convert(getattr(message, name)) if message.HasField(name) else None, put


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # before protobuf 6.31, and only there


def _map(field: Any, path: str, inside: tuple[str, ...]) -> tuple[ColumnType, Get, Put]:
    name, entry = field.name, field.message_type
    keys = _scalar(entry.fields_by_name["key"])
    of_value = entry.fields_by_name["value"]
    if of_value.message_type is None:
        values = _scalar(of_value)

        def put_scalars(message: Any, pairs: Any) -> None:
            entries = getattr(message, name)
            for key, value in pairs:
                entries[_put_scalar(keys, key)] = _put_scalar(values, value)

        def get_scalars(message: Any) -> Any:
            entries = getattr(message, name).items()
            return [(_get_scalar(keys, key), _get_scalar(values, value)) for key, value in entries]

        return map_of(keys, values), get_scalars, put_scalars
    kind, convert, fill = _message(of_value.message_type, f"{path}{{}}", inside)

    def put_messages(message: Any, pairs: Any) -> None:
        for key, record in pairs:
            fill(getattr(message, name)[_put_scalar(keys, key)], record)

    def get_messages(message: Any) -> Any:
        return [(_get_scalar(keys, key), convert(value)) for key, value in getattr(message, name).items()]

    return map_of(keys, kind), get_messages, put_messages


def _scalar(field: Any) -> ColumnType:
    if field.enum_type is not None:
        numbers = {value.number: value.name for value in field.enum_type.values}
        by_name = {value.name: value.number for value in field.enum_type.values}
        # A number that the file does not have comes from a newer file, and stays as its text.
        return ColumnType(
            "string",
            pyarrow.string(),
            lambda number: numbers.get(number, str(number)),
            lambda text: by_name[text] if text in by_name else int(text),
        )
    descriptor = extra("google.protobuf.descriptor", "protobuf").FieldDescriptor
    names = {getattr(descriptor, f"TYPE_{name.upper()}"): kind for name, kind in _PLAIN.items()}
    return names[field.type]


def _get_scalar(kind: ColumnType, value: Any) -> Any:
    return value if kind.convert is None else kind.convert(value)


def _put_scalar(kind: ColumnType, value: Any) -> Any:
    return value if kind.restore is None else kind.restore(value)

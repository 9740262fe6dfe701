"""The type of a Spark column for an Avro schema, and the conversion of decoded values to that type.

The types are those of Spark's own ``from_avro``. Every part may be null, also where the schema does not allow it.

A value is decoded by the schema that it was written with, which may lack the logical type of the column, and a default
is the JSON of the schema. So a column with a logical type may get a plain number, or plain bytes, and a column of bytes
may get text. A default may be the same object in many records, so a conversion changes no object.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow

from ..schemas.avro_logical import logical_type
from .column_types import ColumnType, Convert, list_of, map_of, struct_of, without_type


def _bytes(value: Any) -> Any:
    """Convert a default, which is text with a character for each byte."""
    return value.encode("latin-1") if isinstance(value, str) else value


def _from_millis(epoch: datetime) -> Convert:
    """Return the conversion of milliseconds. Arrow would take them for microseconds."""
    return lambda value: epoch + timedelta(milliseconds=value) if type(value) is int else value


def _time_text(unit: str) -> Convert:
    """Return the conversion of a time of day to text."""
    return lambda value: str((datetime.min + timedelta(**{unit: value})).time() if type(value) is int else value)


def _decimal(scale: int) -> Convert:
    """Return the conversion of the bytes of an unscaled number."""

    def convert(value: Any) -> Any:
        if isinstance(value, Decimal):
            return value
        sign, digits, _ = Decimal(int.from_bytes(_bytes(value), "big", signed=True)).as_tuple()
        return Decimal((sign, digits, -scale))  # exact, with any number of digits

    return convert


_TIME = pyarrow.timestamp("us", "UTC")
_LOCAL_TIME = pyarrow.timestamp("us")
_PLAIN = {
    "boolean": ColumnType("boolean", pyarrow.bool_()),
    "int": ColumnType("int", pyarrow.int32()),
    "long": ColumnType("bigint", pyarrow.int64()),
    "float": ColumnType("float", pyarrow.float32()),
    "double": ColumnType("double", pyarrow.float64()),
    "bytes": ColumnType("binary", pyarrow.binary(), _bytes),
    "string": ColumnType("string", pyarrow.string()),
    "fixed": ColumnType("binary", pyarrow.binary(), _bytes),
    "enum": ColumnType("string", pyarrow.string()),
}
_LOGICAL = {
    ("int", "date"): ColumnType("date", pyarrow.date32()),
    ("long", "timestamp-millis"): ColumnType("timestamp", _TIME, _from_millis(datetime(1970, 1, 1, tzinfo=UTC))),
    ("long", "timestamp-micros"): ColumnType("timestamp", _TIME),
    ("long", "local-timestamp-millis"): ColumnType("timestamp_ntz", _LOCAL_TIME, _from_millis(datetime(1970, 1, 1))),
    ("long", "local-timestamp-micros"): ColumnType("timestamp_ntz", _LOCAL_TIME),
    ("string", "uuid"): ColumnType("string", pyarrow.string(), str),
    # Spark has no type for a time of day. Its text keeps the value.
    ("int", "time-millis"): ColumnType("string", pyarrow.string(), _time_text("milliseconds"), time.fromisoformat),
    ("long", "time-micros"): ColumnType("string", pyarrow.string(), _time_text("microseconds"), time.fromisoformat),
}


def column_type(schema: Any) -> ColumnType:
    """Return the column type of a resolved schema. Raises ConfigurationError, which names the field, if it has none."""
    return _Types().of(schema, "", ())


class _Types:
    """The named types of a schema, which it defines once and then uses by their names."""

    def __init__(self) -> None:
        self._defined: dict[str, Any] = {}

    def of(self, schema: Any, path: str, inside: tuple[str, ...]) -> ColumnType:
        """Return the type at a path of the schema. ``inside`` has the records that contain it."""
        if isinstance(schema, list):
            return self._union(schema, path, inside)
        if isinstance(schema, str):
            if schema in inside:
                raise without_type(path, f"{schema}, which contains itself")
            schema = self._defined.get(schema, {"type": schema})
        kind = schema["type"]
        if isinstance(kind, list | Mapping):
            return self.of(kind, path, inside)
        if "name" in schema:
            self._defined[schema["name"]] = schema
        if kind in ("record", "error"):
            return self._record(schema, path, inside)
        if kind == "array":
            return list_of(self.of(schema["items"], f"{path}[]", inside))
        if kind == "map":
            return map_of(_PLAIN["string"], self.of(schema["values"], f"{path}{{}}", inside))
        logical = schema.get("logicalType")
        if logical == "decimal" and logical_type(schema) is not None:
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > 38:
                raise without_type(path, f"a decimal of {precision} digits; Spark has at most 38")
            arrow = pyarrow.decimal128(precision, scale)
            return ColumnType(f"decimal({precision},{scale})", arrow, _decimal(scale))
        plain = _LOGICAL.get((kind, logical)) or _PLAIN.get(kind)
        if plain is None:
            raise without_type(path, f"the type {kind!r}")
        return plain

    def _union(self, branches: list[Any], path: str, inside: tuple[str, ...]) -> ColumnType:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            names = [branch.get("name", branch["type"]) if isinstance(branch, dict) else branch for branch in others]
            raise without_type(path, f"a union of {', '.join(map(str, names)) or 'null'}")
        return self.of(others[0], path, inside)

    def _record(self, schema: Mapping[str, Any], path: str, inside: tuple[str, ...]) -> ColumnType:
        inside = (*inside, schema["name"])
        kinds = {
            field["name"]: self.of(field["type"], f"{path}.{field['name']}".lstrip("."), inside)
            for field in schema["fields"]
        }
        if not kinds:
            raise without_type(path, "a record without fields")
        return struct_of(kinds)

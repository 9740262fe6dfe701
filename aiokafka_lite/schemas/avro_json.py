"""JSON for values of Avro: numbers and texts in place of the Python objects of logical types.

- A timestamp, a date and a time are texts in ISO 8601. A decimal is a text with its digits, a UUID its usual text.
- Bytes and fixed are base64. NaN and the infinities, which JSON does not have, are the texts NaN, Infinity, -Infinity.
- A union is the value alone. For input, ``{"shop.Order": {...}}`` names the type, as in Avro's own JSON encoding.
"""

from __future__ import annotations

import base64
import binascii
import math
import uuid
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from .mismatch import Mismatch, wrong

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: Any) -> Any:
    """Return the JSON value of an object that was read."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, number in _NOT_FINITE.items() if repr(number) == repr(value))
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def from_json(schema: Any, value: Any) -> Any:
    """Return the object that a writer takes for a JSON value. ``schema`` is resolved: see ``avro_names``.

    Raises Mismatch, with the place, for a text that is not of its logical type.
    """
    return _Conversion(schema).convert(schema, value)


class _Conversion:
    """Converts values of one schema. Later uses of a type are only its name."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._collect(schema)

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch)
        elif isinstance(schema, Mapping):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for part in ("items", "values"):
                self._collect(schema.get(part))
            for field in schema.get("fields", ()):
                self._collect(field["type"])

    def convert(self, schema: Any, value: Any) -> Any:
        if isinstance(schema, str):
            schema = self._named.get(schema, schema)
        if isinstance(schema, list):
            return self._union(schema, value)
        if not isinstance(schema, Mapping):
            return _plain(schema, None, value)
        kind = schema["type"]
        if kind in ("record", "error") and isinstance(value, Mapping):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            # The writer refuses a key that is no field, and names the nearest one.
            return {
                name: self._inside(types[name], item, name) if name in types else item for name, item in value.items()
            }
        if kind == "map" and isinstance(value, Mapping):
            return {key: self._inside(schema["values"], item, key, is_key=True) for key, item in value.items()}
        if kind == "array" and isinstance(value, list):
            return [self._inside(schema["items"], item, index) for index, item in enumerate(value)]
        return _plain(kind, schema.get("logicalType"), value)

    def _inside(self, schema: Any, value: Any, part: str | int, *, is_key: bool = False) -> Any:
        try:
            return self.convert(schema, value)
        except Mismatch as error:
            raise error.inside(part, is_key=is_key) from None

    def _union(self, branches: list[Any], value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Mapping) and len(value) == 1:
            (name, content), *_ = value.items()
            for branch in branches:
                if _name(branch) == name and not self._has_field(branch, name):
                    converted = self._inside(branch, content, name)
                    return (name, converted) if isinstance(converted, dict) else converted
        if isinstance(value, Mapping) and (record := self._record(branches, value)):
            return record["name"], self.convert(record, value)
        errors: list[Mismatch] = []
        fallback: list[Any] = []
        for branch in branches:
            if branch == "null":
                continue
            try:
                converted = self.convert(branch, value)
            except Mismatch as error:
                errors.append(error)
                continue
            if type(converted) is not type(value):  # a text that became a date, bytes or a number
                return converted
            fallback.append(converted)
        if fallback:
            return fallback[0]  # the writer looks for the branch that fits
        raise errors[0] if errors else wrong("null", value)

    def _record(self, branches: list[Any], value: Mapping[str, Any]) -> Any:
        """Return the record type with these fields; None if there is none. Raises Mismatch if there are several."""
        records = []
        for branch in branches:
            schema = self._named.get(branch, branch) if isinstance(branch, str) else branch
            fields = schema.get("fields") if isinstance(schema, Mapping) else None
            if fields is None:
                continue
            required = {field["name"] for field in fields if "default" not in field and not _may_be_null(field["type"])}
            if required <= value.keys() <= {field["name"] for field in fields}:
                records.append(schema)
        if len(records) > 1:
            names = [record["name"] for record in records]
            raise Mismatch(f'fits {" and ".join(names)}; name the type, as in {{"{names[0]}": {{...}}}}')
        return records[0] if records else None

    def _has_field(self, branch: Any, name: str) -> bool:
        return isinstance(branch, Mapping) and any(field["name"] == name for field in branch.get("fields", ()))


def _may_be_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _name(branch: Any) -> str:
    """Return the name that Avro's JSON encoding has for the branch of a union."""
    return str(branch.get("name", branch["type"])) if isinstance(branch, Mapping) else str(branch)


def _plain(kind: Any, logical: Any, value: Any) -> Any:
    """Convert a value of a primitive type, fixed or enum."""
    if kind in ("float", "double") and isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if logical == "decimal" and kind in ("bytes", "fixed") and isinstance(value, str | int | float):
        return _parsed("a number in decimal digits", Decimal, str(value))
    if logical == "uuid" and isinstance(value, str):
        return _parsed("a UUID", uuid.UUID, value)
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return _parsed("base64", _base64, value)
    if isinstance(value, str) and isinstance(logical, str) and kind in ("int", "long"):
        if logical == "date":
            return _parsed("a date in ISO 8601", date.fromisoformat, value)
        if logical.startswith("time-"):
            return _parsed("a time in ISO 8601", time.fromisoformat, value)
        if "timestamp" in logical:
            return _parsed("a time in ISO 8601", datetime.fromisoformat, value)
    return value


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _parsed(what: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, InvalidOperation, binascii.Error):
        raise wrong(what, text) from None

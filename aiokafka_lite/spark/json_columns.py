"""The type of a Spark column for a JSON Schema, and the conversion of parsed JSON to that type.

A part of the schema that has no type of Spark, such as a choice of several types, an object whose properties are not
listed, or a part that contains itself, is a column with the text of its JSON. So no schema is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow

from .column_types import ColumnType, Convert, list_of, map_of, struct_of


def _as_double(value: Any) -> Any:
    """Convert a whole number, which Arrow would refuse if a double cannot hold all of its digits."""
    return float(value) if type(value) is int else value


_TEXT = ColumnType("string", pyarrow.string())
_PLAIN = {
    "string": _TEXT,
    "integer": ColumnType("bigint", pyarrow.int64()),
    "number": ColumnType("double", pyarrow.float64(), _as_double),
    "boolean": ColumnType("boolean", pyarrow.bool_()),
}
_AS_JSON = ColumnType("string", pyarrow.string(), lambda value: json.dumps(value, ensure_ascii=False), json.loads)


def column_type(schema: Any, documents: Mapping[str, Any]) -> ColumnType:
    """Return the column type of a parsed schema. ``documents`` are the schemas that it refers to, by name."""
    return _Types(documents).of(schema, schema, ())


class _Types:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def of(self, schema: Any, document: Any, inside: tuple[int, ...]) -> ColumnType:
        """Return the type of a part of a document. ``inside`` has the parts that contain it."""
        if not isinstance(schema, Mapping) or id(schema) in inside:
            return _AS_JSON
        inside = (*inside, id(schema))
        if isinstance(schema.get("$ref"), str):
            return self._referenced(schema["$ref"], document, inside)
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                others = [branch for branch in schema[choice] if branch != {"type": "null"}]
                return self.of(others[0], document, inside) if len(others) == 1 else _AS_JSON
        if "allOf" in schema:
            return _AS_JSON
        kinds = schema.get("type", [])
        others = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
        if len(others) != 1:
            return _AS_JSON
        kind = others[0]
        if kind == "array":
            items = schema.get("items")
            return list_of(self.of(items, document, inside)) if isinstance(items, Mapping) else _AS_JSON
        if kind == "object":
            return self._object(schema, document, inside)
        return _PLAIN.get(kind, _AS_JSON)

    def _object(self, schema: Mapping[str, Any], document: Any, inside: tuple[int, ...]) -> ColumnType:
        properties = schema.get("properties")
        if not properties:
            values = schema.get("additionalProperties")
            if not isinstance(values, Mapping) or not values:
                return _AS_JSON
            return map_of(_TEXT, self.of(values, document, inside))
        kind = struct_of({name: self.of(part, document, inside) for name, part in properties.items()})
        optional = {name for name in properties if name not in schema.get("required", ())}
        return kind._replace(restore=_without_nulls(optional, kind.restore))

    def _referenced(self, reference: str, document: Any, inside: tuple[int, ...]) -> ColumnType:
        name, _, fragment = reference.partition("#")
        part = document = self._documents.get(name) if name else document
        for step in unquote(fragment).strip("/").split("/"):
            if step and isinstance(part, Mapping):
                part = part.get(step.replace("~1", "/").replace("~0", "~"))
        return self.of(part, document, inside)


def _without_nulls(optional: set[str], restore: Convert | None) -> Convert:
    """Return the conversion to a JSON object. An optional property that is null is left out."""

    def to_object(record: dict[str, Any]) -> dict[str, Any]:
        present = {name: value for name, value in record.items() if value is not None or name not in optional}
        return present if restore is None else restore(present)

    return to_object

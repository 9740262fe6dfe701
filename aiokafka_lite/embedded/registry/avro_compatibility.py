"""Checks whether data written with one Avro schema can be read with another schema (Avro 1.12, schema resolution).

Names count without their namespace, as with Java's library, and aliases of the reader count as names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

Names: TypeAlias = dict[str, Any]
"""Definitions of named types, by their full names."""

_NAME = re.compile(r"[^\W\d]\w*")
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED = {"record", "error", "enum", "fixed"}
_READABLE_AS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class AvroSchema:
    """A parsed schema. ``used`` are the texts of the schemas that it refers to. Raises ValueError."""

    def __init__(self, text: str, used: Iterable[str] = ()) -> None:
        self.names: Names = {}
        for used_text in used:
            _define(json.loads(used_text), "", self.names)
        self.root: Any = _define(json.loads(text), "", self.names)


def _define(schema: Any, namespace: str, names: Names) -> Any:
    """Replace short names by full ones, and add named types to ``names``. Returns the schema. Raises ValueError."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _known(schema, namespace, names)
    if isinstance(schema, list):
        branches = [_define(branch, namespace, names) for branch in schema]
        labels = [_label(branch) for branch in branches]
        _refuse_twice("a union", "type", labels)
        return branches
    if not isinstance(schema, dict) or "type" not in schema:
        raise ValueError(f"a schema must be a name, a list or an object with a type, got {json.dumps(schema)[:80]}")
    kind = schema["type"]
    if kind == "array":
        return {"type": kind, "items": _define(schema.get("items"), namespace, names)}
    if kind == "map":
        return {"type": kind, "values": _define(schema.get("values"), namespace, names)}
    is_named = isinstance(kind, str) and kind in _NAMED
    return _define_named(schema, namespace, names) if is_named else _define(kind, namespace, names)


def _define_named(schema: dict[str, Any], namespace: str, names: Names) -> str:
    """Add a record, enum or fixed to ``names``. Returns its full name. Raises ValueError."""
    kind = schema["type"]
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the {kind} has no name")
    full = _full(name, schema.get("namespace", namespace))
    if not all(map(_NAME.fullmatch, full.split("."))):
        raise ValueError(f"the name {full!r} has other characters than letters, digits and underscores")
    if names.get(full, schema).get("definition", schema) != schema:
        raise ValueError(f"the type {full!r} is defined twice")
    inner = full.rpartition(".")[0]
    named_type: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": full, "definition": schema}
    named_type["aliases"] = {_short(alias) for alias in schema.get("aliases", ())}
    names[full] = named_type  # registered before its fields are read, because these may contain the type itself
    if kind == "enum":
        named_type["symbols"], named_type["default"] = list(schema["symbols"]), schema.get("default")
        _refuse_twice(full, "symbol", named_type["symbols"])
    elif kind == "fixed":
        named_type["size"] = schema["size"]
        if not isinstance(named_type["size"], int) or named_type["size"] < 0:
            raise ValueError(f"the size of {full} must be a whole number >= 0")
    else:
        _refuse_twice(full, "field", [field["name"] for field in schema["fields"]])
        named_type["fields"] = [
            {
                "name": field["name"],
                "names": {field["name"], *field.get("aliases", ())},
                "type": _define(field.get("type"), inner, names),
                "has_default": "default" in field,
            }
            for field in schema["fields"]
        ]
        for definition, field in zip(schema["fields"], named_type["fields"], strict=True):
            if "default" in definition and not _is_value(definition["default"], field["type"], names):
                raise ValueError(
                    f"the default {json.dumps(definition['default'])[:80]} of {full}.{field['name']} is wrong"
                )
    return full


def _is_value(value: Any, schema: Any, names: Names) -> bool:
    """Return whether JSON is a default value of a type. Any type of a union will do, as since Avro 1.12."""
    if isinstance(schema, list):
        return any(_is_value(value, branch, names) for branch in schema)
    if isinstance(schema, str):
        if schema not in names:
            return _is_primitive_value(value, schema)
        schema = names[schema]
    kind = schema["type"]
    if kind in ("enum", "fixed"):
        return isinstance(value, str)
    if kind == "array":
        return isinstance(value, list) and all(_is_value(item, schema["items"], names) for item in value)
    if not isinstance(value, dict):
        return False
    if kind == "map":
        return all(_is_value(item, schema["values"], names) for item in value.values())
    return all(
        _is_value(value[field["name"]], field["type"], names) if field["name"] in value else field["has_default"]
        for field in schema.get("fields", ())
    )


def _is_primitive_value(value: Any, kind: str) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return isinstance(value, int) and -(2**bits) <= value < 2**bits
    return isinstance(value, int | float) if kind in ("float", "double") else isinstance(value, str)


def _refuse_twice(what: str, part: str, names: list[str]) -> None:
    """Raise ValueError if a union has a type twice, an enum a symbol, or a record a field."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{what} has the {part} {twice!r} twice")


def _known(name: str, namespace: str, names: Names) -> str:
    for full_name in (_full(name, namespace), name):
        if full_name in names:
            return full_name
    raise ValueError(f"the type {name!r} is not defined")


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return the reasons why ``reader`` cannot read data of ``writer``; empty if they are compatible."""
    return list(_Comparison(reader.names, writer.names).compare(reader.root, writer.root, ""))


class _Comparison:
    """One comparison. ``_begun`` has the pairs of records that are being compared: types may contain themselves."""

    def __init__(self, reader: Names, writer: Names) -> None:
        self._reader = reader
        self._writer = writer
        self._begun: set[tuple[str, str]] = set()

    def compare(self, read: Any, written: Any, path: str) -> Iterable[str]:
        """Return the incompatibilities at this place. ``path`` names the place in the text of a message."""
        # Any type of the written union may occur, so the reader must read all of them. One type of the reader's union
        # is enough to read a written type.
        if isinstance(written, list):
            return [reason for branch in written for reason in self.compare(read, branch, path)]
        if isinstance(read, list):
            reasons = [list(self.compare(branch, written, path)) for branch in read]
            return [] if not all(reasons) else [f"{path or '/'}: no type of the union reads it"]
        if _is_primitive(read) or _is_primitive(written):
            allowed = _is_promotion(read, written)
            return [] if allowed else [f"{path or '/'}: {_label(written)} cannot be read as {_label(read)}"]
        return self._compare_complex(
            self._reader[read] if isinstance(read, str) else read,
            self._writer[written] if isinstance(written, str) else written,
            path,
        )

    def _compare_complex(self, read: Any, written: Any, path: str) -> Iterable[str]:
        kind = read["type"]
        if kind != written["type"]:
            return [f"{path or '/'}: {written['type']} cannot be read as {kind}"]
        if kind == "array":
            return self.compare(read["items"], written["items"], f"{path}/items")
        if kind == "map":
            return self.compare(read["values"], written["values"], f"{path}/values")
        return self._compare_named(read, written, path)

    def _compare_named(self, read: Any, written: Any, path: str) -> Iterable[str]:
        kind, name = read["type"], _short(written["name"])
        if name != _short(read["name"]) and name not in read["aliases"]:
            return [f"{path or '/'}: the name changed from {written['name']} to {read['name']}"]
        if kind == "fixed":
            return [] if read["size"] == written["size"] else [f"{path or '/'}: the size of fixed {name} changed"]
        if kind == "enum":
            removed = [symbol for symbol in written["symbols"] if symbol not in read["symbols"]]
            return [] if not removed or read["default"] else [f"{path or '/'}: symbols are missing: {removed}"]
        return self._compare_records(read, written, path)

    def _compare_records(self, read: Any, written: Any, path: str) -> Iterable[str]:
        pair = (read["name"], written["name"])
        # The records contain themselves, and their comparison has begun already.
        if pair in self._begun:
            return []
        self._begun.add(pair)
        reasons: list[str] = []
        for field in read["fields"]:
            place = f"{path}/fields/{field['name']}"
            same = next((writer for writer in written["fields"] if writer["name"] in field["names"]), None)
            if same is not None:
                reasons += self.compare(field["type"], same["type"], place)
            elif not field["has_default"]:
                reasons.append(f"{place}: the field has no default value and is missing in the other schema")
        return reasons


def _is_primitive(schema: Any) -> bool:
    return isinstance(schema, str) and schema in _PRIMITIVES


def _is_promotion(read: Any, written: Any) -> bool:
    """Return whether both types are primitive, and ``written`` can be read as ``read``."""
    both = _is_primitive(read) and _is_primitive(written)
    return both and (read == written or read in _READABLE_AS.get(written, ()))


def _label(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])

"""Reads Avro's binary encoding with fastavro, where it reads a record in another way than Java.

1. fastavro returns the default of a field as the JSON of the schema has it: bytes as a str, a timestamp as an int, a
   record without the defaults of its own fields. Here a default is encoded and decoded once, as Java does, so that it
   has the type of any other value of its field.
2. fastavro gives the same list or dict to all records. Here each record gets a copy, which a program may change.
3. fastavro takes the first type of a reader's union that fits, and compares names without their namespaces. So it
   would read a long as a double, and ``v2.Order`` as ``v1.Order``. Here a type is read as itself if the union has it:
   the numbers of a union are sorted, strings and bytes get a logical type that keeps them, and types whose names
   differ only in their namespaces are renamed.
4. fastavro converts a number to the Python object of the writer's logical type, whatever the reader's type is. Here the
   reader's type decides; only the unit, such as milliseconds, is that of the writer if both have one.
5. A schema that is no longer valid may be in a registry. Java needs no default of the writer, and takes the plain type
   in place of an invalid logical type. fastavro refuses both, so neither reaches it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from ..extras import extra
from .avro_depth import depth_check
from .avro_logical import is_invalid_decimal, logical_name
from .avro_names import NAMED, for_fastavro, names_of, renamed, resolved
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
    for kind in _AS_THEY_ARE:
        fastavro.read.LOGICAL_READERS[f"{kind}-{_AS_IT_IS}"] = _as_it_is
    if reader_schema == writer_schema:
        reader_schema = None
    if reader_schema is None:
        writer_schema = for_fastavro(writer_schema)
    else:
        writer_schema, reader_schema = _renamed_for_each_other(writer_schema, reader_schema)
    # A record alone has the bytes of its only field. In a record, fastavro looks up each type by its name and parses
    # no schema again for each value.
    is_record = all(_is_record(schema) for schema in (writer_schema, reader_schema) if schema is not None)
    written_with = _prepared(writer_schema, with_defaults=False)
    read_with = None
    if reader_schema is not None:
        read_with = _sorted(_prepared(reader_schema))
        written_with = _LogicalTypes(read_with).of_reader(written_with, read_with)
        read_with = _parsed(read_with, is_record=is_record)
    written_with = _parsed(written_with, is_record=is_record)
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


def _as_it_is(data: Any, _writer_schema: Any = None, _reader_schema: Any = None) -> Any:
    return data


def _is_record(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema["type"] in _RECORDS


def _parsed(schema: Any, *, is_record: bool) -> Any:
    if not is_record:
        schema = {"type": "record", "name": _ROOT, "fields": [{"name": _VALUE, "type": schema}]}
    return extra("fastavro", "avro").parse_schema(schema)


def _renamed_for_each_other(writer_schema: Any, reader_schema: Any) -> tuple[Any, Any]:
    """Return both schemas with names that fastavro compares as Java does.

    Where a union of the reader has types whose names differ only in their namespaces, their last parts become unique,
    and the aliases of the reader's types say which types of the writer are read as them.
    """
    of_writer, of_reader = names_of(writer_schema), names_of(reader_schema)
    ambiguous = _ambiguous(reader_schema)
    new_names: dict[str, str] = {}
    for name in dict.fromkeys([*of_writer, *of_reader]):
        namespace, _, last = name.rpartition(".")
        if last in ambiguous:
            last = name.replace(".", "_")
            while last in map(_without_namespace, new_names.values()):
                last += "_"
        new_names[name] = f"{namespace}.{last}" if namespace else last

    def aliases(name: str, old_aliases: Iterable[str]) -> list[str]:
        namespace = name.rpartition(".")[0]
        new_aliases = []
        for alias in old_aliases:
            full = alias if "." in alias or not namespace else f"{namespace}.{alias}"
            new_aliases += [alias] if alias not in ambiguous else []
            new_aliases += [new_names[full]] if full in new_names else []
        last = _without_namespace(name)
        if last in ambiguous:  # a type that the reader does not have is read as one of another namespace
            others = [other for other in of_writer if _without_namespace(other) == last and other not in of_reader]
            new_aliases += [new_names[other] for other in others]
        return new_aliases

    def with_aliases(part: Any) -> Any:
        if isinstance(part, list) or part["type"] not in NAMED:
            return part
        return {**part, "aliases": aliases(part["name"], part.get("aliases", ()))}

    if ambiguous:
        writer_schema = renamed(writer_schema, new_names.__getitem__)
        reader_schema = renamed(_mapped(reader_schema, with_aliases), new_names.__getitem__)
    return for_fastavro(writer_schema), for_fastavro(reader_schema)


def _ambiguous(schema: Any) -> set[str]:
    """Return the names without namespaces that several types of one union have."""
    names: set[str] = set()

    def change(part: Any) -> Any:
        if isinstance(part, list):
            branches = [branch["name"] if _kind(branch) in NAMED else _kind(branch) for branch in part]
            last_parts = [*map(_without_namespace, branches)]
            names.update(name for name in last_parts if last_parts.count(name) > 1)
        return part

    _mapped(schema, change)
    return names


def _without_namespace(name: str) -> str:
    return name.rpartition(".")[2]


def _mapped(schema: Any, change: Callable[[Any], Any]) -> Any:
    """Copy a schema; ``change`` returns each object and each list of it in another form, from the inside out."""
    if isinstance(schema, list):
        return change([_mapped(branch, change) for branch in schema])
    if not isinstance(schema, Mapping):
        return schema
    copied = dict(schema)
    for key in ("items", "values"):
        if key in copied and copied["type"] in ("array", "map"):
            copied[key] = _mapped(copied[key], change)
    if copied["type"] in _RECORDS:
        copied["fields"] = [{**field, "type": _mapped(field["type"], change)} for field in copied["fields"]]
    return change(copied)


def _prepared(schema: Any, *, with_defaults: bool = True) -> Any:
    """Copy a schema without what fastavro refuses and Java ignores."""

    def change(part: Any) -> Any:
        if isinstance(part, list):
            return part
        if is_invalid_decimal(part):
            del part["logicalType"]
        if part["type"] in _RECORDS and not with_defaults:
            for field in part["fields"]:
                field.pop("default", None)
        return part

    return _mapped(schema, change)


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


def _sorted(schema: Any) -> Any:
    """Sort the types of the reader's unions: no number is behind one that fastavro could convert it to."""
    order = ["int", "long", "float", "double"]

    def change(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        return sorted(part, key=lambda branch: order.index(_kind(branch)) if _kind(branch) in order else -1)

    return _mapped(schema, change)


_CONVERTIBLE = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SAME_ENCODING = {("int", "long"), ("string", "bytes"), ("bytes", "string")}
"""Types of a writer, and other types that have the same bytes."""

_AS_THEY_ARE = ("string", "bytes")
_AS_IT_IS = "aiokafka-lite-as-it-is"
"""A logical type with which fastavro converts nothing. fastavro converts both types of ``_AS_THEY_ARE`` to the other
one, so no order of a union that has both would do."""

_LOGICAL = ("logicalType", "precision", "scale")


class _LogicalTypes:
    """Gives the types of a writer the logical types of the reader's types that they are read as."""

    def __init__(self, reader_schema: Any) -> None:
        self._named: dict[str, Any] = {}

        def change(part: Any) -> Any:
            if not isinstance(part, list) and part["type"] in NAMED:
                self._named[part["name"]] = part
            return part

        _mapped(reader_schema, change)

    def of_reader(self, part: Any, target: Any) -> Any:
        """Copy a part of the writer's schema, which is read as ``target``. Both are prepared."""
        if isinstance(part, list):
            return [self.of_reader(branch, target) for branch in part]
        is_of_union = isinstance(target, list)
        if is_of_union:
            target = self._branch(part, target)
        target = self._named.get(target, target) if isinstance(target, str) else target
        kind = _kind(part)
        if kind in NAMED and not _is_of(kind, target):
            # The reader does not have the field with the definition. It may have a later field of this type.
            target = self._named.get(part["name"])
        if kind in _CONVERTIBLE or kind == "fixed":
            annotated = _with_logical_type(part, target)
            if is_of_union and kind in _AS_THEY_ARE and _kind(target) == kind and logical_name(annotated) is None:
                return {"type": kind, "logicalType": _AS_IT_IS}
            return annotated
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            return {**part, key: self.of_reader(part[key], target[key] if _is_of(kind, target) else None)}
        if kind in _RECORDS:
            fields = target["fields"] if _is_of(kind, target) else []
            types = {alias: field["type"] for field in fields for alias in field.get("aliases", ())}
            types.update({field["name"]: field["type"] for field in fields})
            return {
                **part,
                "fields": [
                    {**field, "type": self.of_reader(field["type"], types.get(field["name"]))}
                    for field in part["fields"]
                ],
            }
        return part

    def _branch(self, part: Any, union: list[Any]) -> Any:
        """Return the type of a union that fastavro reads a type as; None if there is none, or if it needs no look."""
        kind = _kind(part)
        branches = [self._named.get(branch, branch) if isinstance(branch, str) else branch for branch in union]
        if kind in NAMED:
            names = {part["name"], _without_namespace(part["name"])}
            for branch in branches:
                is_named = isinstance(branch, Mapping) and branch["type"] == kind
                if is_named and names & {
                    branch["name"],
                    _without_namespace(branch["name"]),
                    *branch.get("aliases", ()),
                }:
                    return branch
            return None
        readable = [branch for branch in branches if _kind(branch) in (kind, *_CONVERTIBLE.get(kind, ()))]
        return next((branch for branch in readable if _kind(branch) == kind), readable[0] if readable else None)


def _is_of(kind: str, schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema["type"] == kind


def _logical(schema: Any) -> Any:
    return schema.get("logicalType") if isinstance(schema, Mapping) else None


def _with_logical_type(part: Any, target: Any) -> Any:
    """Return a type of the writer with the logical type of the reader's type, in the unit of the writer."""
    if target is None or (_kind(part) == _kind(target) and _logical(part) == _logical(target)):
        return part
    plain = {key: value for key, value in part.items() if key not in _LOGICAL} if isinstance(part, Mapping) else part
    name = logical_name(target)
    if name is None or (_kind(part) != _kind(target) and (_kind(part), _kind(target)) not in _SAME_ENCODING):
        return plain
    family, _, _ = name.rpartition("-")
    own_family, _, unit = (logical_name(part) or "").rpartition("-")
    if family and family.removeprefix("local-") == own_family.removeprefix("local-"):
        return {**part, "logicalType": f"{family}-{unit}"}
    theirs = {key: target[key] for key in ("type", *_LOGICAL) if key in target}
    return {**(plain if isinstance(plain, Mapping) else {}), **theirs}


def _set_defaults(schema: Any, parsed: Any) -> list[Any]:
    """Replace the defaults in the parsed form of a reader's schema by values. Returns those that may be changed."""
    if schema is None:
        return []
    defaults = encoded_defaults(schema)
    if not defaults:
        return []
    types = {
        (record["name"], field["name"]): field["type"] for record in _records(schema) for field in record["fields"]
    }
    # One record of all defaults: to resolve the type of each one alone would take quadratic time.
    fields = [{"name": f"{_VALUE}{number}", "type": types[name]} for number, name in enumerate(defaults)]
    read = reader(resolved({"type": "record", "name": _ROOT, "fields": fields}, [schema]), None)
    values: Any = read(b"".join(defaults.values()), 0)
    values_by_name = dict(zip(defaults, values.values(), strict=True))
    for record in _records(parsed):
        for field in record["fields"]:
            name = record["name"], field["name"]
            if name in values_by_name:
                field["default"] = values_by_name[name]
    return [value for value in values_by_name.values() if isinstance(value, list | dict)]


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

"""Bounds the depth of Avro data, and its number of items without bytes, before fastavro reads it.

A schema that contains itself describes data of any depth: a few kilobytes may be thousands of records inside each
other. fastavro reads them by recursion in C without a limit, so such a record would end the process with a segmentation
fault. This module walks over the data first, with a stack of its own. Only schemas that contain themselves need that,
and those with an array whose items take no bytes: five bytes may be a billion items of the type "null".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .avro_names import PRIMITIVES

DEEPEST = 2000
"""The largest number of records, unions, arrays and maps inside each other. fastavro reads four times as many with a
stack of 8 MiB."""

MOST_EMPTY = 100_000
"""The largest number of items without bytes in the arrays of one record."""

_END = object()
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def depth_check(schema: Any) -> Callable[[bytes, int], None] | None:
    """Return a function that raises ValueError for data that is nested too deeply, from a position on.

    It also raises for too many items without bytes. ``schema`` is a resolved schema. Returns None if the schema and the
    length of the data bound both.
    """
    records: dict[str, Mapping[str, Any]] = {}
    sizes: dict[str, int | None] = {}
    if not _contains_itself(schema, frozenset(), records, sizes) and not _has_empty_items(schema, records, sizes):
        return None

    def check(data: bytes, start: int) -> None:
        walk = _Walk(data, start, records, sizes)
        try:
            walk.run(schema)
        except IndexError:
            return  # the data is cut off or malformed; fastavro raises the error

    return check


def _contains_itself(
    schema: Any, outer: frozenset[str], records: dict[str, Mapping[str, Any]], sizes: dict[str, int | None]
) -> bool:
    """Return whether a type is used inside its own definition. Adds the named types to ``records`` and ``sizes``.

    Each definition of a resolved schema is at the first place that uses it, so a type that contains itself by way of
    others is used inside its own definition as well.
    """
    if isinstance(schema, str):
        return schema in outer
    if isinstance(schema, list):
        branches = [_contains_itself(branch, outer, records, sizes) for branch in schema]  # each adds its names
        return any(branches)
    kind = schema["type"]
    if kind in ("record", "error"):
        records[schema["name"]] = schema
        inner = outer | {schema["name"]}
        fields = [_contains_itself(field["type"], inner, records, sizes) for field in schema["fields"]]
        return any(fields)
    if kind in ("enum", "fixed"):
        sizes[schema["name"]] = schema["size"] if kind == "fixed" else None  # the number of an enum's symbol
    if kind in ("array", "map"):
        return _contains_itself(schema["items" if kind == "array" else "values"], outer, records, sizes)
    return False


def _has_empty_items(schema: Any, records: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int | None]) -> bool:
    """Return whether the schema has an array whose items take no bytes."""
    if isinstance(schema, str):
        return False  # its definition is elsewhere in the schema
    if isinstance(schema, list):
        return any(_has_empty_items(branch, records, sizes) for branch in schema)
    kind = schema["type"]
    if kind in ("record", "error"):
        return any(_has_empty_items(field["type"], records, sizes) for field in schema["fields"])
    if kind == "array":
        items = schema["items"]
        return _is_empty(items, records, sizes) or _has_empty_items(items, records, sizes)
    return kind == "map" and _has_empty_items(schema["values"], records, sizes)


def _is_empty(schema: Any, records: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int | None]) -> bool:
    """Return whether values of this type take no bytes. A record without bytes cannot contain itself."""
    if isinstance(schema, list):
        return False
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("record", "error", "fixed"):
        kind = schema["name"]
    if kind in records:
        return all(_is_empty(field["type"], records, sizes) for field in records[kind]["fields"])
    return kind == "null" or sizes.get(kind) == 0


class _Walk:
    """One walk over data. Raises IndexError at the end of the data."""

    def __init__(
        self, data: bytes, start: int, records: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int | None]
    ) -> None:
        self._data = data
        self._position = start
        self._records = records
        self._sizes = sizes
        self._empty_items = 0

    def run(self, schema: Any) -> None:
        """Walk over a value. Raises ValueError if it is nested too deeply."""
        stack = [iter([schema])]
        while stack:
            inner = next(stack[-1], _END)
            if inner is _END:
                stack.pop()
            elif not self._skip(inner):
                stack.append(self._inside(inner))
                if len(stack) > DEEPEST:
                    raise ValueError(f"the data is nested more than {DEEPEST} levels deep")

    def _skip(self, schema: Any) -> bool:
        """Skip a value that contains no others. Returns False for any other type."""
        if isinstance(schema, Mapping):
            kind = schema["type"]
            name = schema["name"] if kind in ("enum", "fixed") else kind
        else:
            name = schema
        if not isinstance(name, str) or name in self._records:
            return False
        if name in self._sizes:
            size = self._sizes[name]
        elif name in _SIZES:
            size = _SIZES[name]
        elif name in PRIMITIVES:
            size = self._long() if name in ("bytes", "string") else None
        else:
            return False
        if size is None:
            self._long()
        elif size < 0:
            raise IndexError("a negative length")
        else:
            self._position += size
        return True

    def _inside(self, schema: Any) -> Iterator[Any]:
        """Yield the types of the values inside a record, union, array or map, each when it is next in the data."""
        if isinstance(schema, list):
            index = self._long()
            if index < 0:
                raise IndexError("a negative index")
            yield schema[index]
            return
        definition = self._records[schema] if isinstance(schema, str) else schema
        kind = definition["type"]
        if kind in ("record", "error"):
            for field in definition["fields"]:
                yield field["type"]
            return
        while count := self._long():
            if count < 0:  # then the size of the block follows
                count = -count
                self._long()
            for _ in range(count):
                before = self._position
                if kind == "map":
                    self._skip("string")
                yield definition["items" if kind == "array" else "values"]
                if self._position == before:  # the other items are like this one
                    self._empty_items += count
                    if self._empty_items > MOST_EMPTY:
                        raise ValueError(f"the data has arrays with more than {MOST_EMPTY} items without bytes")
                    break

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError("a number of more than 64 bits")

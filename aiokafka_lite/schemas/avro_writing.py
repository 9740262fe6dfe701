"""Writes objects as Avro's binary encoding, and refuses what the schema does not describe.

A schema becomes a tree of types with a ``write`` method each. Nothing is converted silently: a number keeps its value,
or is refused. The bytes are those of Java's ``GenericDatumWriter``, which is less strict: it cuts 19.99 to an int 19.

1. A field that is missing gets the default of the schema, or null if the type allows null. Any other key than a field
   is refused: it is a misspelled field, or data that would be lost.
2. A union takes the type that the object fits best: the exact type before one that it is converted to, and the first of
   two that read the same value. If a dict fits two records, the program has to name the type: ``("shop.Order", {...})``
   or the key ``"-type"``, as with fastavro.
"""

from __future__ import annotations

import array
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .avro_logical import logical_type
from .avro_scalars import (
    EXACT,
    NO,
    AnnotatedType,
    AvroType,
    BytesType,
    EnumType,
    FixedType,
    encoded_long,
    primitive_type,
    utf8,
    write_long,
)
from .mismatch import Mismatch, wrong

TYPE_KEY = "-type"
"""The key of a dict that names its record type in a union."""

_MISSING: Any = object()
_DEEPEST = "is nested too deeply"


def writer(schema: Any) -> Callable[[Any], bytes]:
    """Return the function that writes with a resolved schema. It raises Mismatch. Raises ValueError."""
    root = _Compiler().type_of(schema)
    if isinstance(root, BytesType) or (isinstance(root, AnnotatedType) and isinstance(root.plain, BytesType)):
        return raw_bytes

    def write(data: object) -> bytes:
        out = bytearray()
        try:
            root.write(out, data)
        except RecursionError:
            raise Mismatch(_DEEPEST) from None
        return bytes(out)

    return write


def encoded_defaults(schema: Any) -> dict[tuple[str, str], bytes]:
    """Return the encoded defaults of a resolved schema, by the names of record and field.

    Raises Mismatch for a default that is not of the type of its field, and ValueError.
    """
    compiler = _Compiler()
    compiler.type_of(schema)
    defaults: dict[tuple[str, str], bytes] = {}
    for record in compiler.records():
        defaults.update(record.encoded_defaults())
    return defaults


def raw_bytes(data: object) -> bytes:
    """Return the bytes of a schema that is "bytes" itself.

    Confluent's serializers write no length before them, and no logical type: Java's refuses a BigDecimal here.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise wrong("bytes", data)
    return bytes(data)


class _Array:
    name = "array"

    def __init__(self, items: AvroType) -> None:
        self._items = items
        self.what = "a list"

    def fit(self, data: Any) -> int:
        return EXACT if _is_list(data) else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not _is_list(data):
            raise wrong(self.what, data)
        if hasattr(data, "tolist"):  # an array of numpy, whose items have types of their own
            data = data.tolist()
        if len(data):
            write_long(out, len(data))
            write = self._items.write
            number = 0
            try:
                for number, item in enumerate(data):  # noqa: B007 - the error needs it
                    write(out, item)
            except Mismatch as error:
                raise error.inside(number) from None
        out.append(0)

    def of_default(self, default: Any) -> Any:
        return [self._items.of_default(item) for item in default] if isinstance(default, list) else default


class _Map:
    name = "map"

    def __init__(self, values: AvroType) -> None:
        self._values = values
        self.what = "a dict with keys of type str"

    def fit(self, data: Any) -> int:
        return EXACT if isinstance(data, Mapping) and all(isinstance(key, str) for key in data) else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not self.fit(data):
            raise wrong(self.what, data)
        if data:
            write_long(out, len(data))
            key = ""
            try:
                for key, value in data.items():
                    content = utf8(key)
                    write_long(out, len(content))
                    out += content
                    self._values.write(out, value)
            except Mismatch as error:
                raise error.inside(key, is_key=True) from None
        out.append(0)

    def of_default(self, default: Any) -> Any:
        if not isinstance(default, dict):
            return default
        return {key: self._values.of_default(value) for key, value in default.items()}


class _Field:
    """A field of a record. ``default`` is the object of its default value; _MISSING if it has none."""

    __slots__ = ("_default", "encoded_long", "name", "type", "write")

    def __init__(self, name: str, kind: AvroType, default: Any) -> None:
        self.name = name
        self.type = kind
        self.write = kind.write
        self._default = default
        self.encoded_long: bytes | None = None

    @property
    def is_optional(self) -> bool:
        return self.has_default or self._is_nullable()

    @property
    def has_default(self) -> bool:
        """Whether the schema has a default for the field."""
        return self._default is not _MISSING

    def _is_nullable(self) -> bool:
        return self.type.fit(None) != NO

    def write_default(self, out: bytearray) -> None:
        """Append the default value. Without one it is null, as the unset field of Java's GenericRecord."""
        if self.encoded_long is None:
            buffer = bytearray()
            if self.has_default:
                try:
                    self.type.write(buffer, self.type.of_default(self._default))
                except Mismatch as error:
                    raise Mismatch(f"is missing, and its default does not match the schema: {error}") from None
            elif self._is_nullable():
                self.type.write(buffer, None)
            else:
                raise Mismatch("is missing, and the schema has no default for it")
            self.encoded_long = bytes(buffer)
        out += self.encoded_long


class _Record:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.name = str(schema["name"])
        self.what = f"a dict with the fields of {self.name}"
        self._fields: list[_Field] = []
        self._names: frozenset[str] = frozenset()

    def set_fields(self, fields: list[_Field]) -> None:
        """Set the fields. They come after the record, because a record may contain itself."""
        self._fields = fields
        self._names = frozenset(field.name for field in fields)

    def encoded_defaults(self) -> Iterator[tuple[tuple[str, str], bytes]]:
        """Yield the encoded default of each field that has one, behind the names of record and field."""
        for field in self._fields:
            if field.has_default:
                encoded = bytearray()
                try:
                    field.write_default(encoded)
                except Mismatch as error:
                    raise error.inside(field.name) from None
                yield (self.name, field.name), bytes(encoded)

    def fit(self, data: Any) -> int:
        if not isinstance(data, Mapping) or not self._is_named(data):
            return NO
        is_known = all(key in self._names or key == TYPE_KEY for key in data)
        return EXACT if is_known and all(field.name in data or field.is_optional for field in self._fields) else NO

    def is_complete(self, data: Mapping[str, Any]) -> bool:
        """Return whether the data has each field, so that no default is needed."""
        return all(name in data for name in self._names)

    def _is_named(self, data: Mapping[str, Any]) -> bool:
        return TYPE_KEY in self._names or data.get(TYPE_KEY, self.name) == self.name

    def write(self, out: bytearray, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise wrong(self.what, data, _conversion(data))
        if not self._is_named(data):
            raise wrong(f"of the type {self.name}", data[TYPE_KEY]).inside(TYPE_KEY, is_key=True)
        fields_left = len(data)
        for field in self._fields:
            value = data.get(field.name, _MISSING)
            try:
                if value is not _MISSING:
                    fields_left -= 1
                    field.write(out, value)
                else:
                    field.write_default(out)
            except Mismatch as error:
                # A misspelled field is missing as well. The name that the caller wrote says more.
                if value is _MISSING:
                    self._refuse_others(data)
                raise error.inside(field.name) from None
        if fields_left:
            self._refuse_others(data)

    def _refuse_others(self, data: Mapping[Any, Any]) -> None:
        for key in data:
            if key not in self._names and key != TYPE_KEY:
                if not isinstance(key, str):
                    raise wrong(f"{self.what}, whose keys are of type str", key)
                similar = difflib.get_close_matches(key, self._names, 1)
                advice = f"; did you mean {similar[0]!r}?" if similar else ""
                raise Mismatch(f"is not a field of {self.name}{advice}").inside(key)

    def of_default(self, default: Any) -> Any:
        if not isinstance(default, dict):
            return default
        types = {field.name: field.type for field in self._fields}
        return {key: types[key].of_default(value) if key in types else value for key, value in default.items()}


class _Union:
    name = "union"

    def __init__(self, branches: list[AvroType]) -> None:
        names = [branch.name for branch in branches]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"a union has the type {twice!r} twice")
        self._branches = branches
        self._indexes = [encoded_long(number) for number in range(len(branches))]
        self._null = next((number for number, branch in enumerate(branches) if branch.name == "null"), None)
        self._others = [number for number, branch in enumerate(branches) if branch.name != "null"]
        self.what = " or ".join(branch.what for branch in branches)

    def fit(self, data: Any) -> int:
        return max((branch.fit(data) for branch in self._branches), default=NO)

    def write(self, out: bytearray, data: Any) -> None:
        if data is None and self._null is not None:
            out += self._indexes[self._null]
            return
        if isinstance(data, tuple):
            named = self._named(data)
            if named is not None:
                self._write(out, named, data[1])
                return
        if len(self._others) == 1:  # a type that may be null: its own error says most
            self._write(out, self._others[0], data)
            return
        fits = [branch.fit(data) for branch in self._branches]
        best = max(fits, default=NO)
        if best == NO:
            self._refuse(data)
        candidates = [number for number, fit in enumerate(fits) if fit == best]
        if len(candidates) == 1 or not isinstance(data, Mapping):
            self._write(out, candidates[0], data)
        else:
            self._write_dict(out, candidates, data)

    def _write(self, out: bytearray, number: int, data: Any) -> None:
        out += self._indexes[number]
        self._branches[number].write(out, data)

    def _named(self, data: tuple[Any, ...]) -> int | None:
        """Return the number of the type that the caller names: ``("shop.Order", {...})``."""
        if len(data) != 2 or not isinstance(data[0], str):
            return None
        return next((number for number in self._others if self._branches[number].name == data[0]), None)

    def _write_dict(self, out: bytearray, candidates: list[int], data: Mapping[str, Any]) -> None:
        """Write a dict that may be of several records, or a map. Raises Mismatch unless it is of one only."""
        attempts: list[tuple[int, bytearray]] = []
        problems: list[str] = []
        for number in candidates:
            buffer = bytearray()
            try:
                self._branches[number].write(buffer, data)
            except Mismatch as error:
                problems.append(f"{self._branches[number].name}: {error}")
            else:
                attempts.append((number, buffer))
        if not attempts:
            raise Mismatch(f"fits no type of the union ({'; '.join(problems)})")
        if len(attempts) > 1:
            attempts = [attempt for attempt in attempts if self._is_complete(attempt[0], data)] or attempts
        if len(attempts) > 1:
            first, *_ = names = [self._branches[number].name for number, _ in attempts]
            raise Mismatch(f"fits {' and '.join(names)}; pass a tuple with the name of the type: ({first!r}, ...)")
        number, buffer = attempts[0]
        out += self._indexes[number]
        out += buffer

    def _is_complete(self, number: int, data: Mapping[str, Any]) -> bool:
        branch = self._branches[number]
        return isinstance(branch, _Record) and branch.is_complete(data)

    def _refuse(self, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise wrong(self.what, data, _conversion(data))
        problems = []
        for number in self._others:
            branch = self._branches[number]
            if isinstance(branch, _Record | _Map):
                try:
                    branch.write(bytearray(), data)
                except Mismatch as error:
                    problems.append(f"{branch.name}: {error}")
        if not problems:
            raise wrong(self.what, data)
        raise Mismatch(f"fits no type of the union ({'; '.join(problems)})")

    def of_default(self, default: Any) -> Any:
        """Convert a default, which is of the first type, or since Avro 1.12 of any type."""
        for branch in self._branches:
            value = branch.of_default(default)
            try:
                branch.write(bytearray(), value)
            except Mismatch:
                continue
            return default if default is None else (branch.name, value)
        raise wrong(f"{self.what} (the default of the schema is invalid)", default)


class _Compiler:
    """Makes the types of one schema. ``_named`` are its records, enums and fixed types by full name."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type_of(self, schema: Any) -> AvroType:
        if isinstance(schema, str):
            return self._named[schema] if schema in self._named else primitive_type(schema)
        if isinstance(schema, list):
            return _Union([self.type_of(branch) for branch in schema])
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return _Array(self.type_of(schema["items"]))
        if kind == "map":
            return _Map(self.type_of(schema["values"]))
        plain: AvroType
        if kind == "fixed":
            plain = FixedType(schema)
        elif kind == "enum":
            plain = EnumType(schema)
        else:
            plain = primitive_type(kind)
        logical = logical_type(schema)
        avro_type = plain if logical is None else AnnotatedType(plain, schema, logical)
        if kind in ("fixed", "enum"):
            self._named[avro_type.name] = avro_type
        return avro_type

    def records(self) -> list[_Record]:
        """Return the records of the schema."""
        return [named for named in self._named.values() if isinstance(named, _Record)]

    def _record(self, schema: Mapping[str, Any]) -> _Record:
        record = _Record(schema)
        self._named[record.name] = record
        record.set_fields(
            [
                _Field(field["name"], self.type_of(field["type"]), field.get("default", _MISSING))
                for field in schema["fields"]
            ]
        )
        return record


def _is_list(data: object) -> bool:
    if isinstance(data, Sequence):
        return not isinstance(data, str | bytes | bytearray | memoryview)
    return isinstance(data, array.array) or (hasattr(data, "__array__") and hasattr(data, "tolist"))


def _conversion(data: object) -> str:
    """Return advice for an object that the serializer could convert first."""
    if hasattr(data, "__dataclass_fields__"):
        return "for a dataclass, pass to_dict=dataclasses.asdict to the serializer"
    if callable(getattr(data, "model_dump", None)):
        return "for a pydantic model, pass to_dict=lambda order: order.model_dump() to the serializer"
    return "for other objects, pass a function to_dict to the serializer" if hasattr(data, "__dict__") else ""

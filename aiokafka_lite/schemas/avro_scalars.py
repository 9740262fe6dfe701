"""The types of Avro that contain no others: the primitive types, fixed and enum, and the logical types on them.

A value is written as it is, or refused: nothing is converted silently. A float is rounded to a "float" of 32 bits,
because Python has no other; it may not become infinite. Any other number is written as a "float" or "double" if that
is exact.
"""

from __future__ import annotations

import enum
import numbers
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..arguments import INT32_MAX, INT64_MAX, plural
from .avro_logical import LogicalType
from .mismatch import wrong

NO, CONVERTED, EXACT = 0, 1, 2
"""How well an object fits a type of a union: not at all, after a conversion, or as it is."""

_DOUBLES = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class AvroType(Protocol):
    """One type of a schema."""

    name: str
    """The full name, or the name of the primitive type, "array", "map" or "union"."""

    what: str
    """What an object must be, for the text of an error."""

    def fit(self, data: Any) -> int:
        """Say how well the object fits: NO, CONVERTED or EXACT. Looks at the outermost object alone."""
        ...

    def write(self, out: bytearray, data: Any) -> None:
        """Append the bytes of the object. Raises Mismatch."""
        ...

    def of_default(self, default: Any) -> Any:
        """Convert a default value, which is JSON. Raises Mismatch."""
        ...


def write_long(out: bytearray, number: int) -> None:
    """Append a whole number of at most 64 bits."""
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class NullType:
    name = "null"
    what = "None"

    def fit(self, data: Any) -> int:
        return EXACT if data is None else NO

    def write(self, out: bytearray, data: Any) -> None:
        if data is not None:
            raise wrong(self.what, data)

    def of_default(self, default: Any) -> Any:
        return default


class BooleanType:
    name = "boolean"
    what = "a bool"

    def fit(self, data: Any) -> int:
        return EXACT if isinstance(data, bool) else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not isinstance(data, bool):
            raise wrong(self.what, data)
        out.append(data)

    def of_default(self, default: Any) -> Any:
        return default


class WholeType:
    """The types "int" and "long"."""

    def __init__(self, name: str, largest: int) -> None:
        self.name = name
        self._largest = largest
        self.what = f"a whole number from {-largest - 1} to {largest}"

    def fit(self, data: Any) -> int:
        is_whole = type(data) is int or (isinstance(data, numbers.Integral) and not isinstance(data, bool))
        return EXACT if is_whole and -self._largest - 1 <= data <= self._largest else NO

    def write(self, out: bytearray, data: Any) -> None:
        if type(data) is int and -64 <= data <= 63:  # most numbers of most records: one byte
            out.append(data << 1 if data >= 0 else ~(data << 1))
            return
        if not self.fit(data):
            raise wrong(self.what, data)
        write_long(out, int(data))

    def of_default(self, default: Any) -> Any:
        return default


class RealType:
    """The types "float" and "double"."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pack = struct.Struct("<f" if name == "float" else "<d")
        bits = 32 if name == "float" else 64
        self.what = f"a number that a {name} of {bits} bits can hold"

    def fit(self, data: Any) -> int:
        if isinstance(data, float):
            return EXACT if self.name == "double" else CONVERTED
        if not _is_real(data):
            return NO
        try:
            return CONVERTED if self._is_exact(data, self._pack.pack(float(data))) else NO
        except OverflowError:
            return NO

    def _is_exact(self, data: Any, packed: bytes) -> bool:
        return bool(self._pack.unpack(packed)[0] == data or data != data)

    def write(self, out: bytearray, data: Any) -> None:
        if type(data) is not float and not _is_real(data):
            raise wrong(self.what, data)
        try:
            packed = self._pack.pack(float(data))
        except OverflowError:  # 1e300 as a float, or a whole number with more than 308 digits
            raise wrong(self.what, data) from None
        # A float loses digits as a float of 32 bits in every language. Any other number must keep its value.
        if not isinstance(data, float) and not self._is_exact(data, packed):
            raise wrong(f"{self.what} exactly", data)
        out += packed

    def of_default(self, default: Any) -> Any:
        return _DOUBLES.get(default, default) if isinstance(default, str) else default


class BytesType:
    name = "bytes"
    what = "bytes"

    def fit(self, data: Any) -> int:
        return EXACT if isinstance(data, bytes | bytearray | memoryview) else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise wrong(self.what, data)
        content = bytes(data)
        write_long(out, len(content))
        out += content

    def of_default(self, default: Any) -> Any:
        return _latin(default)


class StringType:
    name = "string"
    what = "a str"

    def fit(self, data: Any) -> int:
        return EXACT if isinstance(data, str) else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not isinstance(data, str):
            raise wrong(self.what, data)
        content = utf8(data)
        write_long(out, len(content))
        out += content

    def of_default(self, default: Any) -> Any:
        return default


class FixedType:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.name = str(schema["name"])
        self._size = _whole(schema, "size")
        self.what = f"exactly {plural(self._size, 'byte')}, of the type {self.name}"

    def fit(self, data: Any) -> int:
        return EXACT if isinstance(data, bytes | bytearray | memoryview) and len(bytes(data)) == self._size else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not self.fit(data):
            raise wrong(self.what, data)
        out += bytes(data)

    def of_default(self, default: Any) -> Any:
        return _latin(default)


class EnumType:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.name = str(schema["name"])
        self._symbols = {symbol: number for number, symbol in enumerate(schema["symbols"])}
        self.what = f"one of {', '.join(map(repr, self._symbols))}, the symbols of {self.name}"

    def fit(self, data: Any) -> int:
        return EXACT if isinstance(data, str) and data in self._symbols else NO

    def write(self, out: bytearray, data: Any) -> None:
        if not self.fit(data):
            advice = "pass its value" if isinstance(data, enum.Enum) else ""
            raise wrong(self.what, data, advice)
        write_long(out, self._symbols[data])

    def of_default(self, default: Any) -> Any:
        return default


class AnnotatedType:
    """A type with a logical type. ``plain`` is the type without it."""

    def __init__(self, plain: AvroType, schema: Mapping[str, Any], logical: LogicalType) -> None:
        self.plain = plain
        self.name = plain.name
        self.what = f"{_LOGICAL_WHAT.get(schema['logicalType'], 'a datetime')}, or {plain.what}"
        self._accepts, self._convert, self._check = logical

    def fit(self, data: Any) -> int:
        if self._accepts(data):
            return EXACT
        return CONVERTED if self.plain.fit(data) else NO

    def write(self, out: bytearray, data: Any) -> None:
        if self._accepts(data):
            self.plain.write(out, self._convert(data))
            return
        if not self.plain.fit(data):
            raise wrong(self.what, data)
        self._check(data)
        self.plain.write(out, data)

    def of_default(self, default: Any) -> Any:
        return self.plain.of_default(default)


_LOGICAL_WHAT = {
    "decimal": "a Decimal",
    "uuid": "a UUID",
    "date": "a date that is not a datetime",
    "time-millis": "a time",
    "time-micros": "a time",
}


def primitive_type(name: str) -> AvroType:
    kinds: dict[str, Callable[[], AvroType]] = {
        "null": NullType,
        "boolean": BooleanType,
        "int": lambda: WholeType("int", INT32_MAX),
        "long": lambda: WholeType("long", INT64_MAX),
        "float": lambda: RealType("float"),
        "double": lambda: RealType("double"),
        "bytes": BytesType,
        "string": StringType,
    }
    return kinds[name]()


def encoded_long(number: int) -> bytes:
    out = bytearray()
    write_long(out, number)
    return bytes(out)


def _is_real(data: object) -> bool:
    return isinstance(data, numbers.Real) and not isinstance(data, bool)


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair; Java writes "?" in its place
        raise wrong("a str that UTF-8 can hold", text) from None


def _latin(default: Any) -> Any:
    """Return the bytes of a default: each character of the JSON is one byte."""
    try:
        return default.encode("latin-1") if isinstance(default, str) else default
    except UnicodeEncodeError:
        return default


def _whole(schema: Mapping[str, Any], name: str) -> int:
    value = schema.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"the {name} of {schema['name']} must be a whole number >= 0, got {value!r}")
    return value

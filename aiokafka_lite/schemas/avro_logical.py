"""The logical types of Avro: which Python objects they take, and what is written for them.

A value that Java's converters refuse is refused here, and any other value becomes the same bytes. So is a number that
no reader in Python can convert, such as a date after the year 9999. A logical type on another type than its own does
not count, as the specification says.

A naive datetime has no zone. Java's ``Instant`` has no such value, and the zone of the machine would be a guess that
changes the data from machine to machine. So it is refused for the timestamps, and required for local timestamps.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

from ..arguments import INT64_MAX
from .mismatch import wrong

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_MICROS = 86_400_000_000
_CANONICAL_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DECIMALS = (("bytes", "decimal"), ("fixed", "decimal"))
_LOG10_OF_2 = 3010299956639812  # in units of 1e-16
_LARGEST_EXPONENT = 100_000
"""A decimal with a larger exponent would take its digits of memory."""


class LogicalType(NamedTuple):
    """How a logical type is written.

    ``accepts`` is whether an object is of its Python type; ``convert`` makes the plain value of it, and ``check`` looks
    at a plain value that the caller made. Both raise Mismatch.
    """

    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any]
    check: Callable[[Any], None]


def logical_type(schema: Any) -> LogicalType | None:
    """Return the logical type of a schema; None if it has none, or one that has no Python type."""
    name = logical_name(schema)
    if name is None:
        return None
    return _decimal(schema) if name == "decimal" else _BY_NAME[schema["type"], name]


def logical_name(schema: Any) -> str | None:
    """Return the name of a schema's logical type; None if it has none, or one that is unknown or invalid."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("logicalType"), str):
        return None
    kind = schema["type"], schema["logicalType"]
    is_known = not is_invalid_decimal(schema) if kind in _DECIMALS else kind in _BY_NAME
    return kind[1] if is_known else None


def is_invalid_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether Java ignores that a schema is a decimal, because its precision and scale are not possible."""
    if (schema["type"], schema.get("logicalType")) not in _DECIMALS:
        return False
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision <= 0:
        return True
    # Powers of the numbers of a foreign schema could take all memory.
    return bool(schema["type"] == "fixed" and precision * 10**16 > _LOG10_OF_2 * (8 * schema["size"] - 1))


def _decimal(schema: Mapping[str, Any]) -> LogicalType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    size = schema.get("size")
    what = f"a Decimal of at most {precision} digits, of which {scale} are after the point"
    bound = 10**precision

    def convert(value: Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or abs(exponent) > _LARGEST_EXPONENT:
            raise wrong(what, value)
        unscaled = int("".join(map(str, digits)) or "0")
        shift = exponent + scale
        if unscaled == 0:
            pass
        elif shift > precision:
            raise wrong(what, value)
        elif shift >= 0:
            unscaled *= 10**shift
        else:
            unscaled, rest = divmod(unscaled, 10 ** min(-shift, len(digits) + 1))
            if rest:
                raise wrong(what, value)
        if unscaled >= bound:
            raise wrong(what, value)
        unscaled = -unscaled if sign else unscaled
        # The shortest two's complement, as Java's BigInteger.toByteArray().
        length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        if size is not None and length > size:
            raise wrong(f"a Decimal that {size} bytes can hold", value)
        return unscaled.to_bytes(length if size is None else size, "big", signed=True)

    def check(value: bytes) -> None:
        if not value or abs(int.from_bytes(value, "big", signed=True)) >= bound:
            raise wrong(f"{what}, or the bytes of its unscaled value", value)

    return LogicalType(lambda value: isinstance(value, Decimal), convert, check)


def _whole_range(what: str, low: int, high: int) -> Callable[[int], None]:
    def check(value: int) -> None:
        if not low <= value <= high:
            raise wrong(what, value)

    return check


def _is_date(value: object) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)


def _time(unit: int, what: str) -> LogicalType:
    """Return the type of a time of day in units of so many microseconds."""

    def convert(value: time) -> int:
        if value.tzinfo is not None:
            raise wrong("a time without a time zone", value)
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // unit

    check = _whole_range(f"a time, or {what} from 0 to {_DAY_MICROS // unit - 1}", 0, _DAY_MICROS // unit - 1)
    return LogicalType(lambda value: isinstance(value, time), convert, check)


def _micros(value: datetime) -> int:
    passed = value - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


_FIRST, _LAST = _micros(datetime.min.replace(tzinfo=UTC)), _micros(datetime.max.replace(tzinfo=UTC))


def _timestamp(units: int, per_micros: int, what: str, *, is_local: bool) -> LogicalType:
    """Return the type of a point in time: ``units`` for each ``per_micros`` microseconds.

    What is smaller than a unit is dropped towards the past, as Java does.
    """
    low, high = _FIRST * units // per_micros, _LAST * units // per_micros
    low, high = max(low, -INT64_MAX - 1), min(high, INT64_MAX)

    def convert(value: datetime) -> int:
        if is_local:
            if value.tzinfo is not None:
                raise wrong("a datetime without a time zone, because the type is a local timestamp", value)
            value = value.replace(tzinfo=UTC)
        elif value.utcoffset() is None:
            raise wrong("a datetime with a time zone, such as datetime.now(timezone.utc)", value)
        number = _micros(value) * units // per_micros
        check(number)
        return number

    check = _whole_range(f"a datetime, or {what} from {low} to {high}", low, high)
    return LogicalType(lambda value: isinstance(value, datetime), convert, check)


def _check_uuid(value: str) -> None:
    if _CANONICAL_UUID.fullmatch(value) is None:
        raise wrong("a UUID, or its text of 36 characters", value)


def _no_check(value: object) -> None:
    """Accept any plain value."""


_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
_MILLIS, _MICROS, _NANOS = "milliseconds", "microseconds", "nanoseconds"
_BY_NAME: dict[tuple[str, str], LogicalType] = {
    ("int", "date"): LogicalType(
        _is_date,
        lambda value: value.toordinal() - _EPOCH_DAY,
        _whole_range(f"a date, or days from {_FIRST_DAY} to {_LAST_DAY}", _FIRST_DAY, _LAST_DAY),
    ),
    ("int", "time-millis"): _time(1000, _MILLIS),
    ("long", "time-micros"): _time(1, _MICROS),
    ("string", "uuid"): LogicalType(lambda value: isinstance(value, uuid.UUID), str, _check_uuid),
    ("fixed", "uuid"): LogicalType(lambda value: isinstance(value, uuid.UUID), lambda value: value.bytes, _no_check),
    **{
        ("long", f"{prefix}timestamp-{what.removesuffix('econds')}"): _timestamp(
            units, per_micros, what, is_local=bool(prefix)
        )
        for prefix in ("", "local-")
        for what, units, per_micros in ((_MILLIS, 1, 1000), (_MICROS, 1, 1), (_NANOS, 1000, 1))
    },
}

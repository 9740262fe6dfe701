"""The type of a Spark column, with the conversions between it and the objects of a format of a schema registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow

from ..errors import ConfigurationError

Convert = Callable[[Any], Any]


class ColumnType(NamedTuple):
    """The type as Spark's DDL and in Arrow.

    ``convert`` makes Arrow's form of a decoded value, and ``restore`` makes a value to encode of Arrow's form. They are
    None where the forms are the same.
    """

    ddl: str
    arrow: pyarrow.DataType
    convert: Convert | None = None
    restore: Convert | None = None


def struct_of(kinds: Mapping[str, ColumnType]) -> ColumnType:
    """Return the type of a record with these fields, decoded as a dict."""
    return ColumnType(
        f"struct<{','.join(f'{quoted(name)}:{kind.ddl}' for name, kind in kinds.items())}>",
        pyarrow.struct([pyarrow.field(name, kind.arrow) for name, kind in kinds.items()]),
        _for_fields({name: kind.convert for name, kind in kinds.items()}),
        _for_fields({name: kind.restore for name, kind in kinds.items()}),
    )


def list_of(items: ColumnType) -> ColumnType:
    """Return the type of a list of such items."""
    convert, restore = _for_items(items.convert), _for_items(items.restore)
    return ColumnType(f"array<{items.ddl}>", pyarrow.list_(items.arrow), convert, restore)


def map_of(keys: ColumnType, values: ColumnType) -> ColumnType:
    """Return the type of a map, decoded as a dict."""
    arrow = pyarrow.map_(keys.arrow, values.arrow)
    convert, restore = _to_pairs(values.convert), _from_pairs(values.restore)
    return ColumnType(f"map<{keys.ddl},{values.ddl}>", arrow, convert, restore)


def _for_fields(conversions: Mapping[str, Convert | None]) -> Convert | None:
    """Return the conversion of a dict by the conversions of its fields. The dict itself may be in several records."""
    needed = [(name, convert) for name, convert in conversions.items() if convert is not None]

    def convert_fields(record: dict[str, Any]) -> dict[str, Any]:
        converted = record.copy()
        for name, convert in needed:
            if (value := record.get(name)) is not None:
                converted[name] = convert(value)
        return converted

    return convert_fields if needed else None


def _for_items(convert: Convert | None) -> Convert | None:
    """Return the conversion of a list."""
    return None if convert is None else lambda items: [None if item is None else convert(item) for item in items]


def _to_pairs(convert: Convert | None) -> Convert:
    """Return the conversion of a dict to the pairs that Arrow makes a map of."""
    if convert is None:
        return lambda entries: list(entries.items())
    return lambda entries: [(key, None if value is None else convert(value)) for key, value in entries.items()]


def _from_pairs(restore: Convert | None) -> Convert:
    """Return the conversion of such pairs to a dict."""
    if restore is None:
        return dict
    return lambda pairs: {key: None if value is None else restore(value) for key, value in pairs}


def quoted(name: str) -> str:
    """Return the name of a field as Spark's DDL has it."""
    return f"`{name.replace('`', '``')}`"


def without_type(path: str, what: str) -> ConfigurationError:
    """Return the error for a part of a schema that has no column type."""
    where = f"field {path}" if path else "the schema"
    return ConfigurationError(
        f"{where} is {what}, for which Spark has no column type; give from_registry a schema without it"
    )

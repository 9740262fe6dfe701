"""The columns of the Spark source, and the check of a schema that a user gives for a read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of Spark's own Kafka connector, with their types in DDL. The column ``headers`` needs an option."""


def columns_of(schema: StructType, *, include_headers: bool) -> tuple[str, ...]:
    """Return the columns that the user's schema selects. Raises ConfigurationError for a wrong column or type."""
    if not schema.fields:
        raise ConfigurationError("the schema has no columns: leave it out, or name at least one column")
    names: list[str] = schema.fieldNames()
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise ConfigurationError(f"schema: column {field.name!r} does not exist; there are {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != kind:
            raise ConfigurationError(
                f"schema: column {field.name} must be {kind}, got {field.dataType.simpleString()}; cast it in the query"
            )
        if not (field.nullable and _takes_nulls(field.dataType)):
            raise ConfigurationError(f"schema: column {field.name} must not be NOT NULL: write {field.name} {kind}")
        if names.count(field.name) > 1:
            raise ConfigurationError(f"schema: column {field.name} is repeated: name it once")
        if field.name == "headers" and not include_headers:
            raise ConfigurationError("schema: column headers requires the option includeHeaders=true")
    return tuple(names)


def _takes_nulls(kind: DataType) -> bool:
    """Return whether every part of a type is nullable, as Spark requires of a source's columns."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return kind.containsNull and _takes_nulls(kind.elementType)
    if isinstance(kind, StructType):
        return all(field.nullable and _takes_nulls(field.dataType) for field in kind.fields)
    return True

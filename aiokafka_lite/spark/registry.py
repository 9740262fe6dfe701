"""Columns through a schema registry: ``from_registry`` decodes them, ``to_registry`` encodes them, without a jar.

The driver asks the registry for the type of the column when the query is built. The executors ask it for the schemas of
the ids that they find, once in each Python process. A batch of rows crosses to Python as one Arrow array.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import pyarrow

from ..arguments import must_be, text
from ..errors import ConfigurationError, KafkaError, SchemaRegistryError
from ..extras import extra
from ..schemas.client import SchemaRegistryClient
from ..schemas.schema import Schema
from ..schemas.serializing import Read, Write
from ..schemas.wire import read_name
from ..settings.property_files import resolve
from .column_types import ColumnType, quoted
from .registry_formats import RecordFormat, record_format
from .worker_loop import worker_loop

if TYPE_CHECKING:
    from pyspark.sql import Column

Mode = Literal["PERMISSIVE", "FAILFAST"]


def from_registry(
    column: Column | str,
    *,
    url: str,
    subject: str | None = None,
    schema: str | Mapping[str, Any] | Schema | None = None,
    message: str | None = None,
    mode: Mode = "PERMISSIVE",
    errors: str | None = None,
    **settings: str | float,
) -> Column:
    """Decode a binary column that serializers of a schema registry have written as Avro, JSON Schema or Protobuf.

    The type of the result is that of ``schema``, or of the newest schema of ``subject`` (``"orders-value"``). A
    ``schema`` as text or dict is Avro; give a ``Schema`` for the other formats. Each Avro record is decoded by the
    schema that it was written with, and converted to this type by Avro's rules: missing fields get their defaults. JSON
    is checked against the schema that it was written with. ``message`` is the full name of a Protobuf message, by
    default the first one of the file. Needs the extra ``avro``, ``json-schema``, or ``protobuf`` with ``protoc``.

    ``url`` is the address of the registry. ``settings`` are those of ``SchemaRegistryClient`` that are text or numbers,
    such as ``username``; ``password="env:NAME"`` and ``"file:/path"`` are looked up on each node.

    A record that cannot be decoded is null with ``mode="PERMISSIVE"``, and fails the query with ``"FAILFAST"``.
    ``errors`` adds a field of this name, which has the reason in such a record and is null in others. A registry that
    does not answer always fails the task, which Spark repeats.

    Raises ConfigurationError, SchemaRegistryError for an unknown subject, KafkaTimeout.
    """
    if mode not in ("PERMISSIVE", "FAILFAST"):
        raise ConfigurationError(must_be("mode", "'PERMISSIVE' or 'FAILFAST'", mode))
    if (subject is None) == (schema is None):
        raise ConfigurationError("from_registry requires either subject or schema, and not both")
    registry = _Registry(url, settings)
    wanted_schema = registry.latest(text("subject", subject)) if schema is None else _schema_of(schema)
    kind = _with_errors(registry.format(wanted_schema, message).kind, errors)
    decoder = _Decoder(registry, wanted_schema, message, kind.arrow, mode, errors)
    return _column_function(decoder, kind.ddl)(column)


def to_registry(
    column: Column | str,
    *,
    url: str,
    subject: str,
    schema: str | Mapping[str, Any] | Schema | None = None,
    message: str | None = None,
    **settings: str | float,
) -> Column:
    """Encode a column as Avro, JSON Schema or Protobuf, with the id of a schema of the registry.

    The column is usually a ``struct(...)`` with the fields of the schema. ``schema`` is registered for ``subject``
    when the query is built. Without it, the newest schema of the subject is used. ``url``, ``message`` and ``settings``
    are as for ``from_registry``. A null is null in the result, and a null field of Protobuf, or an optional one of
    JSON, is left out. A value that does not match the schema fails the task.

    Raises ConfigurationError, SchemaRegistryError for an unknown subject or an incompatible schema, KafkaTimeout.
    """
    registry = _Registry(url, settings)
    text("subject", subject)
    if schema is None:
        wanted_schema = registry.latest(subject)
    else:
        wanted_schema = _schema_of(schema)
        registry.register(subject, wanted_schema)
    registry.format(wanted_schema, message)  # raises the errors of the schema on the driver
    return _column_function(_Encoder(registry, subject, wanted_schema, message), "binary")(column)


def _schema_of(schema: str | Mapping[str, Any] | Schema) -> Schema:
    if isinstance(schema, Schema):
        return schema
    return Schema(schema if isinstance(schema, str) else json.dumps(schema))


class _Registry:
    """The address of a registry. Each process makes one client of it, on the loop of the worker."""

    def __init__(self, url: str, settings: Mapping[str, str | float]) -> None:
        self._url = text("url", url)
        self._settings = dict(settings)
        self.client()  # checks the settings

    def __repr__(self) -> str:
        return f"<_Registry settings={sorted(self._settings)}>"

    def client(self) -> SchemaRegistryClient:
        key = (os.getpid(), self._url, *sorted(self._settings.items()))
        client = _clients.get(key)
        if client is None:
            options = {
                name: resolve(name, value) if isinstance(value, str) else value
                for name, value in self._settings.items()
            }
            try:
                client = _clients[key] = SchemaRegistryClient(self._url, **options)  # type: ignore[arg-type]
            except TypeError as error:
                raise ConfigurationError(f"a setting of the schema registry is wrong: {error}") from None
        return client

    def latest(self, subject: str) -> Schema:
        return worker_loop().run(self.client().latest(subject)).schema

    def register(self, subject: str, schema: Schema) -> None:
        worker_loop().run(self.client().register(subject, schema))

    def format(self, schema: Schema, message: str | None) -> RecordFormat:
        return worker_loop().run(record_format(self.client(), schema, message))


_BINARY = (pyarrow.types.is_binary, pyarrow.types.is_large_binary, pyarrow.types.is_null)

_clients: dict[tuple[object, ...], SchemaRegistryClient] = {}
"""The clients by process and settings. A forked worker makes its own."""


class _Decoder:
    """Decodes Arrow arrays of bytes. Spark pickles it for the executors, before its first call."""

    def __init__(
        self,
        registry: _Registry,
        schema: Schema,
        message: str | None,
        arrow: pyarrow.DataType,
        mode: Mode,
        errors: str | None,
    ) -> None:
        self._registry = registry
        self._schema = schema
        self._message = message
        self._arrow = arrow
        self._mode = mode
        self._errors = errors
        self._format: RecordFormat | None = None

    def __repr__(self) -> str:
        return f"<_Decoder {self._mode}>"

    def __call__(self, values: pyarrow.Array) -> pyarrow.Array:
        # In a column of text, no record could be decoded, and all would be null.
        if not any(is_kind(values.type) for is_kind in _BINARY):
            raise ConfigurationError(f"from_registry requires a binary column, got {values.type}; do not cast it")
        if self._format is None:
            self._format = self._registry.format(self._schema, self._message)
        readers: dict[bytes, Read | KafkaError] = {}
        """By the prefix of a value. A batch asks the registry once for an id that it does not know."""
        records: list[Any] = []
        # Hot: runs for each record.
        for value in values.to_pylist():
            if value is None:
                records.append(None)
                continue
            prefix = value[:5]
            try:
                read = readers.get(prefix)
                if read is None:
                    read = readers[prefix] = _reader(self._format, value)
                if isinstance(read, KafkaError):
                    raise read
                records.append(read(value, 5))
            except KafkaError as error:
                if error is not readers.get(prefix):
                    raise  # the registry does not answer, or refuses the login
                records.append(self._failed(error))
            except Exception as error:  # noqa: BLE001 — any error of the formats' libraries, for bytes of any kind
                records.append(self._failed(error))
        return self._array(records)

    def _array(self, records: list[Any]) -> pyarrow.Array:
        """Return the records as an array. A value that its column cannot hold makes the record one that failed."""
        try:
            return pyarrow.array(records, self._arrow)
        except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
            for index, record in enumerate(records):
                try:
                    pyarrow.array([record], self._arrow)
                except (pyarrow.ArrowException, ValueError, TypeError, OverflowError) as error:
                    records[index] = self._failed(error)
            return pyarrow.array(records, self._arrow)

    def _failed(self, error: Exception) -> dict[str, str] | None:
        reason = f"{type(error).__name__}: {error}"
        if self._mode == "FAILFAST":
            raise ValueError(
                f"from_registry cannot decode a record: {reason}; mode='PERMISSIVE' makes such a record null"
            ) from None
        return None if self._errors is None else {self._errors: reason}


class _Encoder:
    """Encodes Arrow arrays. Spark pickles it for the executors, before its first call."""

    def __init__(self, registry: _Registry, subject: str, schema: Schema, message: str | None) -> None:
        self._registry = registry
        self._subject = subject
        self._schema = schema
        self._message = message
        self._write: Write | None = None

    def __repr__(self) -> str:
        return f"<_Encoder {self._subject}>"

    def __call__(self, values: pyarrow.Array) -> pyarrow.Array:
        if self._write is None:
            record_format = self._registry.format(self._schema, self._message)
            self._write = worker_loop().run(record_format.writer(self._subject))
        write = self._write
        # Hot: runs for each record.
        encoded = [None if value is None else write(value) for value in values.to_pylist()]
        return pyarrow.array(encoded, pyarrow.binary())


def _column_function(convert: Callable[[Any], Any], ddl: str) -> Callable[[Column | str], Column]:
    """Return the function of Spark that applies this conversion to arrays of a column."""
    functions = extra("pyspark.sql.functions", "spark")

    def call(values: Any) -> Any:
        return convert(values)

    function: Callable[[Column | str], Column] = functions.arrow_udf(call, ddl, functions.ArrowUDFType.SCALAR)
    return function


def _reader(record_format: RecordFormat, value: bytes) -> Read | KafkaError:
    """Return the function for values with this prefix, or why the registry has none. Raises ValueError without an id.

    A registry that refuses the login, or does not answer, raises: its records are not at fault.
    """
    name = read_name(value).name
    if not isinstance(name, int):
        raise ValueError("the bytes begin with a GUID; only ids are supported in front of the data")
    try:
        return worker_loop().run(record_format.reader(name))
    except SchemaRegistryError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return error
    except ConfigurationError as error:  # the schema has another format
        return error


def _with_errors(kind: ColumnType, errors: str | None) -> ColumnType:
    if errors is None:
        return kind
    if not kind.ddl.startswith("struct<"):
        raise ConfigurationError("errors adds a field to a record; the schema is not a record")
    if any(field.name == errors for field in kind.arrow):
        raise ConfigurationError(f"errors must not be the name of a field of the schema: {errors!r}")
    arrow = pyarrow.struct([*kind.arrow, pyarrow.field(errors, pyarrow.string())])
    return ColumnType(f"{kind.ddl[:-1]},{quoted(errors)}:string>", arrow, kind.convert)

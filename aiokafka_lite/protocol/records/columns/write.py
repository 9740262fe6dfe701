"""Arrow columns to packed records.

``Rows`` does for a whole record batch what ``append_record`` does for one record. In the compiled build
``encode.append_rows`` reads the buffers of the columns. Plain Python looks up the varints of lengths and deltas in a
table, and joins the pieces of all records in their order.

``pyarrow.compute`` is imported where it is needed: its import takes longer than it takes to encode 100,000 records.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from aiokafka_lite.arguments import INT32_MAX, must_be
from aiokafka_lite.errors import SerializationError
from aiokafka_lite.extras import extra
from aiokafka_lite.protocol.records.batch_header import HEADER_SIZE
from aiokafka_lite.protocol.records.encode import append_rows
from aiokafka_lite.protocol.records.murmur2 import edges_of
from aiokafka_lite.protocol.records.varint import ENCODINGS

if TYPE_CHECKING:
    import numpy.typing
    import pyarrow

    from aiokafka_lite.protocol.records.encode import Column

    Numbers = numpy.typing.NDArray[Any]

WRITE_COLUMNS = ("key", "value", "headers", "partition", "timestamp")
"""All columns that records can be made from."""

MAX_RECORDS = 1 << 14
"""The maximum number of records of an encoded batch. The table of short varints has all offset deltas below it."""

RECORD_OVERHEAD = 27
"""The maximum bytes of a record below 128 MiB, without key, value and headers. They are: length 4, attributes 1,
timestamp delta 10, offset delta 3, key length 4, value length 4, number of headers 1."""


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """The packed records of a batch, for ``BatchBuilder.fill``, behind ``HEADER_SIZE`` bytes for its header.

    Timestamps are in milliseconds.
    """

    buffer: bytearray
    count: int
    base_timestamp: int
    max_timestamp: int

    @property
    def records(self) -> memoryview:
        """The records without the room for the header."""
        return memoryview(self.buffer)[HEADER_SIZE:]


class Rows:
    """The rows of an Arrow record batch, as records for one topic.

    The columns are any of ``WRITE_COLUMNS``, in any order; only ``value`` is required. ``key`` and ``value`` are binary
    or string, ``headers`` a list of structs of ``key`` and ``value``, ``partition`` whole numbers, and ``timestamp`` a
    timestamp or whole milliseconds. ``now``, in milliseconds, is the timestamp of rows without one. A null has the
    meaning of None in ``send``. Raises SerializationError for any other column or type.
    """

    def __init__(self, topic: str, batch: pyarrow.RecordBatch, now: int) -> None:
        self._topic = topic
        names = batch.schema.names
        if wrong := [name for name in names if name not in WRITE_COLUMNS or names.count(name) > 1]:
            allowed = f"{', '.join(WRITE_COLUMNS)}, each at most once"
            raise SerializationError(must_be(f"columns of records for topic {topic!r}", f"some of {allowed}", wrong[0]))
        if "value" not in names:
            raise SerializationError(f"column 'value' of records for topic {topic!r} is required")
        columns: Mapping[str, Any] = dict(zip(names, batch.columns))
        self.count: int = batch.num_rows
        self.values: Any = self._bytes("value", columns["value"])
        self.keys = self._bytes("key", columns["key"]) if "key" in columns else None
        self.headers = self._headers(columns["headers"]) if "headers" in columns else None
        self.partitions: Any | None = self._partitions(columns["partition"]) if "partition" in columns else None
        self.timestamps = self._timestamps(columns["timestamp"], now) if "timestamp" in columns else None
        self._now = now
        self._numbers: Numbers | None = None
        self._ends: Numbers | None = None

    def sizes(self) -> Numbers:
        """Return an upper bound of the encoded size of each record, in bytes, within a few bytes of the size."""
        sizes = RECORD_OVERHEAD + _lengths(self.values, null=0)
        if self.keys is not None:
            sizes = sizes + _lengths(self.keys, null=0)
        if self.headers is not None:
            sizes = sizes + _lengths(self.headers, null=0)
        return sizes

    def unknown_partition(self, partitions: Container[int]) -> int | None:
        """Return the first partition of a row that is not in ``partitions``; None if there is none."""
        if self.partitions is None:
            return None
        row_partitions: list[int] = self.partitions.drop_null().unique().to_pylist()
        return next((number for number in row_partitions if number not in partitions), None)

    def take(self, indexes: Numbers) -> Rows:
        """Select the rows with these indexes, in that order, for encoding only: without their partitions."""
        rows = object.__new__(Rows)
        rows._topic, rows._now, rows.count = self._topic, self._now, len(indexes)
        rows.values, rows.keys, rows.headers = self.values, self.keys, self.headers
        rows.timestamps, rows.partitions = self.timestamps, None
        rows._numbers, rows._ends = indexes, None
        return rows

    def encode(self, start: int, stop: int, max_bytes: int = INT32_MAX) -> EncodedRecords:
        """Encode the rows from ``start`` up to ``stop`` as the records of one batch, as many as ``max_bytes`` hold.

        These are at most ``MAX_RECORDS`` rows, and at least one.
        """
        stop = min(stop, start + MAX_RECORDS)
        buffer = bytearray(HEADER_SIZE)
        keys = None if self.keys is None else _buffers(self.keys)
        headers = None if self.headers is None else _buffers(self.headers)
        limit, columns = HEADER_SIZE + max_bytes, (keys, _buffers(self.values), headers)
        appended = append_rows(buffer, limit, start, stop, self._numbers, self._now, self.timestamps, *columns)
        if appended is None:
            appended = self._append_by_passes(buffer, start, stop, max_bytes)
        assert 0 < appended[0] <= stop - start, "at least one row is taken, and at most all"
        return EncodedRecords(buffer, *appended)

    def _append_by_passes(self, buffer: bytearray, start: int, stop: int, max_bytes: int) -> tuple[int, int, int]:
        """Do what ``append_rows`` does, with NumPy and Arrow."""
        if self._numbers is not None:
            self._gather(self._numbers)
        compute = extra("pyarrow.compute")
        stop = self._fitting(start, stop, max_bytes)
        count = stop - start
        empty = _scalar(b"")
        pieces: list[Any] = [_scalar(b"\0")]  # attributes
        # Timestamps are relative to the first one of the batch, offsets to its base offset.
        base = latest = self._now
        if self.timestamps is None:
            pieces.append(_scalar(ENCODINGS[0]))
        else:
            timestamps = self.timestamps[start:stop]
            base, latest = int(timestamps[0]), int(timestamps.max())
            pieces.append(_varints(timestamps - base))
        # The table begins with -1, so this slice is 0, 1, 2 and so on.
        pieces.append(_short_varints().slice(1, count))  # offset deltas
        if self.keys is None:
            pieces.append(_scalar(ENCODINGS[-1]))
        else:
            pieces += _with_length(self.keys.slice(start, count))
        pieces += _with_length(self.values.slice(start, count))
        pieces.append(_scalar(ENCODINGS[0]) if self.headers is None else self.headers.slice(start, count))
        # A null key or value has its length -1, and no bytes.
        bodies = compute.binary_join_element_wise(*pieces, empty, null_handling="replace", null_replacement=b"")
        buffer += _contents(compute.binary_join_element_wise(_varints(_lengths(bodies)), bodies, empty))
        return count, base, latest

    def _gather(self, indexes: Numbers) -> None:
        """Copy the selected rows, because the passes work on whole columns."""
        self.values = self.values.take(indexes)
        self.keys = None if self.keys is None else self.keys.take(indexes)
        self.headers = None if self.headers is None else self.headers.take(indexes)
        self.timestamps = None if self.timestamps is None else self.timestamps[indexes]
        self._numbers = None

    def _fitting(self, start: int, stop: int, max_bytes: int) -> int:
        """Return the end of the rows from ``start`` that ``max_bytes`` hold, after at least one."""
        if self._ends is None:
            self._ends = self.sizes().cumsum()
        # The estimate is never too small, so the batch keeps its limit. One row always fits; else it would block all.
        before = int(self._ends[start - 1]) if start else 0
        return min(max(int(self._ends.searchsorted(before + max_bytes, side="right")), start + 1), stop)

    def _bytes(self, name: str, column: Any) -> Any:
        """Return the column as binary or large binary: text is not copied."""
        pa = extra("pyarrow")
        kind, types = column.type, pa.types
        if types.is_null(kind):
            return pa.nulls(len(column), pa.binary())
        if types.is_fixed_size_binary(kind):
            return column.cast(pa.binary())
        if types.is_binary(kind) or types.is_string(kind):
            return column.view(pa.binary())
        if types.is_large_binary(kind) or types.is_large_string(kind):
            return column.view(pa.large_binary())
        raise self._wrong(name, "binary or string", kind)

    def _headers(self, column: Any) -> Any:
        """Return the encoded headers of each record, with their number in front, as a large binary column."""
        pa, compute = extra("pyarrow"), extra("pyarrow.compute")
        kind, what = column.type, "a list of structs of key and value"
        if pa.types.is_null(kind):
            return pa.repeat(_scalar(ENCODINGS[0]), len(column))
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
            raise self._wrong("headers", what, kind)
        if {kind.value_type.field(index).name for index in range(kind.value_type.num_fields)} != {"key", "value"}:
            raise self._wrong("headers", what, kind)
        entries = column.flatten()
        names = self._bytes("headers.key", compute.struct_field(entries, "key"))
        if entries.null_count or names.null_count:
            raise self._wrong("headers", f"{what}, and no header and no key null", "a null")
        values = self._bytes("headers.value", compute.struct_field(entries, "value"))
        encoded = compute.binary_join_element_wise(
            *_with_length(names), *_with_length(values), _scalar(b""), null_handling="replace", null_replacement=b""
        )
        counts = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = extra("numpy").concatenate(([0], counts.cumsum()))
        lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), encoded)
        joined = compute.binary_join(lists, _scalar(b""))
        return compute.binary_join_element_wise(_varints(counts), joined, _scalar(b""))

    def _partitions(self, column: Any) -> Any:
        pa = extra("pyarrow")
        if pa.types.is_null(column.type):
            return None
        if not pa.types.is_integer(column.type):
            raise self._wrong("partition", "whole numbers", column.type)
        return column.cast(pa.int64())

    def _timestamps(self, column: Any, now: int) -> Numbers | None:
        """Return milliseconds as numbers; None for a column of nulls."""
        pa, compute = extra("pyarrow"), extra("pyarrow.compute")
        kind = column.type
        if pa.types.is_null(kind):
            return None
        if pa.types.is_timestamp(kind):
            column = compute.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", kind.tz))
        elif not pa.types.is_integer(kind):
            raise self._wrong("timestamp", "a timestamp or whole milliseconds", kind)
        in_ms: Numbers = compute.fill_null(column.cast(pa.int64()), now).to_numpy(zero_copy_only=False)
        if len(in_ms) and in_ms.min() < 0:
            raise self._wrong("timestamp", "1970 or later: Kafka has no timestamp before", f"{int(in_ms.min())} ms")
        return in_ms

    def _wrong(self, name: str, what: str, actual: object) -> SerializationError:
        return SerializationError(f"column {name!r} of records for topic {self._topic!r} must be {what}, got {actual}")


def by_number(numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each different number, with the indexes of the rows that have it, in their order."""
    np = extra("numpy")
    order = np.argsort(numbers, kind="stable")
    different, starts = np.unique(numbers[order], return_index=True)
    yield from zip((int(number) for number in different), np.split(order, starts[1:]))


def _with_length(column: Any) -> list[Any]:
    """Return the pieces of a key or value: its length, -1 for null, and its bytes."""
    return [_varints(_lengths(column)), column.cast(extra("pyarrow").large_binary())]


def _lengths(column: Any, null: int = -1) -> Numbers:
    np = extra("numpy")
    lengths: Numbers = np.diff(edges_of(column)).astype(np.int64)
    if column.null_count:
        lengths[~column.is_valid().to_numpy(zero_copy_only=False)] = null
    return lengths


def _buffers(column: Any) -> Column:
    """Return the argument of ``append_rows`` for a binary or large binary column."""
    width = 8 if extra("pyarrow").types.is_large_binary(column.type) else 4
    return width, column.offset, *column.buffers()


def _varints(numbers: Numbers) -> Any:
    """Return the varint of each number.

    Varints of small numbers are taken from a cached column. Of others, Python encodes each distinct number once.
    """
    pa, np = extra("pyarrow"), extra("numpy")
    if not len(numbers):
        return pa.array([], pa.large_binary())
    if numbers.min() >= -1 and numbers.max() < MAX_RECORDS:
        return _short_varints().take(pa.array(numbers + 1))
    different, indices = np.unique(numbers, return_inverse=True)
    table = pa.array([ENCODINGS[number] for number in different.tolist()], pa.large_binary())
    return table.take(pa.array(indices.reshape(-1)))


@cache
def _short_varints() -> Any:
    """Return the varints of -1, 0, 1 … as a column."""
    pa = extra("pyarrow")
    return pa.array([ENCODINGS[number] for number in range(-1, MAX_RECORDS)], pa.large_binary())


@cache
def _scalar(data: bytes) -> Any:
    pa = extra("pyarrow")
    return pa.scalar(data, pa.large_binary())


def _contents(column: Any) -> memoryview:
    """Return the bytes of all entries of a column, in order and without gaps. Does not copy them."""
    edges = edges_of(column)
    return memoryview(column.buffers()[2])[int(edges[0]) : int(edges[-1])]

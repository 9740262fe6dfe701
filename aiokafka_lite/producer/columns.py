"""Records given as columns of Arrow: checked, placed on partitions and encoded without a Python object for any of them.

What `append_record` does for one record is done here for a whole batch by functions of Arrow: lengths and deltas become
their encodings by a lookup in a table of bytes, and one join puts the pieces of each record one behind the other in a
buffer, which is the batch's body as it stands. With the hashes of keys that takes 0.18 µs of CPU a record of a hundred
bytes, where one by one it takes 1.5 (``benchmarks/records.py``).

pyarrow and numpy come with the extra ``arrow`` and are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ConfigurationError, SerializationError
from ..protocol.records.varint import ENCODINGS

if TYPE_CHECKING:
    import numpy
    import pyarrow

    Numbers: TypeAlias = numpy.ndarray[Any, numpy.dtype[Any]]

COLUMNS = ("key", "value", "headers", "partition", "timestamp")

MOST_RECORDS = 1 << 14
"""Records of a batch: for this many, an offset delta is found in the table."""

RECORD_OVERHEAD = 26
"""Bytes of a record besides key, value and headers, at most: seven numbers, the longest of them of ten bytes."""

HEADER_OVERHEAD = 10
"""Bytes of a header besides its name and value, at most."""

_SEED = 0x9747B28C
_M = 0x5BD1E995


@dataclass(frozen=True, slots=True)
class Encoded:
    """The body of a batch, for `BatchBuilder.fill`. Timestamps are in milliseconds."""

    records: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


class Rows:
    """The rows of an Arrow record batch, as records for one topic.

    The columns are those of `COLUMNS`, in any order, all but ``value`` optional: ``key`` and ``value`` of binary or
    string, ``headers`` a list of structs of ``key`` and ``value``, ``partition`` of whole numbers, ``timestamp`` a
    timestamp or whole milliseconds. Nulls mean what None means to ``send``. SerializationError for anything else.
    """

    def __init__(self, topic: str, batch: pyarrow.RecordBatch, now: int) -> None:
        self._topic = topic
        names = batch.schema.names
        for name in names:
            if name not in COLUMNS or names.count(name) > 1:
                raise self._wrong(name, f"there are {', '.join(COLUMNS)}, each at most once")
        if "value" not in names:
            raise self._wrong("value", "it is missing")
        given: Mapping[str, Any] = dict(zip(names, batch.columns))
        self.count: int = batch.num_rows
        self.values = self._bytes("value", given["value"])
        self.keys = self._bytes("key", given["key"]) if "key" in given else None
        self.headers = self._headers(given["headers"]) if "headers" in given else None
        self.partitions = self._partitions(given["partition"]) if "partition" in given else None
        self.timestamps = self._timestamps(given["timestamp"], now) if "timestamp" in given else None
        self._now = now

    def sizes(self) -> Numbers:
        """Bytes of each record once it is encoded, or a few more."""
        sizes = RECORD_OVERHEAD + _lengths(self.values, null=0)
        if self.keys is not None:
            sizes = sizes + _lengths(self.keys, null=0)
        if self.headers is not None:
            sizes = sizes + _lengths(self.headers, null=0)
        return sizes

    def partition_beyond(self, count: int) -> int | None:
        """A partition that a topic with ``count`` of them does not have, if a row names one."""
        if self.partitions is None:
            return None
        numbers = self.partitions.drop_null().to_numpy(zero_copy_only=False)
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        return int(wrong[0]) if len(wrong) else None

    def take(self, places: Numbers) -> Rows:
        """The rows of these numbers, in that order."""
        taken = object.__new__(Rows)
        taken._topic, taken._now, taken.count = self._topic, self._now, len(places)
        taken.values = self.values.take(places)
        for name in ("keys", "headers"):
            column = getattr(self, name)
            setattr(taken, name, None if column is None else column.take(places))
        taken.partitions = None
        taken.timestamps = None if self.timestamps is None else self.timestamps[places]
        return taken

    def encode(self, start: int, stop: int) -> Encoded:
        """The rows from ``start`` up to ``stop``, of which there are `MOST_RECORDS` at most, as the body of a batch."""
        compute = extra("pyarrow.compute")
        count = stop - start
        empty = _scalar(b"")
        pieces: list[Any] = [_scalar(b"\0")]  # attributes
        base = latest = self._now
        if self.timestamps is None:
            pieces.append(_scalar(ENCODINGS[0]))
        else:
            timestamps = self.timestamps[start:stop]
            base, latest = int(timestamps[0]), int(timestamps.max())
            pieces.append(_encoded(timestamps - base))
        pieces.append(_short().slice(1, count))  # offset deltas
        if self.keys is None:
            pieces.append(_scalar(ENCODINGS[-1]))
        else:
            pieces += _with_length(self.keys.slice(start, count))
        pieces += _with_length(self.values.slice(start, count))
        pieces.append(_scalar(ENCODINGS[0]) if self.headers is None else self.headers.slice(start, count))
        body = compute.binary_join_element_wise(*pieces, empty, null_handling="replace", null_replacement=b"")
        whole = compute.binary_join_element_wise(_encoded(_lengths(body)), body, empty)
        return Encoded(_joined(whole), count, base, latest)

    # The columns as they come.

    def _bytes(self, name: str, column: Any) -> Any:
        pa = extra("pyarrow")
        kind = column.type
        if pa.types.is_null(kind):
            return pa.nulls(len(column), pa.large_binary())
        if not any(check(kind) for check in _bytes_kinds()):
            raise self._wrong(name, f"it is {kind}; binary or string is needed")
        return column.cast(pa.large_binary())

    def _headers(self, column: Any) -> Any:
        """Count and headers of each record, as they stand in it; in large binary."""
        pa, compute = extra("pyarrow"), extra("pyarrow.compute")
        kind = column.type
        if pa.types.is_null(kind):
            return pa.repeat(_scalar(ENCODINGS[0]), len(column))
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
            raise self._wrong("headers", f"it is {kind}; a list of structs of key and value is needed")
        if {kind.value_type.field(index).name for index in range(kind.value_type.num_fields)} != {"key", "value"}:
            raise self._wrong("headers", f"its structs are {kind.value_type}; they need key and value")
        entries = column.flatten()
        if entries.null_count:
            raise self._wrong("headers", "a header is null")
        names = self._bytes("headers.key", compute.struct_field(entries, "key"))
        if names.null_count:
            raise self._wrong("headers", "the key of a header is null")
        values = self._bytes("headers.value", compute.struct_field(entries, "value"))
        encoded = compute.binary_join_element_wise(
            *_with_length(names), *_with_length(values), _scalar(b""), null_handling="replace", null_replacement=b""
        )
        counts = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = extra("numpy").concatenate(([0], counts.cumsum()))
        lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), encoded)
        joined = compute.binary_join(lists, _scalar(b""))
        return compute.binary_join_element_wise(_encoded(counts), joined, _scalar(b""))

    def _partitions(self, column: Any) -> Any:
        pa = extra("pyarrow")
        if pa.types.is_null(column.type):
            return None
        if not pa.types.is_integer(column.type):
            raise self._wrong("partition", f"it is {column.type}; whole numbers are needed")
        return column.cast(pa.int64())

    def _timestamps(self, column: Any, now: int) -> Numbers | None:
        """Milliseconds as numbers."""
        pa, compute = extra("pyarrow"), extra("pyarrow.compute")
        kind = column.type
        if pa.types.is_null(kind):
            return None
        if pa.types.is_timestamp(kind):
            column = compute.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", kind.tz))
        elif not pa.types.is_integer(kind):
            raise self._wrong("timestamp", f"it is {kind}; a timestamp or whole milliseconds are needed")
        in_ms: Numbers = compute.fill_null(column.cast(pa.int64()), now).to_numpy(zero_copy_only=False)
        if len(in_ms) and in_ms.min() < 0:
            raise self._wrong("timestamp", "it has one before 1970, which Kafka has no number for")
        return in_ms

    def _wrong(self, name: str, why: str) -> SerializationError:
        return SerializationError(f"column {name!r} of records for topic {self._topic!r}: {why}")


def slices(sizes: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Cut rows of these sizes into runs of ``most`` bytes, each of one row at least and `MOST_RECORDS` at most."""
    ends = sizes.cumsum()
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(ends.searchsorted(before + most, side="right"))
        stop = min(max(stop, start + 1), start + MOST_RECORDS)
        yield start, stop
        start = stop


def places_of_keys(keys: Any, count: int) -> Numbers:
    """The partition of each key as `partition_for_key` has it; anything for those that are null."""
    return (murmur2_of(keys) & 0x7FFFFFFF) % count


def murmur2_of(keys: Any) -> Numbers:
    """The murmur2 hash of each key of a column of large binary, as unsigned numbers of 32 bits.

    All keys take a step together: the longest key says how many steps there are, each over the keys that are as long.
    """
    np = extra("numpy")
    data = b"" if keys.buffers()[2] is None else keys.buffers()[2]
    ends = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    octets = np.concatenate((np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])], np.zeros(4, np.uint8)))
    starts = ends[:-1] - ends[0]
    lengths = np.diff(ends)
    word_at = np.ndarray((len(octets) - 3,), "<u4", octets, strides=(1,))  # at any byte, not only at every fourth
    hashed = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    multiplier = np.uint32(_M)
    living = np.arange(len(lengths))
    for step in range(int(lengths.max(initial=0)) >> 2):
        living = living[lengths[living] >= 4 * step + 4]
        word = word_at[starts[living] + 4 * step] * multiplier
        hashed[living] = hashed[living] * multiplier ^ (word ^ word >> 24) * multiplier
    rest = lengths & 3
    tail = word_at[starts + lengths - rest] & ((np.uint32(1) << (8 * rest).astype(np.uint32)) - np.uint32(1))
    hashed = np.where(rest > 0, (hashed ^ tail) * multiplier, hashed)
    hashed = (hashed ^ hashed >> 13) * multiplier
    result: Numbers = hashed ^ hashed >> 15
    return result


def by_partition(places: Numbers) -> Iterator[tuple[int, Numbers]]:
    """The partitions that rows go to, each with the numbers of its rows in their order."""
    np = extra("numpy")
    order = np.argsort(places, kind="stable")
    partitions, starts = np.unique(places[order], return_index=True)
    yield from zip((int(partition) for partition in partitions), np.split(order, starts[1:]))


def _with_length(column: Any) -> list[Any]:
    """The pieces of a key or value: its length, -1 for null, and its bytes."""
    return [_encoded(_lengths(column)), column]


def _lengths(column: Any, null: int = -1) -> Numbers:
    compute = extra("pyarrow.compute")
    lengths = compute.binary_length(column)
    if lengths.null_count:
        lengths = compute.fill_null(lengths, null)
    numbers: Numbers = lengths.to_numpy(zero_copy_only=False)
    return numbers


def _encoded(numbers: Numbers) -> Any:
    """Each number as its varint. Only those that are not short take a step of Python, each different one once."""
    pa, np = extra("pyarrow"), extra("numpy")
    if not len(numbers):
        return pa.array([], pa.large_binary())
    if numbers.min() >= -1 and numbers.max() < MOST_RECORDS:
        return _short().take(pa.array(numbers + 1))
    different, indices = np.unique(numbers, return_inverse=True)
    table = pa.array([ENCODINGS[number] for number in different.tolist()], pa.large_binary())
    return table.take(pa.array(indices.reshape(-1)))


@cache
def _short() -> Any:
    """The varints of -1, 0, 1 …"""
    pa = extra("pyarrow")
    return pa.array([ENCODINGS[number] for number in range(-1, MOST_RECORDS)], pa.large_binary())


@cache
def _scalar(data: bytes) -> Any:
    pa = extra("pyarrow")
    return pa.scalar(data, pa.large_binary())


@cache
def _bytes_kinds() -> tuple[Any, ...]:
    types = extra("pyarrow").types
    return (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string, types.is_fixed_size_binary)


def _joined(column: Any) -> memoryview:
    """All entries of a column one behind the other, as they lie in memory."""
    np = extra("numpy")
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    return memoryview(column.buffers()[2])[int(ends[0]) : int(ends[-1])]


@cache
def extra(module: str) -> ModuleType:
    """Import what only the extra ``arrow`` brings; ConfigurationError where it was not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"{module} is missing: pip install 'aiokafka_lite[arrow]'") from error

"""Packed batches of the log to columns.

Rules of this file:

1. No Python object is made per record, with three exceptions: headers, batches of the formats v0 and v1, and in plain
   Python the start of each record. A start depends on the length of the record before, so a small loop
   (``codec.record_starts``) finds the starts.
2. A compiled build finds the fields of ordinary records in C, and copies keys and values into Arrow's buffers
   (``decode``). Otherwise NumPy reads a field of all records together, and Arrow copies keys and values.
3. Many batches, of several partitions, are decoded in one pass: a pass has a fixed cost, and most batches are small
   (``benchmarks/spark.py``).
4. Bytes that are not records raise the error that ``corrupt`` makes. No length and no offset is trusted: each check
   here has its counterpart in ``codec.decode_records``, and tests compare the two on damaged batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from aiokafka_lite.errors import CorruptRecord, ProtocolError
from aiokafka_lite.extras import extra
from aiokafka_lite.protocol.records.batch import RecordBatch
from aiokafka_lite.protocol.records.columns.lists import arrow_types, int64_array, repeated, timestamp_column, to_arrow
from aiokafka_lite.protocol.records.decode import find_fields, join_fields
from aiokafka_lite.protocol.records.record_format import (
    MAX_HEADERS,
    SMALLEST_RECORD,
    TooManyHeaders,
    decode_headers,
    record_starts,
)
from aiokafka_lite.types import Header, TimestampType, TopicPartition

if TYPE_CHECKING:
    import numpy.typing
    import pyarrow

    Numbers = numpy.typing.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch of the log, with the wanted offsets, from ``low`` up to ``high``. Its body has ``size`` bytes."""

    partition: TopicPartition
    batch: RecordBatch
    low: int
    high: int
    size: int = 0


Corrupt = Callable[[PackedBatch, str], CorruptRecord]
"""Makes the error for a batch that cannot be decoded, from the batch and the reason."""


@dataclass(slots=True)
class _Lists:
    """The records of a batch of an old format, for ``to_arrow``."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]


class ArrowDecoder:
    """Decodes packed batches into Arrow record batches with the columns ``names``, in that order.

    A record batch is full at about ``max_rows`` rows or ``max_bytes`` bytes. A batch of the log is not split. Owner:
    one task. Raises ConfigurationError if NumPy or pyarrow is missing.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        max_rows: int,
        max_bytes: int,
        max_decompressed_size: int,
        corrupt: Corrupt,
    ) -> None:
        types = arrow_types()
        self.schema: Any = extra("pyarrow").schema([(name, types[name]) for name in names])
        self._names = tuple(names)
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_decompressed_size = max_decompressed_size
        self._corrupt = corrupt
        self._batches: list[PackedBatch] = []
        self._bodies: list[bytes | bytearray | memoryview] = []
        self._rows = self._bytes = 0

    def __repr__(self) -> str:
        return f"<ArrowDecoder {','.join(self._names)} rows={self._rows}>"

    def decode(self, batches: Sequence[PackedBatch]) -> pyarrow.RecordBatch | None:
        """Decode these batches into one record batch; None if no record is wanted.

        Raises the error of ``corrupt`` for bytes that are not records. Then nothing is kept.
        """
        try:
            parts = [part for packed in batches for part in self.add(packed)]
            parts += self.rest()
        except BaseException:
            self._batches, self._bodies = [], []
            self._rows = self._bytes = 0
            raise
        if len(parts) < 2:
            return parts[0] if parts else None
        whole: pyarrow.RecordBatch = extra("pyarrow").Table.from_batches(parts).combine_chunks().to_batches()[0]
        return whole

    def add(self, packed: PackedBatch) -> Iterator[pyarrow.RecordBatch]:
        """Add a batch, and yield the record batches that are full. Other records stay for a later call or ``rest``.

        Raises the error of ``corrupt`` for bytes that are not records.
        """
        if packed.batch.magic < 2:
            yield from self.rest()
            yield from self._decode_old_format(packed)
        elif packed.batch.base_offset < packed.high:
            self._append(packed)
        if self._rows >= self._max_rows or self._bytes >= self._max_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records that no record batch has yet: one record batch, or none."""
        batches, bodies, rows = self._batches, self._bodies, self._rows
        self._batches, self._bodies = [], []
        self._rows = self._bytes = 0
        if rows:
            records = _PackedRecords(batches, bodies, self._corrupt)
            for part in records.parts(with_headers="headers" in self._names):
                arrays = [_FROM_PACKED[name](part) for name in self._names]
                yield extra("pyarrow").RecordBatch.from_arrays(arrays, schema=self.schema)

    def _append(self, packed: PackedBatch) -> None:
        count = packed.batch.count
        try:
            body = packed.batch.body(self._max_decompressed_size)
        except ProtocolError as error:
            raise self._corrupt(packed, str(error)) from error
        # The count comes from the wire. Without this check, a short batch could reserve gigabytes for its columns.
        if count < 0 or count * SMALLEST_RECORD > len(body):
            raise self._corrupt(packed, f"the batch claims {count} records in {len(body)} bytes")
        if count:
            self._batches.append(replace(packed, size=len(body)))
            self._bodies.append(body)
            self._rows += count
            self._bytes += len(body)

    def _decode_old_format(self, packed: PackedBatch) -> Iterator[pyarrow.RecordBatch]:
        """Decode a message of format v0 or v1, or the messages in a compressed message, record by record."""
        chunks = packed.batch.chunks(self._max_decompressed_size)
        while True:
            try:
                chunk = next(chunks, None)
            except ProtocolError as error:
                raise self._corrupt(packed, str(error)) from error
            if chunk is None:
                return
            rows = slice(bisect_left(chunk.offsets, packed.low), bisect_left(chunk.offsets, packed.high))
            if rows.start < rows.stop:
                topic, partition = packed.partition
                lists = (chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers)
                records = _Lists(topic, partition, packed.batch.timestamp_type, *(column[rows] for column in lists))  # type: ignore[arg-type]
                yield to_arrow(records, self._names)


class _PackedRecords:
    """The records of several packed batches as columns of numbers; keys and values stay in ``data``, where they are.

    ``rows`` are the indexes of the wanted records; None if all are wanted.
    """

    offsets: Numbers
    timestamps: Numbers
    _PADDING = bytes(32)
    """Bytes after the last record. A varint that the end cuts off ends in them, and not after the array."""

    def __init__(
        self,
        batches: Sequence[PackedBatch],
        bodies: Sequence[bytes | bytearray | memoryview],
        corrupt: Corrupt,
    ) -> None:
        np = extra("numpy")
        self.batches = batches
        self._corrupt = corrupt
        self._counts = np.array([batch.batch.count for batch in batches])
        self._firsts = np.cumsum(self._counts) - self._counts
        self.found_in_c = self._find_fields(bodies)
        if not self.found_in_c:
            self._read_fields(bodies)
        self.rows = self._find_wanted()
        self.headers: list[tuple[Header, ...] | None] = []  # of a part only

    def _find_fields(self, bodies: Sequence[bytes | bytearray | memoryview]) -> bool:
        """Find the fields of all records in C. Returns False in plain Python, or for records that C does not decode."""
        np = extra("numpy")
        rows = int(self._counts.sum())
        table = np.frombuffer(extra("pyarrow").allocate_buffer(8 * 8 * rows), np.int64).reshape(8, rows)
        position = first = 0
        for packed, body in zip(self.batches, bodies):
            batch, time = packed.batch, packed.batch.append_time
            is_done = find_fields(
                body,
                position,
                batch.count,
                batch.base_offset,
                batch.base_timestamp if time is None else time,
                time is not None,
                batch.last_offset_delta,
                table,
                first,
            )
            if not is_done:
                return False
            position, first = position + packed.size, first + batch.count
        assert first == rows, "the table has a column for each record"
        self.data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        self._octets = np.frombuffer(self.data, np.uint8)
        self.keys_at, self.key_sizes, self.values_at, self.value_sizes, self._headers_at, self._ends = table[2:]
        # Copies: the user's columns must not keep the table alive.
        self.offsets, self.timestamps = table[0].copy(), table[1].copy()
        return True

    def _read_fields(self, bodies: Sequence[bytes | bytearray | memoryview]) -> None:
        """Read the records field by field with NumPy. Raises the error of ``corrupt`` for malformed records."""
        np = extra("numpy")
        self.data = b"".join([*bodies, self._PADDING])
        self._octets = np.frombuffer(self.data, np.uint8)
        starts = self._find_starts()
        ends = np.append(starts[1:], len(self.data) - len(self._PADDING))

        # The fields of a record in their order; ``at`` is where the next field of each record begins.
        length, at = self._varints(starts)
        self._refuse((length < 0) | (at + length != ends), "a record does not end where its length says")
        # From here on the record ends in the data. A varint that runs on into the next record is a wrong number, and
        # one of the checks below finds it.
        timestamp_deltas, at = self._varints(at + 1)  # after the attributes
        offset_deltas, at = self._varints(at)
        self.offsets = self._per_record([batch.batch.base_offset for batch in self.batches]) + offset_deltas
        self._check_offsets(offset_deltas)
        self.timestamps = self._add_to_bases(timestamp_deltas)
        self.key_sizes, self.keys_at, at = self._blobs(at, ends)
        self.value_sizes, self.values_at, at = self._blobs(at, ends)
        self._refuse(at >= ends, "a record ends before its headers")
        self._refuse((self._octets[at] == 0) & (at + 1 != ends), "there are bytes after the last header of a record")
        self._headers_at, self._ends = at, ends

    def __len__(self) -> int:
        return len(self.offsets) if self.rows is None else len(self.rows)

    def parts(self, *, with_headers: bool) -> Iterator[_PackedRecords]:
        """Yield the wanted records. If headers are wanted, in parts of at most ``MAX_HEADERS`` decoded headers."""
        np = extra("numpy")
        if not with_headers or not len(self):
            yield from (self,) if len(self) else ()
            return
        counts, _ = self._varints(self.chosen(self._headers_at))
        totals = np.maximum(counts, 0).cumsum()
        rows = np.arange(len(self.offsets)) if self.rows is None else self.rows
        start = before = 0
        while start < len(rows):
            # At least one record: ``decode_headers`` refuses it if it alone has too many headers.
            stop = max(start + 1, int(totals.searchsorted(before + MAX_HEADERS, "right")))
            part = copy(self)
            part.rows = rows[start:stop]
            part.decode_headers()
            yield part
            start, before = stop, int(totals[stop - 1])

    def chosen(self, column: Numbers) -> Numbers:
        """Return the wanted records of a column."""
        return column if self.rows is None else column[self.rows]

    def place(self, row: int) -> tuple[str, int, int]:
        """Return the topic, partition and offset of a wanted record."""
        record = row if self.rows is None else int(self.rows[row])
        topic, partition = self.batches[self._batch_of(record)].partition
        return topic, partition, int(self.offsets[record])

    def _batch_of(self, record: int) -> int:
        return int(extra("numpy").searchsorted(self._firsts, record, "right")) - 1

    def per_row(self, values: Sequence[int]) -> Numbers:
        """Return a column from one number per batch: the number is repeated for each wanted record of the batch."""
        return self.chosen(self._per_record(values))

    def _per_record(self, values: Sequence[int]) -> Numbers:
        np = extra("numpy")
        repeated: Numbers = np.repeat(np.array(values, np.int64), self._counts)
        return repeated

    def _find_starts(self) -> Numbers:
        """Find the position of each record in the data. This is the only loop over records."""
        data = bytes(self.data)
        starts: list[int] = []
        position = 0
        for batch in self.batches:
            end = position + batch.size
            try:
                position = record_starts(data, position, batch.batch.count, starts)
            except (IndexError, CorruptRecord):
                position = -1
            if position != end:
                raise self._corrupt(batch, f"{batch.batch.count} records do not fill the batch's {batch.size} bytes")
        return int64_array(starts)  # type: ignore[no-any-return]

    def _varints(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """Return the zigzag numbers at these places, each of up to ten bytes, and the places after them."""
        np = extra("numpy")
        byte = self._octets[at]
        raw = (byte & 0x7F).astype(np.uint64)
        after = at + 1
        (longer,) = np.nonzero(byte > 0x7F)
        shift = 7
        # Each pass reads one more byte of the numbers that have one. Most numbers need no pass.
        while len(longer):
            if shift > 63:
                self._refuse_row(int(longer[0]), "a number has more than ten bytes")
            byte = self._octets[after[longer]]
            raw[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[longer] += 1
            longer = longer[byte > 0x7F]
            shift += 7
        # Zigzag: the lowest bit is the sign, so that small negative numbers are short too.
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after

    def _blobs(self, at: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the sizes of keys or values (-1 for null), where their bytes begin, and where they end."""
        sizes, at = self._varints(at)
        # Compared as a difference, because the sum of a place and a size from the wire could exceed 64 bits.
        self._refuse((sizes < -1) | (sizes > ends - at), "a key or value is longer than its record")
        return sizes, at, at + extra("numpy").maximum(sizes, 0)

    def _check_offsets(self, deltas: Numbers) -> None:
        np = extra("numpy")
        rising = np.ones(len(deltas), bool)
        rising[1:] = deltas[1:] > deltas[:-1]
        # The offsets of a batch begin anew: the first record is compared with the base offset, not with the record
        # of the batch before.
        rising[self._firsts] = deltas[self._firsts] >= 0
        self._refuse(~rising, "the offsets of its records do not rise")
        last = np.array([batch.batch.last_offset_delta for batch in self.batches])
        beyond = deltas[self._firsts + self._counts - 1] > last
        if beyond.any():
            raise self._corrupt(self.batches[int(beyond.argmax())], "a record has an offset after the batch's last one")

    def _add_to_bases(self, deltas: Numbers) -> Numbers:
        """Return the timestamps. In a batch with log append time, all records have the batch's timestamp."""
        # With log append time, the header's highest timestamp is the broker's time. The other timestamps are the
        # client's.
        of_log = [batch.batch.timestamp_type is TimestampType.LOG_APPEND_TIME for batch in self.batches]
        bases = [run.batch.max_timestamp if log else run.batch.base_timestamp for run, log in zip(self.batches, of_log)]
        if any(of_log):
            deltas = extra("numpy").where(self._per_record(of_log), 0, deltas)
        return self._per_record(bases) + deltas

    def _find_wanted(self) -> Numbers | None:
        # Most batches are wanted whole. Then no column is copied.
        if all(batch.low <= batch.batch.base_offset and batch.batch.last_offset < batch.high for batch in self.batches):
            return None
        low = self._per_record([batch.low for batch in self.batches])
        high = self._per_record([batch.high for batch in self.batches])
        rows: Numbers = extra("numpy").nonzero((self.offsets >= low) & (self.offsets < high))[0]
        return rows

    def decode_headers(self) -> None:
        """Set ``headers``: the headers of the wanted records, None for a record without headers. Record by record."""
        at, ends = self.chosen(self._headers_at), self.chosen(self._ends)
        data = bytes(self.data)
        headers: list[tuple[Header, ...] | None] = [None] * len(self)
        names: dict[bytes, str] = {}  # header names repeat, so each is decoded once
        # A record without headers has the count 0, one byte.
        for row in extra("numpy").nonzero(self._octets[at])[0].tolist():
            record = row if self.rows is None else int(self.rows[row])
            try:
                headers[row], after = decode_headers(data, int(at[row]), names)
            except (CorruptRecord, IndexError) as error:
                self._refuse_row(record, f"a header cannot be decoded: {error}")
            except TooManyHeaders as error:
                self._refuse_row(record, f"a record has {error.count} headers; at most {MAX_HEADERS} can be read")
            if after != ends[row]:
                self._refuse_row(record, "the headers of a record do not end where the record does")
        self.headers = headers

    def _refuse(self, wrong: Numbers, reason: str) -> None:
        if wrong.any():
            self._refuse_row(int(wrong.argmax()), reason)

    def _refuse_row(self, record: int, reason: str) -> NoReturn:
        raise self._corrupt(self.batches[self._batch_of(record)], reason)


def _blob_column(records: _PackedRecords, sizes: Numbers, at: Numbers) -> Any:
    """Return keys or values as a binary array."""
    pa, np = extra("pyarrow"), extra("numpy")
    sizes, at = records.chosen(sizes), records.chosen(at)
    count = len(sizes)
    nulls = sizes < 0
    has_nulls = nulls.any()
    if has_nulls and nulls.all():
        return pa.nulls(count, pa.binary())
    if records.found_in_c:
        edges = np.empty(count + 1, np.int32)
        joined = pa.allocate_buffer(int(sizes.sum() + nulls.sum()))  # the size of a null is -1
        if join_fields(records.data, at.data, sizes.data, edges.data, joined):
            valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if has_nulls else None
            return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(edges), joined])
    # Every second entry of a binary array whose other entries are the bytes between the keys or values.
    edges = np.empty(2 * count + 1, np.int32)
    edges[0] = 0
    edges[1::2] = at
    edges[2::2] = at + np.maximum(sizes, 0)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(records.data)]
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    every_second = np.arange(1, 2 * count, 2, dtype=np.int32)
    return with_gaps.take(pa.array(every_second, mask=nulls if has_nulls else None))


def _per_batch(records: _PackedRecords, values: Sequence[str | int], kind: Any) -> Any:
    """Return a value of each batch as a column."""
    pa = extra("pyarrow")
    different = dict.fromkeys(values)
    if len(different) == 1:
        return repeated(values[0], len(records), kind)
    numbers = {value: number for number, value in enumerate(different)}
    return pa.array(list(different), kind).take(pa.array(records.per_row([numbers[value] for value in values])))


_FROM_PACKED: Mapping[str, Callable[[_PackedRecords], Any]] = {
    "key": lambda records: _blob_column(records, records.key_sizes, records.keys_at),
    "value": lambda records: _blob_column(records, records.value_sizes, records.values_at),
    "topic": lambda records: _per_batch(
        records, [batch.partition.topic for batch in records.batches], arrow_types()["topic"]
    ),
    "partition": lambda records: _per_batch(
        records, [batch.partition.partition for batch in records.batches], arrow_types()["partition"]
    ),
    "offset": lambda records: extra("pyarrow").array(records.chosen(records.offsets)),
    "timestamp": lambda records: timestamp_column(
        records.chosen(records.timestamps), arrow_types()["timestamp"], records.place
    ),
    "timestampType": lambda records: _per_batch(
        records, [int(batch.batch.timestamp_type) for batch in records.batches], arrow_types()["timestampType"]
    ),
    "headers": lambda records: extra("pyarrow").array(records.headers, arrow_types()["headers"]),
}

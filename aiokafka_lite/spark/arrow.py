"""Record batches of the log as Arrow record batches, with no Python object for a record.

Where one record ends, only its length tells, so one small loop walks over the records and notes where each begins. All
else is done for thousands of records at once: NumPy reads the numbers in them column by column, and Arrow copies keys
and values out of the bytes that they came in. Many batches of the log, of several partitions, go into one pass, since
a pass has a price of its own and most batches are small. ``benchmarks/spark.py`` measures it.

Messages of formats v0 and v1, and headers where they are wanted, take the way of `RecordBatch.columns`, record by
record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

import numpy
import pyarrow

from ..consumer.columns import Batch
from ..consumer.fetched import corrupt, is_hidden
from ..errors import CorruptRecord, ProtocolError
from ..protocol.records import RecordBatch
from ..protocol.records.codec import SMALLEST_RECORD, decode_headers
from ..protocol.records.varint import read_raw_varint
from ..types import Header, TimestampType, TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .reading import Fetched

    Numbers = NDArray[numpy.int64]

ROWS = 10_000
BYTES = 8 * 1024 * 1024
"""A record batch for Spark has about so many rows, or bytes, whichever comes first: a batch of the log stays whole."""

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
TYPES: Mapping[str, pyarrow.DataType] = {
    "key": pyarrow.binary(),
    "value": pyarrow.binary(),
    "topic": pyarrow.string(),
    "partition": pyarrow.int32(),
    "offset": pyarrow.int64(),
    "timestamp": pyarrow.timestamp("us", tz="UTC"),
    "timestampType": pyarrow.int32(),
    "headers": HEADERS,
}
"""The columns that there are, as Spark wants them of a Python source."""

_MICROSECONDS_END = (1 << 63) // 1000


@dataclass(frozen=True, slots=True)
class _Run:
    """The records of one batch of the log, within the bytes of a pass. Those from ``low`` up to ``high`` are wanted."""

    partition: TopicPartition
    batch: RecordBatch
    size: int
    low: int
    high: int

    def corrupt(self, why: str) -> CorruptRecord:
        return corrupt(self.partition, max(self.low, self.batch.base_offset), why, self.batch)


class Decoder:
    """Makes Arrow record batches of what was fetched, with these columns in this order. One for each task."""

    def __init__(self, columns: Sequence[str], *, check_crcs: bool, max_decompressed_size: int) -> None:
        self.schema = pyarrow.schema([(name, TYPES[name]) for name in columns])
        self._columns = tuple(columns)
        self._check_crcs = check_crcs
        self._max_size = max_decompressed_size
        self._runs: list[_Run] = []
        self._bodies: list[bytes | bytearray | memoryview] = []
        self._rows = self._bytes = 0

    def __repr__(self) -> str:
        return f"<Decoder {','.join(self._columns)} rows={self._rows}>"

    def decode(self, fetched: Iterable[Fetched]) -> Iterator[pyarrow.RecordBatch]:
        """The record batches that are full. What is left waits for more, or for ``rest``.

        CorruptRecord, which names partition and offset, for bytes that are no records.
        """
        for each in fetched:
            for batch, aborted in each.batches:
                run = _Run(each.range.partition, batch, 0, each.range.start, each.range.end)
                if batch.next_offset <= run.low:
                    continue
                try:
                    if self._check_crcs:
                        batch.verify_crc()
                    if is_hidden(batch, aborted, self._max_size):
                        continue
                    if batch.base_offset >= run.high and batch.magic == 2:
                        continue
                    if batch.magic < 2:
                        yield from self.rest()
                        yield from self._legacy(run)
                    else:
                        self._add(run)
                except ProtocolError as error:
                    raise run.corrupt(str(error)) from error
                if self._rows >= ROWS or self._bytes >= BYTES:
                    yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """What has not been handed out yet: one record batch, or none."""
        runs, bodies, rows = self._runs, self._bodies, self._rows
        self._runs, self._bodies = [], []
        self._rows = self._bytes = 0
        if rows:
            records = _Records(runs, bodies, with_headers="headers" in self._columns)
            if len(records):
                arrays = [_COLUMNS[name](records) for name in self._columns]
                yield pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _add(self, run: _Run) -> None:
        batch = run.batch
        body = batch.body(self._max_size)
        if batch.count < 0 or batch.count * SMALLEST_RECORD > len(body):
            raise CorruptRecord(f"it claims {batch.count} records in {len(body)} bytes")
        if not batch.count:
            return
        self._runs.append(replace(run, size=len(body)))
        self._bodies.append(body)
        self._rows += batch.count
        self._bytes += len(body)

    def _legacy(self, run: _Run) -> Iterator[pyarrow.RecordBatch]:
        """A message of format v0 or v1, or the many in a compressed one."""
        found = run.batch.columns(self._max_size)
        low, high = bisect_left(found.offsets, run.low), bisect_left(found.offsets, run.high)
        if low < high:
            wanted = slice(low, high)
            made = Batch(
                run.partition.topic,
                run.partition.partition,
                run.batch.timestamp_type,
                None,
                found.offsets[wanted],
                found.timestamps[wanted],
                found.keys[wanted],
                found.values[wanted],
                found.headers[wanted],
            )
            yield made.to_arrow(self._columns).cast(self.schema)


class _Records:
    """The records of several runs, as columns of numbers; keys and values are where they came, in ``data``."""

    def __init__(
        self, runs: Sequence[_Run], bodies: Sequence[bytes | bytearray | memoryview], *, with_headers: bool
    ) -> None:
        self._runs = runs
        self.data = b"".join([*bodies, _PADDING])
        self._bytes = numpy.frombuffer(self.data, numpy.uint8)
        self._counts = numpy.array([run.batch.count for run in runs])
        self._firsts = numpy.cumsum(self._counts) - self._counts
        starts = self._find_starts()
        ends = numpy.append(starts[1:], len(self.data) - len(_PADDING))

        length, at = self._varints(starts)
        self._refuse((length < 0) | (at + length != ends), "it has a record that does not end where its length says")
        timestamp_deltas, at = self._varints(at + 1)  # after the attributes
        offset_deltas, at = self._varints(at)
        self.offsets: Numbers = self._of_runs([run.batch.base_offset for run in runs]) + offset_deltas
        self._check_offsets(offset_deltas)
        self.timestamps = self._find_timestamps(timestamp_deltas)
        self.key_sizes: Numbers
        self.value_sizes: Numbers
        self.keys_at: Numbers
        self.values_at: Numbers
        self.key_sizes, self.keys_at, at = self._blobs(at, ends)
        self.value_sizes, self.values_at, at = self._blobs(at, ends)
        self._refuse(at >= ends, "it has a record that ends before its headers")
        self._check_headers(at, ends)
        self._headers_at = at
        self._ends = ends
        self.rows = self._wanted()
        self.headers: list[tuple[Header, ...] | None] = self._decode_headers() if with_headers else []

    def __len__(self) -> int:
        return len(self.offsets) if self.rows is None else len(self.rows)

    def of_runs(self, values: Sequence[int]) -> Numbers:
        """A number for each run, as one for each wanted record."""
        return self.chosen(self._of_runs(values))

    def chosen(self, column: Numbers) -> Numbers:
        """A column without the records that are not wanted."""
        return column if self.rows is None else column[self.rows]

    @property
    def runs(self) -> Sequence[_Run]:
        return self._runs

    def _of_runs(self, values: Sequence[int]) -> Numbers:
        return numpy.repeat(numpy.array(values, numpy.int64), self._counts)

    # ---- taking the bytes apart

    def _find_starts(self) -> Numbers:
        """Where each record begins. The one loop over records."""
        starts: list[int] = []
        position = 0
        for run in self._runs:
            end = position + run.size
            try:
                position = _walk(self.data, position, run.batch.count, starts.append)
            except (IndexError, CorruptRecord):
                position = -1
            if position != end:
                raise run.corrupt(f"{run.batch.count} records do not fill its {run.size} bytes")
        return numpy.array(starts, numpy.int64)

    def _varints(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """The zigzag numbers that stand at these places, of up to ten bytes, and the places after them."""
        byte = self._bytes[at]
        raw = (byte & 0x7F).astype(numpy.uint64)
        after = at + 1
        (longer,) = numpy.nonzero(byte > 0x7F)
        shift = 7
        while len(longer):
            if shift > 63:
                self._refuse_rows(longer, "it has a number of more than ten bytes")
            byte = self._bytes[after[longer]]
            raw[longer] |= (byte & 0x7F).astype(numpy.uint64) << numpy.uint64(shift)
            after[longer] += 1
            longer = longer[byte > 0x7F]
            shift += 7
        return (raw >> numpy.uint64(1)).view(numpy.int64) ^ -(raw & numpy.uint64(1)).view(numpy.int64), after

    def _blobs(self, at: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Keys or values: their sizes (-1 for null), where their bytes begin, and where they end."""
        sizes, at = self._varints(at)
        self._refuse((sizes < -1) | (sizes > ends - at), "it has a key or value that is longer than its record")
        return sizes, at, at + numpy.maximum(sizes, 0)

    def _check_offsets(self, deltas: Numbers) -> None:
        rising = numpy.ones(len(deltas), bool)
        rising[1:] = deltas[1:] > deltas[:-1]
        rising[self._firsts] = deltas[self._firsts] >= 0
        self._refuse(~rising, "it has a record that goes back in offsets")
        last = numpy.array([run.batch.last_offset_delta for run in self._runs])
        beyond = deltas[self._firsts + self._counts - 1] > last
        if beyond.any():
            raise self._runs[int(beyond.argmax())].corrupt("it has a record after its last offset")

    def _find_timestamps(self, deltas: Numbers) -> Numbers:
        of_log = [run.batch.timestamp_type is TimestampType.LOG_APPEND_TIME for run in self._runs]
        bases = [run.batch.max_timestamp if log else run.batch.base_timestamp for run, log in zip(self._runs, of_log)]
        return self._of_runs(bases) + (numpy.where(self._of_runs(of_log), 0, deltas) if any(of_log) else deltas)

    def _check_headers(self, at: Numbers, ends: Numbers) -> None:
        none = self._bytes[at] == 0
        self._refuse(none & (at + 1 != ends), "it has bytes after the last header of a record")

    def _decode_headers(self) -> list[tuple[Header, ...] | None]:
        """Of the wanted records; None for those that have none. Record by record, where there are any."""
        made: list[tuple[Header, ...] | None] = [None] * len(self)
        at, ends = self.chosen(self._headers_at), self.chosen(self._ends)
        names: dict[bytes, str] = {}
        for row in numpy.nonzero(self._bytes[at])[0].tolist():
            try:
                made[row], after = decode_headers(self.data, int(at[row]), names)
            except (CorruptRecord, IndexError) as error:
                raise self._run_of(self._row(row)).corrupt(f"a header cannot be read: {error}") from None
            if after != ends[row]:
                raise self._run_of(self._row(row)).corrupt("it has headers that do not end where their record does")
        return made

    def _wanted(self) -> Numbers | None:
        """The records within their ranges; None if all are."""
        if all(run.low <= run.batch.base_offset and run.batch.last_offset < run.high for run in self._runs):
            return None
        low, high = self._of_runs([run.low for run in self._runs]), self._of_runs([run.high for run in self._runs])
        rows: Numbers = numpy.nonzero((self.offsets >= low) & (self.offsets < high))[0]
        return rows

    # ---- bytes that are no records

    def _refuse(self, wrong: NDArray[numpy.bool_], why: str) -> None:
        if wrong.any():
            self._refuse_rows(numpy.nonzero(wrong)[0], why)

    def _refuse_rows(self, rows: Numbers, why: str) -> NoReturn:
        raise self._run_of(int(rows[0])).corrupt(why)

    def _row(self, chosen: int) -> int:
        return chosen if self.rows is None else int(self.rows[chosen])

    def _run_of(self, row: int) -> _Run:
        return self._runs[int(numpy.searchsorted(self._firsts, row, "right")) - 1]


_PADDING = bytes(32)
"""After the last record: a number that is cut off ends here, before the end of the array."""


def _walk(data: bytes, position: int, count: int, add: Callable[[int], None]) -> int:
    """Note where ``count`` records begin; where the last one ends. IndexError where a length leads out of ``data``."""
    for _ in range(count):
        add(position)
        length = data[position]
        if length < 0x80:
            position += 1 + (length >> 1)
            continue
        second = data[position + 1]
        if second < 0x80:
            position += 2 + (length >> 1 & 0x3F) + (second << 6)
        else:
            raw, position = read_raw_varint(data, position)
            position += raw >> 1
    return position


# Columns.


def _blob_column(records: _Records, sizes: Numbers, at: Numbers) -> pyarrow.Array:
    """Keys or values. They and what lies between them are one binary array to Arrow, of which it takes each second."""
    sizes, at = records.chosen(sizes), records.chosen(at)
    count = len(sizes)
    edges = numpy.empty(2 * count + 1, numpy.int32)
    edges[0] = 0
    edges[1::2] = at
    edges[2::2] = at + numpy.maximum(sizes, 0)
    nulls = sizes < 0
    buffers = [None, pyarrow.py_buffer(edges), pyarrow.py_buffer(records.data)]
    between = pyarrow.Array.from_buffers(pyarrow.binary(), 2 * count, buffers)
    each_second = numpy.arange(1, 2 * count, 2, dtype=numpy.int32)
    return between.take(pyarrow.array(each_second, mask=nulls if nulls.any() else None))


def _topic_column(records: _Records) -> pyarrow.Array:
    topics = {run.partition.topic for run in records.runs}
    if len(topics) == 1:
        return pyarrow.repeat(pyarrow.scalar(topics.pop(), pyarrow.string()), len(records))
    numbers = {topic: number for number, topic in enumerate(topics)}
    of_rows = records.of_runs([numbers[run.partition.topic] for run in records.runs])
    return pyarrow.array(list(numbers), pyarrow.string()).take(pyarrow.array(of_rows))


def _timestamp_column(records: _Records) -> pyarrow.Array:
    """Microseconds of UTC; null where the log has no timestamp, or one outside of that range."""
    times = records.chosen(records.timestamps)
    nulls = (times < 0) | (times >= _MICROSECONDS_END)
    if nulls.any():
        return pyarrow.array(numpy.where(nulls, 0, times) * 1000, mask=nulls).cast(TYPES["timestamp"])
    return pyarrow.array(times * 1000).cast(TYPES["timestamp"])


def _small(numbers: Numbers) -> pyarrow.Array:
    return pyarrow.array(numbers.astype(numpy.int32))


_COLUMNS: Mapping[str, Callable[[_Records], pyarrow.Array]] = {
    "key": lambda records: _blob_column(records, records.key_sizes, records.keys_at),
    "value": lambda records: _blob_column(records, records.value_sizes, records.values_at),
    "topic": _topic_column,
    "partition": lambda records: _small(records.of_runs([run.partition.partition for run in records.runs])),
    "offset": lambda records: pyarrow.array(records.chosen(records.offsets)),
    "timestamp": _timestamp_column,
    "timestampType": lambda records: _small(records.of_runs([int(run.batch.timestamp_type) for run in records.runs])),
    "headers": lambda records: pyarrow.array(records.headers, HEADERS),
}

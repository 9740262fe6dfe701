"""The inner loops of the record format, as plain functions over buffers.

Records of format v2 follow the batch's header, compressed or not. Each record is

    length          varint, of the rest of the record
    attributes      one byte, unused
    timestamp delta varlong, from the batch's base timestamp
    offset delta    varint, from the batch's base offset
    key             varint length, -1 for null, and the bytes
    value           varint length, -1 for null, and the bytes
    headers         varint count; for each header the key (never null) and the value

(https://kafka.apache.org/documentation/#record). This module does not handle batches, compression or topics.

This is hot code, measured by ``benchmarks/records.py``. Three things make it fast:

1. A compiled build decodes ordinary records in C (``decode``). What follows applies to the Python code.
2. One- and two-byte numbers are decoded inline. The same block is five times in ``_decode_records``, because a function
   call per number is slow.
3. Lengths are checked once per record. A wrong length makes a slice shorter than expected (Python clamps it, so nothing
   is allocated), and then the position differs from the record's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import CorruptRecord
from ...types import Header
from .encode import append_record, encode_headers
from .varint import read_raw_varint, read_raw_varlong

if TYPE_CHECKING:
    from mypy_extensions import i64  # where this module is compiled, a number without an object

    from .decode import Decoded

Buffer = bytes | bytearray | memoryview
Headers = Iterable[tuple[str, bytes | None]]

SMALLEST_RECORD = 7
"""Bytes of a record with neither key nor value nor headers."""

_SMALLEST_LENGTH: Final = 2 * (SMALLEST_RECORD - 1)  # of that record, in zigzag form

MAX_HEADERS = 1 << 16
"""The largest number of headers of one record, and of all records of one call of ``decode_records``.

Kafka has no limit. A header of two bytes becomes Python objects of about 80 bytes, in a microsecond. A compressed
record of 829 bytes once took 317 MB and stopped the event loop for 7 seconds.
"""

ZERO_HEADERS: Final = b"\0"
"""The encoded headers of a record that has none: their number."""

_NO_HEADERS: tuple[Header, ...] = ()
_decode_lists: Callable[..., Decoded | None] | None = None  # of ``decode``, after the first call
_new_tuple = tuple.__new__  # faster than the constructor of a NamedTuple, which calls it
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(slots=True, eq=False)
class RecordColumns:
    """The records of a batch, or of a part of it, as lists of equal length.

    Timestamps are in milliseconds, -1 if the log has none. A null key or value is None. Headers are tuples of
    ``Header``; records without headers share one empty tuple. To build records without a Python loop, use
    ``map(Record, repeat(topic), repeat(partition), columns.offsets, ...)``.
    """

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]
    header_count: int = 0
    """The number of headers of all records together."""

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, other: RecordColumns) -> None:
        """Append the records of ``other``."""
        self.offsets += other.offsets
        self.timestamps += other.timestamps
        self.keys += other.keys
        self.values += other.values
        self.headers += other.headers
        self.header_count += other.header_count


def encode_records(
    base_timestamp: int,
    timestamps: Sequence[int],
    keys: Sequence[Buffer | None],
    values: Sequence[Buffer | None],
    headers: Sequence[Headers] | None = None,
    *,
    offset_deltas: Sequence[int] | None = None,
) -> bytearray:
    """Encode columns of equal length as the records of a batch, without the batch's header.

    ``offset_deltas`` are 0, 1, 2 … by default. Raises ValueError if the columns differ in length.
    """
    out = bytearray()
    columns = zip(
        range(len(values)) if offset_deltas is None else offset_deltas,
        timestamps,
        keys,
        values,
        [()] * len(values) if headers is None else headers,
        strict=True,
    )
    for offset_delta, timestamp, key, value, of_record in columns:
        encoded = encode_headers(of_record) if of_record else ZERO_HEADERS
        append_record(out, _INT64_MAX, offset_delta, timestamp - base_timestamp, key, value, encoded)
    return out


def decode_records(
    data: Buffer,
    start: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    first_delta: int = 0,
) -> tuple[RecordColumns, int]:
    """Decode up to ``count`` records at ``start``; return them and the position after the last one.

    If the next record would bring the number of headers above ``MAX_HEADERS``, fewer records are returned, but at least
    one. ``append_time`` replaces all timestamps (log-append time). ``first_delta`` is the smallest allowed offset delta
    of the first record: 0 at the start of a batch. Deltas must increase; compaction leaves gaps. Raises CorruptRecord
    for malformed records, and for a first record with too many headers. Every number in the columns fits in 64 bits.
    """
    global _decode_lists
    if _decode_lists is None:  # an import statement takes longer than the records of a small batch, also if it repeats
        from .decode import decode_lists  # imported here, because a producer decodes nothing

        _decode_lists = decode_lists
    decoded = _decode_lists(data, start, count, base_offset, base_timestamp, append_time, first_delta, MAX_HEADERS)
    if decoded is not None:
        offsets, timestamps, keys, values, with_headers, position = decoded
        headers = [_NO_HEADERS] * len(offsets)
        header_count = _decode_all_headers(data, with_headers, headers) if with_headers else 0
        if header_count >= 0:
            return RecordColumns(offsets, timestamps, keys, values, headers, header_count), position
    # Plain Python, or records that C does not decode, such as malformed ones: the errors are made here.
    return _decode_records(bytes(data), start, count, base_offset, base_timestamp, append_time, first_delta)


def _decode_all_headers(
    data: Buffer, with_headers: list[tuple[int, int, int]], headers: list[tuple[Header, ...]]
) -> int:
    """Decode the headers of the records that have headers. Returns their number; -1 if headers are malformed."""
    names: dict[bytes, str] = {}
    count = 0
    for index, start, end in with_headers:
        encoded = bytes(data[start:end])
        try:
            headers[index], position = decode_headers(encoded, 0, names)
        except (CorruptRecord, IndexError):
            return -1
        if position != len(encoded):
            return -1
        count += len(headers[index])
    return count


def _decode_records(  # noqa: C901 - the varint is unrolled, see the header
    data: bytes,
    start: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    first_delta: int,
) -> tuple[RecordColumns, int]:
    """Decode as ``decode_records`` does, in Python."""
    first_position, headers_left = start, MAX_HEADERS
    # Compiled, these never become objects. Numbers that may have more than 63 bits are an int: ``long`` and all sums
    # with the batch's base.
    position: i64 = start
    index: i64
    raw: i64
    high: i64
    end: i64
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers_by_index: dict[int, tuple[Header, ...]] = {}
    names: dict[bytes, str] = {}
    add_offset, add_timestamp, add_key, add_value = offsets.append, timestamps.append, keys.append, values.append
    size: i64 = len(data)
    expected: i64 = first_delta << 1  # the next offset delta, in zigzag form, as records have it
    try:
        for index in range(count):
            raw = data[position]
            position += 1
            if raw > 0x7F:
                high = data[position]
                if high > 0x7F:
                    raw, position = read_raw_varint(data, position - 1)
                else:
                    raw = raw & 0x7F | high << 7
                    position += 1
            # An odd number is a negative length: no position equals -1, so the check at the record's end fails.
            end = position + (raw >> 1) if not raw & 1 else -1
            position += 1  # attributes

            long = data[position]
            position += 1
            if long > 0x7F:
                high = data[position]
                if high > 0x7F:
                    long, position = read_raw_varlong(data, position - 1)
                else:
                    long = long & 0x7F | high << 7
                    position += 1
            add_timestamp(base_timestamp + ((long >> 1) ^ -(long & 1)))

            raw = data[position]
            position += 1
            if raw > 0x7F:
                high = data[position]
                if high > 0x7F:
                    raw, position = read_raw_varint(data, position - 1)
                else:
                    raw = raw & 0x7F | high << 7
                    position += 1
            # In zigzag form, rising deltas are even numbers that rise by 2, or by more after a gap of compaction.
            if raw != expected and (raw < expected or raw & 1):
                raise CorruptRecord(f"record {index} of a batch has a lower offset than the record before it")
            expected = raw + 2
            delta: int = raw >> 1
            add_offset(base_offset + delta)

            raw = data[position]
            position += 1
            if raw > 0x7F:
                high = data[position]
                if high > 0x7F:
                    raw, position = read_raw_varint(data, position - 1)
                else:
                    raw = raw & 0x7F | high << 7
                    position += 1
            if raw & 1:
                if raw != 1:
                    raise CorruptRecord(f"record {index} of a batch has a key of negative length")
                add_key(None)
            else:
                begin = position
                position += raw >> 1
                add_key(data[begin:position])

            raw = data[position]
            position += 1
            if raw > 0x7F:
                high = data[position]
                if high > 0x7F:
                    raw, position = read_raw_varint(data, position - 1)
                else:
                    raw = raw & 0x7F | high << 7
                    position += 1
            if raw & 1:
                if raw != 1:
                    raise CorruptRecord(f"record {index} of a batch has a value of negative length")
                add_value(None)
            else:
                begin = position
                position += raw >> 1
                add_value(data[begin:position])

            raw = data[position]
            if raw:
                headers_by_index[index], position = decode_headers(data, position, names, headers_left)
                headers_left -= len(headers_by_index[index])
            else:
                position += 1
            if position != end or end > size:
                raise CorruptRecord(f"record {index} of a batch has a wrong length")
    except IndexError:
        raise CorruptRecord(f"a batch ends in the middle of record {len(values)} of {count}") from None
    except TooManyHeaders as error:
        count = index
        if not count:
            raise CorruptRecord(
                f"the record at offset {offsets[0]} has {error.count} headers; at most {MAX_HEADERS} can be read"
            ) from None
        for column in (offsets, timestamps, keys, values):
            del column[count:]
        # The records before this one are returned. The next call begins with it, and may return as many headers again.
        position = end_of_records(data, count, first_position)
    if append_time is not None:
        timestamps = [append_time] * count
    elif timestamps and (min(timestamps) < _INT64_MIN or max(timestamps) > _INT64_MAX):
        raise CorruptRecord("a timestamp in a batch does not fit in 64 bits")
    headers = [_NO_HEADERS] * count
    for index, of_record in headers_by_index.items():
        headers[index] = of_record
    return RecordColumns(offsets, timestamps, keys, values, headers, MAX_HEADERS - headers_left), position


class TooManyHeaders(Exception):
    """A record has ``count`` headers, more than ``decode_headers`` may return."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def decode_headers(
    data: bytes, position: int, names: dict[bytes, str], limit: int = MAX_HEADERS
) -> tuple[tuple[Header, ...], int]:
    """Decode the headers of one record. ``names`` caches the header keys of the batch.

    Raises TooManyHeaders for more than ``limit``, CorruptRecord for malformed headers, IndexError if ``data`` ends
    early.
    """
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_raw_varint(data, position - 1)
    if raw & 1:
        raise CorruptRecord("a record has a negative number of headers")
    if raw >> 1 > limit:
        raise TooManyHeaders(raw >> 1)
    headers: list[Header] = []
    for _ in range(raw >> 1):  # a header has at least two bytes, so a wrong count soon reaches the end of the data
        raw = data[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_raw_varint(data, position - 1)
        if raw & 1:
            raise CorruptRecord("a header has a key of negative length")
        start = position
        position += raw >> 1
        encoded = data[start:position]
        key = names.get(encoded)
        if key is None:
            # As in Java's client, a key that is not UTF-8 gets replacement characters, so the record can be read.
            key = names[encoded] = encoded.decode("utf-8", "replace")
        raw = data[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_raw_varint(data, position - 1)
        if raw & 1:
            if raw != 1:
                raise CorruptRecord("a header has a value of negative length")
            headers.append(Header(key, None))
        else:
            start = position
            position += raw >> 1
            headers.append(_new_tuple(Header, (key, data[start:position])))
    return tuple(headers), position


def end_of_records(data: Buffer, count: int, position: int = 0) -> int:
    """Return the end of ``count`` records, by their lengths alone. Raises IndexError if the data ends early."""
    for _ in range(count):
        length = data[position]
        position += 1
        if length >= 0x80:
            second = data[position]
            position += 1
            length = length & 0x7F | second << 7
            if second >= 0x80:
                length, position = read_raw_varint(data, position - 2)
        if length & 1 or length < _SMALLEST_LENGTH:
            raise CorruptRecord(f"a record has a length of {length >> 1 ^ -(length & 1)}")
        position += length >> 1
    return position


def record_starts(data: bytes, position: int, count: int, starts: list[int]) -> int:
    """Append the start of each of ``count`` records; return the end of the last one. IndexError beyond ``data``."""
    for _ in range(count):
        starts.append(position)
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

"""Walk the records of a batch without decoding them: offsets, times, keys, and the place of each record.

For a broker, which stores records unchanged. A record's headers are skipped by the record's length, so a million of
them cost nothing. Only lengths are checked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from ...errors import CorruptRecord
from .batch import RecordBatch
from .record_format import SMALLEST_RECORD, Buffer, end_of_records
from .varint import read_raw_varint, read_raw_varlong

RECORDS_A_STEP = 4096
"""The number of records that a check reads, in some milliseconds, before it yields."""


class RecordSpan(NamedTuple):
    """One record of a batch: ``body[start:end]``. ``timestamp`` is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    start: int
    end: int


def scan(batch: RecordBatch, body: Buffer) -> Iterator[RecordSpan]:
    """Yield the records of a batch of format v2, whose decompressed records are ``body``.

    Raises CorruptRecord when it comes to a malformed record.
    """
    data = memoryview(body)
    append_time, base_timestamp, base_offset = batch.append_time, batch.base_timestamp, batch.base_offset
    position, size = 0, len(data)
    try:
        for _ in range(batch.count):
            start = position
            # Most numbers have one byte. A call for each of them would take four times as long.
            raw, position = data[position], position + 1
            if raw > 0x7F:
                raw, position = read_raw_varint(data, position - 1)
            end = position + (raw >> 1)
            if raw & 1 or end > size:
                raise CorruptRecord("a record has a wrong length")
            raw, position = data[position + 1], position + 2  # after the attributes
            if raw > 0x7F:
                raw, position = read_raw_varlong(data, position - 1)
            timestamp = base_timestamp + (raw >> 1 ^ -(raw & 1)) if append_time is None else append_time
            raw, position = data[position], position + 1
            if raw > 0x7F:
                raw, position = read_raw_varint(data, position - 1)
            offset = base_offset + (raw >> 1 ^ -(raw & 1))
            raw, position = data[position], position + 1
            if raw > 0x7F:
                raw, position = read_raw_varint(data, position - 1)
            # In zigzag form an odd number is negative: here -1, the length of null.
            key = None
            if not raw & 1:
                key = bytes(data[position : position + (raw >> 1)])
                position += raw >> 1
            raw, position = data[position], position + 1
            if raw > 0x7F:
                raw, position = read_raw_varint(data, position - 1)
            if position + (0 if raw & 1 else raw >> 1) > end:
                raise CorruptRecord("a key or value is longer than its record")
            # The value and the headers are skipped by the length of the record, whatever they contain.
            yield RecordSpan(offset, timestamp, key, not raw & 1, start, end)
            position = end
    except IndexError:
        raise CorruptRecord("a batch ends in the middle of a record") from None


def checking_lengths(body: Buffer, count: int) -> Generator[None, None, None]:
    """Raise CorruptRecord unless the sum of the lengths of ``count`` records is the size of the body.

    It yields after each ``RECORDS_A_STEP``, so that a caller in an event loop can let other tasks run.
    No record is decoded, so this takes a fifth of the time of decoding. It ends at the first record that is too short:
    a batch of 4 KB can decompress to a hundred million of them.
    """
    end, records_left = 0, count
    # Without this check, a count from the wire could keep the loop busy for records that cannot be there.
    if count * SMALLEST_RECORD > len(body):
        end, records_left = -1, 0
    try:
        while records_left > RECORDS_A_STEP:
            end = end_of_records(body, RECORDS_A_STEP, end)
            records_left -= RECORDS_A_STEP
            yield
        if records_left > 0:
            end = end_of_records(body, records_left, end)
    except IndexError:
        end = -1
    if end != len(body):
        raise CorruptRecord(f"{count} records do not fill {len(body)} bytes")

"""A scan finds what decoding finds, and refuses lengths that are wrong."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.records import RecordBatch, encode_batch, split_batches
from aiokafka_lite.protocol.records.scan import scan
from aiokafka_lite.types import TimestampType

RECORDS = [(1_000, b"key", b"value", (("h", b"x"),)), (2_000, None, None, ()), (500, b"", b"x" * 300, ())]


def batch_of(timestamp_type: TimestampType = TimestampType.CREATE_TIME) -> RecordBatch:
    return split_batches(encode_batch(RECORDS, base_offset=7, timestamp_type=timestamp_type))[0]


@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_a_scan_finds_what_decoding_finds(timestamp_type: TimestampType) -> None:
    batch = batch_of(timestamp_type)
    spans = list(scan(batch, batch.body(1_000)))
    columns = batch.columns(1_000)
    assert [span.offset for span in spans] == columns.offsets == [7, 8, 9]
    assert [span.timestamp for span in spans] == columns.timestamps
    assert [span.key for span in spans] == columns.keys
    assert [span.has_value for span in spans] == [value is not None for value in columns.values]
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(batch.body(1_000))


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"\x0e\0\0\0\1\1\0"[:5], "wrong length"),  # seven bytes, of which four are there
        (b"\x01\0\0\0\1\1\0", "wrong length"),  # a negative length
        (b"\x0c\0\0\0\x0aabcde\1\0", "longer than its record"),  # a key of five bytes in a record of six
        (b"\x0c\0\0\0\1\x0ax", "longer than its record"),  # the same for a value
    ],
)
def test_a_scan_refuses_wrong_lengths(body: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        list(scan(batch_of(), body))

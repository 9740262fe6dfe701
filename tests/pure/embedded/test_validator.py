"""The memory and time of a leader's checks depend on the number of records, not on their size."""

from __future__ import annotations

import time

import pytest

from aiokafka_lite.embedded.log.compaction import compact
from aiokafka_lite.embedded.log.log import Log, StoredBatch
from aiokafka_lite.embedded.log.validator import MAX_RECORD_ERRORS, MAX_RECORDS, RecordsRejected, Validation
from aiokafka_lite.embedded.settings.configs import TopicConfig
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.records import RecordBatch, compress, encode_batch, encode_records
from aiokafka_lite.protocol.records.scan import scan
from aiokafka_lite.types import Compression
from tests.pure.records.test_batch import T, with_records
from tests.pure.records.test_bombs import MB, at_most, batch_of, record

BOMB = 2_000_000
DAY = 86_400_000


def config(**topic: str) -> TopicConfig:
    return TopicConfig.parse({name.replace("_", "."): value for name, value in topic.items()}, {})


def rejected(batch: RecordBatch, settings: TopicConfig, now_ms: int) -> RecordsRejected:
    with pytest.raises(RecordsRejected) as caught:
        Validation(batch, batch.data, settings, now_ms).result()
    return caught.value


def test_a_timestamp_out_of_range_is_found_without_decoding_headers() -> None:
    with at_most(10 * MB):
        refusal = rejected(batch_of(BOMB), config(), T - DAY)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refusal.record_errors] == [0]


def test_a_record_that_is_too_old_is_found_between_newer_records() -> None:
    batch = RecordBatch(encode_batch([(T, None, b"a", ()), (T - 2 * DAY, None, b"b", ()), (T, None, b"c", ())]))
    refusal = rejected(batch, config(message_timestamp_before_max_ms=str(DAY)), T)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refusal.record_errors] == [1]


def test_a_missing_key_is_found_without_decoding_headers() -> None:
    with at_most(10 * MB):
        refusal = rejected(batch_of(BOMB, 0), config(cleanup_policy="compact"), T)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refusal.record_errors] == [0, 1]


def test_recompression_copies_the_records_as_they_are() -> None:
    batch = batch_of(3, BOMB)
    with at_most(20 * MB):
        settings = config(compression_type="lz4")
        stored = RecordBatch(Validation(batch, batch.data, settings, T).result())
    stored.verify_crc()
    assert stored.compression is Compression.LZ4
    assert stored.body() == batch.body()
    assert (stored.count, stored.max_timestamp, stored.last_offset) == (2, batch.max_timestamp, 1)


def test_compaction_keeps_records_without_decoding_headers() -> None:
    keyed = encode_batch([(T, b"a", b"1", [("h", b"1")]), (T + 9, b"b", b"1", [("h", b"2"), ("i", None)])])
    log = Log(segment_bytes=1)
    bomb = batch_of(BOMB)
    for data, last in ((keyed, 1), (bytes(bomb.data), 0), (encode_batch([(T, b"b", b"2", ())]), 0)):
        base = log.end_offset
        log.append(StoredBatch(base, base + last, T + 9, 0, base.to_bytes(8, "big") + data[8:]))
    log.append(StoredBatch(4, 4, T, 0, encode_batch([(T, b"z", b"", ())], base_offset=4)))
    log.advance_high_watermark(log.end_offset)
    with at_most(10 * MB):
        assert compact(log, log.high_watermark, now_ms=T, delete_retention_ms=DAY)
    first = next(log.batches())
    kept = first.view()
    kept.verify_crc()
    columns = kept.columns()
    assert (columns.offsets, columns.keys, columns.timestamps) == ([0], [b"a"], [T])
    assert [(header.key, header.value) for header in columns.headers[0]] == [("h", b"1")]
    assert (kept.last_offset, first.max_timestamp, kept.max_timestamp) == (1, T, T)
    assert [record.key for batch in log.batches() for record in batch.scan()] == [b"a", b"b", b"z"]


@pytest.mark.parametrize("count", [2**31 - 1, 4_000_000])
def test_records_that_are_too_short_are_refused_at_the_first_one(count: int) -> None:
    """A batch of 1 KB decompresses to 32 MiB of records with the length 0."""
    body = compress(Compression.ZSTD, bytes(32 * MB))
    began = time.process_time()
    refusal = rejected(RecordBatch(with_records(body, count, Compression.ZSTD)), config(), T)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert time.process_time() - began < 1.0


def test_a_batch_with_too_many_records_is_refused() -> None:
    count = MAX_RECORDS + 1
    body = compress(Compression.ZSTD, record(0, 0) * count)
    refusal = rejected(RecordBatch(with_records(body, count, Compression.ZSTD)), config(), T)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert (
        str(refusal) == f"the batch has {count} records; the embedded broker accepts at most {MAX_RECORDS} in a batch"
    )


def test_a_response_lists_a_bounded_number_of_records() -> None:
    count = 3 * MAX_RECORD_ERRORS
    body = bytes(encode_records(T, [T] * count, [None] * count, [None] * count))
    refusal = rejected(RecordBatch(with_records(body, count)), config(), T - DAY)
    assert len(refusal.record_errors) == MAX_RECORD_ERRORS


def test_a_scan_finds_what_decoding_finds() -> None:
    data = encode_batch(
        [
            (T + i, b"k" * i if i % 3 else None, b"v" * i if i % 2 else None, [("h", b"x")] * (i % 4))
            for i in range(300)
        ],
        base_offset=70,
    )
    batch = RecordBatch(data)
    columns = batch.columns()
    spans = list(scan(batch, batch.body()))
    assert [span.offset for span in spans] == columns.offsets
    assert [span.timestamp for span in spans] == columns.timestamps
    assert [span.key for span in spans] == columns.keys
    assert [span.has_value for span in spans] == [value is not None for value in columns.values]
    assert b"".join(batch.body()[span.start : span.end] for span in spans) == batch.body()

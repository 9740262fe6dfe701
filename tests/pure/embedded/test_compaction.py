"""Compaction keeps the last record of each key at its offset."""

from __future__ import annotations

from aiokafka_lite.embedded.log.compaction import compact
from aiokafka_lite.embedded.log.log import Log, StoredBatch
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.types import Compression

Row = tuple[bytes, bytes | None]


def log_of(*batches: list[Row], segment_bytes: int = 1, compression: Compression = Compression.NONE) -> Log:
    log = Log(segment_bytes)
    for rows in batches:
        base = log.end_offset
        data = encode_batch(
            [(1000 + base, key, value, ()) for key, value in rows], base_offset=base, compression=compression
        )
        log.append(StoredBatch(base, base + len(rows) - 1, 1000 + base, 0, data))
    log.advance_high_watermark(log.end_offset)
    return log


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    records = []
    for batch in split_batches(log.read(0, 10**6, log.end_offset)):
        batch.verify_crc()
        columns = batch.columns()
        records += [(o, k, v) for o, k, v in zip(columns.offsets, columns.keys, columns.values, strict=True)]
    return records


def test_replaced_records_are_removed_and_others_keep_their_offsets() -> None:
    log = log_of([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], [(b"a", b"2")], [(b"c", b"2")])
    assert compact(log, log.high_watermark, now_ms=0, delete_retention_ms=10**9)
    assert contents(log) == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"2")]
    assert (log.start_offset, log.end_offset) == (0, 5)
    assert not compact(log, log.high_watermark, now_ms=0, delete_retention_ms=10**9)


def test_the_active_segment_and_records_above_the_high_watermark_stay() -> None:
    log = log_of([(b"a", b"1")], [(b"a", b"2")], [(b"a", b"3")], [(b"a", b"4")])
    log.high_watermark = 2
    compact(log, log.high_watermark, now_ms=0, delete_retention_ms=10**9)
    # A record above the high watermark may still be lost, so it replaces no other one.
    assert [offset for offset, _, _ in contents(log)] == [1, 2, 3]


def test_aborted_and_open_records_do_not_replace_committed_ones() -> None:
    log = log_of([(b"a", b"1")], [(b"a", b"aborted")], [(b"a", b"open")], [(b"z", b"")])
    aborted = {1}
    assert compact(log, 2, now_ms=0, delete_retention_ms=10**9, is_aborted=lambda batch: batch.base_offset in aborted)
    assert contents(log) == [(0, b"a", b"1"), (2, b"a", b"open"), (3, b"z", b"")]


def test_tombstones_stay_for_their_time() -> None:
    log = log_of([(b"a", b"1")], [(b"a", None)], [(b"z", b"")])
    compact(log, log.high_watermark, now_ms=1001, delete_retention_ms=10)
    assert [offset for offset, _, _ in contents(log)] == [1, 2]
    compact(log, log.high_watermark, now_ms=1012, delete_retention_ms=10)
    assert [offset for offset, _, _ in contents(log)] == [2]


def test_compressed_batches_stay_compressed() -> None:
    log = log_of([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")], compression=Compression.LZ4)
    compact(log, log.high_watermark, now_ms=0, delete_retention_ms=10**9)
    assert next(log.batches()).view().compression is Compression.LZ4
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_a_read_from_a_gap_continues_after_it() -> None:
    log = log_of([(b"a", b"1")], [(b"a", b"2")], [(b"b", b"1")])
    compact(log, log.high_watermark, now_ms=0, delete_retention_ms=10**9)
    (batch, *_) = split_batches(log.read(0, 10**6, 3))
    assert batch.base_offset == 1

"""Batches of format v2: building, headers, splitting a fetch, reading, and refusing."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from crc32c import crc32c

from aiokafka_lite.errors import ConfigurationError, CorruptRecord
from aiokafka_lite.protocol.records import (
    HEADER_SIZE,
    BatchBuilder,
    RecordBatch,
    RecordColumns,
    encode_batch,
    encode_records,
    rewrite_header,
    split_batches,
)
from aiokafka_lite.protocol.records.produced import single_batch, why_not_produced
from aiokafka_lite.protocol.records.scan import checking_lengths
from aiokafka_lite.types import Compression, Header, TimestampType

T = 1700000000000
# Made with kafka-python 3.0.12's MemoryRecordsBuilder: producer 4660, epoch 22, sequence 7, and the rows below.
GOLDEN = bytes.fromhex(
    "00000000000000000000005e0000000002e6d2ca7e0000000000020000018bcfe568000000018bcfe568fa000000000000123400160000000700"
    "0000033a000000066b65790a76616c7565040a7472616365040102086e6f6e65010e00f403020100000c000104000100"
)
ROWS = [
    (T, b"key", b"value", (Header("trace", b"\1\2"), Header("none", None))),
    (T + 250, None, b"", ()),
    (T - 1, b"", None, ()),
]


def rows(columns: RecordColumns) -> list[tuple[int, bytes | None, bytes | None, tuple[Header, ...]]]:
    return list(zip(columns.timestamps, columns.keys, columns.values, columns.headers, strict=True))


def with_field(batch: bytes, at: int, form: str, value: int) -> bytes:
    """Return the batch with another number in its header and a correct checksum."""
    changed = bytearray(batch)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def with_records(records: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    """Return a valid batch with these bytes as its records."""
    head = struct.pack(">hiqqqhii", codec, max(count - 1, 0), T, T, -1, -1, -1, count)
    return struct.pack(">qiibI", 0, 49 + len(records), -1, 2, crc32c(head + records)) + head + records


def plain(count: int, **more: object) -> bytes:
    return encode_batch([(T + i, b"k%d" % i, b"v" * (i % 50), ()) for i in range(count)], **more)  # type: ignore[arg-type]


class TestBuilding:
    def test_batch_is_byte_for_byte_the_golden_one(self) -> None:
        builder = BatchBuilder()
        for row in ROWS:
            assert builder.append(*row)
        assert builder.build(4660, 22, 7, leader_epoch=0) == GOLDEN
        assert encode_batch(ROWS, producer_id=4660, producer_epoch=22, base_sequence=7, leader_epoch=0) == GOLDEN

    def test_first_record_always_fits_and_the_next_only_within_the_size(self) -> None:
        builder = BatchBuilder(max_size=100)
        assert builder.append(T, None, b"x" * 1000)
        assert not builder.append(T, None, None)
        assert (builder.count, builder.size) == (1, HEADER_SIZE + 1009)

    def test_a_batch_never_exceeds_its_size(self) -> None:
        builder = BatchBuilder(max_size=1000)
        while builder.append(T, b"key", b"value"):
            pass
        assert 1000 - 16 < builder.size <= 1000
        assert len(builder.build()) == builder.size
        assert builder.count == RecordBatch(builder.build()).count

    def test_a_refused_record_leaves_the_batch_unchanged(self) -> None:
        builder = BatchBuilder(max_size=200)
        builder.append(T, None, b"a")
        assert not builder.append(T + 99, None, b"x" * 200)
        with pytest.raises(TypeError):
            builder.append(T, None, "text")  # type: ignore[arg-type]
        assert builder.append(T + 1, None, b"b")
        assert rows(RecordBatch(builder.build()).columns()) == [(T, None, b"a", ()), (T + 1, None, b"b", ())]
        assert RecordBatch(builder.build()).max_timestamp == builder.max_timestamp == T + 1

    def test_a_timestamp_too_far_from_the_first_is_refused_and_leaves_the_batch_unchanged(self) -> None:
        builder = BatchBuilder()
        builder.append(-1, None, b"a")
        with pytest.raises(ValueError, match="64 bits"):
            builder.append((1 << 63) - 1, None, b"b")
        assert builder.append((1 << 63) - 2, None, b"c")
        assert RecordBatch(builder.build()).columns().timestamps == [-1, (1 << 63) - 2]

    def test_type_error_on_the_first_record_leaves_the_batch_empty(self) -> None:
        builder = BatchBuilder()
        with pytest.raises(TypeError):
            builder.append(T, 5, None)  # type: ignore[arg-type]
        assert (builder.count, builder.max_timestamp, builder.size) == (0, -1, HEADER_SIZE)

    @pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
    def test_building_again_only_changes_the_header(self, codec: Compression) -> None:
        if codec is Compression.SNAPPY:
            pytest.importorskip("cramjam")
        builder = BatchBuilder(codec)
        for number in range(200):
            builder.append(T, None, b"value %d" % number)
        first = bytes(builder.build(1, 2, 3))
        second = bytes(builder.build(9, 8, 7, transactional=True, leader_epoch=6, base_offset=5))
        assert builder.build(1, 2, 3) == first
        assert len(first) == builder.size
        assert builder.uncompressed_size > 2000
        batch = RecordBatch(second)
        batch.verify_crc()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 8, 7)
        assert (batch.base_offset, batch.leader_epoch, batch.last_offset) == (5, 6, 204)
        assert batch.is_transactional
        assert not batch.is_control
        assert batch.compression is codec
        assert rows(batch.columns()) == rows(RecordBatch(first).columns())

    def test_a_built_batch_accepts_no_record(self) -> None:
        for codec in (Compression.NONE, Compression.GZIP):
            for fill in (0, 50):
                builder = BatchBuilder(codec)
                for _ in range(fill):
                    builder.append(T, None, b"value")
                builder.build()
                assert not builder.append(T, None, b"late")
                assert builder.count == fill

    def test_incompressible_records_stay_uncompressed(self) -> None:
        builder = BatchBuilder(Compression.ZSTD)
        builder.append(T, None, random.Random(1).randbytes(5000))
        data = builder.build()
        assert RecordBatch(data).compression is Compression.NONE
        assert len(data) == builder.size == builder.uncompressed_size

    def test_a_compressed_batch_takes_more_records_by_its_ratio(self) -> None:
        counts = []
        for ratio in (1.0, 0.25):
            builder = BatchBuilder(Compression.ZSTD, max_size=4096, ratio=ratio)
            while builder.append(T, None, b"value"):
                pass
            assert 4096 - 20 < builder.size <= 4096
            counts.append(builder.count)
        assert counts[1] > 3.9 * counts[0]

    def test_bad_level_is_refused_before_any_record(self) -> None:
        with pytest.raises(ConfigurationError, match="0 to 9"):
            BatchBuilder(Compression.GZIP, level=42)

    def test_control_bit(self) -> None:
        batch = RecordBatch(encode_batch([(T, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], control=True, transactional=True))
        assert batch.is_control
        assert batch.is_transactional
        assert repr(batch).endswith(" transactional control>")


class TestReading:
    def test_golden_batch(self) -> None:
        [batch] = split_batches(memoryview(GOLDEN))
        batch.verify_crc()
        assert rows(batch.columns()) == ROWS
        assert batch.columns().offsets == [0, 1, 2]
        assert (batch.base_timestamp, batch.max_timestamp) == (T, T + 250)
        assert (batch.size, batch.count, batch.next_offset, batch.magic) == (len(GOLDEN), 3, 3, 2)
        assert batch.timestamp_type is TimestampType.CREATE_TIME
        assert bytes(batch.data) == GOLDEN

    def test_batch_cut_off_at_the_end_is_left_out_wherever_it_is_cut(self) -> None:
        for end in range(len(GOLDEN)):
            assert split_batches(GOLDEN[:end]) == []
            assert [batch.size for batch in split_batches(GOLDEN + GOLDEN[:end])] == [len(GOLDEN)]

    def test_one_buffer_is_split_into_many_batches(self) -> None:
        data = b"".join(plain(count, base_offset=100 * count) for count in range(1, 30))
        batches = split_batches(memoryview(b"head" + data)[4:])
        assert [batch.base_offset for batch in batches] == list(range(100, 3000, 100))
        assert [len(batch.columns()) for batch in batches] == list(range(1, 30))

    def test_garbage_after_good_batches_waits_for_the_next_fetch(self) -> None:
        good, bad = plain(3), b"\xff" * 80
        assert len(split_batches(good + bad + good)) == 1
        with pytest.raises(CorruptRecord):
            split_batches(bad + good)

    def test_log_append_time_is_that_of_all_records(self) -> None:
        stored = rewrite_header(GOLDEN, 1000, 5, log_append_time=T + 77)
        batch = RecordBatch(stored)
        batch.verify_crc()
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert batch.columns().timestamps == [T + 77] * 3
        assert (batch.columns().offsets, batch.leader_epoch, batch.max_timestamp) == ([1000, 1001, 1002], 5, T + 77)
        assert batch.producer_id == 4660

    def test_assigning_an_offset_keeps_the_checksum(self) -> None:
        stored = rewrite_header(memoryview(b"x" + GOLDEN)[1:], 1 << 40, 5)
        assert (stored[:8], stored[12:16], stored[16:]) == (
            struct.pack(">q", 1 << 40),
            struct.pack(">i", 5),
            GOLDEN[16:],
        )
        RecordBatch(stored).verify_crc()

    def test_compacted_batch_has_gaps_and_ends_where_it_ended(self) -> None:
        data = encode_batch(ROWS, base_offset=50, offset_deltas=[2, 3, 7], last_offset_delta=9)
        batch = RecordBatch(data)
        assert batch.columns().offsets == [52, 53, 57]
        assert (batch.last_offset, batch.next_offset) == (59, 60)

    @pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
    def test_an_empty_batch_of_compaction_has_a_next_offset(self, codec: Compression) -> None:
        batch = RecordBatch(encode_batch([], base_offset=50, last_offset_delta=9, compression=codec))
        batch.verify_crc()
        assert (len(batch.columns()), batch.count, batch.next_offset) == (0, 0, 60)

    def test_delete_horizon_is_tolerated(self) -> None:
        batch = RecordBatch(with_field(GOLDEN, 21, ">h", 0x40 | 0x10))
        assert rows(batch.columns()) == ROWS

    def test_chunks_have_at_most_the_requested_number_of_records(self) -> None:
        batch = RecordBatch(plain(1000, compression=Compression.ZSTD, base_offset=7))
        chunks = list(batch.chunks(max_records=300))
        assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
        assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(7, 1007))
        whole = batch.columns()
        assert [row for chunk in chunks for row in rows(chunk)] == rows(whole)

    def test_more_records_than_a_chunk_are_joined(self) -> None:
        count = (1 << 14) + 10
        data = with_records(bytes(encode_records(T, [T] * count, [None] * count, [b"x"] * count)), count)
        assert RecordBatch(data).columns().offsets == list(range(count))

    def test_changed_byte_is_found_by_the_checksum_or_the_header(self) -> None:
        for at in (*range(8, 12), *range(16, len(GOLDEN))):
            damaged = bytearray(GOLDEN)
            damaged[at] ^= 0x10
            with pytest.raises(CorruptRecord):
                RecordBatch(damaged).verify_crc()

    def test_a_wrong_checksum_names_the_offset(self) -> None:
        damaged = rewrite_header(GOLDEN[:-1] + b"\1", 4321, 0)
        with pytest.raises(CorruptRecord, match="batch at offset 4321: its checksum") as caught:
            RecordBatch(damaged).verify_crc()
        assert caught.value.offset == 4321


HEADER_LIES = {
    "length negative": (8, ">i", -1),
    "length zero": (8, ">i", 0),
    "length less than the header": (8, ">i", 48),
    "format 3": (16, ">b", 3),
    "format -1": (16, ">b", -1),
    "base offset negative": (0, ">q", -1),
    "last offset delta negative": (23, ">i", -1),
    "offsets over 64 bits": (0, ">q", (1 << 63) - 1),
}
RECORD_LIES = {
    "codec 5": (21, ">h", 5),
    "codec 7": (21, ">h", 7),
    "count negative": (57, ">i", -1),
    "count one less": (57, ">i", 2),
    "count one more": (57, ">i", 4),
    "count of 2**31 - 1": (57, ">i", (1 << 31) - 1),
    "count zero with records": (57, ">i", 0),
    "last offset before the last record": (23, ">i", 1),
    "plain records called gzip": (21, ">h", 1),
    "plain records called lz4": (21, ">h", 3),
    "plain records called zstd": (21, ">h", 4),
    "base timestamp that overflows": (27, ">q", (1 << 63) - 1),
}


class TestMalformedBatches:
    @pytest.mark.parametrize("at, form, value", HEADER_LIES.values(), ids=HEADER_LIES)
    def test_a_malformed_header_is_corrupt(self, at: int, form: str, value: int) -> None:
        data = with_field(GOLDEN, at, form, value)
        with pytest.raises(CorruptRecord):
            split_batches(data)
        with pytest.raises(CorruptRecord):
            RecordBatch(data)

    def test_length_past_the_end_is_a_partial_batch(self) -> None:
        assert split_batches(with_field(GOLDEN, 8, ">i", (1 << 31) - 1)) == []

    @pytest.mark.parametrize("at, form, value", RECORD_LIES.values(), ids=RECORD_LIES)
    def test_a_malformed_record_is_corrupt_and_other_batches_are_read(self, at: int, form: str, value: int) -> None:
        liar = rewrite_header(with_field(GOLDEN, at, form, value), 100, 0)
        before, batch, after = split_batches(plain(3) + liar + plain(3))
        batch.verify_crc()
        with pytest.raises(CorruptRecord, match="batch at offset 100: ") as caught:
            batch.columns()
        assert caught.value.offset == 100
        assert len(before.columns()) == len(after.columns()) == 3

    def test_the_last_chunk_is_not_returned_if_bytes_follow_it(self) -> None:
        data = with_records(bytes(encode_records(T, [T, T], [None] * 2, [b"x"] * 2)) + b"more", 2)
        seen: list[RecordColumns] = []
        with pytest.raises(CorruptRecord, match="it has 4 bytes after its last record"):
            seen.extend(RecordBatch(data).chunks(max_records=1))
        assert [chunk.offsets for chunk in seen] == [[0]]

    def test_offsets_must_increase_from_one_chunk_to_the_next(self) -> None:
        nothing = [None] * 4
        data = with_records(bytes(encode_records(T, [T] * 4, nothing, nothing, offset_deltas=[0, 1, 1, 2])), 4)
        with pytest.raises(CorruptRecord, match="lower offset than the record before it"):
            list(RecordBatch(data).chunks(max_records=2))

    def test_no_memory_is_allocated_for_a_wrong_count(self) -> None:
        liar = RecordBatch(with_field(plain(1000), 57, ">i", (1 << 31) - 1))
        tracemalloc.start()
        try:
            with pytest.raises(CorruptRecord):
                liar.columns()
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()

    def test_a_batch_of_many_empty_records_is_read_in_little_memory(self) -> None:
        count = 20_000
        nothing = [None] * count
        data = with_records(bytes(encode_records(T, [T] * count, nothing, nothing)), count)
        batch = RecordBatch(data)
        tracemalloc.start()
        try:
            assert sum(len(chunk) for chunk in batch.chunks(max_records=1000)) == count
            assert tracemalloc.get_traced_memory()[1] < len(data) + (1 << 20)
        finally:
            tracemalloc.stop()

    def test_bomb_names_the_setting(self) -> None:
        batch = RecordBatch(encode_batch([(T, None, bytes(5 << 20), ())], compression=Compression.GZIP, base_offset=9))
        with pytest.raises(CorruptRecord, match=r"offset 9: .*max_decompressed_size"):
            batch.columns(max_decompressed_size=1 << 20)


class TestForABroker:
    def test_batch_of_a_client_has_the_right_shape(self) -> None:
        batch = single_batch(GOLDEN)
        assert why_not_produced(batch) is why_not_produced(batch, batch.columns()) is None

    @pytest.mark.parametrize("data", [b"", GOLDEN[:-1], GOLDEN + b"\0", GOLDEN + GOLDEN, b"\xff" * 99])
    def test_records_that_are_not_one_whole_batch_are_corrupt(self, data: bytes) -> None:
        with pytest.raises(CorruptRecord):
            single_batch(data)

    @pytest.mark.parametrize(
        "data, why",
        [
            (encode_batch(ROWS, control=True), "control"),
            (encode_batch([]), "0 records"),
            (encode_batch(ROWS, last_offset_delta=5), "3 records do not fill offsets 0 to 5"),
            (encode_batch(ROWS, producer_id=5, producer_epoch=0), "sequence -1"),
            (encode_batch(ROWS, transactional=True), "needs a producer id"),
        ],
    )
    def test_shape_that_no_client_may_write_is_named(self, data: bytes, why: str) -> None:
        assert why in (why_not_produced(single_batch(data)) or "")

    def test_gaps_between_records_are_found_with_the_columns(self) -> None:
        batch = single_batch(with_field(encode_batch(ROWS, offset_deltas=[0, 2, 3]), 23, ">i", 2))
        assert why_not_produced(batch) is None
        columns = RecordColumns([0, 2, 3], [T] * 3, [None] * 3, [None] * 3, [()] * 3)
        assert why_not_produced(batch, columns) == "the records' offsets have gaps"

    def test_old_format_may_not_be_written(self) -> None:
        message = struct.pack(">qiIbbii", 0, 14, 0, 0, 0, -1, -1)
        assert "format v0" in (why_not_produced(single_batch(message)) or "")

    @pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
    def test_records_must_fill_their_batch(self, compression: Compression) -> None:
        rows = [(T, None, b"x" * size, ()) for size in (0, 50, 70, 8000, 9000)]
        body = RecordBatch(encode_batch(rows, compression=compression)).body()
        list(checking_lengths(body, len(rows)))
        for wrong, count in ((body, 4), (body, 6), (bytes(body) + b"\0", 5), (body[:-1], 5), (b"\1\0", 1)):
            with pytest.raises(CorruptRecord):
                list(checking_lengths(wrong, count))

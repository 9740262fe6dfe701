"""Formats v0 and v1 of old log segments."""

from __future__ import annotations

import gzip
import struct
import zlib

import lz4.frame
import pytest

from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.records import RecordBatch, compress, split_batches
from aiokafka_lite.protocol.records.legacy import with_right_lz4_header, xxh32_of_short
from aiokafka_lite.types import Compression, TimestampType

T = 1700000000000
# Made with kafka-python 3.0.12's MemoryRecordsBuilder from three records, (T, b"key", b"value"), (T + 250, null, b"")
# and (T + 999, b"", null).
GOLDEN_V0 = bytes.fromhex(
    "0000000000000000000000162356c1370000000000036b65790000000576616c756500000000000000010000000e795748e00000ffffffff"
    "0000000000000000000000020000000e3d314895000000000000ffffffff"
)
GOLDEN_V1 = bytes.fromhex(
    "00000000000000000000001e6ad05db801000000018bcfe56800000000036b65790000000576616c75650000000000000001000000167d8267"
    "fc01000000018bcfe568faffffffff000000000000000000000002000000168f5c79ac01000000018bcfe56be700000000ffffffff"
)
GOLDEN_V1_GZIP = bytes.fromhex(
    "000000000000000000000069bc8beaa701010000000000000000ffffffff000000531f8b080041e5006b02ff63608003b9ac0bb13b18810cc6"
    "eef34f334022ccd9a995408ab52c31a73415aa0aa440acb629fd0f5ce5afff408030868109a4a23fa6720d4c45f6739030481500cdc5058f6e"
    "000000"
)
KEYS, VALUES = [b"key", None, b""], [b"value", b"", None]


def message(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp: int = T,
    codec: Compression = Compression.NONE,
    log_append_time: bool = False,
) -> bytes:
    body = struct.pack(">bb", magic, codec | 8 * log_append_time)
    if magic:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(magic: int, offset: int, messages: bytes, codec: Compression = Compression.GZIP, **more: object) -> bytes:
    packed = gzip.compress(messages) if codec is Compression.GZIP else compress(codec, messages)
    return message(magic, offset, None, packed, codec=codec, **more)  # type: ignore[arg-type]


def test_golden_messages_are_read_and_rebuilt() -> None:
    for golden, magic, times in ((GOLDEN_V0, 0, [-1, -1, -1]), (GOLDEN_V1, 1, [T, T + 250, T + 999])):
        batches = split_batches(golden)
        for batch, offset, time, key, value in zip(batches, range(3), times, KEYS, VALUES, strict=True):
            batch.verify_crc()
            columns = batch.columns()
            assert (columns.offsets, columns.timestamps) == ([offset], [time])
            assert (columns.keys, columns.values, columns.headers) == ([key], [value], [()])
            assert (batch.base_offset, batch.last_offset, batch.count, batch.magic) == (offset, offset, 1, magic)
            assert (batch.leader_epoch, batch.producer_id, batch.base_sequence) == (-1, -1, -1)
        rebuilt = [
            message(magic, offset, key, value, timestamp=time)
            for offset, time, key, value in zip(range(3), times, KEYS, VALUES)
        ]
        assert b"".join(rebuilt) == golden
    assert [batch.timestamp_type for batch in split_batches(GOLDEN_V0 + GOLDEN_V1)] == [
        *[TimestampType.NONE] * 3,
        *[TimestampType.CREATE_TIME] * 3,
    ]


def test_golden_wrapper_is_numbered_from_its_last_offset() -> None:
    stored = struct.pack(">q", 1002) + GOLDEN_V1_GZIP[8:]
    [batch] = split_batches(stored)
    batch.verify_crc()
    columns = batch.columns()
    assert columns.offsets == [1000, 1001, 1002]
    assert (columns.keys, columns.values) == (KEYS, VALUES)
    assert columns.timestamps == [T, T + 250, T + 999]
    assert (batch.last_offset, batch.next_offset, batch.count) == (1002, 1003, -1)
    assert batch.compression is Compression.GZIP


def test_offsets_in_a_v0_wrapper_are_absolute() -> None:
    inner = message(0, 50, b"a", b"1") + message(0, 57, b"b", b"2")
    for last in (57, 60):
        assert split_batches(wrapper(0, last, inner))[0].columns().offsets == [50, 57]
    with pytest.raises(CorruptRecord):
        split_batches(wrapper(0, 56, inner))[0].columns()


def test_offsets_in_a_compacted_v1_wrapper_keep_their_gaps() -> None:
    inner = message(1, 3, b"a", b"1") + message(1, 9, b"b", b"2")
    assert split_batches(wrapper(1, 109, inner))[0].columns().offsets == [103, 109]


def test_log_append_time_of_a_wrapper_is_that_of_all_its_messages() -> None:
    inner = message(1, 0, b"a", b"1", timestamp=1) + message(1, 1, b"b", b"2", timestamp=2)
    [batch] = split_batches(wrapper(1, 11, inner, timestamp=T, log_append_time=True))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.columns().timestamps == [T, T]
    [plain] = split_batches(message(1, 5, None, b"x", log_append_time=True))
    assert plain.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4], ids=lambda codec: codec.name)
@pytest.mark.parametrize("magic", [0, 1])
def test_each_codec_decompresses(codec: Compression, magic: int) -> None:
    if codec is Compression.SNAPPY:
        pytest.importorskip("cramjam")
    inner = b"".join(message(magic, offset, None, b"%d" % offset) for offset in range(100))
    [batch] = split_batches(wrapper(magic, 99, inner, codec))
    assert batch.columns().values == [b"%d" % offset for offset in range(100)]


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
def test_lz4_frame_of_the_first_clients_is_read(magic: int, store_size: bool) -> None:
    frame = bytearray(lz4.frame.compress(message(magic, 0, None, b"old" * 50), store_size=store_size))
    at = 14 if store_size else 6
    right = frame[at]
    # The old mistake: the magic number is hashed too. (With a content size that is longer than 15 bytes; any wrong
    # value will do there.)
    frame[at] = right ^ 0x55 if store_size else xxh32_of_short(bytes(frame[:at])) >> 8 & 0xFF
    assert frame[at] != right
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(bytes(frame))
    [batch] = split_batches(message(magic, 0, None, bytes(frame), codec=Compression.LZ4))
    batch.verify_crc()
    assert batch.columns().values == [b"old" * 50]


# Vectors of the reference implementation and of its ports.
@pytest.mark.parametrize("data, expected", [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32_of_known_input(data: bytes, expected: int) -> None:
    assert xxh32_of_short(data) == expected


def test_header_checksum_is_the_one_that_lz4_writes() -> None:
    for size in range(0, 3000, 7):
        for block_size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
            frame = lz4.frame.compress(bytes(size), store_size=size % 2 == 0, block_size=block_size)
            assert with_right_lz4_header(frame) == frame


def test_partial_message_at_the_end_is_left_out() -> None:
    for golden in (GOLDEN_V0, GOLDEN_V1):
        sizes = [batch.size for batch in split_batches(golden)]
        for end in range(len(golden)):
            whole = sum(end >= sum(sizes[: count + 1]) for count in range(3))
            assert len(split_batches(golden[:end])) == whole


def test_old_and_new_formats_may_follow_each_other() -> None:
    data = GOLDEN_V0 + GOLDEN_V1
    assert [batch.magic for batch in split_batches(memoryview(data))] == [0, 0, 0, 1, 1, 1]


def test_changed_byte_is_found_by_the_checksum() -> None:
    for at in range(16, len(GOLDEN_V1_GZIP)):
        damaged = bytearray(GOLDEN_V1_GZIP)
        damaged[at] ^= 0x40
        with pytest.raises(CorruptRecord):
            RecordBatch(damaged).verify_crc()


GOOD = message(1, 0, None, b"x")
BROKEN_INSIDE = {
    "nothing": b"",
    "half a message": GOOD[:-1],
    "bytes after the last": GOOD + b"\0\0\0",
    "compressed once more": wrapper(1, 0, GOOD),
    "the other format": message(0, 0, None, b"x"),
    "the new format": b"\0" * 16 + b"\2" + b"\0" * 60,
    "offsets that go back": message(1, 1, None, b"x") + GOOD,
    "offset over the wrapper's": message(1, 9, None, b"x"),
    "negative offset": message(1, -5, None, b"x"),
    "size of 2 GiB": GOOD[:8] + b"\x7f\xff\xff\xff" + GOOD[12:],
    "negative size": GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:],
    "key of 2 GiB": GOOD[:26] + b"\x7f\xff\xff\xff" + GOOD[30:],
    "key of -2": GOOD[:26] + b"\xff\xff\xff\xfe" + GOOD[30:],
    "value of 2 GiB": GOOD[:30] + b"\x7f\xff\xff\xff" + GOOD[34:],
    "value of -2": GOOD[:30] + b"\xff\xff\xff\xfe" + GOOD[34:],
    "value that leaves bytes": GOOD[:30] + b"\0\0\0\0" + GOOD[34:],
}


@pytest.mark.parametrize("inner", BROKEN_INSIDE.values(), ids=BROKEN_INSIDE)
def test_wrapper_with_malformed_content_is_corrupt(inner: bytes) -> None:
    [batch] = split_batches(wrapper(1, 3, inner))
    with pytest.raises(CorruptRecord) as caught:
        batch.columns()
    assert caught.value.offset == 3


def test_wrapper_with_garbage_or_nothing_for_a_value_is_corrupt() -> None:
    for codec in (1, 2, 3, 4, 7):
        if codec == Compression.SNAPPY:
            pytest.importorskip("cramjam")
        for value in (None, b"", b"garbage", b"\x04\x22\x4d\x18garbage"):
            data = message(1, 0, None, value, codec=codec)  # type: ignore[arg-type]
            with pytest.raises(CorruptRecord):
                RecordBatch(data).columns()


def test_plain_message_with_wrong_lengths_is_corrupt() -> None:
    for name in ("key of 2 GiB", "key of -2", "value of 2 GiB", "value of -2", "value that leaves bytes"):
        with pytest.raises(CorruptRecord):
            RecordBatch(BROKEN_INSIDE[name]).columns()

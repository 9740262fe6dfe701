"""This client and other Python clients read each other's batches, in each compression and format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from aiokafka_lite.protocol.records import BatchBuilder, encode_batch, split_batches
from aiokafka_lite.types import Compression, Header

T = 1700000000000
ROWS: list[tuple[int, bytes | None, bytes | None, tuple[Header, ...]]] = [
    (T + number * 37 % 1000, b"key %d" % number if number % 3 else None, b"some value " * (number % 40), ())
    for number in range(300)
]
ROWS[5] = (T - 5, b"k", None, (Header("a", b"1"), Header("a", None), Header("grüße", b"x" * 200)))
LEGACY_ROWS = [(time, key, value, ()) for time, key, value, _ in ROWS]


class Peer(NamedTuple):
    """The parts of another client. ``batch`` makes a builder of format v2, ``legacy`` one of the other formats."""

    batch: Callable[..., Any]
    legacy: Callable[..., Any]
    read: Callable[[bytes], Any]
    codec: Any


def kafka_python() -> Peer:
    default = pytest.importorskip("kafka.record.default_records")
    legacy = pytest.importorskip("kafka.record.legacy_records")
    memory = pytest.importorskip("kafka.record.memory_records")
    codec = pytest.importorskip("kafka.codec")
    return Peer(default.DefaultRecordBatchBuilder, legacy.LegacyRecordBatchBuilder, memory.MemoryRecords, codec)


def aiokafka() -> Peer:
    default = pytest.importorskip("aiokafka.record.default_records")
    legacy = pytest.importorskip("aiokafka.record.legacy_records")
    memory = pytest.importorskip("aiokafka.record.memory_records")
    codec = pytest.importorskip("aiokafka.codec")
    return Peer(default.DefaultRecordBatchBuilder, legacy.LegacyRecordBatchBuilder, memory.MemoryRecords, codec)


def aiokafka_in_python() -> Peer:
    default = pytest.importorskip("aiokafka.record.default_records")
    legacy = pytest.importorskip("aiokafka.record.legacy_records")
    memory = pytest.importorskip("aiokafka.record.memory_records")
    codec = pytest.importorskip("aiokafka.codec")
    return Peer(
        default._DefaultRecordBatchBuilderPy, legacy._LegacyRecordBatchBuilderPy, memory._MemoryRecordsPy, codec
    )


@pytest.fixture(params=[kafka_python, aiokafka, aiokafka_in_python], ids=lambda make: make.__name__)
def peer(request: pytest.FixtureRequest) -> Peer:
    peer: Peer = request.param()
    return peer


@pytest.fixture(params=Compression, ids=lambda codec: codec.name.lower())
def codec(request: pytest.FixtureRequest, peer: Peer) -> Compression:
    chosen: Compression = request.param
    if chosen is Compression.SNAPPY:
        pytest.importorskip("cramjam")
    if chosen is not Compression.NONE and not getattr(peer.codec, f"has_{chosen.name.lower()}")():
        pytest.skip(f"the other client lacks a package for {chosen.name.lower()}")
    return chosen


def built_by(peer: Peer, codec: Compression) -> bytes:
    builder = peer.batch(2, int(codec), True, 77, 3, 9, 1 << 24)
    for offset, (time, key, value, headers) in enumerate(ROWS):
        assert builder.append(offset, time, key, value, [tuple(header) for header in headers]) is not None
    return bytes(builder.build())


def read_by(peer: Peer, data: bytes) -> list[tuple[int, bytes | None, bytes | None, tuple[Header, ...]]]:
    records = peer.read(data)
    decoded = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            headers = tuple(Header(key, value) for key, value in record.headers)
            decoded.append((record.timestamp, record.key, record.value, headers))
            assert record.offset == 1000 + len(decoded) - 1
    return decoded


def test_their_batch_is_read(peer: Peer, codec: Compression) -> None:
    [batch] = split_batches(built_by(peer, codec))
    batch.verify_crc()
    columns = batch.columns()
    assert list(zip(columns.timestamps, columns.keys, columns.values, columns.headers)) == ROWS
    assert columns.offsets == list(range(300))
    assert batch.compression is codec
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 9)


def test_our_batch_is_read_by_them(peer: Peer, codec: Compression) -> None:
    builder = BatchBuilder(codec)
    for row in ROWS:
        assert builder.append(*row)
    built = bytes(builder.build(77, 3, 9, transactional=True, base_offset=1000))
    assert split_batches(built)[0].compression is codec
    assert read_by(peer, built) == ROWS
    encoded = encode_batch(ROWS[:100], base_offset=1000, compression=codec)
    assert read_by(peer, encoded + encode_batch(ROWS[100:], base_offset=1100, compression=codec)) == ROWS


def test_plain_batches_are_byte_for_byte_the_same(peer: Peer) -> None:
    ours = encode_batch(ROWS, transactional=True, producer_id=77, producer_epoch=3, base_sequence=9)
    theirs = built_by(peer, Compression.NONE)
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]  # clients leave different leader epochs


# No other client writes the lz4 frames of format v0; test_legacy.py has them.
@pytest.mark.parametrize("magic", [0, 1])
def test_their_old_messages_are_read(peer: Peer, codec: Compression, magic: int) -> None:
    if codec is Compression.ZSTD or (codec is Compression.LZ4 and magic == 0):
        return
    builder = peer.legacy(magic, int(codec), 1 << 24)
    for offset, (time, key, value, _) in enumerate(LEGACY_ROWS):
        assert builder.append(offset, time if magic else None, key, value) is not None
    data = bytes(builder.build())
    if codec is not Compression.NONE:  # a broker gives a wrapper the offset of its last message
        data = struct.pack(">q", 299) + data[8:]
    columns = [batch.columns() for batch in split_batches(data)]
    for batch in split_batches(data):
        batch.verify_crc()
    assert [offset for part in columns for offset in part.offsets] == list(range(300))
    assert [time for part in columns for time in part.timestamps] == [row[0] if magic else -1 for row in LEGACY_ROWS]
    assert [key for part in columns for key in part.keys] == [row[1] for row in LEGACY_ROWS]
    assert [value for part in columns for value in part.values] == [row[2] for row in LEGACY_ROWS]

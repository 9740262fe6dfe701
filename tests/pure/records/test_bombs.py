"""Small batches that become large: by size, by the number of records, of headers, or of messages in an old wrapper."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zstandard

from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.records import MAX_HEADERS, RecordBatch, compress, decompress, encode_batch
from aiokafka_lite.protocol.records.legacy import MAX_MESSAGES
from aiokafka_lite.protocol.records.varint import encode_varint
from aiokafka_lite.types import Compression
from tests.pure.records.test_batch import with_records

MB = 1 << 20
HEADER = b"\0\1"
"""An empty key and a null value, encoded."""


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fail if the block allocates more than ``size`` bytes at one time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def record(offset_delta: int, headers: int) -> bytes:
    """Return a record with so many headers, encoded."""
    body = b"\0\0" + encode_varint(offset_delta) + b"\1\2v" + encode_varint(headers) + HEADER * headers
    return encode_varint(len(body)) + body


def batch_of(*headers: int) -> RecordBatch:
    """Return a batch of records with so many headers each, as small as zstd makes it."""
    body = b"".join(record(delta, count) for delta, count in enumerate(headers))
    return RecordBatch(with_records(compress(Compression.ZSTD, body), len(headers), Compression.ZSTD))


def test_a_record_with_ten_thousand_headers_is_read() -> None:
    columns = batch_of(3, 10_000, 0).columns()
    assert [len(header) for header in columns.headers] == [3, 10_000, 0]
    assert columns.header_count == 10_003


def test_a_record_with_too_many_headers_is_refused_before_they_are_decoded() -> None:
    batch = batch_of(4_000_000)
    assert batch.size < 1_000
    with at_most(30 * MB), pytest.raises(CorruptRecord, match=f"offset 0 has 4000000 headers; at most {MAX_HEADERS}"):
        batch.columns()


def test_the_records_before_one_with_too_many_headers_are_returned() -> None:
    batch = batch_of(1, 2, MAX_HEADERS + 1, 1)
    seen: list[int] = []
    with pytest.raises(CorruptRecord, match="the record at offset 2 has 65537 headers"):
        for columns in batch.chunks():
            seen += columns.offsets
    assert seen == [0, 1]


def test_a_chunk_ends_before_it_has_too_many_headers() -> None:
    counts = [0, 1_000, MAX_HEADERS, 0, MAX_HEADERS - 1, 1, 1, 500] + [30_000] * 5
    chunks = list(batch_of(*counts).chunks())
    assert [len(header) for chunk in chunks for header in chunk.headers] == counts
    assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(len(counts)))
    assert all(chunk.header_count == sum(map(len, chunk.headers)) <= MAX_HEADERS for chunk in chunks)
    assert len(chunks) == 6


def test_chunks_may_leave_out_the_records_before_the_start_offset() -> None:
    rows = [(1_000, None, b"%d" % number, ()) for number in range(1_000)]
    batch = RecordBatch(encode_batch(rows, base_offset=50, compression=Compression.GZIP))
    for start in (0, 50, 60, 150, 151, 700, 1_049, 1_050, 9_999):
        chunks = list(batch.chunks(max_records=100, start_offset=start))
        offsets = [offset for chunk in chunks for offset in chunk.offsets]
        assert offsets == list(range(1_050 - len(offsets), 1_050))
        assert [offset for offset in offsets if offset >= start] == list(range(max(start, 50), 1_050))
        assert len([offset for offset in offsets if offset < start]) <= 100
        values = [value for chunk in chunks for value in chunk.values]
        assert values == [b"%d" % (offset - 50) for offset in offsets]


def test_a_batch_with_gaps_is_read_from_its_start() -> None:
    rows = [(1_000, None, b"x", ())] * 4
    batch = RecordBatch(encode_batch(rows, offset_deltas=[0, 5, 6, 20]))
    assert [chunk.offsets for chunk in batch.chunks(max_records=1, start_offset=6)] == [[0], [5], [6], [20]]


@pytest.mark.parametrize(
    "codec", [codec for codec in Compression if codec is not Compression.NONE], ids=lambda c: c.name
)
def test_decompression_takes_the_memory_of_its_result(codec: Compression) -> None:
    if codec is Compression.SNAPPY:
        pytest.importorskip("cramjam")
    packed = compress(codec, bytes(40 * MB))
    with at_most(47 * MB):  # the buffer grows by an eighth
        assert len(decompress(codec, packed)) == 40 * MB


def test_the_window_of_zstd_adds_at_most_its_size() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(bytes(40 * MB)) + stream.flush()
    decompress(Compression.ZSTD, compress(Compression.ZSTD, b""))  # imports the codec
    with at_most(47 * MB):
        assert len(decompress(Compression.ZSTD, packed)) == 40 * MB


def wrapper_of(count: int) -> RecordBatch:
    """Return a gzip wrapper of format v1 around so many empty messages."""
    messages = bytearray(34 * count)
    body = struct.pack(">bbqii", 1, 0, 1_000, -1, -1)
    head = struct.Struct(">qiI")
    crc = zlib.crc32(body)
    for number in range(count):
        head.pack_into(messages, 34 * number, number, len(body) + 4, crc)
        messages[34 * number + 16 : 34 * number + 34] = body
    packed = gzip.compress(messages, 1)
    outer = struct.pack(">bbqii", 1, 1, 1_000, -1, len(packed)) + packed
    return RecordBatch(struct.pack(">qiI", count - 1, len(outer) + 4, zlib.crc32(outer)) + outer)


def test_the_messages_of_an_old_wrapper_are_decoded_in_chunks() -> None:
    chunks = list(wrapper_of(1_000).chunks(max_records=300))
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
    assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(1_000))


@pytest.mark.thorough
def test_an_old_wrapper_with_too_many_messages_is_refused_before_one_is_decoded() -> None:
    batch = wrapper_of(MAX_MESSAGES + 1)
    with at_most(25 * MB), pytest.raises(CorruptRecord, match=f"more than {MAX_MESSAGES} messages"):
        next(batch.chunks())

"""Any records decode to themselves; any bytes give records or CorruptRecord."""

from __future__ import annotations

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.records import (
    BatchBuilder,
    RecordBatch,
    decode_records,
    decompress,
    encode_batch,
    murmur2,
    split_batches,
)
from aiokafka_lite.types import Compression, Header

try:
    import cramjam  # noqa: F401
except ImportError:
    CODECS = [codec for codec in Compression if codec is not Compression.SNAPPY]
else:
    CODECS = list(Compression)

nullable = st.none() | st.binary(max_size=300)
headers = st.lists(st.builds(Header, st.text(max_size=20), nullable), max_size=4).map(tuple)
timestamps = st.integers(0, (1 << 63) - 1) | st.integers(1_600_000_000_000, 1_600_000_100_000)
rows = st.lists(st.tuples(timestamps, nullable, nullable, headers), max_size=40)
codecs = st.sampled_from(CODECS)


@settings(deadline=None)
@given(rows=rows, codec=codecs, base_offset=st.integers(0, 1 << 62), cut=st.integers(0, 60))
def test_records_come_back(
    rows: list[tuple[int, bytes, bytes, tuple[Header, ...]]], codec: Compression, base_offset: int, cut: int
) -> None:
    builder = BatchBuilder(codec)
    for row in rows:
        assert builder.append(*row)
    data = builder.build(base_offset=base_offset)
    batch, *rest = split_batches(data + data[:cut])
    assert not rest
    batch.verify_crc()
    columns = batch.columns()
    assert list(zip(columns.timestamps, columns.keys, columns.values, columns.headers, strict=True)) == rows
    assert columns.offsets == list(range(base_offset, base_offset + len(rows)))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=60), max_size=st.integers(61, 3000))
def test_size_is_kept(sizes: list[int], max_size: int) -> None:
    builder = BatchBuilder(max_size=max_size)
    for size in sizes:
        before = builder.count, builder.size
        fits = builder.append(5, None, b"x" * size)
        if not fits:
            assert (builder.count, builder.size) == before
        else:
            assert builder.count == 1 or builder.size <= max_size
    assert len(builder.build()) == builder.size


def read_all(data: bytes) -> None:
    for batch in split_batches(data):
        for _ in batch.chunks(max_decompressed_size=1 << 20):
            pass


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(
    rows=rows,
    codec=codecs,
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=6),
    repair=st.booleans(),
)
def test_damaged_batches_give_records_or_corrupt_record(
    rows: list[tuple[int, bytes, bytes, tuple[Header, ...]]],
    codec: Compression,
    damage: list[tuple[int, int]],
    repair: bool,
) -> None:
    data = bytearray(encode_batch(rows, compression=codec))
    for at, value in damage:
        data[at % len(data)] = value
    if repair:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    with contextlib.suppress(CorruptRecord):
        read_all(bytes(data))


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=200), magic=st.integers(0, 3), attributes=st.integers(0, 0x7F))
def test_noise_with_a_plausible_start_gives_records_or_corrupt_record(data: bytes, magic: int, attributes: int) -> None:
    start = struct.pack(
        ">qiiBIh" if magic == 2 else ">qiIBB",
        *((7, len(data) + 11, 0, magic, 0, attributes) if magic == 2 else (7, len(data) + 6, 0, magic, attributes)),
    )
    for noise in (data, start + data):
        with contextlib.suppress(CorruptRecord):
            read_all(noise)


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=120), count=st.integers(1, 20), base=st.integers(-(1 << 63), (1 << 63) - 1))
def test_records_of_noise_fit_in_64_bits_or_are_corrupt(data: bytes, count: int, base: int) -> None:
    try:
        columns, end = decode_records(data, 0, count, 0, base)
    except CorruptRecord:
        return
    assert end <= len(data)
    assert len(columns) == count
    struct.pack(f">{count}q", *columns.timestamps)
    struct.pack(f">{count}q", *columns.offsets)


@settings(max_examples=300, deadline=None)
@given(codec=st.sampled_from(CODECS[1:]), data=st.binary(max_size=200))
def test_noise_decompresses_within_the_limit_or_is_corrupt(codec: Compression, data: bytes) -> None:
    magic = {
        Compression.GZIP: b"\x1f\x8b\x08\0",
        Compression.LZ4: b"\x04\x22\x4d\x18",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for noise in (data, magic.get(codec, b"\x82SNAPPY\0") + data):
        with contextlib.suppress(CorruptRecord):
            assert len(decompress(codec, noise, 5000)) <= 5000


@settings(deadline=None)
@given(key=st.binary(max_size=100))
def test_hash_is_a_signed_32_bit_number(key: bytes) -> None:
    assert -(1 << 31) <= murmur2(key) < 1 << 31


def test_header_alone_is_no_batch() -> None:
    for size in range(61):
        with pytest.raises(CorruptRecord):
            RecordBatch(bytes(size))

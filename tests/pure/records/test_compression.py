"""Codecs: compressed bytes decompress to the same bytes, and malformed bytes are refused."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
import zstandard

from aiokafka_lite.errors import ConfigurationError, CorruptRecord
from aiokafka_lite.protocol.records import check_available, check_level, codec_of, compress, decompress
from aiokafka_lite.protocol.records.codecs import snappy
from aiokafka_lite.types import Compression

GZIP, SNAPPY, LZ4, ZSTD = Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1 << 20

SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "text": b"the quick brown fox " * 500,
    "noise": random.Random(7).randbytes(200_000),
    "zeros": bytes(3 * MIB),
    "mixed": random.Random(8).randbytes(70_000) + bytes(70_000) + b"ab" * 70_000,
}


@pytest.fixture(params=CODECS, ids=lambda codec: codec.name.lower())
def codec(request: pytest.FixtureRequest) -> Compression:
    if request.param is SNAPPY:
        pytest.importorskip("cramjam")
    chosen: Compression = request.param
    return chosen


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
def test_data_comes_back(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(b"." + packed)[1:], len(data)) == data


@pytest.mark.parametrize("name, level", [("gzip", 1), ("gzip", 9), ("lz4", 0), ("lz4", 12), ("lz4", 17), ("zstd", -7)])
def test_each_level_compresses_and_decompresses(name: str, level: int) -> None:
    codec = Compression.parse(name)
    for data in SAMPLES.values():
        assert decompress(codec, compress(codec, data, level)) == data


def test_a_higher_level_compresses_more() -> None:
    data = b"".join(b"%d," % (number * number) for number in range(20_000))
    for codec, low, high in ((GZIP, 1, 9), (LZ4, 0, 9), (ZSTD, -50, 19)):
        assert len(compress(codec, data, high)) < len(compress(codec, data, low))


@pytest.mark.parametrize(
    "codec, level, allowed",
    [(GZIP, 10, "0 to 9"), (GZIP, -1, "0 to 9"), (LZ4, 18, "0 to 17"), (ZSTD, 23, "-131072 to 22"), (ZSTD, True, "22")],
)
def test_level_out_of_range_is_refused_with_what_is_allowed(codec: Compression, level: int, allowed: str) -> None:
    with pytest.raises(ConfigurationError, match=allowed):
        check_level(codec, level)


@pytest.mark.parametrize("codec", [Compression.NONE, SNAPPY])
def test_level_for_a_codec_without_levels_is_refused(codec: Compression) -> None:
    with pytest.raises(ConfigurationError, match="must be None with compression="):
        compress(codec, b"", 1)


def test_data_of_exactly_the_limit_passes_and_a_byte_more_does_not(codec: Compression) -> None:
    for size in (1, 1000, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 2 * MIB):
        packed = compress(codec, bytes(size))
        assert len(decompress(codec, packed, size)) == size
        with pytest.raises(CorruptRecord, match=r"more than|claims"):
            decompress(codec, packed, size - 1)


def test_data_cut_off_anywhere_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, b"abcdefgh" * 20 + random.Random(3).randbytes(30))
    for end in range(len(packed)):
        if (codec, end) in ((SNAPPY, 16), (ZSTD, 0)):
            continue  # a stream of no blocks, or of no frames, is whole
        with pytest.raises(CorruptRecord):
            decompress(codec, packed[:end])


def test_garbage_is_corrupt_and_nothing_else(codec: Compression) -> None:
    source = random.Random(11)
    packed = compress(codec, b"abcdefgh" * 20 + source.randbytes(100))
    for _ in range(2000):
        damaged = bytearray(packed)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        with contextlib.suppress(CorruptRecord):
            decompress(codec, damaged, MIB)
    for size in range(60):
        with pytest.raises(CorruptRecord) if codec in (SNAPPY, ZSTD) else contextlib.nullcontext():
            decompress(codec, packed + b"\xff" * (size + 1))
        with contextlib.suppress(CorruptRecord):
            decompress(codec, source.randbytes(size), MIB)


def lz4_bomb() -> bytes:
    frame = lz4.frame.compress(
        bytes(4 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    header, block, end_mark = frame[:7], frame[7:-4], frame[-4:]
    return bytes(header + block * 60 + end_mark)


def snappy_bomb() -> bytes:
    return compress(SNAPPY, bytes(21 * MIB))


BOMBS: dict[Compression, Callable[[], bytes]] = {
    GZIP: lambda: gzip.compress(bytes(16 * MIB)) * 64,  # 1 GiB in 1 MiB
    SNAPPY: snappy_bomb,  # 21 MiB in 1 MiB: the format gives no more
    LZ4: lz4_bomb,  # 240 MiB in 1 MiB
    ZSTD: lambda: zstandard.ZstdCompressor().compress(bytes(128 * MIB)) * 8,  # 1 GiB in a few KiB
}


def test_bomb_costs_no_more_than_the_limit(codec: Compression) -> None:
    bomb = BOMBS[codec]()
    assert len(bomb) < 1.1 * MIB
    limit = 8 * MIB
    decompress(codec, compress(codec, b"warm"))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="more than"):
            decompress(codec, bomb, limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit * 9 // 8 + 3 * MIB  # the buffer grows by an eighth


def snappy_claiming(size: int) -> bytes:
    varint = bytearray()
    while size > 127:
        varint.append(size & 127 | 128)
        size >>= 7
    return bytes((*varint, size)) + b"\0a"


def xerial(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">I", len(b)) + b for b in blocks)


def zstd_claiming(size: int) -> bytes:
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + b"\x09\0\0a"


LIARS = {
    "snappy raw": (SNAPPY, snappy_claiming(100 * MIB)),
    "snappy raw, 4 GiB": (SNAPPY, snappy_claiming((1 << 32) - 1)),
    "snappy in xerial": (SNAPPY, xerial(snappy_claiming(100 * MIB))),
    "xerial block size": (SNAPPY, xerial() + b"\xff\xff\xff\xff"),
    "zstd content size": (ZSTD, zstd_claiming(100 * MIB)),
    "zstd content size, 2**60": (ZSTD, zstd_claiming(1 << 60)),
    "zstd block size": (ZSTD, b"\x28\xb5\x2f\xfd\x00\x00\xfc\xff\xff"),
    "gzip tiny members": (GZIP, gzip.compress(b"") * 50_000),
    "xerial tiny blocks": (SNAPPY, xerial(*[b"\0"] * 200_000)),
    "zstd tiny blocks": (ZSTD, b"\x28\xb5\x2f\xfd\x00\x00" + b"\0\0\0" * 400_000),
    "zstd skippable frames": (ZSTD, struct.pack("<II", 0x184D2A50, 0) * 400_000),
    "lz4 skippable frames": (LZ4, lz4.frame.compress(b"a") + struct.pack("<II", 0x184D2A50, 0) * 50_000),
    "lz4 content size": (
        LZ4,
        bytes(lz4.frame.compress(b"a" * 100, store_size=False)).replace(
            b"\x04\x22\x4d\x18\x60", b"\x04\x22\x4d\x18\x68"
        ),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("codec, data", LIARS.values(), ids=LIARS)
def test_no_memory_is_allocated_for_a_wrong_size(codec: Compression, data: bytes) -> None:
    if codec is SNAPPY:
        pytest.importorskip("cramjam")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, data)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_no_memory_is_allocated_for_the_size_that_a_snappy_block_claims() -> None:
    """tracemalloc does not see cramjam's memory, so the test checks that cramjam is never called."""
    pytest.importorskip("cramjam")
    with pytest.raises(CorruptRecord, match="claims to decompress to"):
        decompress(SNAPPY, snappy_claiming(100 * MIB))


@pytest.mark.parametrize("name", [name for name in LIARS if "tiny" in name or "skippable" in name])
def test_a_stream_of_tiny_parts_is_refused_early(name: str) -> None:
    codec, data = LIARS[name]
    if codec is SNAPPY:
        pytest.importorskip("cramjam")
    with pytest.raises(CorruptRecord, match="far too many"):
        decompress(codec, data)


def test_snappy_is_written_in_xerial_blocks_of_32_kib_and_read_raw_too() -> None:
    cramjam = pytest.importorskip("cramjam")
    data = SAMPLES["mixed"]
    packed = compress(SNAPPY, data)
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 32768])) for at in range(0, len(data), 32768)]
    assert packed == xerial(*blocks)
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(SNAPPY, xerial(blocks[0]) + xerial(*blocks[1:])) == data


def test_snappy_without_cramjam_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    snappy._cramjam.cache_clear()
    for use in (lambda: check_available(SNAPPY), lambda: compress(SNAPPY, b"x"), lambda: decompress(SNAPPY, b"x")):
        with pytest.raises(ConfigurationError, match=r"pip install aiokafka_lite\[snappy\]"):
            use()
    check_available(ZSTD)


def test_lz4_is_written_as_java_can_read_it() -> None:
    packed = compress(LZ4, SAMPLES["mixed"])
    info = lz4.frame.get_frame_info(packed)
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["content_size"]
    assert info["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB


def test_streams_of_several_parts_are_read_to_the_end() -> None:
    assert decompress(GZIP, gzip.compress(b"ab") + gzip.compress(b"cd")) == b"abcd"
    frames = [zstandard.ZstdCompressor(write_checksum=check).compress(b"ab") for check in (True, False)]
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"..."
    assert decompress(ZSTD, frames[0] + skippable + frames[1]) == b"abab"
    streaming = zstandard.ZstdCompressor(level=19).compressobj()  # no content size, a window of 8 MiB
    assert decompress(ZSTD, streaming.compress(SAMPLES["zeros"]) + streaming.flush(), 3 * MIB) == SAMPLES["zeros"]


def test_lz4_frames_one_after_the_other_are_read_to_the_end() -> None:
    frames = [lz4.frame.compress(data, content_checksum=True) for data in (b"ab", b"", SAMPLES["mixed"], b"cd")]
    skippable = struct.pack("<II", 0x184D2A5F, 3) + b"..."
    packed = frames[0] + skippable + skippable + b"".join(frames[1:]) + skippable
    assert decompress(LZ4, packed) == b"ab" + SAMPLES["mixed"] + b"cd"
    with pytest.raises(CorruptRecord, match="more than"):
        decompress(LZ4, packed, len(SAMPLES["mixed"]) + 3)
    with pytest.raises(CorruptRecord, match="cut off"):
        decompress(LZ4, b"".join(frames)[:-1])
    with pytest.raises(CorruptRecord, match="far too many frames"):
        decompress(LZ4, lz4.frame.compress(b"") * 1025)


@pytest.mark.parametrize(
    "rest",
    [b"\0", bytes(8), b"garbage", b"\x1f", b"\x1f\x8b", b"\x04\x22\x4d", struct.pack("<II", 0x184D2A50, 1 << 31)],
    ids=repr,
)
def test_bytes_after_the_end_of_gzip_and_lz4_are_ignored_as_in_java(rest: bytes) -> None:
    assert decompress(GZIP, gzip.compress(b"ab") + gzip.compress(b"cd") + rest) == b"abcd"
    assert decompress(LZ4, lz4.frame.compress(b"ab") + rest) == b"ab"


def test_another_member_or_frame_that_is_damaged_is_corrupt() -> None:
    for codec, one in ((GZIP, gzip.compress(b"ab")), (LZ4, lz4.frame.compress(b"ab", content_checksum=True))):
        with pytest.raises(CorruptRecord):
            decompress(codec, one + one[:-1])
        with pytest.raises(CorruptRecord):
            decompress(codec, one + one[:-6] + b"!" + one[-5:])


def zstd_with_window(window_log: int, data: bytes, *, size: bool = False, checksum: bool = False) -> bytes:
    """Return a frame with this window, as ``zstd --long`` writes it."""
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window_log, enable_ldm=True, write_content_size=size, write_checksum=checksum
    )
    streaming = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return streaming.compress(data) + streaming.flush()


@pytest.mark.parametrize("window_log", [24, 27, 28, 30])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_window_of_zstd_that_is_larger_than_its_content_is_read(window_log: int, name: str) -> None:
    data = SAMPLES[name]
    for checksum in (False, True):
        packed = zstd_with_window(window_log, data, checksum=checksum)
        assert decompress(ZSTD, packed, len(data)) == data
        with_others = compress(ZSTD, b"ab") + packed + packed
        assert decompress(ZSTD, with_others) == b"ab" + data + data
        if data:
            with pytest.raises(CorruptRecord, match="more than"):
                decompress(ZSTD, packed, len(data) - 1)


def test_a_content_that_fills_a_large_part_of_its_window_is_read() -> None:
    """Its matches reach back over 20 MiB."""
    part = random.Random(5).randbytes(MIB)
    data = part + bytes(20 * MIB) + part + random.Random(6).randbytes(1000)
    packed = zstd_with_window(28, data)
    assert len(packed) < 1.2 * MIB
    assert decompress(ZSTD, packed, len(data)) == data
    with pytest.raises(CorruptRecord, match=r"more than \d+ bytes"):
        decompress(ZSTD, packed, 21 * MIB)


def test_the_window_of_a_zstd_frame_takes_no_memory() -> None:
    """The largest window that a header can have: almost 2**42 bytes."""
    tracemalloc.start()
    try:
        assert decompress(ZSTD, b"\x28\xb5\x2f\xfd\x00\xff\x09\0\0a") == b"a"
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_above_the_limit_of_the_library_says_how_large_it_is_allowed_to_be() -> None:
    with pytest.raises(CorruptRecord, match="more than 134217728 bytes; if it is genuine, raise max_decompressed_size"):
        decompress(ZSTD, zstd_claiming((128 << 20) + 1))


def test_linked_lz4_blocks_are_read() -> None:
    assert decompress(LZ4, lz4.frame.compress(SAMPLES["mixed"], block_linked=True, store_size=True)) == SAMPLES["mixed"]


def test_raw_deflate_is_not_gzip() -> None:
    with pytest.raises(CorruptRecord):
        decompress(GZIP, zlib.compress(b"x"))


def test_threads_do_not_disturb_each_other(codec: Compression) -> None:
    samples = [random.Random(seed).randbytes(50_000) * 4 for seed in range(8)]

    def there_and_back(data: bytes) -> bool:
        return all(decompress(codec, compress(codec, data)) == data for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(there_and_back, samples))


def test_each_compression_has_a_codec_and_old_brokers_lack_only_zstd() -> None:
    for compression in Compression:
        codec = codec_of(compression)
        assert (codec.produce, codec.fetch) == ((7, 10) if compression is ZSTD else (None, None))

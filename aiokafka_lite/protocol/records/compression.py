"""The codecs of record batches: gzip, snappy, lz4 and zstd, with levels, and with bounds when they unpack.

What comes off the wire is not believed: no codec may write more than the caller's limit, nothing is allocated because
a header claims a size, and whatever is wrong with the bytes comes out as CorruptRecord. Everything is unpacked in
pieces, so that a bomb costs no more than the limit before it is found out.

lz4 and zstd come with the package; snappy needs cramjam (``pip install aiokafka_lite[snappy]``). Each is imported on
first use.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING

from aiokafka_lite.errors import ConfigurationError, CorruptRecord
from aiokafka_lite.types import Compression

if TYPE_CHECKING:
    from types import ModuleType

    import zstandard

Buffer = bytes | bytearray | memoryview

DEFAULT_MAX_DECOMPRESSED = 128 << 20

LEVELS: dict[Compression, range] = {
    Compression.GZIP: range(10),
    Compression.LZ4: range(18),
    Compression.ZSTD: range(-131072, 23),
}
"""The levels that a codec has; a codec that is not here has none. Those of lz4 above 12 all mean the best."""

_FIRST_PIECE, _LARGEST_PIECE = 1 << 16, 1 << 20
# zlib and lz4 copy the input that is left each time they return: they get it in pieces, lest that grow quadratic.
_INPUT_PIECE = 1 << 16
_MOST_MEMBERS = 1024


def check_level(codec: Compression, level: int | None) -> None:
    """Raise ConfigurationError unless ``level`` is None (the codec's default) or one that ``codec`` has."""
    if level is None:
        return
    levels = LEVELS.get(codec)
    if levels is None:
        raise ConfigurationError(f"compression_level={level!r}: {codec.name.lower()} has no levels, leave it out")
    if isinstance(level, bool) or not isinstance(level, int) or level not in levels:
        allowed = f"{levels.start} to {levels.stop - 1}"
        raise ConfigurationError(f"compression_level={level!r}: {codec.name.lower()} takes a whole number, {allowed}")


def check_available(codec: Compression) -> None:
    """Raise ConfigurationError if ``codec`` needs a package that is not installed."""
    if codec is Compression.SNAPPY:
        _cramjam()


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Pack ``data`` as Kafka expects it in a record batch of format v2; ``level`` None is the codec's default.

    ConfigurationError for a level that the codec does not have, and for snappy without cramjam.
    """
    check_level(codec, level)
    if codec is Compression.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Compression, data: Buffer, max_size: int = DEFAULT_MAX_DECOMPRESSED) -> bytes:
    """Unpack ``data``; CorruptRecord if it is garbage, cut off, or unpacks to more than ``max_size`` bytes.

    ConfigurationError for snappy without cramjam.
    """
    if codec is Compression.NONE:
        return bytes(data)
    return _DECOMPRESSORS[codec](memoryview(data), max_size)


def _joined(codec: str, pieces: Iterator[bytes], max_size: int) -> bytes:
    kept: list[bytes] = []
    room = max_size
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise _too_large(codec, max_size)
        kept.append(piece)
    return kept[0] if len(kept) == 1 else b"".join(kept)


def _piece_sizes() -> Iterator[int]:
    """Small first, for most batches are small and memory is zeroed before use; then larger ones, to call less often."""
    size = _FIRST_PIECE
    while True:
        yield size
        size = min(2 * size, _LARGEST_PIECE)


def _most_blocks(max_size: int) -> int:
    """How many blocks a stream may have. Honest ones have one for each 32 KiB or more; each costs us some Python."""
    return 1024 + max_size // 1024


def _too_large(codec: str, max_size: int) -> CorruptRecord:
    return CorruptRecord(
        f"{codec} data unpacks to more than {max_size} bytes; if it is genuine, raise max_decompressed_size"
    )


# gzip


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _decompress_gzip(data: memoryview, max_size: int) -> bytes:
    return _joined("gzip", _unpack_gzip(data), max_size)


def _unpack_gzip(data: memoryview) -> Iterator[bytes]:
    sizes = _piece_sizes()
    members = position = 0
    try:
        while position < len(data) or not members:
            members += 1
            if members > _MOST_MEMBERS:
                raise CorruptRecord("a gzip batch is cut into far too many members")
            unpacker = zlib.decompressobj(31)
            rest: Buffer = b""
            while not unpacker.eof:
                if not rest:
                    rest = data[position : position + _INPUT_PIECE]
                    position += len(rest)
                piece = unpacker.decompress(rest, next(sizes))
                if not (piece or rest or unpacker.eof):
                    raise CorruptRecord("a gzip batch is cut off")
                rest = unpacker.unconsumed_tail
                yield piece
            position -= len(unpacker.unused_data)
    except zlib.error as error:
        raise CorruptRecord(f"a gzip batch is garbage: {error}") from None


# snappy: a raw block, or blocks of 32 KiB in the frame of Xerial's Java library. Java's client writes the latter, and
# brokers before 2.0 read nothing else.

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_XERIAL_BLOCK = 32 << 10
_BLOCK_SIZE = Struct(">I")
# Three bytes of snappy copy 64 at best. A block that claims more than this lies, and must not be given the memory.
_SNAPPY_MAX_RATIO = 22


@cache
def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError:
        raise ConfigurationError("snappy compression needs cramjam: pip install aiokafka_lite[snappy]") from None
    return cramjam


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int) -> bytes:
    blocks = _xerial_blocks(data, _most_blocks(max_size)) if data[:8] == _XERIAL_MAGIC else iter((data,))
    return _joined("snappy", _unpack_snappy(blocks, max_size), max_size)


def _xerial_blocks(data: memoryview, most_blocks: int) -> Iterator[memoryview]:
    position, size = len(_XERIAL_HEADER), len(data)
    blocks = 0
    while position < size:
        blocks += 1
        if blocks > most_blocks:
            raise CorruptRecord("a snappy batch is cut into far too many blocks")
        # A writer that was appended to starts over with a header in mid-stream.
        if data[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if size - position < 4:
            break
        start = position + 4
        position = start + _BLOCK_SIZE.unpack_from(data, position)[0]
        yield data[start:position]
    if position != size:
        raise CorruptRecord("a snappy batch is cut off")


def _unpack_snappy(blocks: Iterator[memoryview], max_size: int) -> Iterator[bytes]:
    cramjam = _cramjam()
    snappy = cramjam.snappy
    for block in blocks:
        try:
            claimed = snappy.decompress_raw_len(block)
            if claimed > _SNAPPY_MAX_RATIO * len(block):
                raise CorruptRecord(f"a snappy block of {len(block)} bytes claims to unpack to {claimed}")
            if claimed > max_size:
                raise _too_large("snappy", max_size)
            yield bytes(snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise CorruptRecord(f"a snappy batch is garbage: {error}") from None


# lz4: one frame of independent 64 KiB blocks, which is all that Java's client reads


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(
        data,
        compression_level=level or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return packed


def _decompress_lz4(data: memoryview, max_size: int) -> bytes:
    return _joined("lz4", _unpack_lz4(data), max_size)


def _unpack_lz4(data: memoryview) -> Iterator[bytes]:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    sizes = _piece_sizes()
    position = 0
    try:
        while not unpacker.eof:
            rest: Buffer = b""
            if unpacker.needs_input:
                rest = data[position : position + _INPUT_PIECE]
                position += len(rest)
                if not rest:
                    raise CorruptRecord("an lz4 batch is cut off")
            yield unpacker.decompress(rest, next(sizes))
        if position - len(unpacker.unused_data or b"") != len(data):
            raise CorruptRecord("an lz4 batch goes on after its end")
    except (RuntimeError, ValueError) as error:
        raise CorruptRecord(f"an lz4 batch is garbage: {error}") from None


# zstd

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50  # and the 15 numbers above it
_ZSTD_USUAL_WINDOW = 8 << 20  # what every decoder should take (RFC 8878, section 3.1.1.1.2)
_ZSTD_MAX_WINDOW = 128 << 20  # what the best levels use
_UINT32 = Struct("<I")


# Making a context costs more than most batches do, and no two threads may use one at a time: it is taken off its list
# while it works, and a thread that finds the list empty makes another. One that failed is not put back.
_idle_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}  # by level
_idle_decompressors: list[zstandard.ZstdDecompressor] = []


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    level = 3 if level is None else level
    idle = _idle_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    packed = compressor.compress(data)
    idle.append(compressor)
    return packed


def _decompress_zstd(data: memoryview, max_size: int) -> bytes:
    import zstandard

    window = _largest_zstd_window(data, max_size)
    if window > max(max_size, _ZSTD_USUAL_WINDOW) or window > _ZSTD_MAX_WINDOW:
        raise _too_large("zstd", max_size)
    if window > _ZSTD_USUAL_WINDOW:  # not kept: its buffers grow to the size of the window
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        return _joined("zstd", _unpack_zstd(decompressor, data), max_size)
    try:
        decompressor = _idle_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_USUAL_WINDOW)
    unpacked = _joined("zstd", _unpack_zstd(decompressor, data), max_size)
    _idle_decompressors.append(decompressor)
    return unpacked


def _unpack_zstd(decompressor: zstandard.ZstdDecompressor, data: memoryview) -> Iterator[bytes]:
    import zstandard

    sizes = _piece_sizes()
    try:
        reader = decompressor.stream_reader(data, read_across_frames=True)
        while piece := reader.read(next(sizes)):
            yield piece
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"a zstd batch is garbage: {error}") from None


def _largest_zstd_window(data: memoryview, max_size: int) -> int:
    """Walk the frames (RFC 8878, section 3.1) from block to block; return the largest window they ask for.

    The decoder stops at the end of its input whether or not a frame has ended there: only this tells one that is cut
    off. Blocks are 128 KiB as a rule, so there are few; a stream of nothing but tiny ones is refused.
    """
    window = position = 0
    blocks_left = _most_blocks(max_size)
    try:
        while position < len(data):
            magic = _UINT32.unpack_from(data, position)[0]
            if magic & ~0xF == _ZSTD_SKIPPABLE:
                position += 8 + _UINT32.unpack_from(data, position + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptRecord("a zstd batch is garbage: no frame where one must be")
            flags = data[position + 4]
            position += 5
            single_segment = flags & 0x20
            if not single_segment:
                exponent, mantissa = data[position] >> 3, data[position] & 7
                window = max(window, (8 + mantissa) << (exponent + 7))
                position += 1
            position += (0, 1, 2, 4)[flags & 3]  # dictionary
            content_size_bytes = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
            if single_segment:
                window = max(window, int.from_bytes(data[position : position + content_size_bytes], "little"))
            position += content_size_bytes
            last = False
            while not last:
                header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last = bool(header & 1)
                position += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
                blocks_left -= 1
                if blocks_left < 0:
                    raise CorruptRecord("a zstd batch is cut into far too many blocks")
            position += flags & 4  # checksum
    except (IndexError, struct.error):
        raise CorruptRecord("a zstd batch is cut off") from None
    if position != len(data):
        raise CorruptRecord("a zstd batch is cut off")
    return window


_COMPRESSORS: dict[Compression, Callable[[Buffer, int | None], bytes]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[Compression, Callable[[memoryview, int], bytes]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}

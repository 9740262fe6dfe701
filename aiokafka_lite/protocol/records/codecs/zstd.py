"""zstd (RFC 8878), since Kafka 2.1 (KIP-110)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from ....errors import CorruptRecord
from ...messages.fetch import FetchRequest
from ...messages.produce import ProduceRequest
from . import Buffer, Codec, max_blocks, piece_sizes, too_large

if TYPE_CHECKING:
    import zstandard

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50  # and the 15 numbers above it
_USUAL_WINDOW = 8 << 20  # every decoder should accept this window (RFC 8878, section 3.1.1.1.2)
_MAX_WINDOW = 128 << 20  # the window of the best levels
_UINT32 = Struct("<I")


# A new context costs more than the compression of most batches, but two threads must not use a context at the same
# time. So a thread removes a context from the list while it uses it, and makes a new one if the list is empty. A
# context that has failed is not put back.
_idle_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}  # by level
_idle_decompressors: list[zstandard.ZstdDecompressor] = []


def _compress(data: Buffer, level: int | None) -> bytes:
    import zstandard

    level = 3 if level is None else level
    idle = _idle_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    compressed = compressor.compress(data)
    idle.append(compressor)
    return compressed


def _pieces(data: memoryview, max_size: int) -> Iterator[bytes]:
    import zstandard

    window = _largest_window(data, max_size)
    if window > max(max_size, _USUAL_WINDOW) or window > _MAX_WINDOW:
        raise too_large("zstd", max_size)
    if window > _USUAL_WINDOW:  # not kept: its buffers grow to the size of the window
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        yield from _read(decompressor, data)
        return
    try:
        decompressor = _idle_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_USUAL_WINDOW)
    yield from _read(decompressor, data)
    _idle_decompressors.append(decompressor)


def _read(decompressor: zstandard.ZstdDecompressor, data: memoryview) -> Iterator[bytes]:
    import zstandard

    sizes = piece_sizes()
    try:
        reader = decompressor.stream_reader(data, read_across_frames=True)
        while piece := reader.read(next(sizes)):
            yield piece
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"a zstd batch cannot be decompressed: {error}") from None


def _largest_window(data: memoryview, max_size: int) -> int:
    """Walk the frames (RFC 8878, section 3.1) from block to block; return the largest window size in bytes.

    The decompressor does not report a frame that is cut off, so this function finds it. Blocks usually have 128 KiB, so
    there are few. A stream of many tiny blocks is refused.
    """
    window = position = 0
    blocks_left = max_blocks(max_size)
    try:
        while position < len(data):
            magic = _UINT32.unpack_from(data, position)[0]
            if magic & ~0xF == _SKIPPABLE:
                position += 8 + _UINT32.unpack_from(data, position + 4)[0]
                continue
            if magic != _MAGIC:
                raise CorruptRecord(f"a zstd batch is malformed: no frame begins at byte {position}")
            has_checksum = data[position + 4] & 4
            size, position = _read_frame_header(data, position + 4)
            window = max(window, size)
            position, blocks_left = _skip_blocks(data, position, blocks_left)
            if has_checksum:
                position += 4
    except (IndexError, struct.error):
        raise CorruptRecord("a zstd batch is cut off") from None
    if position != len(data):
        raise CorruptRecord("a zstd batch is cut off")
    return window


def _read_frame_header(data: memoryview, position: int) -> tuple[int, int]:
    """Read a frame's header after the magic number. Return the window in bytes and the position of the first block."""
    flags = data[position]
    position += 1
    single_segment = flags & 0x20
    window = 0
    if not single_segment:
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window = (8 + mantissa) << (exponent + 7)
        position += 1
    position += (0, 1, 2, 4)[flags & 3]  # the dictionary's id
    content_size_bytes = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    if single_segment:  # such a frame has no window: all of its content is the window
        window = int.from_bytes(data[position : position + content_size_bytes], "little")
    return window, position + content_size_bytes


def _skip_blocks(data: memoryview, position: int, blocks_left: int) -> tuple[int, int]:
    """Return the end of a frame's last block, and the number of blocks that the stream may still have."""
    last = False
    while not last:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last = bool(header & 1)
        is_run = header >> 1 & 3 == 1  # one byte, to be repeated
        position += 3 + (1 if is_run else header >> 3)
        blocks_left -= 1
        if blocks_left < 0:
            raise CorruptRecord("a zstd batch has far too many blocks")
    return position, blocks_left


CODEC = Codec(
    _compress,
    _pieces,
    levels=range(-131072, 23),
    produce=ProduceRequest.ZSTD,
    fetch=FetchRequest.ZSTD,
)

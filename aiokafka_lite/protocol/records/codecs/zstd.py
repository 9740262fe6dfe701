"""zstd (RFC 8878), since Kafka 2.1 (KIP-110)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ....errors import CorruptRecord
from ...messages.fetch import FetchRequest
from ...messages.produce import ProduceRequest
from . import LARGEST_PIECE, Buffer, Codec, max_blocks, piece_sizes, too_large

if TYPE_CHECKING:
    import zstandard

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50  # and the 15 numbers above it
_USUAL_WINDOW = 8 << 20  # every decoder should accept this window (RFC 8878, section 3.1.1.1.2)
_LARGEST_WINDOW = 1 << 31  # that the library accepts
_LARGEST_BLOCK = 128 << 10  # after decompression (RFC 8878, section 3.1.1.2.4)
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

    data, window = _narrowed(data, max_size)
    if window > _USUAL_WINDOW:  # not kept: its buffers grow to the size of the window
        decompressor = zstandard.ZstdDecompressor(max_window_size=window)
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


def _narrowed(data: memoryview, max_size: int) -> tuple[memoryview, int]:
    """Return the data with windows no larger than its content needs, and the largest of these windows in bytes.

    A producer with a large window (``zstd --long=28``) puts it into the header of each frame, also of a small one. A
    decompressor would allocate the window, or refuse it above a limit. But no match reaches back before the frame, so a
    window of the size of the content is enough. Blocks have at most 128 KiB each, and ``joining`` stops at
    ``max_size``.
    """
    largest, narrowed = 0, None
    for frame in _frames(data, max_size):
        window = frame.window
        if window > _USUAL_WINDOW:
            if frame.descriptor is None:  # such a frame has its content size instead of a window
                if window > max_size:
                    raise too_large("zstd", max_size)
            else:
                # With one block above the limit, ``joining`` sees it before a match can reach back too far.
                needed = min(frame.blocks * _LARGEST_BLOCK, max_size + LARGEST_PIECE, _LARGEST_WINDOW)
                if needed < window:
                    narrowed = bytearray(data) if narrowed is None else narrowed
                    narrowed[frame.descriptor], window = _descriptor_of(needed)
        largest = max(largest, window)
    return data if narrowed is None else memoryview(narrowed), largest


def _descriptor_of(size: int) -> tuple[int, int]:
    """Return the descriptor of the smallest window of ``size`` or more bytes, and its size (RFC 8878, 3.1.1.1.2)."""
    for descriptor in range(256):
        window = _window_of(descriptor)
        if window >= size:
            return descriptor, window
    raise AssertionError("every size is below the largest window")


def _window_of(descriptor: int) -> int:
    return (8 + (descriptor & 7)) << ((descriptor >> 3) + 7)


class _Frame(NamedTuple):
    """A frame's window in bytes, the position of its descriptor, and the number of its blocks."""

    window: int
    descriptor: int | None
    blocks: int


def _frames(data: memoryview, max_size: int) -> list[_Frame]:
    """Walk the frames (RFC 8878, section 3.1) from block to block.

    The decompressor does not report a frame that is cut off, so this function finds it. Blocks usually have 128 KiB, so
    there are few. A stream of many tiny blocks is refused.
    """
    frames = []
    position = 0
    blocks_left = max_blocks(max_size)
    try:
        while position < len(data):
            magic = _UINT32.unpack_from(data, position)[0]
            if magic & ~0xF == _SKIPPABLE:
                position += 8 + _UINT32.unpack_from(data, position + 4)[0]
                blocks_left -= 1
                if blocks_left < 0:
                    raise CorruptRecord("a zstd batch has far too many frames")
                continue
            if magic != _MAGIC:
                raise CorruptRecord(f"a zstd batch is malformed: no frame begins at byte {position}")
            has_checksum = data[position + 4] & 4
            window, descriptor, position = _read_frame_header(data, position + 4)
            before = blocks_left
            position, blocks_left = _skip_blocks(data, position, blocks_left)
            frames.append(_Frame(window, descriptor, before - blocks_left))
            if has_checksum:
                position += 4
    except (IndexError, struct.error):
        raise CorruptRecord("a zstd batch is cut off") from None
    if position != len(data):
        raise CorruptRecord("a zstd batch is cut off")
    return frames


def _read_frame_header(data: memoryview, position: int) -> tuple[int, int | None, int]:
    """Read a frame's header after the magic number.

    Return the window in bytes, the position of its descriptor, and the position of the first block.
    """
    flags = data[position]
    position += 1
    single_segment = flags & 0x20
    window, descriptor = 0, None
    if not single_segment:
        window, descriptor = _window_of(data[position]), position
        position += 1
    position += (0, 1, 2, 4)[flags & 3]  # the dictionary's id
    content_size_bytes = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    if single_segment:  # such a frame has no window: all of its content is the window
        window = int.from_bytes(data[position : position + content_size_bytes], "little")
    return window, descriptor, position + content_size_bytes


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
    is_slow=lambda level: level is not None and level >= 5,
)

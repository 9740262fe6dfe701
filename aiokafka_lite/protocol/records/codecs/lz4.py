"""lz4: one frame of independent 64 KiB blocks. Java's client reads no other form.

Several frames decompress to one piece. Bytes after the last frame are ignored, as in Java's client.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import Struct

from ....errors import CorruptRecord
from . import INPUT_PIECE, Buffer, Codec, piece_sizes

_MAX_FRAMES = 1024
_MAGIC = 0x184D2204
_SKIPPABLE = 0x184D2A50  # and the 15 numbers above it
_UINT32 = Struct("<I")


def _compress(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=level or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return compressed


def _pieces(data: memoryview, max_size: int) -> Iterator[bytes]:
    sizes = piece_sizes()
    frames = 0
    position: int | None = 0
    try:
        while position is not None:
            frames += 1
            if frames > _MAX_FRAMES:
                raise CorruptRecord(f"an lz4 batch has far too many frames: more than {_MAX_FRAMES}")
            position = _next_frame(data, (yield from _frame(data, position, sizes)))
    except (RuntimeError, ValueError) as error:
        raise CorruptRecord(f"an lz4 batch cannot be decompressed: {error}") from None


def _frame(data: memoryview, position: int, sizes: Iterator[int]) -> Generator[bytes, None, int]:
    """Decompress the frame at ``position``. Return its end."""
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    while not decompressor.eof:
        rest: Buffer = b""
        if decompressor.needs_input:
            rest = data[position : position + INPUT_PIECE]
            position += len(rest)
            if not rest:
                raise CorruptRecord("an lz4 batch is cut off")
        yield decompressor.decompress(rest, next(sizes))
    return position - len(decompressor.unused_data or b"")


def _next_frame(data: memoryview, position: int) -> int | None:
    """Return the beginning of the next frame with data at or after ``position``; None if there is none."""
    skipped = 0
    while len(data) - position >= 8:
        magic, size = _UINT32.unpack_from(data, position)[0], _UINT32.unpack_from(data, position + 4)[0]
        if magic == _MAGIC:
            return position
        if magic & ~0xF != _SKIPPABLE:
            return None
        skipped += 1
        if skipped > _MAX_FRAMES:
            raise CorruptRecord(f"an lz4 batch has far too many frames: more than {_MAX_FRAMES}")
        position += 8 + size
    return None


CODEC = Codec(
    _compress,
    _pieces,
    levels=range(18),  # levels above 12 all mean the best compression
    is_slow=lambda level: level is not None and level >= 3,  # the levels of lz4hc
)

"""lz4: one frame of independent 64 KiB blocks. Java's client reads no other form."""

from __future__ import annotations

from collections.abc import Iterator

from ....errors import CorruptRecord
from . import INPUT_PIECE, Buffer, Codec, piece_sizes


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
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    sizes = piece_sizes()
    position = 0
    try:
        while not decompressor.eof:
            rest: Buffer = b""
            if decompressor.needs_input:
                rest = data[position : position + INPUT_PIECE]
                position += len(rest)
                if not rest:
                    raise CorruptRecord("an lz4 batch is cut off")
            yield decompressor.decompress(rest, next(sizes))
        if position - len(decompressor.unused_data or b"") != len(data):
            raise CorruptRecord("an lz4 batch has bytes after its end")
    except (RuntimeError, ValueError) as error:
        raise CorruptRecord(f"an lz4 batch cannot be decompressed: {error}") from None


CODEC = Codec(_compress, _pieces, levels=range(18))  # levels above 12 all mean the best compression

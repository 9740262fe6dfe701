"""gzip, by the standard library. A batch may consist of several gzip members, which decompress to one piece.

Bytes after the last member are ignored, as in Java's client.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from ....errors import CorruptRecord
from . import INPUT_PIECE, Buffer, Codec, piece_sizes

_MAX_MEMBERS = 1024
_MEMBER = b"\x1f\x8b\x08"
"""The first bytes of a member: magic number and deflate."""


def _compress(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _pieces(data: memoryview, max_size: int) -> Iterator[bytes]:
    sizes = piece_sizes()
    members = position = 0
    try:
        while not members or data[position : position + len(_MEMBER)] == _MEMBER:
            members += 1
            if members > _MAX_MEMBERS:
                raise CorruptRecord(f"a gzip batch has far too many members: more than {_MAX_MEMBERS}")
            decompressor = zlib.decompressobj(31)
            rest: Buffer = b""
            while not decompressor.eof:
                if not rest:
                    rest = data[position : position + INPUT_PIECE]
                    position += len(rest)
                piece = decompressor.decompress(rest, next(sizes))
                if not (piece or rest or decompressor.eof):
                    raise CorruptRecord("a gzip batch is cut off")
                rest = decompressor.unconsumed_tail
                yield piece
            position -= len(decompressor.unused_data)
    except zlib.error as error:
        raise CorruptRecord(f"a gzip batch cannot be decompressed: {error}") from None


CODEC = Codec(_compress, _pieces, levels=range(10), is_slow=lambda level: level != 0)

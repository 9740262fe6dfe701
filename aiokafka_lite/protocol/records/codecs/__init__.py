"""The compression codecs of record batches, one module each; ``records/compression.py`` imports them on first use.

To add a codec, write a module here that ends with ``CODEC = Codec(...)``, and add a row with the same name to
``types.Compression``. Levels, checks, settings, the producer and the embedded broker follow from these two.

Rules for a decompressor, since bytes from a peer are not trusted:

1. It decompresses in pieces. ``joining`` takes at most ``max_size`` bytes of them.
2. It does not allocate memory by the size that a header claims.
3. It raises only ``CorruptRecord``, for any bytes.

What it reads is what Java's client reads: several members or frames one after the other, and after the end of gzip and
lz4 any bytes, which are ignored. Data that is cut off is refused. A wrong checksum of the data is refused too, although
Java's client does not check that of lz4. The batch has a checksum and the number of its records, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from io import BytesIO
from typing import NamedTuple

from ....errors import CorruptRecord
from ...schema import Since

Buffer = bytes | bytearray | memoryview

INPUT_PIECE = 1 << 16
"""Bytes of input per call. zlib and lz4 copy the rest of the input in each call, so one large input takes quadratic
time."""

_FIRST_PIECE, LARGEST_PIECE = 1 << 16, 1 << 20

STEP = 1 << 20
"""The smallest number of bytes that ``joining`` decompresses between two yields. A piece is not divided."""
_STEP_PIECES = 256
"""The largest number of pieces between two yields, because pieces may be empty."""


class Codec(NamedTuple):
    """How one codec compresses: ``compress(data, level)``, and the decompressed ``pieces(data, max_size)``."""

    compress: Callable[[Buffer, int | None], bytes]
    pieces: Callable[[memoryview, int], Iterator[bytes]]
    levels: range | None = None
    """The compression levels, None for a codec without levels."""
    produce: Since | None = None
    """The first version of Produce that may carry this codec; None if all may."""
    fetch: Since | None = None
    """The first version of Fetch that may carry this codec; None if all may."""
    check_available: Callable[[], object] | None = None
    """A function that raises ConfigurationError if a package is missing; None for a codec that is always there."""
    is_slow: Callable[[int | None], bool] = lambda level: False
    """Whether a level takes 5 ms or more for a megabyte of text, without the GIL: then a thread pays."""


def piece_sizes() -> Iterator[int]:
    """Yield the sizes of the output buffers, smallest first: most batches are small, and new memory is zeroed."""
    size = _FIRST_PIECE
    while True:
        yield size
        size = min(2 * size, LARGEST_PIECE)


def joining(codec: str, pieces: Iterator[bytes], max_size: int) -> Generator[None, None, bytes]:
    """Returns the pieces as one; raises CorruptRecord as soon as they exceed ``max_size`` bytes.

    It yields after each ``STEP``, so that a caller in an event loop may let others run.
    ``BytesIO`` grows in place and gives its buffer without a copy, so that the pieces never take twice their size.
    """
    first = next(pieces, b"")
    room = max_size - len(first)
    if room < 0:
        raise too_large(codec, max_size)
    second = next(pieces, None)
    if second is None:
        return first
    whole = BytesIO(first)
    write = whole.write
    whole.seek(len(first))
    step_ends_at, pieces_left = room - STEP, _STEP_PIECES
    while second is not None:
        room -= len(second)
        if room < 0:
            raise too_large(codec, max_size)
        write(second)
        pieces_left -= 1
        if room <= step_ends_at or not pieces_left:
            step_ends_at, pieces_left = room - STEP, _STEP_PIECES
            yield
        second = next(pieces, None)
    return whole.getvalue()


def max_blocks(max_size: int) -> int:
    """Return how many blocks a stream may have. Real blocks have at least 32 KiB, and each costs Python code."""
    return 1024 + max_size // 1024


def too_large(codec: str, max_size: int) -> CorruptRecord:
    return CorruptRecord(
        f"{codec} data decompresses to more than {max_size} bytes; if it is genuine, raise max_decompressed_size"
    )

"""snappy, by cramjam (``pip install aiokafka_lite[snappy]``): a raw block, or blocks in Xerial's frame.

The frame is from Xerial's Java library, with blocks of 32 KiB. This client writes it, as Java's client does, because
brokers before 2.0 read no other form.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING

from ....errors import ConfigurationError, CorruptRecord
from . import Buffer, Codec, max_blocks, too_large

if TYPE_CHECKING:
    from types import ModuleType

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_XERIAL_BLOCK = 32 << 10
_BLOCK_SIZE = Struct(">I")
# Three bytes of snappy become at most 64 bytes. A block that claims more is malformed, and gets no memory.
_MAX_RATIO = 22


@cache
def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError:
        raise ConfigurationError("snappy compression requires cramjam: pip install aiokafka_lite[snappy]") from None
    return cramjam


def _compress(data: Buffer, level: int | None) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _xerial_blocks(data: memoryview, limit: int) -> Iterator[memoryview]:
    position, size = len(_XERIAL_HEADER), len(data)
    blocks = 0
    while position < size:
        blocks += 1
        if blocks > limit:
            raise CorruptRecord(f"a snappy batch has far too many blocks: more than {limit}")
        # Appending to a stream writes another header in its middle.
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


def _pieces(data: memoryview, max_size: int) -> Iterator[bytes]:
    blocks = _xerial_blocks(data, max_blocks(max_size)) if data[:8] == _XERIAL_MAGIC else iter((data,))
    cramjam = _cramjam()
    snappy = cramjam.snappy
    for block in blocks:
        try:
            claimed = snappy.decompress_raw_len(block)
            if claimed > _MAX_RATIO * len(block):
                raise CorruptRecord(f"a snappy block of {len(block)} bytes claims to decompress to {claimed}")
            if claimed > max_size:
                raise too_large("snappy", max_size)
            yield bytes(snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise CorruptRecord(f"a snappy batch cannot be decompressed: {error}") from None


CODEC = Codec(_compress, _pieces, check_available=_cramjam)

"""Variable-length integers of Kafka's record format: zigzag, then seven bits per byte, the lowest first.

The record codec has the one- and two-byte forms inline in its loops, because nearly all numbers have one or two bytes.
This module has the general form with its limits: 5 bytes and 32 bits for a varint, 10 bytes and 64 bits for a varlong.
"""

from __future__ import annotations

from ...errors import CorruptRecord

_CACHED_BELOW = 8192  # the numbers that fit in two bytes


def encode_varint(number: int) -> bytes:
    """Encode an integer of up to 64 bits in zigzag form. Raises ValueError for a larger one."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} does not fit in 64 bits")
    rest = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Encodings(dict[int, bytes]):
    """Encodings by number. It keeps the short encodings, at most 16,384, and makes a longer one each time.

    A lookup takes a tenth of the time of the loop above. A complete table would make the import slower.
    """

    def __missing__(self, number: int) -> bytes:
        encoded = encode_varint(number)
        if -_CACHED_BELOW <= number < _CACHED_BELOW:
            self[number] = encoded
        return encoded


ENCODINGS: dict[int, bytes] = _Encodings()


def read_raw_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit number at ``position``; return it, still in zigzag form, and the position after it.

    Raises CorruptRecord if it is longer than ``data``, 5 bytes or 32 bits.
    """
    return _read(data, position, 5, 32)


def read_raw_varlong(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read like ``read_raw_varint``, with up to 10 bytes and 64 bits."""
    return _read(data, position, 10, 64)


def _read(data: bytes | bytearray | memoryview, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    raw = 0
    chunk = data[position : position + max_bytes]
    for index, byte in enumerate(chunk):
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if raw >> bits:
                break
            return raw, position + index + 1
    if len(chunk) == max_bytes:
        raise CorruptRecord(f"a variable-length number is longer than {bits} bits")
    raise CorruptRecord("a variable-length number is cut off by the end of the batch")

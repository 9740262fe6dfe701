"""Encodes records into the buffer of a batch, and hashes keys. In a compiled build ``encode.c`` is this module.

mypyc cannot make these functions fast, because each of their steps makes an object. So a compiled build has them in C.
The Python source is the reference, and tests compare the two.

The format of a record is in ``record_format``.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from .varint import ENCODINGS

Buffer = bytes | bytearray | memoryview
Column = tuple[int, int, Buffer | None, Buffer, Buffer | None]
"""A binary column of Arrow: the size of an offset in bytes (4 or 8), the first row, validity, offsets and data."""

_LARGE = 16 * 1024
"""From this size of a value, in bytes, three more calls cost less than another copy."""

_NULL = ENCODINGS[-1]
_WORDS = [Struct(f"<{count}I") for count in range(17)]  # of keys up to 67 bytes


def append_record(
    buffer: bytearray,
    limit: int,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: bytes,
) -> bool:
    """Append an encoded record to ``buffer``. Returns False if the buffer would become longer than ``limit`` bytes.

    ``headers`` is a result of ``encode_headers``. Raises TypeError for a key or value that is not a buffer, and
    ValueError for a delta of more than 64 bits. The buffer is unchanged if the result is False or an error is raised.
    """
    encodings = ENCODINGS
    if key is None:
        key_size, key = _NULL, b""
    else:
        key_size = encodings[len(key)]
    if value is None:
        value_size, value = _NULL, b""
    else:
        value_size = encodings[len(value)]
        if len(value) > _LARGE:
            before = b"".join((b"\0", encodings[timestamp_delta], encodings[offset_delta], key_size, key, value_size))
            return _append_large(buffer, limit, before, value, headers)
    body = b"".join(
        (
            b"\0",
            encodings[timestamp_delta],
            encodings[offset_delta],
            key_size,
            key,
            value_size,
            value,
            headers,
        )
    )
    size = encodings[len(body)]
    if len(buffer) + len(size) + len(body) > limit:
        return False
    buffer += size
    buffer += body
    return True


def _append_large(buffer: bytearray, limit: int, before: bytes, value: Buffer, after: bytes) -> bool:
    """Append a record in parts. Joining the parts first would copy a large value once more."""
    body_size = len(before) + len(value) + len(after)
    size = ENCODINGS[body_size]
    if len(buffer) + len(size) + body_size > limit:
        return False
    buffer += size + before
    buffer += value
    buffer += after
    return True


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Encode the headers of one record, with their count in front. Pairs are tuples, values are bytes.

    Compiled code may refuse other types.
    """
    encodings = ENCODINGS
    parts: list[bytes] = [b""]
    count = 0
    for key, value in headers:
        encoded = key.encode()
        parts += (encodings[len(encoded)], encoded)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encodings[len(value)], value)
        count += 1
    parts[0] = encodings[count]
    return b"".join(parts)


def append_lists(
    buffer: bytearray,
    limit: int,
    first_delta: int,
    timestamp_delta: int,
    keys: list[bytes] | None,
    values: list[bytes],
    headers: bytes,
    start: int,
    stop: int,
) -> int | None:
    """Append records in C, as ``pack.RecordLists.append_to`` does. Returns None if ``pack`` must append them."""
    # Nine parameters, as in ``append_rows``: C reads them without an object, for each call of a producer.
    return None


def append_rows(
    buffer: bytearray,
    limit: int,
    start: int,
    stop: int,
    numbers: object,
    timestamp: int,
    timestamps: object,
    keys: Column | None,
    values: Column,
    headers: Column | None,
) -> tuple[int, int, int] | None:
    """Append rows of Arrow columns from ``start`` up to ``stop``, as many as ``limit`` bytes hold, at least one.

    Returns their number, the first timestamp and the latest one. If it returns None, ``columns.write`` must append the
    rows. ``numbers`` has the indexes of the rows to take; None means all rows in their order. ``timestamp`` belongs to
    all rows if ``timestamps`` is None. ``headers`` are encoded.
    """
    return None


def murmur2(data: Buffer) -> int:
    """Return the 32-bit murmur2 hash of ``data``, as in Kafka's Java client: a signed number."""
    size = len(data)
    tail = size & ~3
    hashed = 0x9747B28C ^ size
    words = _WORDS[size >> 2] if size < 4 * len(_WORDS) else Struct(f"<{size >> 2}I")
    for word in words.unpack_from(data):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        hashed = (hashed * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if tail != size:
        hashed = (hashed ^ int.from_bytes(data[tail:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partition_for_key(key: Buffer, count: int) -> int:
    """Return the partition, of ``count``, that Kafka's own clients choose for this key. Raises ValueError."""
    hashed = murmur2(key)
    if not 0 < count < 1 << 63:
        raise ValueError(f"count must be at least 1 and fit in 64 bits, got {count}")
    # As in Kafka's clients, the sign bit is cleared. The absolute value would choose other partitions.
    return (hashed & 0x7FFFFFFF) % count

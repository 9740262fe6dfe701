"""Message formats v0 and v1, which old log segments still have. This module reads them; nothing writes them.

A message has: offset, size, CRC-32, format, attributes, (v1: timestamp,) key, value. A compressed message is a wrapper:
its value decompresses to a set of messages. The wrapper has the offset of its last inner message. Inner messages have
absolute offsets in v0, and offsets from 0 in v1, where log-append time is in the wrapper only (KIP-31, KIP-32). The lz4
frames of the first clients have a wrong header checksum (KIP-57).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ...errors import CorruptRecord
from ...types import Compression, Header
from .compression import decompress
from .record_format import RecordColumns

SMALLEST_LENGTH = (14, 22)
"""The smallest value of a message's size field, by format. The size excludes the field itself and the offset."""

MAX_MESSAGES = 1 << 19
"""The largest number of messages in a wrapper. All are visited before the first one is decoded, at 0.1 µs each."""

_V0 = Struct(">qiIbb")
_V1 = Struct(">qiIbbq")
_INT32 = Struct(">i")
_OFFSET_AND_SIZE = Struct(">qi")
_CRC_COVERS_FROM = 16
_OVERHEAD = 12
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_INT64_MAX = (1 << 63) - 1


class MessageHeader(NamedTuple):
    """The header of a message. ``timestamp`` is -1 in format v0; ``body`` is the position of the key's length."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    body: int


def read_header(data: memoryview) -> MessageHeader:
    """Read the header of the message at the start of ``data``. Raises CorruptRecord if it is malformed or cut off."""
    magic = data[16] if len(data) > 16 else -1
    if magic not in (0, 1):
        raise CorruptRecord("a message is cut off, or its format is neither v0 nor v1")
    header = _V1 if magic else _V0
    size = int.from_bytes(data[8:12], "big", signed=True)
    if not SMALLEST_LENGTH[magic] <= size <= len(data) - _OVERHEAD:
        raise CorruptRecord(f"a message of format v{magic} claims {size} bytes, but has {len(data) - _OVERHEAD}")
    offset, size, crc, magic, attributes, *timestamp = header.unpack_from(data)
    message = MessageHeader(offset, size, crc, magic, attributes, timestamp[0] if timestamp else -1, header.size)
    if not 0 <= message.offset < _INT64_MAX:  # the offset after it must exist
        raise CorruptRecord(f"a message has the offset {message.offset}")
    return message


def checksum(data: memoryview) -> int:
    """Return the CRC-32 that the message in ``data`` should have."""
    return zlib.crc32(data[_CRC_COVERS_FROM:])


def decode_message(data: memoryview, max_decompressed_size: int, max_records: int) -> Iterator[RecordColumns]:
    """Decode the record of a message, or the records of a compressed wrapper in chunks of at most ``max_records``.

    Raises CorruptRecord if it is malformed, or has more than ``MAX_MESSAGES`` messages.
    """
    message = read_header(data)
    key, value = _key_and_value(data, message)
    codec = message.attributes & _CODEC_MASK
    if codec == Compression.NONE:
        yield RecordColumns([message.offset], [message.timestamp], [key], [value], [()])
        return
    if codec > Compression.LZ4:
        raise CorruptRecord(f"a message of format v{message.magic} has the codec {codec}, which it cannot have")
    if value is None:
        raise CorruptRecord("a compressed message has no value")
    if codec == Compression.LZ4:
        value = with_right_lz4_header(value)
    yield from _decode_wrapped(message, decompress(Compression(codec), value, max_decompressed_size), max_records)


def _decode_wrapped(wrapper: MessageHeader, messages: bytes, max_records: int) -> Iterator[RecordColumns]:
    base = _base_offset(wrapper, messages)
    append_time = wrapper.timestamp if wrapper.magic and wrapper.attributes & _LOG_APPEND_TIME else None
    view = memoryview(messages)
    no_headers: tuple[Header, ...] = ()
    position, last_offset = 0, -1
    # One chunk after the other, because a wrapper of a few KB may contain half a million messages.
    while position < len(view):
        columns = RecordColumns([], [], [], [], [])
        while position < len(view) and len(columns) < max_records:
            message = read_header(view[position:])
            if message.magic != wrapper.magic or message.attributes & _CODEC_MASK:
                raise CorruptRecord("a compressed message contains a compressed message, or one of another format")
            end = position + _OVERHEAD + message.size
            key, value = _key_and_value(view[position:end], message)
            if message.offset <= last_offset:
                raise CorruptRecord("the messages of a compressed message have decreasing offsets")
            last_offset, position = message.offset, end
            columns.offsets.append(base + message.offset)
            columns.timestamps.append(message.timestamp if append_time is None else append_time)
            columns.keys.append(key)
            columns.values.append(value)
            columns.headers.append(no_headers)
        yield columns


def _base_offset(wrapper: MessageHeader, messages: bytes) -> int:
    """Return the number to add to the offsets of the inner messages. It depends on the last one, so all are read."""
    position = count = first = last = 0
    end = len(messages) - _OVERHEAD
    while position <= end:
        last, size = _OFFSET_AND_SIZE.unpack_from(messages, position)
        if size < 0:
            break
        if not count:
            first = last
        position += _OVERHEAD + size
        count += 1
        if count > MAX_MESSAGES:
            raise CorruptRecord(f"a compressed message has more than {MAX_MESSAGES} messages; no more can be read")
    if not count:
        raise CorruptRecord("a compressed message is empty")
    if wrapper.magic == 0:
        if last > wrapper.offset:
            raise CorruptRecord(f"a compressed message at offset {wrapper.offset} ends with {last}")
        return 0
    base = wrapper.offset - last
    if base < 0 or base + first < 0:
        raise CorruptRecord(f"a compressed message at offset {wrapper.offset} has more messages than its offset allows")
    return base


def _key_and_value(data: memoryview, message: MessageHeader) -> tuple[bytes | None, bytes | None]:
    key, position = _read_bytes(data, message.body)
    value, position = _read_bytes(data, position)
    if position != len(data):
        raise CorruptRecord(f"a message has {len(data) - position} bytes after its value")
    return key, value


def _read_bytes(data: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + 4
    if start > len(data):
        raise CorruptRecord("a message ends before its key or value")
    length: int = _INT32.unpack_from(data, position)[0]
    if length == -1:
        return None, start
    if length < 0:
        raise CorruptRecord(f"a message has a key or value of {length} bytes")
    # A wrong length makes this slice too short, and then the position differs from the end of the message.
    return bytes(data[start : start + length]), start + length


def with_right_lz4_header(frame: bytes) -> bytes:
    """Return the lz4 frame with the correct header checksum.

    Kafka's clients before 0.10 included the magic number in that checksum. The checksum of the message covers the
    header too, so replacing it hides no corruption.
    """
    if len(frame) < 7:
        return frame
    flags = frame[4]
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    right = xxh32_of_short(frame[4:end]) >> 8 & 0xFF
    return frame[:end] + bytes((right,)) + frame[end + 1 :]


def xxh32_of_short(data: bytes) -> int:
    """Return the XXH32 hash, with seed 0, of fewer than 16 bytes (https://github.com/Cyan4973/xxHash)."""
    hashed = 0x165667B1 + len(data)
    words = len(data) & ~3
    for start in range(0, words, 4):
        hashed += int.from_bytes(data[start : start + 4], "little") * 0xC2B2AE3D
        hashed = _rotated(hashed & 0xFFFFFFFF, 17) * 0x27D4EB2F & 0xFFFFFFFF
    for byte in data[words:]:
        hashed = _rotated(hashed + byte * 0x165667B1 & 0xFFFFFFFF, 11) * 0x9E3779B1 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF

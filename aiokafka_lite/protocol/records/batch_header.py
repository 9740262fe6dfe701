"""The header of a record batch of format v2: its layout, its flags and its checksum."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from .checksum import crc32c
from .record_format import Buffer

# Compiled code reads a Final without a lookup in the module's dictionary.
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length: the length field does not count them
CRC_COVERS_FROM: Final = 21
MAGIC_AT: Final = 16
PRODUCER_ID_AT: Final = 43
INT64_MAX: Final = (1 << 63) - 1

HEADER: Final = Struct(">qiibIhiqqqhii")
_BEFORE_CRC = Struct(">qiib")
_CRC = Struct(">I")
_AFTER_CRC = Struct(">hiqqqhii")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20


def with_header(records: Buffer, **fields: Any) -> bytes:
    """Encode a batch of these records. ``fields`` are arguments of ``encode_header``."""
    return b"".join((encode_header(records, **fields), records))


def encode_header(
    records: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: tuple[int, int, int],
    count: int,
) -> bytes:
    """Encode the header of a batch of these records, with its checksum."""
    # Nine parameters: the fields of the header.
    covered = _AFTER_CRC.pack(attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count)
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    checksum = crc32c(records, crc32c(covered))  # continued over the records, so that nothing is joined
    header = b"".join((_BEFORE_CRC.pack(base_offset, length, leader_epoch, 2), _CRC.pack(checksum), covered))
    assert len(header) == HEADER_SIZE, "the header always has the same size, so it is replaced in place"
    return header


def rewrite_header(batch: Buffer, base_offset: int, leader_epoch: int, log_append_time: int | None = None) -> bytes:
    """Return a copy of a batch of format v2 with the base offset and the leader epoch that the leader assigns.

    ``log_append_time``, in milliseconds, becomes the timestamp of all records and requires a new checksum. Without it,
    the producer's checksum stays. The batch must be complete: nothing is checked here.
    """
    view = memoryview(batch)
    _, length, _, magic, _, attributes, last_offset_delta, base_timestamp, _, *rest = HEADER.unpack_from(view)
    before = _BEFORE_CRC.pack(base_offset, length, leader_epoch, magic)
    # The checksum covers neither the base offset nor the leader epoch, so it stays valid.
    if log_append_time is None:
        return b"".join((before, view[len(before) :]))
    covered = _AFTER_CRC.pack(attributes | LOG_APPEND_TIME, last_offset_delta, base_timestamp, log_append_time, *rest)
    records = view[HEADER_SIZE:]
    return b"".join((before, _CRC.pack(crc32c(records, crc32c(covered))), covered, records))


def replace_max_timestamp(batch: Buffer, max_timestamp: int) -> bytes:
    """Return a copy of a complete batch of format v2 with this highest timestamp, and a new checksum."""
    view = memoryview(batch)
    base_offset, length, epoch, magic, _, attributes, last_offset_delta, base_timestamp, _, *rest = HEADER.unpack_from(
        view
    )
    before = _BEFORE_CRC.pack(base_offset, length, epoch, magic)
    covered = _AFTER_CRC.pack(attributes, last_offset_delta, base_timestamp, max_timestamp, *rest)
    records = view[HEADER_SIZE:]
    return b"".join((before, _CRC.pack(crc32c(records, crc32c(covered))), covered, records))


def max_timestamp_of(batch: Buffer) -> int:
    """Return the highest timestamp, in milliseconds, that the header of a batch of format v2 has."""
    max_timestamp: int = HEADER.unpack_from(batch)[8]
    return max_timestamp

"""A serialized record before it is in a batch, and the bytes of ``buffer_memory`` that it is charged for."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import ErrorCode, RecordTooLarge
from ..protocol.records import HEADER_SIZE
from ..settings.producer import ProducerConfig
from ..types import Header

RECORD_OVERHEAD: Final = 24
"""The maximum number of bytes of a record besides key, value and headers: its lengths and deltas."""

HEADER_OVERHEAD: Final = 10
"""The maximum number of bytes of a header besides its name and value."""

BATCH_OVERHEAD = 1_000
"""Approximate bytes of an unsettled batch besides its records. If a batch is smaller than eight times this number, its
records are charged for a share of this number."""

PENDING_OVERHEAD = 256
"""Additional bytes of a record while it is pending for its topic, because it consists of Python objects then."""


class PreparedRecord(NamedTuple):
    """A serialized record. ``timestamp`` is in milliseconds.

    ``size`` is the number of bytes of ``buffer_memory`` that the record uses. ``surplus`` of them are released when a
    pending record moves into a batch, where it takes less memory.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int
    size: int
    surplus: int = 0


# Hot: runs for each record with headers.
def size_of_headers(headers: tuple[Header, ...]) -> int:
    """Return the bytes of ``buffer_memory`` that the headers of a record use."""
    size = 0
    for header in headers:
        value: bytes | None = header[1]
        # An upper estimate for most names. Encoding a name only to measure it would cost more than these bytes.
        size += HEADER_OVERHEAD + 3 * len(header[0])
        if value is not None:
            size += len(value)
    return size


def largest_record(config: ProducerConfig) -> int:
    """Return the bytes of the largest record that may be sent, without its batch's header."""
    return min(config.max_request_size - HEADER_SIZE, config.buffer_memory)


def largest_pending_record(config: ProducerConfig) -> int:
    """Return the most bytes of ``buffer_memory`` that a record can use while it is pending."""
    overhead = PENDING_OVERHEAD + (BATCH_OVERHEAD if config.smallest_batch_size < 8 * BATCH_OVERHEAD else 0)
    return min(largest_record(config) + overhead, config.buffer_memory)


def too_large(config: ProducerConfig, topic: str, size: int) -> RecordTooLarge:
    """Return the error for a record that is larger than ``largest_record``."""
    limit = "max_request_size" if config.max_request_size <= config.buffer_memory else "buffer_memory"
    return RecordTooLarge(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record of {size + HEADER_SIZE} bytes for topic {topic!r} is above {limit}={getattr(config, limit)}",
    )

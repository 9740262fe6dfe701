"""A serialized record before it is in a batch, and the bytes of ``buffer_memory`` that it is charged for."""

from __future__ import annotations

from typing import Final, NamedTuple

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

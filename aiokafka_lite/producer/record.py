"""A record before it is in a batch, and the bytes of ``buffer_memory`` that it is charged for."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..types import Header

RECORD_OVERHEAD: Final = 24
"""The maximum number of bytes of a record besides key, value and headers: its lengths and deltas."""

HEADER_OVERHEAD = 10
"""The maximum number of bytes of a header besides its name and value."""

BATCH_OVERHEAD = 1_000
"""Approximate bytes of an unsettled batch besides its records. Records of batches smaller than eight times this are
charged for a share of it."""

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

"""The offsets that are finished ahead of a committed offset, as the metadata of the commit. Pure.

The format, version 1: ``finished:1:`` and URL-safe base64 without padding. The decoded bytes are unsigned varints
(LEB128), the lengths of runs of offsets from the committed offset on: unfinished, finished, unfinished, finished and so
on. The first run is not empty. Offsets behind the last run are unfinished. An offset without a record, such as that of
a transaction marker, is in either run.

The text has at most MAX_LENGTH characters, the default of the broker's ``offset.metadata.max.bytes``. Runs that find
no room are left out, so their records are processed again. Other clients ignore the text, and it says nothing if
another client commits another offset, because the metadata belongs to its commit.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence

from ..protocol.wire import put_uvarint

PREFIX = "finished:1:"
MAX_LENGTH = 4096
_MAX_BYTES = (MAX_LENGTH - len(PREFIX)) * 3 // 4
_MAX_OFFSET = 2**63 - 1

Runs = Sequence[tuple[int, int]]
"""Finished offsets, as ranges in rising order: the first offset, and the offset after the last one."""


def finished_runs(records: Iterable[tuple[int, bool]]) -> list[tuple[int, int]]:
    """Return the runs of finished offsets. ``records``: offsets in rising order, and whether each is finished."""
    runs: list[tuple[int, int]] = []
    start: int | None = None
    last = 0
    for offset, is_finished in records:
        if is_finished and start is None:
            start = offset
        elif not is_finished and start is not None:
            runs.append((start, last + 1))
            start = None
        last = offset
    if start is not None:
        runs.append((start, last + 1))
    return runs


def encode(committed: int, runs: Runs) -> str:
    """Return the metadata for a commit of the offset ``committed``. Empty if no run is behind it."""
    data = bytearray()
    position = committed
    for start, end in runs:
        if start <= position:
            continue  # the committed offset is unfinished, or there would be a later commit
        before = len(data)
        put_uvarint(data, start - position)
        put_uvarint(data, end - start)
        if len(data) > _MAX_BYTES:
            del data[before:]
            break
        position = end
    return PREFIX + urlsafe_b64encode(data).decode().rstrip("=") if data else ""


def decode(committed: int, metadata: str) -> list[tuple[int, int]]:
    """Return the runs of finished offsets behind ``committed``. None are in metadata of another format."""
    if not is_annotation(metadata) or len(metadata) > MAX_LENGTH:
        return []
    text = metadata[len(PREFIX) :]
    try:
        lengths = _varints(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        return []
    runs: list[tuple[int, int]] = []
    position = committed
    for gap, length in zip(lengths[::2], lengths[1::2], strict=False):
        start, end = position + gap, position + gap + length
        if not gap or not length or end > _MAX_OFFSET:
            return []
        runs.append((start, end))
        position = end
    return runs


def is_annotation(metadata: str) -> bool:
    """Return whether this metadata was written by ``encode``."""
    return metadata.startswith(PREFIX)


def _varints(data: bytes) -> list[int]:
    """Return the unsigned varints. Lengths of runs may be longer than the 32 bits of ``wire.get_uvarint``."""
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value, shift = 0, 0
    if shift:
        raise ValueError("the last varint is cut off")
    return values

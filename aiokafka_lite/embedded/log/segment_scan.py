"""Finds the whole batches of a segment's file, also behind damaged bytes, and writes a file that has them alone.

Kafka's recovery ends a log at the first batch whose checksum is wrong, and deletes all later records. But one flipped
bit says nothing about the batches behind it, which were acknowledged: here they stay, and the damaged file is kept
under another name.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import CorruptRecord
from ...protocol.records import HEADER_SIZE, RecordBatch
from ..json_documents import flush_directory, unused_name
from .log import StoredBatch

_LENGTH_AT = 8
_MAGIC_AT = 16
_MAGIC = b"\x02"
_MAX_LEAP = 1 << 31
"""The most offsets that damaged bytes can have had."""
DAMAGED = ".damaged"
"""The suffix of a file or directory that is kept aside because it is damaged."""


@dataclass(slots=True)
class SegmentScan:
    """The content of a segment's file: its whole batches with their places, and the bytes between them.

    ``largest_producer_id`` is -1 without producers. The batches have no bytes of their own.
    """

    path: Path
    size: int
    batches: list[tuple[StoredBatch, int]] = field(default_factory=list)  # each with its position
    gaps: list[tuple[int, int]] = field(default_factory=list)  # damaged bytes: position and end
    largest_producer_id: int = -1

    def is_torn(self, flushed: int) -> bool:
        """Return whether only unflushed bytes at the end are damaged: what a crash leaves of the last write."""
        return len(self.gaps) == 1 and self.gaps[0][1] == self.size and self.gaps[0][0] >= flushed

    @property
    def end_position(self) -> int:
        """The size of the whole batches."""
        return sum(batch.size for batch, _ in self.batches)

    def lost_offsets(self, next_offset: int) -> str:
        """Return the offsets that the damaged bytes had, as far as the batches around them tell."""
        first, last = next_offset, -1
        for batch, position in self.batches:
            if position < self.gaps[0][0]:
                first = batch.next_offset
            elif position >= self.gaps[-1][1]:
                last = batch.base_offset - 1
                break
        return f"offsets {first} to {last}" if last >= 0 else f"the offsets from {first} on"

    def keep_whole_batches(self) -> Path:
        """Replace the file by one with the whole batches alone. Returns the name of the old file. Raises OSError."""
        aside = unused_name(self.path, DAMAGED)
        temporary = self.path.with_suffix(".tmp")
        with self.path.open("rb") as source, temporary.open("wb") as target:
            for batch, position in self.batches:
                source.seek(position)
                target.write(source.read(batch.size))
            target.flush()
            os.fsync(target.fileno())
        # The link comes first: at no moment is the file without a name.
        os.link(self.path, aside)
        temporary.replace(self.path)
        flush_directory(self.path.parent)
        return aside


def scan_segment(path: Path, next_offset: int) -> SegmentScan:
    """Find the whole batches of a file, from ``next_offset`` on. Raises OSError."""
    scan = SegmentScan(path, path.stat().st_size)
    size = scan.size
    if not size:
        return scan
    position = 0
    before = next_offset  # the next offset before the last batch
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while position < size:
            view = _batch_at(content, position, size)
            if view is not None and before <= view.base_offset < next_offset and scan.batches:
                last, place = scan.batches[-1]
                if last.base_offset > before:
                    # The checksum does not cover the base offset. It is wrong in the batch that leaps ahead.
                    scan.batches.pop()
                    scan.gaps.append((place, position))
                    next_offset = before
            if view is None or view.base_offset < next_offset:
                resumed = _next_batch(content, position, size, next_offset)
                scan.gaps.append((position, resumed))
                position = resumed
                continue
            stored = StoredBatch(
                view.base_offset, view.last_offset, view.max_timestamp, view.leader_epoch, _no_bytes, view.size
            )
            scan.batches.append((stored, position))
            scan.largest_producer_id = max(scan.largest_producer_id, view.producer_id)
            position += view.size
            before, next_offset = next_offset, stored.next_offset
    return scan


def _no_bytes() -> bytes:
    raise AssertionError("the batch of a scan has no bytes")


def _next_batch(content: mmap.mmap, position: int, size: int, next_offset: int) -> int:
    """Return the position of the first whole batch behind damaged bytes; the size of the file if there is none."""
    # Mostly the records are damaged, and the header still says where the batch ends. It is asked first, because the
    # value of a record may contain a whole batch.
    end = position + _length_at(content, position, size)
    if end == size or (end > position and _is_whole(content, end, size, next_offset)):
        return end
    magic = content.find(_MAGIC, position + 1 + _MAGIC_AT)
    while magic >= 0:
        if _is_whole(content, magic - _MAGIC_AT, size, next_offset):
            return magic - _MAGIC_AT
        magic = content.find(_MAGIC, magic + 1)
    return size


def _is_whole(content: mmap.mmap, position: int, size: int, next_offset: int) -> bool:
    # The offset is compared first, because the other bytes may be anything: checksums of a gigabyte would be computed.
    base_offset = int.from_bytes(content[position : position + 8], "big")
    if not next_offset <= base_offset < next_offset + _MAX_LEAP:
        return False
    return _batch_at(content, position, size) is not None


def _length_at(content: mmap.mmap, position: int, size: int) -> int:
    """Return the size of the batch at a position as its header says; 0 if that cannot be."""
    if size - position < HEADER_SIZE:
        return 0
    length = int.from_bytes(content[position + _LENGTH_AT : position + _LENGTH_AT + 4], "big") + 12
    return length if HEADER_SIZE <= length <= size - position else 0


def _batch_at(content: mmap.mmap, position: int, size: int) -> RecordBatch | None:
    """Parse the batch at a position, and check its CRC; None if it is cut or damaged."""
    length = _length_at(content, position, size)
    if not length:
        return None
    try:
        view = RecordBatch(content[position : position + length])
        view.verify_crc()
    except CorruptRecord:
        return None
    return view

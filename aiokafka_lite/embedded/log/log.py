"""A replica's log: batches in segments, found by offset or by time, and stored as the bytes that arrived.

The log has offsets, epochs, times and sizes. It does not depend on leaders, requests, or the content of records: only a
lookup by time and compaction decode a batch. A batch is an immutable ``bytes``: all replicas of a partition share one
copy of it, and a read of one batch copies nothing.

Invariants:

 1. Base offsets increase strictly.
 2. ``start_offset <= high_watermark <= end_offset``.
 3. Every segment except the last one has batches.
 4. The batches of an epoch are contiguous.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ...compiled import mypyc_attr
from ...errors import ErrorCode
from ...protocol.records import RecordBatch, split_batches
from ...protocol.records.batch_header import MAGIC_AT, PRODUCER_ID_AT
from ...protocol.records.scan import RecordSpan, scan

MAX_DECOMPRESSED_SIZE = 128 * 1024 * 1024


class StoredBatch:
    """One batch of the log: the values for lookups, and the bytes with their final offsets.

    ``source`` is the bytes, or a function that reads ``size`` bytes from where they are kept.
    """

    __slots__ = ("_source", "base_offset", "last_offset", "leader_epoch", "max_timestamp", "size")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
        source: bytes | Callable[[], bytes],
        size: int = -1,
    ) -> None:
        self.base_offset: int = base_offset
        self.last_offset: int = last_offset
        self.max_timestamp: int = max_timestamp
        self.leader_epoch: int = leader_epoch
        self._source = source
        self.size: int = len(source) if isinstance(source, bytes) else size

    def __repr__(self) -> str:
        return f"<StoredBatch {self.base_offset}..{self.last_offset} epoch={self.leader_epoch} size={self.size}>"

    @property
    def data(self) -> bytes:
        """All bytes. Raises OSError if they are in a file that cannot be read."""
        source = self._source
        return source if isinstance(source, bytes) else source()

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def has_producer(self) -> bool:
        """Whether the batch has the id of a producer. Older formats have none."""
        data = self.data
        return data[MAGIC_AT] >= 2 and data[PRODUCER_ID_AT] < 0x80  # the first bit is the sign

    def view(self) -> RecordBatch:
        """Return the parsed header of these bytes."""
        return split_batches(self.data)[0]

    def scan(self) -> Iterator[RecordSpan]:
        """Return the records, without their values and headers."""
        view = self.view()
        return scan(view, view.body(MAX_DECOMPRESSED_SIZE))


class EpochEnd(NamedTuple):
    """The end of an epoch in this log; ``(-1, -1)`` if the log does not know it.

    ``EpochEnd`` of ``admin`` is this answer as a client reads it.
    """

    epoch: int
    end_offset: int


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class OffsetOutsideLog(Exception):
    """The offset of a read is below the start or above the end of the log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


@mypyc_attr(allow_interpreted_subclasses=True)
class Segment:
    """Consecutive batches that are kept or deleted together. This one is in memory."""

    __slots__ = ("base_offset", "bases", "batches", "ends", "peaks")

    def __init__(self, base_offset: int) -> None:
        self.base_offset: int = base_offset
        self.batches: list[StoredBatch] = []
        self.bases: list[int] = []
        self.ends: list[int] = []  # bytes up to and including the batch
        self.peaks: list[int] = []  # highest timestamp up to and including the batch

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def max_timestamp(self) -> int:
        return self.peaks[-1] if self.peaks else -1

    def append(self, batch: StoredBatch) -> None:
        assert not self.bases or batch.base_offset > self.bases[-1], "base offsets increase strictly"
        self.ends.append(self.size + batch.size)
        self.peaks.append(max(self.max_timestamp, batch.max_timestamp))
        self.bases.append(batch.base_offset)
        self.batches.append(batch)

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch that ends at or after ``offset``."""
        index = bisect_right(self.bases, offset) - 1
        if index >= 0 and self.batches[index].last_offset >= offset:
            return index
        return index + 1

    def truncate(self, offset: int) -> None:
        """Delete every batch that has a record at or after ``offset``."""
        count = bisect_left(self.bases, offset)
        if count and self.batches[count - 1].last_offset >= offset:
            count -= 1
        del self.batches[count:], self.bases[count:], self.ends[count:], self.peaks[count:]

    def flush(self) -> None:
        """Wait until the disk has everything."""

    def delete(self) -> None:
        """Delete the storage of a segment that the log has dropped."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Segments:
    """Makes the segments of a log: here in memory, and in ``files`` on disk."""

    def create(self, base_offset: int) -> Segment:
        """Return an empty segment at the end of the log."""
        return Segment(base_offset)

    def create_compacted(self, base_offset: int) -> Segment:
        """Return an empty segment for the records that a compaction keeps."""
        return Segment(base_offset)

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace the segments ``old`` by ``new``, as the log is about to do."""

    def keep_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Keep these epochs, each with its first offset: a compaction may remove all of their batches."""

    def start_moved(self, start_offset: int) -> None:
        """Note that the log starts at this offset now; the records before it are about to be deleted."""

    def restarted(self, start_offset: int) -> None:
        """Note that the log continues at this offset; all its segments are about to be deleted."""

    def shortened(self, end_offset: int) -> None:
        """Note that the records from this offset on are about to be deleted."""


class Log:
    """The log of one replica. Owner: the replica's ``Partition``."""

    def __init__(self, segment_bytes: int = 1024**3, made_by: Segments | None = None) -> None:
        self.segment_bytes = segment_bytes
        self._made_by = made_by or Segments()
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.high_watermark: int = 0
        self.compacted_up_to: int = 0
        self.segments: list[Segment] = [self._made_by.create(0)]
        self.epochs: list[tuple[int, int]] = []  # (epoch, its first offset)

    def __repr__(self) -> str:
        return f"<Log {self.start_offset}..{self.high_watermark}..{self.end_offset} segments={len(self.segments)}>"

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def batches(self) -> Iterator[StoredBatch]:
        for segment in self.segments:
            yield from segment.batches

    def load(
        self, segments: list[Segment], start_offset: int, high_watermark: int, epochs: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Begin with the segments of an earlier run, at least one. Only the last one may be empty.

        ``epochs`` are the epochs at the last compaction, which may have removed all batches of an epoch.
        """
        self.segments = segments
        last = segments[-1]
        self.end_offset = max(last.batches[-1].next_offset if last.batches else last.base_offset, start_offset)
        # Not the first segment's base: compaction may have removed the batches before it.
        self.start_offset = start_offset
        # A crash leaves an old high watermark, and may cut the end of the log: invariant 2 must hold all the same.
        self.high_watermark = min(max(high_watermark, self.start_offset), self.end_offset)
        first_batches = [next(group) for _, group in groupby(self.batches(), key=_epoch_of_batch)]
        starts = [(batch.base_offset, batch.leader_epoch) for batch in first_batches]
        starts += [(start, epoch) for epoch, start in epochs if start < self.end_offset]
        for start, epoch in sorted(starts):
            self.assign_epoch(epoch, max(start, self.start_offset))

    # Writing.

    def append(self, batch: StoredBatch) -> None:
        """Append a batch. Its offsets are final, and not below ``end_offset``."""
        if batch.base_offset < self.end_offset:
            raise ValueError(f"{self!r}: the base offset must be >= {self.end_offset}, got {batch.base_offset}")
        self.assign_epoch(batch.leader_epoch, batch.base_offset)
        active = self.segments[-1]
        if active.batches and active.size + batch.size > self.segment_bytes:
            # Flushed first, so that a crash cannot lose records of this segment but keep records of the next one.
            active.flush()
            active = self._made_by.create(batch.base_offset)
            self.segments.append(active)
        active.append(batch)
        self.end_offset = batch.next_offset
        self._check_order()

    def roll(self) -> None:
        """Close the active segment, so that retention and compaction apply to it."""
        if self.segments[-1].batches:  # every segment except the last one has batches
            self.flush()
            self.segments.append(self._made_by.create(self.end_offset))

    def flush(self) -> None:
        """Wait until the disk has everything. A log in memory has nothing to do. Raises OSError."""
        self.segments[-1].flush()

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that ``epoch`` starts at ``start_offset``, if it is later than all others."""
        if epoch > self.last_epoch:
            while self.epochs and self.epochs[-1][1] >= start_offset:
                self.epochs.pop()  # an epoch that starts here or later has no records
            self.epochs.append((epoch, start_offset))

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, at most to the end of the log. True if it moved."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self._check_order()
        return True

    def _check_order(self) -> None:
        assert self.start_offset <= self.high_watermark <= self.end_offset, "log start <= high watermark <= log end"

    def truncate_to(self, offset: int) -> bool:
        """Delete the batches from ``offset`` on. True if there were any."""
        if offset >= self.end_offset:
            return False
        if offset < self.start_offset:
            # The leader's log ends before this log begins, so the two have no common record.
            self.reset_to(offset)
            return True
        self._made_by.shortened(offset)
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            self.segments.pop().delete()
        self.segments[-1].truncate(offset)
        self.end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.compacted_up_to = min(self.compacted_up_to, offset)
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()
        self._check_order()
        return True

    def reset_to(self, offset: int) -> None:
        """Delete everything; the log continues at ``offset``."""
        self.start_offset = self.end_offset = self.high_watermark = self.compacted_up_to = offset
        self._restart(offset)
        self.epochs.clear()

    def _restart(self, offset: int) -> None:
        # This comes first: after a crash, the log must not begin, and continue, at its old start.
        self._made_by.restarted(offset)
        for segment in self.segments:
            segment.delete()
        self.segments = [self._made_by.create(offset)]

    def delete_before(self, offset: int) -> None:
        """Move the start of the log to ``offset``, and delete whole segments below it."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        if offset >= self.end_offset:
            # The last epoch stays although it has no records: the next batch may belong to it, and readers compare it.
            last_epoch = self.epochs[-1:]
            self.end_offset = offset
            self._restart(offset)
            self.epochs = [(epoch, offset) for epoch, _ in last_epoch]
            return
        self._made_by.start_moved(offset)
        self._check_order()
        # Only whole segments go. Records below the start of the log may stay in the first segment; they are never read.
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            self.segments.pop(0).delete()
        while len(self.epochs) > 1 and self.epochs[1][1] <= offset:
            self.epochs.pop(0)
        if self.epochs and self.epochs[0][1] < offset:
            self.epochs[0] = (self.epochs[0][0], offset)

    def apply_retention(self, now_ms: int, retention_ms: int, retention_bytes: int) -> bool:
        """Delete old segments below the high watermark, by age and by size. A negative limit is no limit."""
        before = self.start_offset
        size = self.size
        while len(self.segments) > 1 or self.segments[0].batches:
            oldest = self.segments[0]
            next_base = self.segments[1].base_offset if len(self.segments) > 1 else self.end_offset
            # As in Kafka, retention deletes only records below the high watermark: a follower may need the others.
            if next_base > self.high_watermark or not oldest.batches:
                break
            aged = 0 <= retention_ms < now_ms - oldest.max_timestamp
            crowded = 0 <= retention_bytes <= size - oldest.size
            if not (aged or crowded):
                break
            size -= oldest.size
            self.delete_before(next_base)
        return self.start_offset > before

    def replace_segments(self, count: int, batches: Iterable[StoredBatch]) -> None:
        """Replace the first ``count`` segments by compacted batches. Offsets and epochs do not change."""
        compacted: list[Segment] = []
        for batch in batches:
            if not compacted or compacted[-1].size + batch.size > self.segment_bytes:
                compacted.append(self._made_by.create_compacted(batch.base_offset))
            compacted[-1].append(batch)
        # Before the swap: after a crash in between, the epochs of removed batches would be lost.
        self._made_by.keep_epochs([entry for entry in self.epochs if _start_of(entry) < self.high_watermark])
        assert count < len(self.segments), "the active segment is never compacted"
        self._made_by.replace(self.segments[:count], compacted)
        self.segments = [*compacted, *self.segments[count:]]

    # Reading.

    def _segment_index(self, offset: int) -> int:
        if len(self.segments) == 1:
            return 0
        return max(0, bisect_right(self.segments, offset, key=_base_of) - 1)

    def read(self, offset: int, max_bytes: int, end: int, *, at_least_one: bool = False) -> bytes:
        """Read the batches from ``offset`` on that end before ``end``, at most ``max_bytes``.

        As with Kafka's file slices, the limit cuts a batch anywhere. It does not cut the first batch, which is left out
        or, with ``at_least_one``, returned whole. Raises OffsetOutsideLog.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutsideLog(f"the offset must be from {self.start_offset} to {self.end_offset}, got {offset}")
        if offset >= end:
            return b""
        chunks: list[bytes] = []
        room = max_bytes
        for batch in self.batches_from(offset):
            if batch.last_offset >= end:
                break
            data = batch.data
            if len(data) > room:
                if chunks:
                    chunks.append(data[:room])
                elif at_least_one:
                    chunks.append(data)
                break
            chunks.append(data)
            room -= len(data)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def batches_from(self, offset: int) -> Iterator[StoredBatch]:
        """Yield the batches in order, from the first batch that ends at or after ``offset``."""
        first = self._segment_index(offset)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            batches = segment.batches
            # A slice is not used, because it would copy the rest of the segment at each read: 500,000 references for
            # small records.
            for index in range(segment.index_of(offset) if number == first else 0, len(batches)):
                yield batches[index]

    def bytes_between(self, offset: int, end: int) -> int:
        """Return the size of the batches from ``offset`` up to ``end``, without reading them."""
        if offset >= end:
            return 0
        total = 0
        for number in range(self._segment_index(offset), len(self.segments)):
            segment = self.segments[number]
            if segment.base_offset >= end:
                break
            first, last = segment.index_of(offset), bisect_left(segment.bases, end)
            if last > first:
                total += segment.ends[last - 1] - (segment.ends[first - 1] if first else 0)
        return total

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at ``offset``; -1 if unknown."""
        index = bisect_right(self.epochs, offset, key=_start_of) - 1
        return self.epochs[index][0] if index >= 0 else -1

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch here that is not above ``epoch``, and the offset of its end (KIP-101, KIP-279)."""
        if epoch == -1 or not self.epochs:
            return EpochEnd(-1, -1)
        if epoch == self.last_epoch:
            return EpochEnd(epoch, self.end_offset)
        if epoch > self.last_epoch:
            return EpochEnd(-1, -1)
        index = bisect_right(self.epochs, epoch, key=_epoch_of)
        if index == 0:
            # As Kafka's LeaderEpochFileCache: the epoch is older than this log, so it ended where the log begins.
            return EpochEnd(epoch, self.epochs[0][1])
        return EpochEnd(self.epochs[index - 1][0], self.epochs[index][1])

    def offset_for_time(self, timestamp: int) -> TimestampedOffset | None:
        """Return the first record with a timestamp >= ``timestamp`` (milliseconds); None if there is none."""
        for segment in self.segments:
            if segment.max_timestamp < timestamp:
                continue
            first = max(bisect_left(segment.peaks, timestamp), segment.index_of(self.start_offset))
            for batch in segment.batches[first:]:
                if batch.max_timestamp < timestamp:
                    continue
                record = _first_record(batch, lambda at, offset: at >= timestamp and offset >= self.start_offset)
                if record is not None:
                    return record
        return None

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record with the highest timestamp (KIP-734); None if there are no records.

        Records without a timestamp have -1. As in Kafka, it may be a deleted record whose segment is still there.
        """
        segment = max(self.segments, key=_peak_of)
        if not segment.batches:
            return None
        highest = segment.max_timestamp
        batch = segment.batches[bisect_left(segment.peaks, highest)]
        return _first_record(batch, lambda at, offset: at >= highest)


def _base_of(segment: Segment) -> int:
    return segment.base_offset


def _peak_of(segment: Segment) -> int:
    return segment.max_timestamp


def _epoch_of_batch(batch: StoredBatch) -> int:
    return batch.leader_epoch


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]


def _first_record(batch: StoredBatch, matches: Callable[[int, int], bool]) -> TimestampedOffset | None:
    for record in batch.scan():
        if matches(record.timestamp, record.offset):
            return TimestampedOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None

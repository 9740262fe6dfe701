"""Selects the records of a ShareFetch answer that the member has acquired. Pure.

Brokers send whole batches, and a batch may also have records that another member has acquired. An acquired offset may
have no record: compaction removed it, or it is a control record. Such an offset is acknowledged as a gap.

Batches are decoded one at a time, when the reader needs their records: kilobytes may decompress to many megabytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from ..consumer.chunk import corrupt, decode
from ..consumer.rows import iterate_rows
from ..errors import CorruptRecord, ProtocolError
from ..protocol.codec import Buffer
from ..protocol.messages import ShareAcquiredRecords
from ..protocol.messages.share_fetch import MAX_ACQUIRED_RANGES
from ..protocol.records import RecordBatch
from ..protocol.records.batch import split_batches
from ..types import Compression, ShareRecord, TopicPartition
from .acknowledgements import AcknowledgeType, SettledRange

MAX_ACQUIRED = 1_000_000
"""Offsets in one answer. Brokers lock at most 10,000 records of a partition, in whole batches."""


class _Range(NamedTuple):
    """Acquired offsets, both ends included."""

    first: int
    last: int
    delivery_count: int

    @property
    def offsets(self) -> range:
        return range(self.first, self.last + 1)


class DecodedBatch(NamedTuple):
    """The acquired records of one batch.

    ``settled`` has the offsets without a record (GAP), or all of a damaged batch (REJECT), whose error is ``failure``.
    ``size`` is the approximate number of bytes in memory.
    """

    records: Sequence[ShareRecord]
    settled: Sequence[SettledRange]
    failure: CorruptRecord | None = None
    size: int = 0
    redelivered: int = 0


class AcquiredRecords:
    """The acquired records of one partition, in the order of their offsets. ``decode`` takes the next batch.

    ``settled`` has offsets that are acknowledged at once:

    - GAP: offsets between batches
    - REJECT: offsets of data that is no batch
    - RELEASE: offsets behind the last whole batch of an incomplete answer. A later fetch begins with them.

    ``failure`` is the error of the rejected data. The constructor raises ProtocolError for invalid offsets.
    """

    __slots__ = ("_batches", "_check_crc", "_max_size", "_partition", "failure", "settled")

    def __init__(
        self,
        partition: TopicPartition,
        data: Buffer,
        acquired: Iterable[ShareAcquiredRecords],
        *,
        check_crc: bool,
        max_size: int,
    ) -> None:
        self._partition = partition
        self._check_crc = check_crc
        self._max_size = max_size
        self._batches: deque[tuple[RecordBatch, list[_Range]]] = deque()
        self.settled: list[SettledRange] = []
        self.failure: CorruptRecord | None = None
        ranges = _Ranges(partition, acquired)
        try:
            batches = split_batches(data)
        except CorruptRecord as error:
            self._settle(ranges.within(0, ranges.end), AcknowledgeType.REJECT)
            self.failure = error
            return
        position = 0  # offsets below it were in earlier batches; a batch that repeats them does not count
        for batch in batches:
            # The first offset of a compressed message of an old format is known only after decompression.
            first = position if batch.count < 0 else max(position, batch.base_offset)
            self._settle(ranges.within(position, first - 1), AcknowledgeType.GAP)
            of_batch = list(ranges.within(first, batch.last_offset))
            if of_batch:
                self._batches.append((batch, of_batch))
            assert position <= first, "batches and acquired ranges ascend, and no offset is in two batches"
            position = max(first, batch.last_offset + 1)
        self._settle(ranges.within(position, ranges.end), AcknowledgeType.RELEASE)

    def __bool__(self) -> bool:
        """Return whether there are batches to decode."""
        return bool(self._batches)

    def __len__(self) -> int:
        """Return the number of acquired offsets in batches that are not decoded."""
        return sum(len(offset_range.offsets) for _, ranges in self._batches for offset_range in ranges)

    def released(self) -> list[SettledRange]:
        """Return the results that release all acquired offsets in batches that are not decoded."""
        return _settled(chain.from_iterable(ranges for _, ranges in self._batches), AcknowledgeType.RELEASE)

    def release_behind(self, keep: float, *, also_redelivered: bool) -> list[SettledRange]:
        """Drop the offsets of the batches behind the first ``keep`` offsets, and return the results that release them.

        Redelivered records are dropped only with ``also_redelivered``. Of a batch with both kinds, they stay.
        """
        remaining: deque[tuple[RecordBatch, list[_Range]]] = deque()
        released: list[_Range] = []
        for batch, ranges in self._batches:
            stays = [
                offset_range
                for offset_range in ranges
                if keep > 0 or (offset_range.delivery_count > 1 and not also_redelivered)
            ]
            released += [offset_range for offset_range in ranges if offset_range not in stays]
            if stays:
                remaining.append((batch, stays))
            keep -= sum(len(offset_range.offsets) for offset_range in ranges)
        self._batches = remaining
        return _settled(released, AcknowledgeType.RELEASE)

    def decode(self) -> DecodedBatch:
        """Decode the next batch."""
        batch, ranges = self._batches.popleft()
        try:
            records, size = self._read(batch, ranges)
        except CorruptRecord as error:
            return DecodedBatch((), _settled(ranges, AcknowledgeType.REJECT), error)
        redelivered = 0
        if any(offset_range.delivery_count > 1 for offset_range in ranges):
            redelivered = sum(record.delivery_count > 1 for record in records)
        acquired = sum(len(offset_range.offsets) for offset_range in ranges)
        assert len(records) <= acquired, "a batch has at most one record at each acquired offset"
        has_gaps = len(records) < acquired
        return DecodedBatch(records, _gaps(ranges, records) if has_gaps else (), None, size, redelivered)

    def _settle(self, ranges: Iterable[_Range], kind: AcknowledgeType) -> None:
        self.settled += _settled(ranges, kind)

    def _read(self, batch: RecordBatch, ranges: Sequence[_Range]) -> tuple[list[ShareRecord], int]:
        """Decode the records of these offsets. Returns them, and the approximate number of bytes that they take."""
        records: list[ShareRecord] = []
        size = batch.size
        partition, first = self._partition, ranges[0].first
        for chunk in decode(partition, batch, None, first, check_crc=self._check_crc, max_size=self._max_size):
            offsets = chunk.offsets
            # Two records at one offset could not be acknowledged separately.
            if any(one == other for one, other in pairwise(offsets)):
                raise corrupt(partition, first, "two records of a batch have the same offset", batch)
            if batch.compression is not Compression.NONE:
                size += sum(map(len, filter(None, chain(chunk.keys, chunk.values))))
            constants = (chunk.topic, chunk.partition, chunk.timestamp_type, chunk.leader_epoch)
            for offset_range in ranges:
                start = max(chunk.index, bisect_left(offsets, offset_range.first))
                rows = slice(start, bisect_left(offsets, offset_range.last + 1))
                records += iterate_rows(
                    ShareRecord,
                    (*constants, offset_range.delivery_count),
                    offsets[rows],
                    chunk.timestamps[rows],
                    chunk.keys[rows],
                    chunk.values[rows],
                    chunk.headers[rows],
                )
        return records, size


def _settled(ranges: Iterable[_Range], kind: AcknowledgeType) -> list[SettledRange]:
    return [SettledRange(offset_range.first, offset_range.last, kind) for offset_range in ranges]


def _gaps(ranges: Iterable[_Range], records: Iterable[ShareRecord]) -> list[SettledRange]:
    """Return the offsets of the ranges that have no record. Both are in the order of their offsets."""
    gaps: list[SettledRange] = []
    present = (record[2] for record in records)
    offset = next(present, None)
    for offset_range in ranges:
        first = offset_range.first
        while offset is not None and offset <= offset_range.last:
            if first < offset:
                gaps.append(SettledRange(first, offset - 1, AcknowledgeType.GAP))
            first, offset = offset + 1, next(present, None)
        if first <= offset_range.last:
            gaps.append(SettledRange(first, offset_range.last, AcknowledgeType.GAP))
    return gaps


class _Ranges:
    """The acquired ranges of one partition. Raises ProtocolError unless they are in order and without overlaps."""

    __slots__ = ("_lasts", "_ranges", "end")

    def __init__(self, partition: TopicPartition, acquired: Iterable[ShareAcquiredRecords]) -> None:
        self._ranges = sorted(
            _Range(acquired_range.first_offset, acquired_range.last_offset, acquired_range.delivery_count)
            for acquired_range in acquired
        )
        end = -1
        for offset_range in self._ranges:
            if not end < offset_range.first <= offset_range.last:
                raise ProtocolError(
                    f"{partition}: acquired offsets must be ascending and at least 0, got {offset_range.first} to"
                    f" {offset_range.last}" + (f" after offset {end}" if end >= 0 else "")
                )
            end = offset_range.last
        self.end = end
        self._lasts = [offset_range.last for offset_range in self._ranges]

    def within(self, first: int, last: int) -> Iterator[_Range]:
        """Yield the acquired offsets from ``first`` to ``last``; none if ``last`` is before ``first``."""
        if last < first:
            return
        for index in range(bisect_left(self._lasts, first), len(self._ranges)):
            offset_range = self._ranges[index]
            if offset_range.first > last:
                return
            yield _Range(max(first, offset_range.first), min(last, offset_range.last), offset_range.delivery_count)


def check_acquired(acquired: Sequence[ShareAcquiredRecords]) -> None:
    """Raise ProtocolError if an answer has more than ``MAX_ACQUIRED_RANGES`` ranges or ``MAX_ACQUIRED`` offsets."""
    if len(acquired) > MAX_ACQUIRED_RANGES:
        raise ProtocolError(
            f"a broker claims to have acquired {len(acquired):,} ranges, more than {MAX_ACQUIRED_RANGES:,}"
        )
    if (
        sum(max(0, acquired_range.last_offset - acquired_range.first_offset + 1) for acquired_range in acquired)
        > MAX_ACQUIRED
    ):
        raise ProtocolError(f"a broker claims to have acquired more than {MAX_ACQUIRED:,} records")

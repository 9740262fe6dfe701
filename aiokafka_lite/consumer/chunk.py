"""Chunks: fetched bytes as records, without records of aborted transactions and records before the position.

Pure. A response is split into batches when it arrives, which reads headers only. A batch is decoded when the reader
reaches it, once, into columns; records are then created from the columns one at a time. So the memory holds data in the
form in which the broker sent it, and each read decodes its own records.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import length_hint

from ..errors import CorruptRecord, ProtocolError
from ..protocol.messages import AbortedTransaction
from ..protocol.records import RecordBatch, RecordColumns
from ..types import Header, Record, TimestampType, TopicPartition
from .rows import iterate_rows, list_rows

ABORT_MARKER = 0  # the ``type`` of a control record that ends an aborted transaction (KIP-98)


class AbortedTransactions:
    """The aborted transactions of one response, which hide some of its batches (read_committed only).

    The broker lists every aborted transaction that overlaps the response as (producer, first offset), in any order. A
    producer's batches are hidden from that offset up to its abort marker, so batches must be passed in order.
    """

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = [(transaction.first_offset, transaction.producer_id) for transaction in aborted]
        heapq.heapify(self._upcoming)
        self._aborting: set[int] = set()

    def drops(self, batch: RecordBatch) -> bool:
        """Return whether the records of this transactional batch are hidden."""
        self._begin_up_to(batch.last_offset)
        return batch.producer_id in self._aborting

    def ended(self, marker: RecordBatch) -> None:
        """Record that a producer's abort marker was reached."""
        # A response may begin with the marker, if the previous response had the records. The transaction must be begun
        # before it is ended. Otherwise it would begin after its end, and hide the producer's next transaction.
        self._begin_up_to(marker.last_offset)
        self._aborting.discard(marker.producer_id)

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            self._aborting.add(heapq.heappop(self._upcoming)[1])


NONE_ABORTED = AbortedTransactions(())
"""For all answers without aborted transactions: it hides nothing, so it never changes."""


class Chunk:
    """Decoded records of a batch, or of a part of it. Owner: the ``Buffer`` of their partition.

    ``index`` is the next record to deliver. During an iteration the true index is in the iterator of the offsets, and
    ``settle`` writes it back. So an iteration runs no code here for each record.
    """

    __slots__ = (
        "_begin",
        "_columns",
        "_end",
        "_iterated",
        "header_count",
        "headers",
        "index",
        "keys",
        "leader_epoch",
        "next_offset",
        "offsets",
        "partition",
        "size",
        "start",
        "timestamp_type",
        "timestamps",
        "topic",
        "values",
    )

    def __init__(self, partition: TopicPartition, batch: RecordBatch, columns: RecordColumns, position: int) -> None:
        self.topic: str = partition.topic
        self.partition: int = partition.partition
        self._columns = columns  # has the same lists as the chunk
        self.offsets: list[int] = columns.offsets
        self.timestamps: list[int] = columns.timestamps
        self.keys: list[bytes | None] = columns.keys
        self.values: list[bytes | None] = columns.values
        self.headers: list[tuple[Header, ...]] = columns.headers
        self.header_count: int = columns.header_count
        self.timestamp_type: TimestampType = batch.timestamp_type
        self.leader_epoch: int | None = batch.leader_epoch if batch.leader_epoch >= 0 else None
        self.start: int = position
        self.size: int = batch.size
        """Bytes of the whole batch, in compressed form."""
        self.next_offset: int = columns.offsets[-1] + 1 if columns.offsets else position
        # Brokers send whole batches, so the first one may begin before the position.
        self._begin = bisect_left(self.offsets, position)
        self.index: int = self._begin
        self._iterated: Iterator[int] | None = None
        self._end = 0  # the index at which the iteration ends

    def extend(self, columns: RecordColumns) -> None:
        """Append the records of another batch, before any record is delivered."""
        assert self.delivered == 0, "no record is delivered yet"
        self._columns.extend(columns)
        self.header_count = self._columns.header_count

    def __len__(self) -> int:
        """Return the number of undelivered records; the chunk must be settled."""
        return len(self.offsets) - self.index

    @property
    def delivered(self) -> int:
        """The number of delivered records, also during an iteration."""
        return (self.index if self._iterated is None else self._end - length_hint(self._iterated)) - self._begin

    @property
    def position(self) -> int:
        """The offset after the last delivered record."""
        index = self.index if self._iterated is None else self._end - length_hint(self._iterated)
        if index >= len(self.offsets):
            return self.next_offset
        return max(self.start, self.offsets[index - 1] + 1) if index else self.start

    def iterate(self) -> Iterator[Record]:
        """Iterate over the undelivered records; each counts as delivered when it is taken."""
        return self.iterate_with(self.keys[self.index :], self.values[self.index :])

    def iterate_with(self, keys: Sequence[object], values: Sequence[object]) -> Iterator[Record]:
        """Iterate like ``iterate`` over ``len(keys)`` records, with these deserialized keys and values."""
        assert self._iterated is None, "a chunk has one iteration at a time"
        rest = slice(self.index, self.index + len(values))
        self._end = rest.stop
        offsets = iter(self.offsets[rest])
        self._iterated = offsets
        return iterate_rows(
            Record,
            (self.topic, self.partition, self.timestamp_type, self.leader_epoch),
            offsets,
            self.timestamps[rest],
            keys,
            values,
            self.headers[rest],
        )

    def take(self, max_records: int) -> list[Record]:
        """Deliver up to ``max_records`` as records. The chunk must be settled."""
        rows = self.advance(max_records)
        return list_rows(
            Record,
            (self.topic, self.partition, self.timestamp_type, self.leader_epoch),
            (self.offsets, self.timestamps, self.keys, self.values, self.headers),
            rows.start,
            rows.stop,
        )

    def record(self, index: int) -> Record:
        """Return the record at an index of the columns. It does not count as delivered by this."""
        return Record(
            self.topic,
            self.partition,
            self.offsets[index],
            self.timestamps[index],
            self.timestamp_type,
            self.keys[index],
            self.values[index],
            self.headers[index],
            self.leader_epoch,
        )

    @property
    def in_hand(self) -> int | None:
        """During an iteration, the offset of the last taken record, if other records were taken before it."""
        if self._iterated is None:
            return None
        index = self._end - length_hint(self._iterated)
        return self.offsets[index - 1] if index - self.index >= 2 else None

    @property
    def last_taken(self) -> int:
        """The offset of the last delivered record, also during an iteration; -1 before the first one."""
        index = self.index if self._iterated is None else self._end - length_hint(self._iterated)
        return self.offsets[index - 1] if index else -1

    def settle(self) -> None:
        """Store the position of an iteration. The iterator of ``iterate`` must not be used after this."""
        if self._iterated is not None:
            self.index = self._end - length_hint(self._iterated)
            self._iterated = None

    def advance(self, count: int) -> slice:
        """Deliver up to ``count`` records. Returns their slice of the columns."""
        assert self._iterated is None, "the chunk is settled"
        end = min(len(self.offsets), self.index + count)
        delivered = slice(self.index, end)
        self.index = end
        return delivered


def decode(
    partition: TopicPartition,
    batch: RecordBatch,
    aborted: AbortedTransactions | None,
    position: int,
    *,
    check_crc: bool,
    max_size: int,
) -> Iterator[Chunk]:
    """Decode the records of a batch from ``position`` on, in chunks on demand; no chunk for a hidden batch.

    ``aborted`` is None when records of aborted transactions are wanted; control batches are always hidden. Raises
    CorruptRecord with the partition and the offset up to which records could be read.
    """
    try:
        if check_crc:
            batch.verify_crc()
        if is_hidden(batch, aborted, max_size):
            return
        for columns in batch.chunks(max_size, start_offset=position):
            chunk = Chunk(partition, batch, columns, position)
            position = max(position, chunk.next_offset)
            if len(chunk):
                yield chunk
    except ProtocolError as error:
        failure = corrupt(partition, position, str(error), batch)
        failure.__cause__ = error  # compiled code ignores the "from" of a raise
        raise failure from error


def is_hidden(batch: RecordBatch, aborted: AbortedTransactions | None, max_size: int) -> bool:
    """Return whether a batch is hidden: a marker, or part of an aborted transaction.

    Call it for the batches in order. A repeated call for the same batch changes nothing.
    """
    if batch.is_control:
        if aborted is not None and _is_abort_marker(batch, max_size):
            aborted.ended(batch)
        return True
    return aborted is not None and batch.is_transactional and aborted.drops(batch)


def corrupt(partition: TopicPartition, position: int, reason: str, batch: RecordBatch | None = None) -> CorruptRecord:
    """Return the error for records at ``position`` that cannot be read, with the offset to seek to."""
    hint, next_offset = "seek to a later offset to continue", None
    if batch is not None and batch.next_offset > position:
        next_offset = batch.next_offset
        hint = f"the batch has offsets {batch.base_offset} to {batch.last_offset}; seek to {next_offset} to skip it"
    return CorruptRecord(
        f"{partition} cannot be read at offset {position}: {reason}; {hint}",
        topic=partition.topic,
        partition=partition.partition,
        offset=position,
        next_offset=next_offset,
    )


def _is_abort_marker(batch: RecordBatch, max_size: int) -> bool:
    """Return whether a control batch is an abort marker: the key of its only record is (int16 version, int16 type)."""
    for columns in batch.chunks(max_size, max_records=1):
        key = columns.keys[0]
        if key is None or len(key) < 4:
            raise ProtocolError(f"the control record at offset {batch.base_offset} has no type")
        return int.from_bytes(key[2:4], "big") == ABORT_MARKER
    return False

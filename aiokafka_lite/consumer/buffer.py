"""Fetched bytes of one partition that are not delivered yet: a window of its log. Pure: no I/O and no clock.

Rules of this file:

1. ``start`` is the offset of the next record to deliver and ``end`` the offset of the next fetch. All fetched and
   undelivered records lie between them. Both offsets change only here.
2. Batches wait as the broker sent them, compressed or not. At most one batch per partition is unpacked. Small batches
   that are not compressed are unpacked together in one chunk, up to ``JOINED_RECORDS`` and ``JOINED_BYTES``. ``chunk``
   has the records that are being delivered, ``_rest`` the chunks that follow in the same batch.
3. While records of ``chunk`` are iterated over, the true position is inside the chunk's iterator (see ``Chunk``). So
   every method that reads the position uses ``offset``, or settles the chunk first.
4. Transactions are filtered in order: a batch passes ``AbortedTransactions`` before all batches behind it. It may pass
   twice in a row, if it could not be decoded the first time. A batch that ``pack`` returns to the queue is not hidden,
   and is not checked again: the transactions behind it may have begun.
5. Hidden batches are dropped when they are reached, and leave gaps in the queue. When the buffer is empty, ``start`` is
   ``end``, also behind such a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..errors import ProtocolError
from ..protocol.records import RecordBatch
from ..protocol.records.columns import PackedBatch
from ..types import Compression, TopicPartition
from .chunk import AbortedTransactions, Chunk, corrupt, decode, is_hidden

FetchedBatch = tuple[RecordBatch, AbortedTransactions | None]
"""A batch, and the aborted transactions of its answer; None when records of aborted transactions are wanted."""

NO_BATCHES: deque[FetchedBatch] = deque(maxlen=0)
"""The shared queue of all buffers without batches: an empty deque takes 620 bytes, and most of many partitions are
idle."""

PACKED = AbortedTransactions(())
"""Replaces the aborted transactions of a batch that ``pack`` has returned to the queue. It hides no record."""

OFFSET_END = (1 << 63) - 1
"""An offset after all others."""

JOINED_RECORDS = 500
JOINED_BYTES = 1 << 14
"""The most records and bytes of small batches that are unpacked together. A chunk costs more than a few records."""


class Buffer:
    """The fetched and undelivered batches of one partition. Owner: its ``AssignedPartition``."""

    __slots__ = (
        "_batches",
        "_consumed",
        "_partition",
        "_rest",
        "_unpacked",
        "bytes",
        "chunk",
        "consumed_bytes",
        "end",
        "end_epoch",
        "fetch_size",
        "records",
        "start",
    )

    def __init__(self, partition: TopicPartition, fetch_size: int) -> None:
        self._partition = partition
        self.fetch_size: int = fetch_size
        """Bytes to request in one fetch. It grows if a broker cuts even the first batch."""
        self.start: int = -1
        self.end: int = -1
        self.end_epoch: int | None = None
        """The leader epoch of the last batch before ``end``, or the epoch that came with the offset of a seek."""
        self._batches: deque[FetchedBatch] = NO_BATCHES
        self.bytes: int = 0
        """Bytes of the waiting batches; the unpacked one does not count."""
        self.records: int = 0
        """Records of the waiting batches by their headers: an upper bound of the records that users will see."""
        self.consumed_bytes: int = 0
        """Bytes of the delivered batches, in compressed form. A batch counts when it is unpacked."""
        self._consumed = 0
        self.chunk: Chunk | None = None
        self._rest: Iterator[Chunk] | None = None
        self._unpacked: list[RecordBatch] | None = None

    @property
    def offset(self) -> int:
        """The offset of the next record to deliver, also in the middle of an iteration."""
        return self.start if self.chunk is None else self.chunk.position

    @property
    def consumed(self) -> int:
        """The number of records that were delivered, also in the middle of an iteration."""
        return self._consumed if self.chunk is None else self._consumed + self.chunk.delivered

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of the batches that were ever unpacked, in compressed form. Never falls, not even by ``pack``."""
        packed_again = 0  # not an attribute, which each of many idle partitions would have
        for batch, aborted in self._batches:
            if aborted is not PACKED:
                break  # packed batches are the first ones
            packed_again += batch.size
        return self.consumed_bytes + packed_again

    @property
    def has_data(self) -> bool:
        """Whether there are undelivered records. Records of aborted transactions count until they are decoded."""
        return self._rest is not None or bool(self._batches)

    @property
    def available(self) -> int:
        """Undelivered records by the headers of their batches. Hidden records count as well."""
        return self.records + (0 if self.chunk is None else len(self.chunk))

    @property
    def next_epoch(self) -> int | None:
        """The leader epoch of the last delivered record, for a commit; None if it is not known."""
        if self.chunk is not None:
            return self.chunk.leader_epoch
        # ``end_epoch`` belongs to the last batch in the buffer. While batches wait, the last delivered record may have
        # an older epoch.
        return None if self._batches else self.end_epoch

    def restart(self, offset: int, leader_epoch: int | None) -> None:
        """Drop everything; the next fetch and the next record are at ``offset``."""
        self.drop()
        self.start = self.end = offset
        self.end_epoch = leader_epoch

    def drop(self) -> None:
        """Drop the fetched and undelivered records; the next fetch begins at the position."""
        # The position is inside the chunk, which is dropped below.
        offset = self.offset
        assert offset >= self.start, "a position only grows, except by a seek or a reset"
        self.start = offset
        self._consumed = self.consumed
        self.chunk = self._rest = self._unpacked = None
        self.consumed_bytes = self.unpacked_bytes
        self._batches = NO_BATCHES
        self.bytes = self.records = 0
        self.end = self.start

    def return_to(self, offset: int) -> None:
        """Drop the fetched records; the next fetch and record are at ``offset``, which was delivered before."""
        self.drop()
        self.start = self.end = offset

    def add(self, batches: list[RecordBatch], aborted: AbortedTransactions | None) -> bool:
        """Append fetched batches. Returns False if none of them reaches beyond ``end``."""
        appended = False
        for batch in batches:
            if batch.next_offset <= self.end:  # brokers send whole batches, which may begin before the fetch offset
                continue
            appended = True
            self._append(batch, aborted)
            # The offset is in the batch header. The last record cannot be used, because compaction may have removed it,
            # and the fetch would then repeat the batch without end.
            self.end = batch.next_offset
            # Old message formats have no epoch. The last known one is still the best to check the log with.
            if batch.leader_epoch >= 0:
                self.end_epoch = batch.leader_epoch
        return appended

    def _append(self, batch: RecordBatch, aborted: AbortedTransactions | None, *, first: bool = False) -> None:
        if not self._batches:
            self._batches = deque()
        if first:
            self._batches.appendleft((batch, aborted))
        else:
            self._batches.append((batch, aborted))
        self.bytes += batch.size
        # Compaction may leave a batch without records. It counts as one record, because the reader has to pass it.
        self.records += max(batch.count, 1)

    def _pop(self) -> FetchedBatch:
        first = self._batches.popleft()
        self.bytes -= first[0].size
        self.records -= max(first[0].count, 1)
        assert self.bytes >= 0, "each batch is counted once"
        if not self._batches:
            self._batches = NO_BATCHES
        return first

    def current_chunk(self) -> Chunk | None:
        """Return the settled chunk with undelivered records, or None. Decodes nothing."""
        if self.chunk is None:
            return None
        self.chunk.settle()
        if len(self.chunk):
            return self.chunk
        assert self.chunk.next_offset >= self.start, "a position only grows, except by a seek or a reset"
        # Not the last record's offset: ``next_offset`` also passes records that were compacted away behind it.
        self.start, self._consumed, self.chunk = self.chunk.next_offset, self.consumed, None
        return None

    def unpack_next(self, *, check_crc: bool, max_size: int, same_batch: bool = False) -> Chunk | None:
        """Decode the chunk after ``current_chunk``; None if there is none. Small batches make one chunk.

        ``same_batch``: only within the unpacked batch. Raises CorruptRecord for a batch that cannot be decoded.
        """
        while self._rest is not None or (self._batches and not same_batch):
            may_join = False
            if self._rest is None:
                batch, aborted = self._pop()
                # Packed batches stay alone. If all of them were unpacked again, a pause after each record would decode
                # each record hundreds of times.
                may_join = aborted is not PACKED
                self._unpacked = [batch]
                self.consumed_bytes += batch.size
                # ``start`` is passed, because the batch may begin before the position: after a seek, or because it was
                # packed.
                self._rest = decode(self._partition, batch, aborted, self.start, check_crc=check_crc, max_size=max_size)
            assert self._unpacked is not None
            chunk = self.chunk = next(self._rest, None)
            if chunk is not None:
                if may_join and self._batches and chunk.next_offset == self._unpacked[0].next_offset:
                    self._join(chunk, self._unpacked, check_crc, max_size)
                return chunk
            # ``start`` also passes records that are hidden or compacted away, and may be past hidden batches already.
            self.start = max(self.start, self._unpacked[-1].next_offset)
            self._rest = self._unpacked = None
        self._pass_gap()
        return None

    def _join(self, chunk: Chunk, unpacked: list[RecordBatch], check_crc: bool, max_size: int) -> None:
        """Append the records of the next batches to the only chunk of a batch, while they are alike and small."""
        first = unpacked[0]
        room = JOINED_RECORDS - len(chunk.offsets)
        while self._batches:
            batch, aborted = self._batches[0]
            room -= max(batch.count, 1)
            if room < 0 or chunk.size + batch.size > JOINED_BYTES:
                return
            try:
                # The offsets of a chunk must rise, so a batch that overlaps the chunk is not joined.
                if batch.base_offset < chunk.next_offset or not _are_alike(first, batch):
                    return
                if check_crc:
                    batch.verify_crc()
                hidden = is_hidden(batch, aborted, max_size)
                if not hidden:
                    chunk.extend(batch.columns(max_size))
            except ProtocolError:
                return  # the batch becomes the first of the next chunk, and raises the error there
            self._pop()
            self.consumed_bytes += batch.size
            chunk.next_offset = batch.next_offset
            if not hidden:
                chunk.size += batch.size
                unpacked.append(batch)

    def pack(self) -> None:
        """Put the unpacked batches back: a paused partition may wait long, and packed batches are small."""
        if self._unpacked is None:
            return
        if self.chunk is not None:
            self.chunk.settle()
            self.start = self.chunk.position
            self._consumed = self.consumed
        # The decoded records are dropped and decoded again later: for a partition that is not read, time is cheaper
        # than memory.
        unpacked = self._unpacked
        self.chunk = self._rest = self._unpacked = None
        for batch in reversed(unpacked):
            if self.start < batch.next_offset:
                self.consumed_bytes -= batch.size  # until it is unpacked again
                self._append(batch, PACKED, first=True)
        self._pass_gap()

    def _pass_gap(self) -> None:
        """Move ``start`` past hidden batches that were dropped, if nothing is behind them and nothing is unpacked."""
        assert self.start <= self.end, "records lie between start and end (rule 1)"
        if not self._batches:
            self.start = self.end

    def next_packed(self, max_records: int, max_bytes: int, *, check_crc: bool, max_size: int) -> list[PackedBatch]:
        """Deliver batches as the broker sent them, except hidden ones, up to about these limits.

        Raises CorruptRecord for a batch with a wrong checksum, if no batch is before it.
        """
        self.pack()
        packed: list[PackedBatch] = []
        while self._batches and max_records > 0 and max_bytes > 0:
            batch, aborted = self._batches[0]
            try:
                if check_crc:
                    batch.verify_crc()
                hidden = is_hidden(batch, aborted, max_size)
            except ProtocolError as error:
                if packed:
                    break
                failure = corrupt(self._partition, self.start, str(error), batch)
                failure.__cause__ = error  # compiled code ignores the "from" of a raise
                raise failure from error
            self._pop()
            if not hidden:
                packed.append(PackedBatch(self._partition, batch, self.start, OFFSET_END))
                # A compressed message of an old format does not say how many records it has.
                count = max(batch.count, 1)
                max_records -= count
                max_bytes -= batch.size
                # The batch may begin before the position, and compaction may have removed records. The smaller number
                # is closer.
                self._consumed += min(count, batch.next_offset - self.start)
                self.consumed_bytes += batch.size
            self.start = batch.next_offset
        self._pass_gap()
        return packed

    def take_batches(self) -> list[FetchedBatch]:
        """Deliver all batches in packed form, to a reader that decodes them itself and never asks for chunks."""
        assert self._unpacked is None, "such a reader never asks for chunks"
        batches = list(self._batches)
        self._batches = NO_BATCHES
        self.bytes = self.records = 0
        self.start = self.end
        return batches


def _are_alike(first: RecordBatch, batch: RecordBatch) -> bool:
    """Return whether the records of both batches can be in one chunk, which has one leader epoch and timestamp type.

    Compressed batches are not joined: their size does not say how much a chunk of them would take. Raises CorruptRecord
    for an unknown codec.
    """
    return (
        first.magic == batch.magic == 2
        and first.compression is batch.compression is Compression.NONE
        and first.leader_epoch == batch.leader_epoch
        and first.timestamp_type is batch.timestamp_type
    )

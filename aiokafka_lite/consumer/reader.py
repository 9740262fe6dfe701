"""Returns records to the user: one by one, as lists, and as columns. Partitions are read in turns.

Rules of this file:

1. ``Cursor.current`` is an iterator over decoded records that costs nothing per record: no check, no call into this
   module. So every change that affects the next records (seek, pause, assignment) calls ``settle`` first, which removes
   the iterator. Only one cursor has such an iterator at a time.
2. A position moves when a record is returned, never before. A method that awaits takes no record before its last await.
3. A turn ends between batches only. In the middle of a batch it would leave one unpacked batch per partition in memory.
4. A read raises an error only if it has no records to return: records before an error are returned first. The same
   applies to exceptions of the user's callbacks (``raise_once``), which are not caused by a read. A refusal is raised
   by a read that would have to wait: records of other partitions and brokers come first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from ..aio.light_event import LightEvent
from ..aio.retry import Backoff
from ..errors import CorruptRecord, KafkaError
from ..protocol.records import MAX_HEADERS
from ..protocol.records.columns import PackedBatch
from ..settings.consumer import ConsumerConfig
from ..types import Record, TopicPartition
from .chunk import Chunk
from .columns import Batch, continues, joined, take
from .group.poll_tracker import PollTracker
from .interceptor import ConsumerInterceptors
from .partition import AssignedPartition
from .refusals import Refusals
from .subscription import Subscription

logger = logging.getLogger(__name__)

TURN = 500
"""Records after which the next partition has its turn, at the end of a decoded batch."""

YIELD_BUDGET = 2_000
"""Records after which a read yields to the event loop although more are buffered: fetching ahead needs the loop."""

READ_BYTES = 8 << 20
"""Compressed bytes after which a read returns its records: copying and decompressing them takes some tens of
milliseconds."""

NOTHING: Iterator[Record] = iter(())

R = TypeVar("R")

Only = Collection[TopicPartition] | None
"""The partitions to read from; None means all."""


class Cursor:
    """The source of the records of one iteration of the user. Owner: the iteration; the ``Reader`` fills it."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: Iterator[Record] = NOTHING


class Reader:
    """Takes records from the buffers of a subscription. Owner: the consumer.

    ``tracker``, if the consumer commits for a group, is notified of all returned records. ``interceptors`` see the
    records of iterations. ``is_ongoing`` returns whether the refusals at a place continue.
    """

    def __init__(
        self,
        subscription: Subscription,
        config: ConsumerConfig,
        backoff: Backoff,
        *,
        tracker: PollTracker | None = None,
        interceptors: ConsumerInterceptors | None = None,
        is_ongoing: Callable[[str], bool] = lambda place: True,
    ) -> None:
        self._cursor = Cursor()
        self._subscription = subscription
        self._check_crc = config.check_crcs
        self._max_size = config.max_decompressed_size
        self._backoff = backoff
        self._tracker = tracker
        self._interceptors = interceptors
        self._iterated: Chunk | None = None
        self._served: AssignedPartition | None = None  # the partition of the chunk that was returned last
        self._failed: AssignedPartition | None = None  # the partition whose error was raised last
        self._error: Exception | None = None  # an exception of a callback, which the next read raises
        self._refusals = Refusals(is_ongoing)
        self._data = LightEvent()
        self._turn_left = TURN
        self._budget = YIELD_BUDGET

    # Waiting.

    def notice(self) -> None:
        """Wake the waiting reads, because there may be something to read."""
        self._data.set()

    def raise_once(self, error: Exception) -> None:
        """Let the next read raise this exception of a user's callback. Later reads continue."""
        if self._error is not None:
            logger.error("a callback of the consumer failed again; a read raises the first error", exc_info=error)
            return
        self._error = error
        self.notice()

    def refused(self, place: str, error: KafkaError) -> None:
        """Let one read that would have to wait raise this refusal, if it is still ongoing then."""
        self._refusals.add(place, error)
        self.notice()

    def raise_error(self) -> None:
        """Raise the exception given to ``raise_once``, unless a read has raised it."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def wait(self, *, more: bool = False, only: Only = None) -> None:
        """Wait until something can be read, or with ``more`` until new data arrives.

        Takes nothing, so a cancelled wait loses nothing.
        """
        # Cleared before the check, so that later data sets the event again. With ``more``, old data must not end the
        # wait.
        self._data.clear()
        is_refused = self._refusals.are_ongoing
        if self._error is None and not is_refused and (more or self._first_ready(only) is None):
            await self._data.wait()

    @property
    def must_yield(self) -> bool:
        """Whether the event loop needs a turn before more is read."""
        if self._budget > 0:
            return False
        self._budget = YIELD_BUDGET
        return True

    # Taking.

    @property
    def has_ready(self) -> bool:
        """Whether something is buffered, which may be hidden records alone."""
        return self._first_ready(None) is not None

    def settle(self) -> None:
        """Stop the iteration over records, and store its position."""
        self._cursor.current = NOTHING
        if self._iterated is not None:
            # This comes before the chunk is settled: the tracker reads the position from the iterator that ``settle``
            # removes.
            if self._tracker is not None:
                self._tracker.end_iteration()
            self._iterated.settle()
            self._iterated = None

    def serve(self, cursor: Cursor) -> Record | None:
        """Serve this cursor from now on, and no other one.

        Returns the next record of the chunk that the previous cursor began. None if that chunk has no further record,
        or if this cursor was served before.
        """
        if cursor is self._cursor:
            return None
        # ``settle`` is not called, because for a loop that ends after each record it would copy the rest of the chunk
        # each time.
        cursor.current, self._cursor.current = self._cursor.current, NOTHING
        self._cursor = cursor
        record = next(cursor.current, None)
        # Without a next record, the user processes none: this read has marked the earlier records.
        if record is not None and self._iterated is not None and self._tracker is not None and self._served is not None:
            self._tracker.begin_iteration(self._served, self._iterated)
        return record

    def iterate(self) -> bool:
        """Give the cursor an iterator over the next records. Returns False if there are none. Raises as ``take``."""
        chunk = self._next()
        if chunk is None:
            return False
        self._begin_iteration(chunk, len(chunk))
        self._fill_cursor(chunk.iterate())
        return True

    def iterate_with(self, chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> None:
        """Give the cursor an iterator over the next records of a peeked chunk, with these keys and values."""
        self._begin_iteration(chunk, len(values))
        self._fill_cursor(chunk.iterate_with(keys, values))

    def _fill_cursor(self, records: Iterator[Record]) -> None:
        intercepted = self._interceptors
        self._cursor.current = records if intercepted is None else intercepted.one_by_one(records)

    def _begin_iteration(self, chunk: Chunk, count: int) -> None:
        # All records of the chunk count now, because the reader does not see when they are taken from the cursor.
        self._count(count + chunk.header_count)
        self._iterated = chunk
        if self._tracker is not None and self._served is not None:
            self._tracker.begin_iteration(self._served, chunk)

    def take(self, max_records: int, only: Only = None) -> list[Record]:
        """Take up to ``max_records`` buffered records, of one or more partitions.

        There are fewer if the records have ``MAX_HEADERS`` headers in total, because a header costs as much as a
        record. There are also fewer if their batches have ``READ_BYTES``. Raises the error of a partition, unless there
        are records to return first: then the next call raises it.
        """
        records: list[Record] = []
        headers = size = 0
        while len(records) < max_records and headers < MAX_HEADERS and size < READ_BYTES:
            chunk = self._next_after(records, only)
            if chunk is None:
                break
            of_chunk = chunk.take(max_records - len(records))
            count = len(of_chunk)
            header_count = _headers_of(chunk, count)
            self._count(count + header_count)
            self._hand_out(chunk)
            if records:
                records += of_chunk
            else:  # without a copy: most reads take records of one chunk
                records = of_chunk
            headers += header_count
            size += chunk.size
        return records

    def take_batch(self, max_records: int) -> Batch | None:
        """Take up to ``max_records`` of one partition; None if nothing is buffered. Raises the errors of ``take``."""
        batches: list[Batch] = []
        rows_left = max_records
        headers = size = 0
        while rows_left > 0 and headers < MAX_HEADERS and size < READ_BYTES:
            chunk = self._next_after(batches)
            # A batch of columns has one partition, leader epoch and timestamp type; another chunk begins the next
            # batch.
            if chunk is None or (batches and not continues(batches[0], chunk)):
                break
            batches.append(take(chunk, rows_left))
            self._hand_out(chunk)
            count = len(batches[-1].offsets)
            rows_left -= count
            headers += _headers_of(chunk, count)
            size += chunk.size
        if not batches:
            return None
        self._count(max_records - rows_left + headers)
        return joined(batches)

    def take_packed(self, max_records: int, max_bytes: int, decode: Callable[[list[PackedBatch]], R]) -> R | None:
        """Take about ``max_records`` of one partition, made by ``decode`` of whole batches; None if there are none.

        ``decode`` raises CorruptRecord with the offset of the batch that it cannot decode. This method also raises the
        errors of ``take``.
        """
        self.settle()
        self.raise_error()
        while (assigned := self._first_ready(None)) is not None:
            # Whole batches are taken, so each read is one turn.
            self._turn_left = TURN
            try:
                packed = assigned.next_packed(
                    max_records, max_bytes, check_crc=self._check_crc, max_size=self._max_size
                )
            except KafkaError:
                self._back_off(assigned)
                raise
            # Without batches, all data was hidden, for example by aborted transactions. Then the next partition has its
            # turn.
            decoded = self._decode(assigned, packed, decode) if packed else None
            self._subscription.end_turn(assigned)
            assigned.wake_source()
            if decoded is not None:
                return decoded
        self._refusals.raise_ongoing()
        return None

    def _decode(
        self, assigned: AssignedPartition, packed: list[PackedBatch], decode: Callable[[list[PackedBatch]], R]
    ) -> R:
        try:
            decoded = decode(packed)
        except CorruptRecord as error:
            offset = packed[0].low if error.offset is None else error.offset
            assigned.return_to(offset)  # the data behind the batch is fetched again (rule 2)
            packed = [packed_batch for packed_batch in packed if packed_batch.batch.next_offset <= offset]
            if not packed:
                self._back_off(assigned)
                raise
            decoded = decode(packed)  # the records before an error are returned first (rule 4)
        self._count(sum(max(packed_batch.batch.count, 1) for packed_batch in packed))
        if self._tracker is not None:
            self._tracker.hand_out(assigned, packed[-1].batch.last_offset)
        return decoded

    def peek(self, only: Only = None) -> tuple[AssignedPartition, Chunk] | None:
        """Return the next records and their partition, without taking them. Raises the errors of ``take``."""
        chunk = self._next(only)
        return None if chunk is None or self._served is None else (self._served, chunk)

    def deliver(self, assigned: AssignedPartition, chunk: Chunk, start: int, count: int) -> bool:
        """Take ``count`` records of a peeked chunk. Returns False if they are no longer the next records."""
        # The caller has waited for a deserializer since ``peek``. Meanwhile, a seek, a rebalance or another reader may
        # have changed the position; then these records are not the next ones (rule 2).
        self.settle()
        if assigned.buffer.chunk is not chunk or chunk.index != start:
            return False
        if not assigned.readable or not self._subscription.holds(assigned):
            return False
        assert count <= len(chunk), "only peeked records are delivered"
        if count:
            chunk.advance(count)
            self._count(count)
            self._served = assigned
            self._hand_out(chunk)
        return True

    def refuse(self, assigned: AssignedPartition) -> None:
        """End the partition's turn and back off, because its next record cannot be returned."""
        # The record is fetched again later, so the same error is raised again until the user seeks past the record.
        assigned.drop_buffer()
        self._turn_left = TURN
        self._back_off(assigned)

    def is_full(self, max_records: int) -> bool:
        """Return whether a batch of ``max_records`` is buffered, or as much of a partition as is fetched ahead."""
        # ``available`` does not include the progress of an iteration before it is settled.
        self.settle()
        if self._error is not None or self._refusals.are_ongoing:
            return True
        return any(
            assigned.failure is not None or assigned.buffer.available >= max_records or not assigned.wants_data
            for assigned in self._subscription.ready.values()
        )

    # Turns.

    def _first_ready(self, only: Only) -> AssignedPartition | None:
        ready = self._subscription.ready
        if only is None:
            return next(iter(ready.values()), None)
        return next((assigned for partition, assigned in ready.items() if partition in only), None)

    def _next_after(self, results: Sequence[object], only: Only = None) -> Chunk | None:
        """Return the next records like ``_next``, but keep an error for the next call if this one has results."""
        if results and self._error is not None:
            return None
        try:
            return self._next(only, is_first=not results)
        except KafkaError as error:
            failed = self._failed
            if not results or failed is None:
                raise
            # ``next_chunk`` raises an error only once, so it is put back.
            failed.fail(error)
            self._subscription.update_ready(failed)
            return None

    def _next(self, only: Only = None, *, is_first: bool = True) -> Chunk | None:
        """Return the next chunk of the partition whose turn it is, settled and not empty; None if nothing is buffered.

        Raises the partition's error. The partition then goes behind the others and backs off. Raises a refusal if
        nothing is buffered and ``is_first``: the read has no records yet.
        """
        self.settle()
        self.raise_error()
        while (assigned := self._first_ready(only)) is not None:
            is_over = self._turn_left <= 0
            try:
                chunk = assigned.next_chunk(check_crc=self._check_crc, max_size=self._max_size, same_batch=is_over)
            except KafkaError:
                self._turn_left = TURN
                self._back_off(assigned)
                raise
            # Now, not when the buffer is empty, so that the next fetch runs while the user works on these records.
            assigned.wake_source()
            if chunk is not None:
                self._served = assigned
                return chunk
            # The partition has no more records, or its turn is over at the end of a batch (rule 3).
            self._turn_left = TURN
            self._subscription.end_turn(assigned)
        if is_first:
            self._refusals.raise_ongoing()
        return None

    def _back_off(self, assigned: AssignedPartition) -> None:
        """Fetch the partition again later. This repairs damage from the network, and limits the rate of an error."""
        assigned.wait_to_retry(asyncio.get_running_loop().time(), self._backoff)
        self._failed = assigned
        self._subscription.end_turn(assigned)
        assigned.wake_source()

    def _hand_out(self, chunk: Chunk) -> None:
        if self._tracker is not None and self._served is not None:
            self._tracker.hand_out(self._served, chunk.last_taken)

    def _count(self, records: int) -> None:
        self._turn_left -= records
        self._budget -= records


def _headers_of(chunk: Chunk, count: int) -> int:
    """Return the approximate number of headers of ``count`` records of a chunk.

    A read of one record must not count the headers of all records.
    """
    return chunk.header_count and chunk.header_count * count // len(chunk.offsets)

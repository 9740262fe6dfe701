"""One partition in one session of a ``ConsumerGroup``: the iterator for the user, and its reader."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Self, cast

from ...aio import forks
from ...aio.gradual import GradualCalls
from ...aio.light_event import LightEvent
from ...aio.retry import Backoff
from ...arguments import offset as checked_offset
from ...errors import IllegalStateError, KafkaError
from ...settings.consumer import ConsumerConfig
from ...types import K, Record, TopicPartition, V
from ..chunk import Chunk
from ..deserializing import Deserializing
from ..interceptor import ConsumerInterceptors
from ..partition import AssignedPartition
from ..reader import NOTHING, YIELD_BUDGET
from ..subscription import Subscription


class ClaimReader:
    """Takes records of one partition, for one claim. Owner: the session's run.

    ``current`` is an iterator over decoded records, as in ``Reader``. Before the next records change, for example by a
    seek, ``settle`` removes this iterator. ``check_process`` raises in a forked process. ``wakes`` spreads the wakes of
    many readers over iterations of the event loop.
    """

    def __init__(
        self,
        assigned: AssignedPartition,
        subscription: Subscription,
        config: ConsumerConfig,
        backoff: Backoff,
        *,
        check_process: Callable[[], None],
        interceptors: ConsumerInterceptors | None,
        wakes: GradualCalls | None = None,
    ) -> None:
        self.assigned = assigned
        self.current: Iterator[Record] = NOTHING
        self.has_ended: bool = False
        self.is_waiting: bool = False
        """Whether the claim waits for its next record now, so that it has processed or passed on the last one."""
        self._subscription = subscription
        self._check_crc = config.check_crcs
        self._max_size = config.max_decompressed_size
        self._backoff = backoff
        self._check_process = check_process
        self._interceptors = interceptors
        self._initial: int | None = None
        self._source: Chunk | None = None  # of the last records
        self._after_last: int | None = None
        """The offset after the last returned record, once the user has asked for the next one; None while records are
        being returned."""
        self._ready = LightEvent()
        self._wakes = wakes
        self._is_waking = False
        self._budget = YIELD_BUDGET
        forks.notify(self)

    @property
    def initial_offset(self) -> int | None:
        """The offset at which reading began; None until it is known."""
        if self._initial is None:
            self._initial = self.assigned.offset
        return self._initial

    def notice(self) -> None:
        """Wake the reader, because there may be something to read."""
        if self.assigned.readable:
            self._wake()

    def _wake(self) -> None:
        if self._wakes is None:
            self._ready.set()
        elif not self._ready.is_set() and not self._is_waking:
            self._is_waking = True
            self._wakes.call(self._wake_now)

    def _wake_now(self) -> None:
        self._is_waking = False
        self._ready.set()

    def forked(self) -> None:
        """Stop returning records in a forked process: the parent returns them."""
        self.current = NOTHING
        self._ready.set()

    def settle(self) -> None:
        """Stop the iteration over records, and store its position."""
        self.current = NOTHING
        if self.assigned.buffer.chunk is not None:
            self.assigned.buffer.chunk.settle()
        self._wake()

    def end(self) -> None:
        """End the session: return no more records."""
        self.has_ended = True
        self.settle()

    def moved(self) -> None:
        """Record that the position was moved, by the user or by a reset."""
        self._after_last = None

    def passed(self, marked: int) -> int | None:
        """Return the position, if it is above this mark only because of hidden records, such as transaction markers."""
        offset = self.assigned.offset
        return offset if offset is not None and self._after_last == marked < offset else None

    def seek(self, offset: int) -> None:
        """Read from ``offset`` on."""
        self._subscription.change([self.assigned], lambda assigned: assigned.seek(offset), moves=True)

    async def next_record(self, deserializing: Deserializing | None) -> Record:
        """Wait for the next record, when ``current`` is exhausted. Raises StopAsyncIteration at the end of the session.

        Raises IllegalStateError in a forked process.
        """
        self.is_waiting = True
        try:
            return await self._next_record(deserializing)
        finally:
            self.is_waiting = False

    async def _next_record(self, deserializing: Deserializing | None) -> Record:
        chunk = self.assigned.buffer.chunk
        if chunk is not None:
            self._after_last = chunk.last_taken + 1
        while not self.has_ended:
            self._check_process()
            if self._budget <= 0:
                self._budget = YIELD_BUDGET
                await asyncio.sleep(0)
                continue
            # Cleared before the buffer is checked, so that records that arrive during the check are not missed.
            self._ready.clear()
            if deserializing is None:
                if self._iterate():
                    return next(self.current)
            elif deserializing.iterate(self):
                return next(self.current)
            elif records := await deserializing.take(self, 1):
                deserialized = cast("list[Record]", records)
                return deserialized[0] if self._interceptors is None else self._interceptors.on_consume(deserialized)[0]
            await self._ready.wait()
        raise StopAsyncIteration

    def _iterate(self) -> bool:
        peeked = self.peek()
        if peeked is None:
            return False
        _, chunk = peeked
        self._budget -= len(chunk)
        self._fill(chunk.iterate())
        return True

    def _fill(self, records: Iterator[Record]) -> None:
        self.current = records if self._interceptors is None else self._interceptors.one_by_one(records)

    def raw(self, offset: int) -> Record | None:
        """Return a record as it is in the log, without deserializers, if it is one of the last chunk."""
        chunk = self._source
        if chunk is None:
            return None
        index = bisect_left(chunk.offsets, offset)
        if index == len(chunk.offsets) or chunk.offsets[index] != offset:
            return None
        return chunk.record(index)

    # The source of a ``Deserializing``.

    def peek(self, only: object = None) -> tuple[AssignedPartition, Chunk] | None:
        assigned = self.assigned
        # ``initial_offset`` is set by its first use, here before the first record is taken.
        if self.has_ended or self.initial_offset is None or not assigned.readable:
            return None
        try:
            chunk = assigned.next_chunk(check_crc=self._check_crc, max_size=self._max_size)
        except KafkaError:
            self._back_off()
            raise
        self._subscription.update_ready(assigned)
        assigned.wake_source()
        if chunk is None:
            return None
        self._after_last = None
        self._source = chunk
        return assigned, chunk

    def iterate_with(self, chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> None:
        self._budget -= len(values)
        self._fill(chunk.iterate_with(keys, values))

    def deliver(self, assigned: AssignedPartition, chunk: Chunk, start: int, count: int) -> bool:
        # Another task may iterate over the records, and has moved the position then.
        self.settle()
        # If the session has ended meanwhile, the next owner of the partition reads these records.
        if self.has_ended or assigned.buffer.chunk is not chunk or chunk.index != start:
            return False
        chunk.advance(count)
        self._budget -= count
        return True

    def refuse(self, assigned: AssignedPartition) -> None:
        assigned.drop_buffer()
        self._back_off()

    def _back_off(self) -> None:
        """Fetch the partition again after an error, at a bounded rate."""
        assigned = self.assigned
        assigned.wait_to_retry(asyncio.get_running_loop().time(), self._backoff)
        self._subscription.update_ready(assigned)
        assigned.wake_source()


class Claim(Generic[K, V]):
    """One partition in one session: an iterator over its records, for the task that runs ``consume_claim``.

    If a record cannot be read, the iteration raises its error. It raises the error again at a bounded rate, until the
    record can be read or ``seek`` skips it. If the wait for a record is cancelled, no record is lost, even while a
    deserializer waits. The iteration ends with the session.
    """

    __slots__ = ("_deserializing", "_reader")

    def __init__(self, reader: ClaimReader, deserializing: Deserializing | None) -> None:
        self._reader = reader
        self._deserializing = deserializing

    def __repr__(self) -> str:
        return f"<Claim {self._reader.assigned.partition} position={self._reader.assigned.offset}>"

    @property
    def topic(self) -> str:
        return self._reader.assigned.partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self._reader.assigned.partition.partition

    @property
    def topic_partition(self) -> TopicPartition:
        return self._reader.assigned.partition

    @property
    def initial_offset(self) -> int | None:
        """The offset at which reading began in this session; None until it is known."""
        return self._reader.initial_offset

    @property
    def high_watermark(self) -> int | None:
        """The offset after the last replicated record, as of the last fetch; None before the first one."""
        return self._reader.assigned.high_watermark

    @property
    def decoded(self) -> Iterator[Record]:
        """The records that the iteration returns next without a wait. A record that is taken counts as returned."""
        return self._reader.current

    def raw(self, offset: int) -> Record | None:
        """Return a record with its key and value as bytes, as they are in the log.

        It is for the record that was returned last, and for one that a deserializer has refused just now. None for a
        record that was returned long ago. ``Workers`` uses it to send a failed record on.
        """
        return self._reader.raw(offset)

    def seek(self, offset: int) -> None:
        """Read from ``offset`` on. The next mark counts even if it is lower than an earlier one.

        Raises IllegalStateError after the end of the session, TypeError or ValueError for a wrong offset.
        """
        checked_offset(offset)
        if self._reader.has_ended:
            raise IllegalStateError(f"{self!r} has ended")
        self._reader.seek(offset)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[K, V]:
        for record in self._reader.current:  # hot: most records are returned here
            return record  # type: ignore[return-value]  # its key and value are what K and V say
        return await self._reader.next_record(self._deserializing)  # type: ignore[return-value]

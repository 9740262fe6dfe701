"""Handing records to the user: one by one, as lists, and as columns. Partitions take turns.

The reader owns the iterator over the records that were decoded last. Whoever changes what may be delivered (seek,
pause, a new assignment) calls ``settle`` first, which takes that iterator away; so delivering a record checks nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from ..aio.retry import Backoff
from ..config import ClientConfig, ConsumerConfig
from ..errors import KafkaError
from ..types import Record, TopicPartition
from .columns import Batch, continues, joined, take
from .fetched import Chunk
from .partition import PartitionState
from .subscription import Subscription, wants_data

TURN = 500
"""Records after which the next partition has its turn, at the end of a decoded batch."""

BREATH = 2_000
"""Records after which the event loop is given a chance, also when more are there: fetching ahead needs it."""

NOTHING: Iterator[Record] = iter(())


class Reader:
    """Takes what the fetchers brought. Owner: the consumer.

    ``on_hungry`` is called with a partition that wants to be fetched again.
    """

    def __init__(
        self,
        subscription: Subscription,
        client_config: ClientConfig,
        config: ConsumerConfig,
        on_hungry: Callable[[PartitionState], None],
    ) -> None:
        self.current: Iterator[Record] = NOTHING
        self._iterated: Chunk | None = None
        self._served: PartitionState | None = None  # whose chunk was returned last
        self.handed: dict[TopicPartition, PartitionState] = {}
        """With ``minds_handed``: the partitions that records were taken from, until whoever set that clears it."""
        self.minds_handed = False
        self.before_settle: Callable[[], None] = lambda: None
        self._subscription = subscription
        self._check_crc = config.check_crcs
        self._max_size = config.max_decompressed_size
        self._backoff = Backoff(client_config.retry_backoff, client_config.retry_backoff_max)
        self._on_hungry = on_hungry
        self._blamed: PartitionState | None = None  # whose error was raised last
        self._data = asyncio.Event()
        self._turn_left = TURN
        self._breath_left = BREATH

    # ---- waiting

    def notice(self) -> None:
        """There may be something to read."""
        self._data.set()

    async def wait(self, *, more: bool = False) -> None:
        """Wait until there may be something to read, or ``more`` than there is.

        Nothing is taken, so a cancelled wait loses nothing.
        """
        self._data.clear()
        if more or not self._subscription.ready:
            await self._data.wait()

    @property
    def needs_breath(self) -> bool:
        """Whether the loop should have a turn before more is read."""
        if self._breath_left > 0:
            return False
        self._breath_left = BREATH
        return True

    # ---- taking

    def settle(self) -> None:
        """Stop the iteration over records, where it is."""
        self.current = NOTHING
        if self._iterated is not None:
            self.before_settle()
            self._iterated.settle()
            self._iterated = None

    def in_hand(self) -> tuple[PartitionState, int, int | None] | None:
        """While records are iterated over: the offset of the one taken last, if any was before it, and its epoch."""
        chunk, state = self._iterated, self._served
        if chunk is None or state is None or (offset := chunk.in_hand) is None:
            return None
        return state, offset, chunk.leader_epoch

    @property
    def seen(self) -> object:
        """Something that is another one once a record was taken from the iteration."""
        return None if self._iterated is None else (id(self._iterated), self._iterated.position)

    def _hand_out(self) -> None:
        if self.minds_handed and self._served is not None:
            self.handed[self._served.partition] = self._served

    def iterate(self) -> bool:
        """Make ``current`` an iterator over what comes next; False if nothing is there. Raises as ``take``."""
        chunk = self._next()
        if chunk is None:
            return False
        self._count(len(chunk))
        self._hand_out()
        self._iterated = chunk
        self.current = chunk.iterate()
        return True

    def take(self, max_records: int) -> list[Record]:
        """Up to ``max_records`` of what is there, from as many partitions as that takes.

        Raises what stands in the way, unless there are records to return first: then the next call raises it.
        """
        records: list[Record] = []
        while len(records) < max_records:
            chunk = self._next_after(records)
            if chunk is None:
                break
            batch = take(chunk, max_records - len(records))
            self._count(len(batch))
            self._hand_out()
            records += batch
        return records

    def take_batch(self, max_records: int) -> Batch | None:
        """Up to ``max_records`` of one partition; None if nothing is there. Raises as ``take``."""
        batches: list[Batch] = []
        left = max_records
        while left > 0:
            chunk = self._next_after(batches)
            if chunk is None or (batches and not continues(batches[0], chunk)):
                break
            batches.append(take(chunk, left))
            self._hand_out()
            left -= len(batches[-1])
        if not batches:
            return None
        self._count(max_records - left)
        return joined(batches)

    def peek(self) -> tuple[PartitionState, Chunk] | None:
        """What comes next and whose it is, without taking it; None if nothing is there. Raises as ``take``."""
        chunk = self._next()
        return None if chunk is None or self._served is None else (self._served, chunk)

    def iterate_with(self, chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> None:
        """Make ``current`` an iterator over the next records of what was just peeked at, with these keys and values."""
        self._count(len(values))
        self._hand_out()
        self._iterated = chunk
        self.current = chunk.iterate_with(keys, values)

    def deliver(self, state: PartitionState, chunk: Chunk, start: int, count: int) -> bool:
        """Count records of a peeked chunk as delivered; False if they are not what comes next any longer."""
        self.settle()
        moved = state.chunk is not chunk or chunk.index != start
        if moved or not state.readable or not self._subscription.holds(state):
            return False
        if count:
            chunk.advance(count)
            self._count(count)
            self._served = state
            self._hand_out()
        return True

    def refuse(self, state: PartitionState) -> None:
        """The user cannot have the next record of a partition: its turn ends, and it is left alone for a moment."""
        state.drop_buffer()
        self._turn_left = TURN
        self._blame(state)

    def is_full(self, max_records: int) -> bool:
        """Whether a batch of that many records is there, or as much of a partition as is ever fetched ahead."""
        self.settle()
        return any(
            state.failure is not None or state.available >= max_records or not wants_data(state)
            for state in self._subscription.ready.values()
        )

    # ---- turns

    def _next_after(self, taken: Sequence[object]) -> Chunk | None:
        """As ``_next``; but what stands in the way of more is kept for the next call when something was taken."""
        try:
            return self._next()
        except KafkaError as error:
            state = self._blamed
            if not taken or state is None:
                raise
            state.fail(error)
            self._subscription.update_ready(state)
            return None

    def _next(self) -> Chunk | None:
        """What the partition whose turn it is has to deliver next, settled and not empty; None if nothing is left.

        Raises what stands in the way. That partition is then behind the others, and left alone for a while.
        """
        self.settle()
        while self._subscription.ready:
            state = next(iter(self._subscription.ready.values()))
            # Not in the midst of a batch: of many partitions that take turns there would be as many unpacked ones.
            is_over = self._turn_left <= 0
            try:
                chunk = state.next_chunk(check_crc=self._check_crc, max_size=self._max_size, begun=is_over)
            except KafkaError:
                self._turn_left = TURN
                self._blame(state)
                raise
            if wants_data(state):
                self._on_hungry(state)
            if chunk is not None:
                self._served = state
                return chunk
            self._turn_left = TURN
            self._subscription.end_turn(state)
        return None

    def _blame(self, state: PartitionState) -> None:
        """After an error the partition is fetched again, which heals what the network broke; at a bounded rate."""
        state.back_off(asyncio.get_running_loop().time() + self._backoff.after(state.attempts))
        self._blamed = state
        self._subscription.end_turn(state)
        self._on_hungry(state)

    def _count(self, records: int) -> None:
        self._turn_left -= records
        self._breath_left -= records

"""How a ``Consumer`` is a member of a group: which of its partitions come and go, and which records are done with.

Records are marked by coming back: whoever asks for more is done with what was handed out before. That is the whole
contract, so a record in the user's hands is never committed, and a rebalance takes partitions away only between two
questions (unless the user takes longer than the others can wait).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..types import OffsetAndMetadata, TopicPartition
from .callbacks import call
from .partition import Hold, PartitionState
from .reader import Reader
from .rebalance import RebalanceHandle, RebalanceListener
from .subscription import Subscription

if TYPE_CHECKING:
    from ..group.offsets import Offsets


class Attendance:
    """Whether the user is reading, and what it is done with. Owner: the consumer.

    A context manager that each read is in: entering it is coming back. ``on_return`` is called then.
    """

    def __init__(self, reader: Reader, subscription: Subscription, offsets: Offsets) -> None:
        self.on_return: Callable[[], None] = lambda: None
        self._reader = reader
        self._subscription = subscription
        self._offsets = offsets
        self._asking = 0  # calls that wait for records
        self._returned = asyncio.Event()
        self._since: float | None = None
        self._seen: object = None
        self._read: set[TopicPartition] = set()  # of which anything was handed out since they came
        reader.minds_handed = True
        reader.before_settle = self._mark_iterated

    def __enter__(self) -> None:
        self._asking += 1
        self._mark_handed()
        self._returned.set()
        self.on_return()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._asking -= 1
        self._since = asyncio.get_running_loop().time()

    def idle_for(self, now: float) -> float:
        """Seconds since the user was last seen to read."""
        seen = self._reader.seen  # iterating over what is there comes by here only now and then
        if self._asking or seen != self._seen or self._since is None:
            self._seen, self._since = seen, now
        return now - self._since

    async def wait_until_done(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until nothing that was handed out of these is in the user's hands."""
        wanted = set(partitions)
        while wanted & self._reader.handed.keys():
            self._returned.clear()
            await self._returned.wait()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions were moved or taken away: what is in the user's hands of them is never marked."""
        for partition in partitions:
            self._reader.handed.pop(partition, None)
            self._read.discard(partition)

    # ---- marking

    def collect(self) -> None:
        """Mark all that is known to be done with, before a commit."""
        if self._reader.handed:
            self._mark_iterated()
            return
        # The user has nothing in hand, so what was passed over behind the last record, such as the marks that
        # transactions end with, is done with as well.
        for partition in self._read:
            state = self._subscription.partitions.get(partition)
            if state is not None and not state.hold:
                self._mark(state)

    def _mark_handed(self) -> None:
        for partition, state in self._reader.handed.items():
            self._read.add(partition)
            if self._subscription.holds(state):
                self._mark(state)
        self._reader.handed.clear()

    def _mark(self, state: PartitionState) -> None:
        position = state.position
        if position is not None:
            epoch = None if state.batches else state.leader_epoch  # that of the last batch that came
            if state.chunk is not None:
                epoch = state.chunk.leader_epoch
            self._offsets.mark(state.partition, position, leader_epoch=epoch)

    def _mark_iterated(self) -> None:
        """In the midst of an iteration, every record is done with but the last one that was handed out."""
        found = self._reader.in_hand()
        if found is not None:
            state, offset, epoch = found
            if self._subscription.holds(state):
                self._offsets.mark(state.partition, offset, leader_epoch=epoch)


class GroupReading:
    """The user's side of a membership, as the coordinator task calls it. Owner: the consumer.

    ``on_change`` is called when partitions came or went.
    """

    attendance: Attendance

    def __init__(
        self,
        reader: Reader,
        subscription: Subscription,
        listener: RebalanceListener,
        handle: RebalanceHandle,
        on_change: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._subscription = subscription
        self._listener = listener
        self._handle = handle
        self._on_change = on_change

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.settle()
        for state in self._held(partitions):
            state.hold = Hold.GOING
            self._subscription.update_ready(state)

    async def wait_until_done(self, partitions: Sequence[TopicPartition]) -> None:
        await self.attendance.wait_until_done(partitions)

    async def finish(self, partitions: Sequence[TopicPartition], *, closing: bool) -> None:
        pass  # marks are the user's, and it has come back or it has not

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        going = [state.partition for state in self._held(partitions)]
        if going:
            await call("on_revoked()", self._listener.on_revoked(self._handle, going))
            self._drop(going)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        gone = [state.partition for state in self._held(partitions)]
        if gone:
            self._drop(gone)
            await call("on_lost()", self._listener.on_lost(self._handle, gone))

    async def assigned(
        self, added: dict[TopicPartition, OffsetAndMetadata | None], owned: frozenset[TopicPartition]
    ) -> None:
        self._reader.settle()
        states: list[PartitionState] = []
        for partition, committed in added.items():
            state = self._subscription.add(partition, self._subscription.reset)
            state.hold = Hold.COMING
            if committed is not None:
                state.seek(committed.offset, committed.leader_epoch)
            states.append(state)
        self._on_change()
        await call("on_assigned()", self._listener.on_assigned(self._handle, list(added)))
        for state in states:
            if state.hold is Hold.COMING:  # else it has to go again already
                state.hold = Hold.NOT
                self._subscription.update_ready(state)
        self._on_change()

    def collect_marks(self) -> None:
        self.attendance.collect()

    def idle_for(self, now: float) -> float:
        return self.attendance.idle_for(now)

    def _held(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        states = self._subscription.partitions
        return [states[partition] for partition in partitions if partition in states]

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.settle()
        self.attendance.forget(partitions)
        gone = set(partitions)
        self._subscription.assign([each for each in self._subscription.partitions if each not in gone])
        self._on_change()

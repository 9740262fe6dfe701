"""Tracks which returned records are processed and which are in progress, for a consumer that commits for a group.

The contract: a request for the next record, list or batch means that all returned records are processed. So a record
that the user still processes (a record in hand) is never committed. A rebalance takes partitions away only between two
reads, or when the user takes longer than the other members can wait. Marking all returned records of a partition allows
this earlier.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self, cast

from ...aio.light_event import LightEvent
from ...errors import IllegalStateError
from ...types import TopicPartition
from ..chunk import Chunk
from ..partition import AssignedPartition
from ..subscription import Subscription


class Mark(Protocol):
    """Marks everything before ``offset`` as processed: ``Offsets.mark``."""

    def __call__(self, partition: TopicPartition, offset: int, *, leader_epoch: int | None) -> object: ...


class PollTracker:
    """A context manager around each read: entering it means that the user requests records again. Owner: the consumer.

    The ``Reader`` reports the returned records, and the group's offsets report the marks. ``on_poll`` is called at each
    read, ``refuse`` with a lost partition and the offset that the user wants to mark.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        mark: Mark,
        refuse: Callable[[TopicPartition, int], object],
        on_poll: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._mark = mark
        self._refuse = refuse
        self._on_poll = on_poll
        self._handed: dict[TopicPartition, tuple[AssignedPartition, int]] = {}
        """The partitions of the records that the last read returned, and the offset of the last record of each."""
        self._marked: dict[TopicPartition, int] = {}
        """The marks of these partitions since the last read."""
        self.lost: dict[TopicPartition, int] = {}
        """Until the next read: the partitions that were lost while the user had records of them, and the last offset of
        these records.

        A partition may be assigned again meanwhile. Its records are then read again, so a mark of the old records
        must not be committed.
        """
        self._read: set[TopicPartition] = set()
        """The partitions with processed records since their assignment."""
        self._iterated: tuple[AssignedPartition, Chunk] | None = None
        self._processed = LightEvent()
        self._idle_since: float | None = None
        self._progress: object = None
        """The position of the iteration when ``idle_for`` was called last."""
        self._waiting: set[asyncio.Task[object]] = set()
        """The tasks that wait for records now."""
        self._iteration: weakref.ref[object] | None = None
        """The iteration that was used last, while the user refers to it, and the task that used it."""
        self._iterating: asyncio.Task[object] | None = None

    # Reads.

    def reading(self, iteration: object = None) -> Self:
        """Return a context for one read, by this iteration if any. Raises IllegalStateError if another task reads.

        Only one task may read a member at a time. Each read marks the records of the previous read, so a record that
        another task still processes would be lost if that task fails. A task still reads while it waits for records, or
        holds an iteration with a record in hand. After a ``poll``, another task may read: the tracker cannot detect
        whether the first task still processes its records.
        """
        if iteration is None and self._iteration is None and not self._waiting:
            return self  # hot: the usual poll
        task = asyncio.current_task()
        other = self._other_reader(iteration, task)
        if other is not None:
            raise IllegalStateError(
                f"another task reads this consumer: {other.get_name()!r} waits for records or works on one, and this "
                f"read would commit that record as processed; read in one task, or mark() the record first; to "
                f"process records concurrently, use ConsumerGroup(...).consume(topics, Workers(handle))"
            )
        if iteration is not None:
            self._iteration, self._iterating = weakref.ref(iteration), task
        elif self._iterating is not task:
            self._iteration = self._iterating = None
        return self

    def _other_reader(self, iteration: object, task: asyncio.Task[object] | None) -> asyncio.Task[object] | None:
        for waiting in self._waiting:
            if waiting is not task and _lives(waiting):
                return waiting
        last = None if self._iteration is None else self._iteration()
        if last is None or last is iteration or self._iterating is task or not _lives(self._iterating):
            return None
        return self._iterating if self.in_hand else None

    def __enter__(self) -> None:
        if (task := asyncio.current_task()) is not None:  # a read in one step needs no task
            self._waiting.add(task)
        self._mark_returned()
        self._handed.clear()
        self._marked.clear()
        self.lost.clear()
        self._processed.set()
        self._on_poll()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if len(self._waiting) == 1:
            # Hot: asyncio is slow to return the current task. The one task is this one; a read in one step has no task,
            # and the one task has ended.
            self._waiting.clear()
        else:
            self._waiting.discard(cast("asyncio.Task[object]", asyncio.current_task()))
        self._idle_since = asyncio.get_running_loop().time()

    # Reported by the reader.

    def hand_out(self, assigned: AssignedPartition, last: int) -> None:
        """Record that the user now has records of this partition, up to the offset ``last``."""
        self._handed[assigned.partition] = assigned, last

    def begin_iteration(self, assigned: AssignedPartition, chunk: Chunk) -> None:
        """Record that the user iterates over this chunk. The single records are not reported."""
        self._handed[assigned.partition] = assigned, -1
        self._iterated = assigned, chunk

    def end_iteration(self) -> None:
        """Record the position of an iteration that is about to be settled."""
        self._mark_iterated()
        if self._iterated is not None:
            assigned, chunk = self._iterated
            # ``forget`` may have removed the partition during the iteration. Then its records are never marked.
            if assigned.partition in self._handed:
                self._handed[assigned.partition] = assigned, chunk.last_taken
        self._iterated = None

    # Reported by the group's offsets.

    def marked(self, partition: TopicPartition, offset: int) -> None:
        """Record that all records before this offset are processed."""
        if partition in self._handed:
            self._marked[partition] = max(offset, self._marked.get(partition, -1))
            self._processed.set()

    # Called by the membership.

    def idle_for(self, now: float) -> float:
        """Return the seconds since the user's last read; ``now`` is the loop's time."""
        # An iteration over buffered records does not pass through __enter__: its position shows that the user reads.
        self._waiting = {task for task in self._waiting if not task.done()}
        progress = None if self._iterated is None else (id(self._iterated[1]), self._iterated[1].position)
        if self._waiting or progress != self._progress or self._idle_since is None:
            self._progress, self._idle_since = progress, now
        return now - self._idle_since

    async def wait_until_processed(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until all returned records of these partitions are processed. The partitions are not read meanwhile."""
        targets = set(partitions)
        while targets.intersection(self.in_hand):
            self._processed.clear()
            await self._processed.wait()

    @property
    def in_hand(self) -> list[TopicPartition]:
        """The partitions with returned records that are not known to be processed."""
        return [partition for partition in self._handed if self._marked.get(partition, -1) <= self._last(partition)]

    def _last(self, partition: TopicPartition) -> int:
        """Return the offset of the last returned record of this partition."""
        if self._iterated is not None and self._iterated[0].partition == partition:
            return self._iterated[1].last_taken
        return self._handed[partition][1]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Never mark the records that the user has now, because the positions were moved or the partitions revoked."""
        for partition in partitions:
            self._handed.pop(partition, None)
            self._read.discard(partition)

    def take_away(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove these partitions, which leave the assignment."""
        in_hand = set(self.in_hand)
        self.lost.update((partition, self._last(partition)) for partition in partitions if partition in in_hand)
        self.forget(partitions)

    # Marking.

    def mark_all(self) -> bool:
        """Mark all returned records as processed. Returns False if some of them belong to lost partitions."""
        for partition, last in self.lost.items():
            self._refuse(partition, last + 1)
        self._mark_returned()
        return not self.lost

    def collect_marks(self) -> None:
        """Mark all records that are known to be processed, before a commit."""
        if self._handed:
            self._mark_iterated()
            return
        # The user has no unprocessed record. So hidden records behind the last one, such as transaction markers, count
        # as processed as well: the position itself is marked.
        for assigned in self._subscription.select(self._read):
            if not assigned.pause_reason:
                self._mark_position(assigned)

    def _mark_returned(self) -> None:
        for partition, (assigned, _) in self._handed.items():
            self._read.add(partition)
            self._mark_position(assigned)

    def _mark_position(self, assigned: AssignedPartition) -> None:
        offset = assigned.offset
        if offset is not None and self._subscription.holds(assigned):
            self._mark(assigned.partition, offset, leader_epoch=assigned.buffer.next_epoch)

    def _mark_iterated(self) -> None:
        """Mark the records of a running iteration: all are processed except the last returned one."""
        if self._iterated is None:
            return
        assigned, chunk = self._iterated
        offset = chunk.in_hand
        if offset is not None and self._subscription.holds(assigned):
            self._mark(assigned.partition, offset, leader_epoch=chunk.leader_epoch)


def _lives(task: asyncio.Task[object] | None) -> bool:
    """Return whether the task still runs and is not being cancelled."""
    return task is not None and not task.done() and not task.cancelling()

"""Tracks which records the user still processes and which are processed, for a consumer that commits for a group.

The contract: asking for the next record, list or batch means that everything handed out before is processed. So a
record in the user's hands is never committed, and a rebalance takes partitions away only between two reads, unless the
user takes longer than the other members can wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol

from ..types import TopicPartition
from .fetched import Chunk
from .partition import AssignedPartition
from .subscription import Subscription


class Mark(Protocol):
    """Marks everything before ``offset`` as processed: ``Offsets.mark``."""

    def __call__(self, partition: TopicPartition, offset: int, *, leader_epoch: int | None) -> object: ...


class PollTracker:
    """A context manager around each read: entering it means that the user has come back. Owner: the consumer.

    The ``Reader`` reports what it hands out; ``on_poll`` is called when the user comes back.
    """

    def __init__(self, subscription: Subscription, *, mark: Mark, on_poll: Callable[[], None]) -> None:
        self._subscription = subscription
        self._mark = mark
        self._on_poll = on_poll
        self._handed: dict[TopicPartition, AssignedPartition] = {}
        """The partitions with records in the user's hands."""
        self._read: set[TopicPartition] = set()
        """The partitions of which records were processed since they were assigned."""
        self._iterated: tuple[AssignedPartition, Chunk] | None = None
        self._waiting = 0
        """Reads that wait for records now."""
        self._returned = asyncio.Event()
        self._idle_since: float | None = None
        self._seen: object = None

    def __enter__(self) -> None:
        self._waiting += 1
        self._mark_handed()
        self._returned.set()
        self._on_poll()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._waiting -= 1
        self._idle_since = asyncio.get_running_loop().time()

    # Reported by the reader.

    def hand_out(self, assigned: AssignedPartition) -> None:
        """Records of this partition are in the user's hands now."""
        self._handed[assigned.partition] = assigned

    def begin_iteration(self, assigned: AssignedPartition, chunk: Chunk) -> None:
        """The user iterates over this chunk; taking the records one by one is not reported."""
        self._iterated = assigned, chunk

    def end_iteration(self) -> None:
        """The iteration is about to be settled."""
        self._mark_iterated()
        self._iterated = None

    # Asked by the membership.

    def idle_for(self, now: float) -> float:
        """Seconds since the user was last seen to read; ``now`` is the loop's time."""
        # An iteration over buffered records does not pass through __enter__: its position shows that the user reads.
        seen = None if self._iterated is None else (id(self._iterated[1]), self._iterated[1].position)
        if self._waiting or seen != self._seen or self._idle_since is None:
            self._seen, self._idle_since = seen, now
        return now - self._idle_since

    async def wait_until_processed(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until no record of these partitions is in the user's hands."""
        wanted = set(partitions)
        while wanted & self._handed.keys():
            self._returned.clear()
            await self._returned.wait()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The positions were moved, or the partitions revoked: records in the user's hands are never marked."""
        for partition in partitions:
            self._handed.pop(partition, None)
            self._read.discard(partition)

    # Marking.

    def collect_marks(self) -> None:
        """Mark everything that is known to be processed, before a commit."""
        if self._handed:
            self._mark_iterated()
            return
        # Nothing is in the user's hands, so hidden records behind the last one, such as the markers that end
        # transactions, are processed as well: mark the position itself.
        for assigned in self._subscription.select(self._read):
            if not assigned.position.pause_reason:
                self._mark_position(assigned)

    def _mark_handed(self) -> None:
        for partition, assigned in self._handed.items():
            self._read.add(partition)
            if self._subscription.holds(assigned):
                self._mark_position(assigned)
        self._handed.clear()

    def _mark_position(self, assigned: AssignedPartition) -> None:
        offset = assigned.offset
        if offset is not None:
            self._mark(assigned.partition, offset, leader_epoch=assigned.buffer.next_epoch)

    def _mark_iterated(self) -> None:
        """In the middle of an iteration, every record is processed except the last one that was handed out."""
        if self._iterated is None:
            return
        assigned, chunk = self._iterated
        offset = chunk.in_hand
        if offset is not None and self._subscription.holds(assigned):
            self._mark(assigned.partition, offset, leader_epoch=chunk.leader_epoch)

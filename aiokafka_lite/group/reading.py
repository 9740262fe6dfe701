"""The interface between a membership and its reader, the consumer whose user reads the assigned partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..types import OffsetAndMetadata, TopicPartition


class Marking(Protocol):
    """The calls of ``Offsets`` to its consumer, whose user marks and commits."""

    def collect_marks(self) -> None:
        """Mark the processed records that are not marked yet, before a commit of marked offsets."""

    def marked(self, partition: TopicPartition, offset: int) -> None:
        """Record that the user marked or committed ``offset``: all records before it are processed."""

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that these offsets are committed."""


class Reading(Marking, Protocol):
    """The reader's side of a membership. Calls come one at a time, except ``stop``, ``suspend``, ``resume``,
    ``idle_for``, ``marked``, ``collect_marks`` and ``committed``.

    A partition is revoked in four steps: ``stop``, ``wait_until_done``, ``finish``, ``revoked``. A lost partition has
    two: ``stop`` and ``lost``.
    """

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop returning records of these partitions, because they are about to be revoked or lost."""

    def suspend(self) -> None:
        """Stop returning records until ``resume``: the membership has to be confirmed after a blocked event loop."""

    def resume(self) -> None:
        """Let reads return records again, except of partitions that were revoked or lost meanwhile."""

    async def wait_until_done(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait until the user has processed the returned records. The caller cancels this call after a limit."""

    async def finish(self, partitions: Sequence[TopicPartition], *, closing: bool) -> None:
        """Make the last marks, because the wait is over, even if records are not processed. They are committed next."""

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Call the user's listener, then drop the partitions."""

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the partitions, then call the user's listener. Another member may already own them."""

    async def assigned(
        self, added: dict[TopicPartition, OffsetAndMetadata | None], owned: frozenset[TopicPartition]
    ) -> None:
        """Read the added partitions from their committed offsets. ``owned`` are all partitions of the generation."""

    def idle_for(self, now: float) -> float:
        """Return the seconds since the user last asked for records. ``now`` is the loop's time.

        0 while the user waits, and for a reader whose user may work without a bound.
        """

"""What users see of a rebalance: a listener of theirs, and what it may do meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from ..group.offsets import CommitResult
    from .consumer import Consumer


class RebalanceHandle:
    """What a listener may do with its consumer. Reading is not among it: the records would come in the middle of it."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self._consumer = consumer

    def __repr__(self) -> str:
        return f"<RebalanceHandle of {self._consumer!r}>"

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """What is assigned now: in ``on_assigned`` with what has come, in ``on_revoked`` still with what goes."""
        return self._consumer.assignment

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from ``offset`` on, whatever was committed."""
        self._consumer.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """As ``Consumer.pause``."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """As ``Consumer.resume``."""
        self._consumer.resume(partitions)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """As ``Consumer.position``."""
        return await self._consumer.position(partition, timeout=timeout)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """As ``Consumer.commit``; in ``on_lost`` everything is refused."""
        return await self._consumer.offsets.commit(offsets, timeout=timeout)


class RebalanceListener:
    """Override what you want to hear of. An exception ends the consumer, which raises it in the next call.

    Each call has to end before the membership goes on, so the group waits for it; and a slow one may cost the
    membership once ``rebalance_timeout`` is over. Partitions that neither come nor go are read meanwhile.
    """

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """These have come, and will be read when this returns. Called after every rebalance, also with none."""

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """These go to others when this returns. What is marked of them is committed already, with ``auto_commit``."""

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """These are gone, others may read them already. Called at once, also while user code works on a record."""

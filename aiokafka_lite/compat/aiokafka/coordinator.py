"""``GroupCoordinator``: the calls of aiokafka's class that frameworks and instrumentations use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...types import OffsetAndMetadata as NativeOffset
from ...types import TopicPartition
from .structs import OffsetAndMetadata

Offsets = Mapping[TopicPartition, int | tuple[int, str]]


class GroupCoordinator:
    """The membership of a consumer now.

    ``commit`` and ``committed`` are the calls of its consumer. ``AIOKafkaConsumer.commit`` calls ``commit_offsets``,
    because instrumentations replace it.
    """

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        commit: Callable[[Offsets | None], Awaitable[None]],
        committed: Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, NativeOffset | None]]],
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        """Empty while the consumer is not a member."""
        self._commit = commit
        self._committed = committed

    async def commit_offsets(self, assignment: object, offsets: Offsets | None) -> None:
        """Commit these offsets, or the positions. ``assignment`` has no effect."""
        await self._commit(offsets)

    async def fetch_committed_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Fetch the committed offsets. The result has no partition without one."""
        committed = await self._committed(partitions)
        return {
            partition: OffsetAndMetadata(offset.offset, offset.metadata)
            for partition, offset in committed.items()
            if offset is not None
        }

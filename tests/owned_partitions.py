"""A listener that knows the partitions of its member, for tests of rebalances."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka_lite import TopicPartition
from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener


class OwnedPartitions(RebalanceListener):
    """The numbers of the partitions that a member owns, and the partitions that it has lost."""

    def __init__(self) -> None:
        self.lost: list[TopicPartition] = []
        self.owned: set[int] = set()

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.owned |= {partition.partition for partition in partitions}

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.owned -= {partition.partition for partition in partitions}

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.owned.clear()
        self.lost += partitions

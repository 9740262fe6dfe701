"""Tells ``on_event`` which partitions a member has got, given back, and lost.

Each partition is told as revoked or lost at most once after it was told as assigned: a member may have to release
partitions that its program has never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from ..types import TopicPartition


class PartitionEvents:
    """The partitions that ``on_event`` knows as assigned. Owner: the ``Handovers`` or the ``ShareCore``."""

    def __init__(
        self, group_id: str, on_event: Callable[[PartitionsAssigned | PartitionsRevoked | PartitionsLost], None]
    ) -> None:
        self._group_id = group_id
        self._on_event = on_event
        self._assigned: set[TopicPartition] = set()

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the partitions of these that are new."""
        added = tuple(sorted(set(partitions) - self._assigned))
        if added:
            self._assigned.update(added)
            self._on_event(PartitionsAssigned(self._group_id, added))

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell that these partitions were given back."""
        if removed := self._remove(partitions):
            self._on_event(PartitionsRevoked(self._group_id, removed))

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell that these partitions were lost."""
        if removed := self._remove(partitions):
            self._on_event(PartitionsLost(self._group_id, removed))

    def replace(self, partitions: Iterable[TopicPartition], *, lost: bool = False) -> None:
        """Tell how the assignment differs from these partitions; ``lost`` says how the others have gone."""
        present = set(partitions)
        gone = self._assigned - present
        if lost:
            self.lost(gone)
        else:
            self.revoked(gone)
        self.assigned(present)

    def _remove(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        removed = tuple(sorted(self._assigned.intersection(partitions)))
        self._assigned.difference_update(removed)
        return removed

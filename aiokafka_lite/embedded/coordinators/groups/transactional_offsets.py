"""The offsets that open transactions have committed for the groups of one node.

They are in the log of their group's partition like other offsets, but in transactional batches. They become the offsets
of the group when the commit marker is written to that partition, and vanish with an abort marker.

If a partition has two offsets, the later one in the log counts, even if its transaction ends first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ....errors import ErrorCode
from ...log.producer_state import Verification
from ...metadata.topics import PartitionKey
from .log import CommittedOffset, GroupLog, encode_offset
from .records import offset_key

Offsets = dict[PartitionKey, CommittedOffset]


class TransactionalOffsets:
    """Offsets of open transactions. Owner: the GroupCoordinator. ``store`` takes a group's offsets after a commit."""

    def __init__(self, log: GroupLog, store: Callable[[str, Mapping[PartitionKey, CommittedOffset]], None]) -> None:
        self._log = log
        self._store = store
        self._open: dict[tuple[int, int], dict[str, Offsets]] = {}  # (partition, producer id) → group → offsets

    async def commit(
        self,
        group_id: str,
        producer: tuple[int, int],
        offsets: Mapping[PartitionKey, CommittedOffset],
        verification: Verification | None,
    ) -> ErrorCode:
        """Write offsets as a part of a producer's transaction, and wait for the replicas."""
        rows = [(offset_key(group_id, *key), encode_offset(committed)) for key, committed in offsets.items()]
        index = self._log.partition_for(group_id)
        if index is None:
            return ErrorCode.NOT_COORDINATOR
        status = self._log.append_transactional(group_id, rows, producer, verification)
        error, first = status.response.error, status.response.base_offset
        if error is ErrorCode.NONE:
            # The marker may come during the wait for the replicas, so the offsets are registered before the wait.
            placed = {key: committed.at(first + row) for row, (key, committed) in enumerate(offsets.items())}
            self.add(index, producer[0], group_id, placed)
            error = await self._log.until_replicated(group_id, status)
        return self._log.for_members(error)

    def add(self, index: int, producer_id: int, group_id: str, offsets: Mapping[PartitionKey, CommittedOffset]) -> None:
        """Register offsets of an open transaction that were written to a partition of the offsets topic."""
        self._open.setdefault((index, producer_id), {}).setdefault(group_id, {}).update(offsets)

    def end(self, index: int, producer_id: int, *, committed: bool) -> None:
        """Apply or drop the offsets of a transaction, whose marker was written to a partition of the offsets topic."""
        # A marker may be written twice, by two coordinators. The second one finds nothing.
        for group_id, offsets in self._open.pop((index, producer_id), {}).items():
            if committed:
                self._store(group_id, offsets)

    def pending(self, group_id: str) -> set[PartitionKey]:
        """Return the partitions with offsets of open transactions."""
        return {key for groups in self._open.values() for key in groups.get(group_id, {})}

    def remove(self, group_id: str, keys: Iterable[PartitionKey]) -> None:
        """Drop the pending offsets of partitions whose offsets were deleted."""
        for key in keys:
            for groups in self._open.values():
                groups.get(group_id, {}).pop(key, None)

    def unload(self, index: int) -> None:
        """Drop the offsets of a partition of the offsets topic that the node no longer leads."""
        for slot in [slot for slot in self._open if slot[0] == index]:
            del self._open[slot]

"""The transactions in one log: the open ones, and the aborted ones that readers of committed records have to skip.

Each replica builds it from the batches and the markers of its log, so it does not depend on the coordinator.

Invariants:

 1. The last stable offset never passes the first record of an open transaction. A transaction whose marker is at or
    above the high watermark counts as open, because the marker can still be lost.
 2. ``aborted`` is ordered by the offsets of the markers.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import NamedTuple

from ...protocol.records import RecordBatch


class TransactionIndexEntry(NamedTuple):
    """A transaction whose records up to its marker at ``last_offset`` must be skipped."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionIndex:
    """Owner: the ``ProducerStates`` of a replica."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # producer id → first offset, in the order of the offsets
        self.aborted: list[TransactionIndexEntry] = []
        self._unreplicated: list[tuple[int, int]] = []  # (first offset, offset of the marker)

    def begin(self, producer_id: int, offset: int) -> None:
        """Record the first offset of a transaction. Later records of the same transaction change nothing."""
        if producer_id not in self.open:
            latest = next(reversed(self.open.values()), -1)
            assert offset > latest, "open transactions are in the order of their first offsets"
            self.open[producer_id] = offset

    def end(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """End a transaction by its marker. A marker without a transaction here has no effect."""
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        self._unreplicated.append((first, offset))
        assert first < offset, "a marker follows the records of its transaction"
        if not committed:
            assert not self.aborted or self.aborted[-1].last_offset < offset, "aborted is ordered by the markers"
            self.aborted.append(TransactionIndexEntry(producer_id, first, offset))

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end of the records whose transactions have all ended."""
        if not self.open and not self._unreplicated:
            return high_watermark
        # As in Kafka, a transaction counts as open until the replicas have its marker.
        self._unreplicated = [ended for ended in self._unreplicated if ended[1] >= high_watermark]
        firsts = [first for first, _ in self._unreplicated]
        return min((high_watermark, *firsts, *islice(self.open.values(), 1)))

    def aborted_between(self, offset: int, end: int) -> list[TransactionIndexEntry]:
        """Return the aborted transactions that have records from ``offset`` up to ``end``."""
        first = bisect_left(self.aborted, offset, key=_last_offset)
        return [transaction for transaction in self.aborted[first:] if transaction.first_offset < end]

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether the records of a batch belong to an aborted transaction."""
        if not self.aborted or not batch.is_transactional or batch.is_control:
            return False
        first = bisect_left(self.aborted, batch.base_offset, key=_last_offset)
        return any(
            transaction.producer_id == batch.producer_id and transaction.first_offset <= batch.base_offset
            for transaction in self.aborted[first:]
        )

    def delete_before(self, offset: int) -> None:
        """Drop the aborted transactions before ``offset``, where the log starts now."""
        del self.aborted[: bisect_left(self.aborted, offset, key=_last_offset)]


def _last_offset(aborted: TransactionIndexEntry) -> int:
    return aborted.last_offset

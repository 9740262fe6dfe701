"""The partitions of a member, and the numbers of their handovers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ..types import TopicPartition
from .events import Lose, Revoke

NO_GENERATION = -1


class Ownership:
    """The partitions of the reader. Owner: the member, which alone changes it.

    The reader may read the partitions in ``owned``. The partitions in ``revoking`` have left ``owned`` and are not
    released yet: the reader commits and calls the listener first. Both are lost together when the member is fenced.
    """

    def __init__(self) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.revoking: frozenset[TopicPartition] = frozenset()
        # The last assignment survives a revocation: an eager member owns nothing when it joins, and a sticky strategy
        # still needs its last partitions.
        self.last_assignment: frozenset[TopicPartition] = frozenset()
        self.last_generation: int = NO_GENERATION
        self._number = 0

    def replace(
        self, assigned: frozenset[TopicPartition], topics: frozenset[str], generation: int
    ) -> tuple[tuple[TopicPartition, ...], frozenset[TopicPartition]]:
        """Own the assigned partitions of the subscribed topics. Returns the added and the surplus partitions."""
        assert not self.revoking, "an assignment comes after the partitions of the last one are released"
        self.last_assignment, self.last_generation = assigned, generation
        subscribed = frozenset(partition for partition in assigned if partition.topic in topics)
        added, surplus = tuple(sorted(subscribed - self.owned)), self.owned - subscribed
        self.owned = subscribed
        return added, surplus

    def revoke(self, partitions: Iterable[TopicPartition], *, closing: bool = False) -> Revoke:
        """Start to revoke the partitions."""
        revoked = frozenset(partitions)
        self._number += 1
        self.owned -= revoked
        self.revoking |= revoked
        return Revoke(self._number, tuple(sorted(revoked)), closing)

    def revoke_all(self) -> Revoke | None:
        """Start to revoke all partitions, because the consumer closes. Returns None if there is nothing to revoke."""
        # The partitions of a revocation in progress are included, because its number no longer counts.
        partitions = self.owned | self.revoking
        return self.revoke(partitions, closing=True) if partitions else None

    def lose(self, *, awaits_release: bool = True) -> Lose:
        """Own nothing from now on; a ``Released`` of an earlier revocation no longer counts.

        With ``awaits_release=False``, the ``Released`` of this loss does not count either.
        """
        lost = tuple(sorted(self.owned | self.revoking))
        self.owned = self.revoking = frozenset()
        self._number += 1
        lose = Lose(self._number, lost)
        self._number += not awaits_release
        return lose

    def release(self, number: int) -> bool:
        """Record that the reader has released these partitions. False if a newer handover replaced this one."""
        if number != self._number:
            return False
        self.revoking = frozenset()
        return True

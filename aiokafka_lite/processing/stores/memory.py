"""A store in memory, for tests of programs that use ``ExactlyOnceInto``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from ...types import GroupMetadata, TopicPartition
from .store import OffsetChange, StaleClaim

_Key = tuple[str, TopicPartition]


class MemoryTransaction(list[object]):
    """The effects of a transaction: whatever the program appends. They are in ``MemoryStore.effects`` when it commits.

    Owner of the changes of offsets that it has made: the store.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: dict[_Key, OffsetChange] = {}


class MemoryStore:
    """Keeps offsets and effects in this process. Several members of a group may share it.

    The transaction is a list: a program appends its effects. ``effects`` has those of all committed transactions, in
    the order of the commits, and ``offsets`` the offset of the next record by group and partition.
    """

    def __init__(self) -> None:
        self.effects: list[object] = []
        self.offsets: dict[_Key, int] = {}
        self._claims: dict[_Key, tuple[int, str]] = {}

    def __repr__(self) -> str:
        return f"<MemoryStore effects={len(self.effects)} offsets={len(self.offsets)}>"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryTransaction]:
        """Begin a transaction. At its end, all changes are checked again and applied without an await."""
        transaction = MemoryTransaction()
        yield transaction
        self._check(transaction.changes)
        self.offsets.update((key, change.next_offset) for key, change in transaction.changes.items())
        self.effects.extend(transaction)

    async def claim(
        self,
        transaction: MemoryTransaction,
        member: GroupMetadata,
        partitions: Sequence[TopicPartition],
        *,
        force: bool = False,
    ) -> dict[TopicPartition, int | None]:
        """Make the member the owner of the partitions at once. Raises StaleClaim for an older generation."""
        for partition in partitions:
            generation, _ = self._claims.get((member.group_id, partition), (-1, ""))
            if generation > member.generation_id and not force:
                raise StaleClaim(f"{partition} was claimed by generation {generation}")
        keys = {partition: (member.group_id, partition) for partition in partitions}
        self._claims.update((key, (member.generation_id, member.member_id)) for key in keys.values())
        return {partition: self.offsets.get(key) for partition, key in keys.items()}

    async def save(
        self, transaction: MemoryTransaction, group_id: str, changes: Mapping[TopicPartition, OffsetChange]
    ) -> None:
        """Add the changes to the transaction. Raises StaleClaim."""
        keyed = {(group_id, partition): change for partition, change in changes.items()}
        self._check(keyed)
        transaction.changes.update(keyed)

    def _check(self, changes: Mapping[_Key, OffsetChange]) -> None:
        for key, change in changes.items():
            if self._claims.get(key) != (change.generation, change.member_id):
                raise StaleClaim(f"{key[1]} was claimed by another member")
            if self.offsets.get(key) != change.expected:
                raise StaleClaim(f"{key[1]} is not at offset {change.expected}")

    def is_transient(self, error: BaseException) -> bool:
        """Return False: memory has no errors that pass."""
        return False

"""The database of a simulation as a store of ``ExactlyOnceInto``: offsets and rows are committed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from ...processing.stores.store import OffsetChange, StaleClaim
from ...types import GroupMetadata, TopicPartition
from .database import DatabaseSession, DatabaseTransaction
from .effects import EffectFailed

TABLE = "kafka_offsets"


class SimulatedStore:
    """Keeps offsets in the table ``kafka_offsets`` of the database of a simulation.

    The program gets the ``DatabaseTransaction``: ``ExactlyOnceInto(consumer, SimulatedStore(instance.database))``.
    """

    def __init__(self, session: DatabaseSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return "<SimulatedStore>"

    def transaction(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        """Begin a transaction of the database."""
        return self._session.transaction()

    async def claim(
        self,
        transaction: DatabaseTransaction,
        member: GroupMetadata,
        partitions: Sequence[TopicPartition],
        *,
        force: bool = False,
    ) -> dict[TopicPartition, int | None]:
        """Make the member the owner of the partitions, after transactions that have changed their rows have ended."""
        offsets: dict[TopicPartition, int | None] = {}
        for partition in sorted(partitions):
            key = (member.group_id, *partition)
            generation, _, offset = await transaction.get(TABLE, key, lock=True) or (-1, "", None)
            if generation > member.generation_id and not force:
                raise StaleClaim(f"{partition} was claimed by generation {generation}")
            await transaction.put(TABLE, key, (member.generation_id, member.member_id, offset))
            offsets[partition] = offset
        return offsets

    async def save(
        self, transaction: DatabaseTransaction, group_id: str, changes: Mapping[TopicPartition, OffsetChange]
    ) -> None:
        """Change the offsets. Raises StaleClaim unless all rows have the claims and offsets that are expected."""
        for partition, change in sorted(changes.items()):
            key = (group_id, *partition)
            claim = change.generation, change.member_id, change.expected
            if await transaction.get(TABLE, key, lock=True) != claim:
                raise StaleClaim(f"{partition} was claimed by another member, or is not at offset {change.expected}")
            await transaction.put(TABLE, key, (change.generation, change.member_id, change.next_offset))

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the database failed, or an effect of the program."""
        return isinstance(error, EffectFailed)

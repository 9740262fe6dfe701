"""What a database must do for ``ExactlyOnceInto``: four calls.

A store keeps one row for each partition of a group: the offset of the next record, and the member that claimed the
partition last, with its generation (classic groups) or member epoch (KIP-848). Two rules make a record's effects
happen once:

Rule 1: ``save`` changes a row only if the row still has the claim and the offset that the caller saw. The change and
        the effects are one transaction. So of two transactions for the same records, only one is committed, whatever
        the group's coordinator says.
Rule 2: ``claim`` waits for a transaction that has changed the row and is being committed. So the offset that it returns
        is final, also after a commit whose outcome the client does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ...errors import KafkaError
from ...types import GroupMetadata, TopicPartition

T = TypeVar("T")


class StaleClaim(KafkaError):
    """Another member has claimed the partition, or its offset is not the expected one. A store raises this."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A change of a partition's row: the claim and the offset that the row must have, and the new offset."""

    generation: int
    member_id: str
    expected: int | None
    """None: the row has no offset yet."""
    next_offset: int


class Store(Protocol[T]):
    """A database that commits effects and offsets together. ``T`` is what the program gets as the transaction."""

    def transaction(self) -> AbstractAsyncContextManager[T]:
        """Begin a transaction, which is committed when the block ends, and rolled back if the block raises.

        The block may be entered and left by different tasks.
        """
        ...

    async def claim(
        self, transaction: T, member: GroupMetadata, partitions: Sequence[TopicPartition], *, force: bool = False
    ) -> dict[TopicPartition, int | None]:
        """Make the member the owner of these partitions, and return their offsets; None for one without an offset.

        Waits for transactions that have changed one of the rows. Raises StaleClaim if a row has a newer generation.
        With ``force``, the generation may be any: the group was created again, and its generations began again.
        """
        ...

    async def save(self, transaction: T, group_id: str, changes: Mapping[TopicPartition, OffsetChange]) -> None:
        """Change the offsets. Raises StaleClaim unless all rows have the claims and offsets that are expected."""
        ...

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the same transaction may succeed later: a lost connection, a deadlock, a restart."""
        ...

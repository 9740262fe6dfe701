"""Offsets in a table of PostgreSQL. The rules are those of ``store``; PostgreSQL's row locks make them hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ...errors import IllegalStateError
from ...types import GroupMetadata, TopicPartition
from .drivers import checked_table, driver_of, is_transient, wrong_table
from .store import OffsetChange, StaleClaim

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    import psycopg_pool
    from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

T = TypeVar("T")

_DDL = """\
CREATE TABLE {table} (
    group_id text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint,
    generation integer NOT NULL,
    member_id text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, topic, partition)
);"""

# The rows are locked in their order, so that two members that claim the same partitions do not wait for one another.
_CLAIM = """
INSERT INTO {table} AS row (group_id, topic, partition, generation, member_id)
SELECT CAST(:group_id AS text), topic, partition, CAST(:generation AS integer), CAST(:member_id AS text)
FROM unnest(CAST(:topics AS text[]), CAST(:partitions AS integer[])) AS asked (topic, partition)
ORDER BY topic, partition
ON CONFLICT (group_id, topic, partition) DO UPDATE
SET generation = EXCLUDED.generation, member_id = EXCLUDED.member_id
WHERE row.generation <= EXCLUDED.generation OR CAST(:force AS boolean)
RETURNING topic, partition, next_offset
"""

_SAVE = """
UPDATE {table} AS row
SET next_offset = change.next_offset, changed_at = now()
FROM unnest(
    CAST(:topics AS text[]), CAST(:partitions AS integer[]), CAST(:generations AS integer[]),
    CAST(:member_ids AS text[]), CAST(:expected AS bigint[]), CAST(:next_offsets AS bigint[])
) AS change (topic, partition, generation, member_id, expected, next_offset)
WHERE row.group_id = CAST(:group_id AS text) AND row.topic = change.topic AND row.partition = change.partition
    AND row.generation = change.generation AND row.member_id = change.member_id
    AND row.next_offset IS NOT DISTINCT FROM change.expected
RETURNING row.topic, row.partition
"""


class PostgresStore(Generic[T]):
    """Keeps offsets in a table of PostgreSQL, through the pool of asyncpg or psycopg 3, or an engine of SQLAlchemy.

    The transaction that a program gets is the driver's connection, with an open transaction. The program must neither
    commit it nor roll it back. The first read raises ConfigurationError if the table is missing or has other columns;
    the error contains the statement that creates it, as ``ddl`` does. ``table`` may begin with a schema and a dot, and
    has at most 63 characters.

    Raises ConfigurationError for another object than a pool, and for a wrong name.
    """

    @overload
    def __init__(
        self: PostgresStore[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]],
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        table: str = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: PostgresStore[psycopg.AsyncConnection[tuple[Any, ...]]],
        pool: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]],
        *,
        table: str = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: PostgresStore[sqlalchemy_asyncio.AsyncConnection],
        pool: sqlalchemy_asyncio.AsyncEngine,
        *,
        table: str = ...,
    ) -> None: ...

    def __init__(self, pool: object, *, table: str = "kafka_offsets") -> None:
        self._table = checked_table(table, "'kafka_offsets' or 'billing.offsets'")
        self._driver = driver_of(pool)

    def __repr__(self) -> str:
        return f"<PostgresStore {self._table}>"

    @property
    def ddl(self) -> str:
        """The statement that creates the table."""
        return _DDL.format(table=self._table)

    def transaction(self) -> AbstractAsyncContextManager[T]:
        """Begin a transaction on a connection of the pool."""
        return self._driver.transaction()

    async def claim(
        self, transaction: T, member: GroupMetadata, partitions: Sequence[TopicPartition], *, force: bool = False
    ) -> dict[TopicPartition, int | None]:
        """Write the member into the rows, and return their offsets. See ``Store.claim``.

        Raises ConfigurationError if the table is missing.
        """
        try:
            rows = await self._driver.fetch(
                transaction,
                _CLAIM.format(table=self._table),
                group_id=member.group_id,
                generation=member.generation_id,
                member_id=member.member_id,
                topics=[partition.topic for partition in partitions],
                partitions=[partition.partition for partition in partitions],
                force=force,
            )
        except Exception as error:
            if (wrong := wrong_table(error, self._table, "PostgresStore", self.ddl)) is None:
                raise
            raise wrong from error
        offsets = {TopicPartition(topic, number): offset for topic, number, offset in rows}
        _check_complete(partitions, offsets, f"claimed by a newer generation than {member.generation_id}")
        return offsets

    async def save(self, transaction: T, group_id: str, changes: Mapping[TopicPartition, OffsetChange]) -> None:
        """Change the offsets. See ``Store.save``. Raises IllegalStateError if the program has ended the transaction."""
        if not self._driver.is_in_transaction(transaction):
            raise IllegalStateError("the transaction was ended by the program, so its effects are not exactly once")
        rows = await self._driver.fetch(
            transaction,
            _SAVE.format(table=self._table),
            group_id=group_id,
            topics=[partition.topic for partition in changes],
            partitions=[partition.partition for partition in changes],
            generations=[change.generation for change in changes.values()],
            member_ids=[change.member_id for change in changes.values()],
            expected=[change.expected for change in changes.values()],
            next_offsets=[change.next_offset for change in changes.values()],
        )
        saved = {TopicPartition(topic, number): None for topic, number in rows}
        _check_complete(list(changes), saved, "claimed by another member, or its offset was changed")

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the error passes: a lost connection, a deadlock, a restart of the server."""
        return is_transient(error)


def _check_complete(
    partitions: Sequence[TopicPartition], rows: Mapping[TopicPartition, object], otherwise: str
) -> None:
    missing = [partition for partition in partitions if partition not in rows]
    if missing:
        raise StaleClaim(f"{', '.join(map(str, missing))}: {otherwise}")

"""An outbox in a table of PostgreSQL: its statements, and how several relays share it.

Rules of this file:

Rule 1: The rows are in 16 shards, by the hash of the key. A relay reads the rows of a shard only while it has the
        shard's advisory lock, on the connection that has the lock. So at most one relay reads a shard, a relay whose
        connection is lost reads nothing, and the locks of a killed relay are free at once.
Rule 2: Each statement is a transaction of its own. A statement that reads must not be the one that locks: its snapshot
        would be older than the lock, and might contain rows that the former owner has deleted since.
Rule 3: Each relay has a second lock, shared by all, so that each can count the others and keep only its share.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from ...errors import ConfigurationError
from ..stores.drivers import LONGEST_NAME, Driver, checked_table, driver_of, is_transient, wrong_table
from .rows import Lane, OutboxRow

if TYPE_CHECKING:
    import asyncpg
    import psycopg_pool
    from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

SHARDS = 16
"""The number of shards, and so of relays that can work at a time. It is in the table too, so it never changes."""

END_TIMEOUT = 5.0
"""Seconds for the last statement of a session. The connection may be lost."""

IDLE_TIMEOUT = 30
"""Seconds after which PostgreSQL 14 and newer end the session of a relay that is suspended or cut off."""

# The shard of a row that was set aside is -1, so that no relay reads it again.
_DDL = """\
CREATE TABLE {table} (
    id bigint GENERATED ALWAYS AS IDENTITY,
    topic text NOT NULL,
    key bytea,
    value bytea,
    headers jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,
    error text,
    retry_at timestamptz,
    failed_at timestamptz,
    shard smallint NOT NULL GENERATED ALWAYS AS (
        CASE
            WHEN failed_at IS NOT NULL THEN -1
            WHEN key IS NULL THEN id % {shards}
            ELSE get_byte(sha256(key), 0) % {shards} END
    ) STORED,
    PRIMARY KEY (shard, id)
);
CREATE INDEX {index} ON {table} (shard) WHERE retry_at IS NOT NULL;
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_notify('{channel}', ''); RETURN NULL; END $$;
CREATE TRIGGER {trigger} AFTER INSERT ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();"""

_IDLE_TIMEOUT = "SELECT current_setting('idle_session_timeout', true)"

_SET_IDLE_TIMEOUT = "SELECT set_config('idle_session_timeout', CAST(:timeout AS text), false)"

_PRESENT = f"""
SELECT pg_advisory_lock_shared(CAST(CAST(CAST(:table AS regclass) AS oid) AS integer), {SHARDS})
"""

_RELAYS = f"""
SELECT count(DISTINCT pid), pg_backend_pid() FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 2 AND objid = {SHARDS} AND granted
    AND classid = CAST(CAST(:table AS regclass) AS oid)
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

_LOCK = """
SELECT shard FROM unnest(CAST(:shards AS integer[])) AS free (shard)
WHERE pg_try_advisory_lock(CAST(CAST(CAST(:table AS regclass) AS oid) AS integer), shard) LIMIT :count
"""

_UNLOCK = """
SELECT pg_advisory_unlock(CAST(CAST(CAST(:table AS regclass) AS oid) AS integer), shard)
FROM unnest(CAST(:shards AS integer[])) AS surplus (shard)
"""

# Lanes that must wait: a row of theirs waits for its next attempt, or is in flight (``busy``). Of each shard, the first
# rows are read by the primary key; the outer limit ends the join as soon as there are enough rows.
_READ = """
WITH waiting AS MATERIALIZED (
    SELECT topic, key FROM {table}
    WHERE shard = ANY(CAST(:shards AS smallint[])) AND retry_at > clock_timestamp() AND key IS NOT NULL
    UNION ALL
    SELECT topic, key FROM unnest(CAST(:busy_topics AS text[]), CAST(:busy_keys AS bytea[])) AS busy (topic, key)
)
SELECT row.id, row.shard, row.topic, row.key, row.value, CAST(row.headers AS text), row.attempts
FROM unnest(CAST(:shards AS smallint[])) AS own (shard)
CROSS JOIN LATERAL (
    SELECT * FROM {table} AS row
    WHERE row.shard = own.shard
        AND (row.retry_at IS NULL OR row.retry_at <= clock_timestamp())
        AND CASE WHEN row.key IS NULL THEN row.id <> ALL(CAST(:busy_ids AS bigint[]))
            ELSE (row.topic, row.key) NOT IN (SELECT topic, key FROM waiting) END
    ORDER BY row.id LIMIT :count
) AS row
LIMIT :count
"""

_DELETE = """
WITH deleted AS (
    DELETE FROM {table} AS row
    USING unnest(CAST(:shards AS smallint[]), CAST(:ids AS bigint[])) AS sent (shard, id)
    WHERE row.shard = sent.shard AND row.id = sent.id
    RETURNING 1
)
SELECT count(*) FROM deleted
"""

_FAIL = """
WITH failed AS (
    UPDATE {table} AS row
    SET attempts = attempt.number, error = attempt.error,
        retry_at = clock_timestamp() + attempt.pause * INTERVAL '1 second',
        failed_at = CASE WHEN attempt.pause IS NULL THEN clock_timestamp() END
    FROM unnest(
        CAST(:shards AS smallint[]), CAST(:ids AS bigint[]), CAST(:numbers AS integer[]),
        CAST(:errors AS text[]), CAST(:pauses AS float8[])
    ) AS attempt (shard, id, number, error, pause)
    WHERE row.shard = attempt.shard AND row.id = attempt.id
    RETURNING 1
)
SELECT count(*) FROM failed
"""


class Attempt(NamedTuple):
    """A failed attempt to send a row. ``pause`` is in seconds; None sets the row aside."""

    row: OutboxRow
    number: int
    error: str
    pause: float | None


class PostgresOutbox:
    """A table of PostgreSQL whose rows are records for Kafka, through a pool of asyncpg or psycopg 3, or an engine.

    A service inserts ``topic``, ``key``, ``value`` and ``headers`` in its own transaction; all but the topic may be
    null. ``headers`` is a JSON object of strings. ``ddl`` has the statements that create the table, and the trigger
    that wakes the relays; ``table`` may begin with a schema and a dot, and has at most 63 characters.

    A relay holds two connections of the pool, which must keep their server process: a proxy that lends out connections
    for single transactions cannot be between. Raises ConfigurationError for another object than a pool, for a pool with
    less than two connections, and for a wrong name.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any] | psycopg_pool.AsyncConnectionPool[Any] | sqlalchemy_asyncio.AsyncEngine,
        *,
        table: str = "kafka_outbox",
    ) -> None:
        self._table = checked_table(table, "'kafka_outbox' or 'shop.outbox'")
        self._driver = driver_of(pool)
        if (size := self._driver.size) is not None and size < 2:
            raise ConfigurationError(f"pool must have at least 2 connections for a relay, got {size}")

    def __repr__(self) -> str:
        return f"<PostgresOutbox {self._table}>"

    @property
    def ddl(self) -> str:
        """The statements that create the table, its index and its trigger. They need PostgreSQL 12 or newer."""
        schema, dot, name = self._table.rpartition(".")
        # PostgreSQL would shorten the name of the index to that of the table.
        index, trigger = (name[: LONGEST_NAME - len(ending)] + ending for ending in ("_retry_at", "_notify"))
        function = schema + dot + trigger
        return _DDL.format(
            table=self._table,
            index=index,
            trigger=trigger,
            function=function,
            channel=self._table.lower(),
            shards=SHARDS,
        )

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the error passes: a lost connection, a restart of the server."""
        return is_transient(error)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OutboxSession]:
        """Open a session of a relay, whose locks are released when the block ends.

        Raises ConfigurationError if the table is missing.
        """
        async with self._driver.session() as connection:
            session = OutboxSession(self._driver, connection, self._table)
            try:
                await session.begin()
                try:
                    yield session
                finally:
                    with anyio.move_on_after(END_TIMEOUT, shield=True), suppress(Exception):
                        await session.end()
            except Exception as error:
                if (wrong := wrong_table(error, self._table, "PostgresOutbox", self.ddl)) is None:
                    raise
                raise wrong from error

    async def listen(self, on_notify: Callable[[], None]) -> None:
        """Call ``on_notify`` after each commit that inserts rows, until cancelled. Raises when the connection ends."""
        await self._driver.listen(self._table.lower(), on_notify)

    async def delete(self, rows: Collection[OutboxRow]) -> None:
        """Delete rows that were sent, outside of a session."""
        async with self._driver.transaction() as connection:
            await _delete(self._driver, connection, self._table, rows)


class OutboxSession:
    """The session of one relay: a connection, and the shards that it has locked."""

    def __init__(self, driver: Driver, connection: Any, table: str) -> None:
        self._driver = driver
        self._connection = connection
        self._table = table
        self._process: int | None = None
        self._own: list[int] = []
        self._idle_timeout: str | None = None
        """The setting of the connection before the session; None before PostgreSQL 14, which does not have it."""

    async def begin(self) -> None:
        """Report this relay to the others."""
        ((self._idle_timeout,),) = await self._fetch(_IDLE_TIMEOUT)
        if self._idle_timeout is not None:
            await self._fetch(_SET_IDLE_TIMEOUT, timeout=str(IDLE_TIMEOUT * 1000))
        await self._fetch(_PRESENT, table=self._table)

    async def end(self) -> None:
        """Leave the connection as it was. Its locks end when the driver takes it back."""
        if self._idle_timeout is not None:
            await self._fetch(_SET_IDLE_TIMEOUT, timeout=self._idle_timeout)

    async def balance(self, busy: Collection[int]) -> None:
        """Lock free shards up to the share of this relay, or release those above it, but none that is ``busy``.

        Raises ConfigurationError if the connection has got another server process.
        """
        ((relays, process),) = await self._fetch(_RELAYS, table=self._table)
        if self._process not in (None, process):
            raise ConfigurationError(
                "pool must keep the server process of a connection, because a relay has locks; connect to PostgreSQL "
                "itself, or use session pooling"
            )
        self._process = process
        share = math.ceil(SHARDS / max(relays, 1))
        if len(self._own) > share:
            surplus = [shard for shard in self._own if shard not in busy][: len(self._own) - share]
            # Forget them first: after a cancellation, it is not known which of them are released.
            self._own = [shard for shard in self._own if shard not in surplus]
            await self._fetch(_UNLOCK, table=self._table, shards=surplus)
        elif len(self._own) < share:
            free = [shard for shard in range(SHARDS) if shard not in self._own]
            rows = await self._fetch(_LOCK, table=self._table, shards=free, count=share - len(self._own))
            self._own += [shard for (shard,) in rows]

    async def read(self, count: int, busy: Collection[Lane]) -> list[OutboxRow]:
        """Read at most ``count`` rows, in the order of their ids, without those of busy and of waiting lanes."""
        lanes = [lane for lane in busy if not isinstance(lane, int)]
        rows = await self._fetch(
            _READ.format(table=self._table),
            shards=self._own,
            busy_ids=[lane for lane in busy if isinstance(lane, int)],
            busy_topics=[topic for topic, _ in lanes],
            busy_keys=[key for _, key in lanes],
            count=count,
        )
        self._own = self._own[1:] + self._own[:1]  # another shard is the first the next time
        return sorted(OutboxRow(*row) for row in rows)

    async def delete(self, rows: Collection[OutboxRow]) -> None:
        """Delete rows that were sent."""
        await _delete(self._driver, self._connection, self._table, rows)

    async def fail(self, attempts: Sequence[Attempt]) -> None:
        """Write failed attempts into their rows."""
        await self._fetch(
            _FAIL.format(table=self._table),
            shards=[attempt.row.shard for attempt in attempts],
            ids=[attempt.row.id for attempt in attempts],
            numbers=[attempt.number for attempt in attempts],
            errors=[attempt.error for attempt in attempts],
            pauses=[attempt.pause for attempt in attempts],
        )

    async def _fetch(self, statement: str, **parameters: object) -> list[Sequence[Any]]:
        return await self._driver.fetch(self._connection, statement, **parameters)


async def _delete(driver: Driver, connection: Any, table: str, rows: Collection[OutboxRow]) -> None:
    await driver.fetch(
        connection,
        _DELETE.format(table=table),
        shards=[row.shard for row in rows],
        ids=[row.id for row in rows],
    )

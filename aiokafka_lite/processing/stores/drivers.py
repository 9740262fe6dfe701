"""The drivers of PostgreSQL: asyncpg, psycopg 3, and SQLAlchemy's async engine with either. None is imported here.

A statement has parameters of the form ``:name``. It has no other colon and no percent sign, so it can be translated to
the form of each driver.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, Protocol

import anyio

from ...arguments import must_be
from ...errors import ConfigurationError
from ...extras import extra

_PARAMETER = re.compile(r":(\w+)")

_TRANSIENT_CLASSES = ("08", "25006", "40", "53", "57P")
"""Classes of SQLSTATE that pass: connection, a server that is read-only during a failover, rollback of a transaction,
resources, the operator's intervention."""


_TABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)

LONGEST_NAME = 63
"""The bytes of a name in PostgreSQL. It shortens longer ones, but refuses a longer channel of a notification."""

_UNDEFINED = ("42P01", "42703", "3F000")
"""The SQLSTATE of a missing table, column and schema."""

UNLOCK_ALL = "SELECT pg_advisory_unlock_all()"
"""The statement with which a session ends."""

UNLOCK_TIMEOUT = 5.0
"""Seconds for returning a connection as it was."""


class Driver(Protocol):
    """Runs statements on connections of one driver's pool."""

    @property
    def size(self) -> int | None:
        """The most connections that the pool opens; None if it does not say."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def session(self) -> AbstractAsyncContextManager[Any]:
        """Take a connection on which each statement is a transaction. Its advisory locks end with the block."""
        ...

    async def listen(self, channel: str, on_notify: Callable[[], None]) -> None:
        """Call ``on_notify`` after each notification, until cancelled. Raises when the connection ends."""
        ...

    async def fetch(self, connection: Any, statement: str, **parameters: object) -> list[Sequence[Any]]:
        """Run a statement on the connection, in its transaction if it has one, and return its rows."""
        ...

    def is_in_transaction(self, connection: Any) -> bool: ...


class _Asyncpg:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._pool.acquire() as connection, connection.transaction():
            yield connection

    @property
    def size(self) -> int | None:
        return int(self._pool.get_max_size())

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        async with self._pool.acquire() as connection:
            try:
                yield connection
            except TimeoutError:
                connection.terminate()  # the pool would wait for it
                raise
            # The pool resets each connection that is returned, which ends its locks as well.

    async def listen(self, channel: str, on_notify: Callable[[], None]) -> None:
        async with self._pool.acquire() as connection:
            await _listen_asyncpg(connection, channel, on_notify)

    async def fetch(self, connection: Any, statement: str, **parameters: object) -> list[Sequence[Any]]:
        numbered, names = _numbered(statement)
        rows: list[Sequence[Any]] = await connection.fetch(numbered, *(parameters[name] for name in names))
        return rows

    def is_in_transaction(self, connection: Any) -> bool:
        return bool(connection.is_in_transaction())


class _Psycopg:
    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._rows = extra("psycopg.rows", "postgres").tuple_row  # the pool's connections may have another row factory
        self._client_cursor = extra("psycopg", "postgres").AsyncClientCursor

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._pool.connection() as connection, connection.transaction():
            yield connection

    @property
    def size(self) -> int | None:
        return int(self._pool.max_size)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        async with self._pool.connection() as connection:
            was_autocommit = connection.autocommit
            await connection.set_autocommit(True)
            try:
                yield connection
            finally:
                if not connection.closed:
                    with anyio.move_on_after(UNLOCK_TIMEOUT, shield=True) as unlocking:
                        await connection.execute(UNLOCK_ALL)
                    if unlocking.cancelled_caught:
                        await connection.close()  # it may still have its locks
                    else:
                        await connection.set_autocommit(was_autocommit)

    async def listen(self, channel: str, on_notify: Callable[[], None]) -> None:
        async with self.session() as connection:
            await _listen_psycopg(connection, channel, on_notify)

    async def fetch(self, connection: Any, statement: str, **parameters: object) -> list[Sequence[Any]]:
        async with connection.cursor(row_factory=self._rows) as cursor:
            arguments = {name: _psycopg_argument(value) for name, value in parameters.items()}
            # As text, a bytea has two characters for each byte. Only a cursor of the client side has no other results.
            binary = not isinstance(cursor, self._client_cursor)
            await cursor.execute(_PARAMETER.sub(r"%(\1)s", statement), arguments, binary=binary)
            rows: list[Sequence[Any]] = await cursor.fetchall()
            return rows

    def is_in_transaction(self, connection: Any) -> bool:
        return connection.info.transaction_status.name in ("INTRANS", "INERROR")


class _SqlAlchemy:
    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._text = extra("sqlalchemy", "postgres").text

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        transaction: AbstractAsyncContextManager[Any] = self._engine.begin()
        return transaction

    @property
    def size(self) -> int | None:
        return None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        async with self._engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                yield connection
            finally:
                if not connection.invalidated:
                    with anyio.move_on_after(UNLOCK_TIMEOUT, shield=True):  # SQLAlchemy invalidates it at the timeout
                        await connection.execute(self._text(UNLOCK_ALL))

    async def listen(self, channel: str, on_notify: Callable[[], None]) -> None:
        async with self.session() as connection:
            raw = (await connection.get_raw_connection()).driver_connection
            listen = _listen_asyncpg if hasattr(raw, "add_listener") else _listen_psycopg
            await listen(raw, channel, on_notify)

    async def fetch(self, connection: Any, statement: str, **parameters: object) -> list[Sequence[Any]]:
        return list(await connection.execute(self._text(statement), parameters))

    def is_in_transaction(self, connection: Any) -> bool:
        return bool(connection.in_transaction())


async def _listen_asyncpg(connection: Any, channel: str, on_notify: Callable[[], None]) -> None:
    lost = asyncio.Event()

    def end(*_: object) -> None:
        lost.set()

    def notify(*_: object) -> None:
        on_notify()

    connection.add_termination_listener(end)
    try:
        await connection.add_listener(channel, notify)
        await lost.wait()
        raise ConnectionError("the connection that listens for notifications has ended")
    finally:
        if not connection.is_closed():
            connection.remove_termination_listener(end)
            with anyio.move_on_after(UNLOCK_TIMEOUT, shield=True):
                await connection.remove_listener(channel, notify)


def _psycopg_argument(value: object) -> object:
    """Return a list of integers as PostgreSQL writes it. psycopg would search each number for quotes."""
    if isinstance(value, list) and set(map(type, value)) == {int}:
        return "{" + ",".join(map(str, value)) + "}"
    return value


async def _listen_psycopg(connection: Any, channel: str, on_notify: Callable[[], None]) -> None:
    await connection.execute(f'LISTEN "{channel}"')
    try:
        async for _ in connection.notifies():
            on_notify()
    finally:
        if not connection.closed:
            with anyio.move_on_after(UNLOCK_TIMEOUT, shield=True):
                await connection.execute(f'UNLISTEN "{channel}"')


_DRIVERS: dict[tuple[str, str], Callable[[Any], Driver]] = {
    ("asyncpg", "Pool"): _Asyncpg,
    ("psycopg_pool", "AsyncConnectionPool"): _Psycopg,
    ("sqlalchemy", "AsyncEngine"): _SqlAlchemy,
}


def driver_of(pool: object) -> Driver:
    """Return the driver of a pool. Raises ConfigurationError for an object that is none of the three pools."""
    for base in type(pool).__mro__:
        driver = _DRIVERS.get((base.__module__.partition(".")[0], base.__name__))
        if driver is not None:
            return driver(pool)
    pools = "an asyncpg.Pool, a psycopg_pool.AsyncConnectionPool or an AsyncEngine of SQLAlchemy"
    raise ConfigurationError(must_be("pool", pools, pool))


def checked_table(table: object, examples: str) -> str:
    """Check the name of a table, which may begin with a schema and a dot. Raises ConfigurationError."""
    if not isinstance(table, str) or _TABLE.fullmatch(table) is None or len(table) > LONGEST_NAME:
        raise ConfigurationError(must_be("table", f"a name such as {examples}, of at most {LONGEST_NAME} bytes", table))
    return table


def wrong_table(error: BaseException, table: str, owner: str, ddl: str) -> ConfigurationError | None:
    """Return the error for a table that is missing or has other columns; None if ``error`` is about something else."""
    if sqlstate_of(error) not in _UNDEFINED:
        return None
    return ConfigurationError(f"{table} is not the table of a {owner}; run:\n{ddl}")


@cache
def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    names: dict[str, int] = {}
    numbered = _PARAMETER.sub(lambda match: f"${names.setdefault(match[1], len(names) + 1)}", statement)
    return numbered, tuple(names)


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of any of the drivers; None if it has none."""
    state = getattr(_original(error), "sqlstate", None)
    return state if isinstance(state, str) else None


def is_transient(error: BaseException) -> bool:
    """Return whether the same transaction may succeed later. A closed pool and wrong SQL do not pass."""
    original = _original(error)
    if isinstance(original, OSError):
        # An error with the name of a file is one of the user's code: those of connections have none.
        return original.filename is None
    if isinstance(original, asyncio.TimeoutError) or getattr(error, "connection_invalidated", False):
        return True
    state = sqlstate_of(error)
    if state is not None:
        return state.startswith(_TRANSIENT_CLASSES)
    names = {base.__name__ for base in type(original).__mro__ if base.__module__.startswith(("asyncpg", "psycopg"))}
    if "PoolClosed" in names:
        return False
    # Without a SQLSTATE, the error is the client's own. If the server ends the connection between two steps of an
    # operation, asyncpg raises InternalClientError. If it ends it between two operations, the pool takes it back.
    text = str(original)
    return bool({"OperationalError", "InternalClientError"} & names) or (
        "InterfaceError" in names and "connection" in text and ("closed" in text or "released" in text)
    )


def _original(error: BaseException) -> BaseException:
    """Return the driver's own error. SQLAlchemy wraps it, and asyncpg's in two errors."""
    wrapped = getattr(error, "orig", None)
    return error if wrapped is None else wrapped.__cause__ or wrapped

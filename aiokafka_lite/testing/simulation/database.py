"""The database of a simulation: tables of rows in memory, transactions with locks, and the faults of a server.

It does what PostgreSQL does with READ COMMITTED. A statement sees what is committed by then, and the changes of its own
transaction. A change locks its row until the end of the transaction, and another transaction that changes the row
waits. Numbers of a sequence are given in order, but their transactions may commit in another order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, Protocol

from ...errors import IllegalStateError
from .effects import EffectFailed, EffectFaults
from .history import Effect, History, Outcome, RowChange

STATEMENT_SECONDS = 0.0005
"""Seconds that a statement takes."""

_DELETED = object()
_Row = tuple[str, Any]


class DatabaseFailed(EffectFailed):
    """The transaction is lost: the server is down, or has ended it, or the answer to the commit was lost.

    In the last case its changes are committed. The service cannot know whether they are.
    """


class RowExists(Exception):
    """The table has a row with this key. The transaction goes on."""


class DatabaseClient(Protocol):
    """The parts of a process that the database uses."""

    name: str
    is_dead: bool

    async def step_of_work(self, place: str) -> None: ...


class Database:
    """The server: its committed rows, its locks and its open transactions. All processes share it."""

    def __init__(self, history: History, faults: EffectFaults) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}
        self._history = history
        self._faults = faults
        self._locks: dict[_Row, DatabaseTransaction] = {}
        self._waiting: dict[DatabaseTransaction, DatabaseTransaction] = {}
        self._freed = asyncio.Event()
        self._open: dict[DatabaseTransaction, None] = {}
        self._numbers: dict[str, int] = {}
        self.down_until = 0.0
        """The loop's time at which it accepts transactions again, after the last restart."""

    # Faults.

    def restart(self, seconds: float) -> None:
        """End all transactions, and refuse new ones for some seconds."""
        self.down_until = max(self.down_until, asyncio.get_running_loop().time() + seconds)
        for transaction in list(self._open):
            transaction.lose()

    def disconnect(self, client: DatabaseClient) -> None:
        """Roll back the transactions of a process that was killed."""
        for transaction in list(self._open):
            if transaction.client is client:
                transaction.lose()

    # What transactions use.

    def begin(self, client: DatabaseClient) -> DatabaseTransaction:
        """Begin a transaction. Raises DatabaseFailed while the server is down."""
        if asyncio.get_running_loop().time() < self.down_until:
            raise DatabaseFailed("the database is down")
        transaction = DatabaseTransaction(self, client)
        self._open[transaction] = None
        return transaction

    async def lock(self, transaction: DatabaseTransaction, row: _Row) -> None:
        """Wait for the lock of a row. Raises DatabaseFailed for a deadlock."""
        while (owner := self._locks.get(row, transaction)) is not transaction:
            self._waiting[transaction] = blocker = owner
            while blocker in self._waiting:
                blocker = self._waiting[blocker]
                if blocker is transaction:
                    del self._waiting[transaction]
                    transaction.lose()
                    raise DatabaseFailed(f"deadlock: two transactions wait for each other at {row[0]}[{row[1]!r}]")
            try:
                await self._freed.wait()
            finally:
                self._waiting.pop(transaction, None)
            transaction.check()
        self._locks[row] = transaction

    def end(self, transaction: DatabaseTransaction) -> None:
        """Forget a transaction, and free its locks."""
        self._open.pop(transaction, None)
        self._locks = {row: owner for row, owner in self._locks.items() if owner is not transaction}
        self._freed.set()
        self._freed = asyncio.Event()

    def next_number(self, table: str) -> int:
        """Return the next number of the sequence of a table. A rollback leaves a gap."""
        self._numbers[table] = self._numbers.get(table, 0) + 1
        return self._numbers[table]

    async def commit(
        self, transaction: DatabaseTransaction, changes: dict[_Row, Any], effects: list[tuple[str, str]]
    ) -> None:
        """Apply all changes at once, with the faults that are due."""
        await transaction.client.step_of_work("before a commit")
        try:
            await asyncio.sleep(self._faults.next_duration())
        except asyncio.CancelledError:  # the service gives up, but the server may have the request
            if transaction.is_open and self._faults.outlasts_its_caller():
                self._apply(transaction, changes, effects, Outcome.UNKNOWN)
            raise
        transaction.check()
        failure = self._faults.next_failure()
        self._apply(transaction, changes, effects, Outcome.DONE if failure is None else failure)
        if failure is Outcome.FAILED:
            raise DatabaseFailed("the database rolled the transaction back")
        if failure is Outcome.UNKNOWN:
            raise DatabaseFailed("the answer to the commit was lost")

    def _apply(
        self,
        transaction: DatabaseTransaction,
        changes: dict[_Row, Any],
        effects: list[tuple[str, str]],
        outcome: Outcome,
    ) -> None:
        now = asyncio.get_running_loop().time()
        process = transaction.client.name
        self._history.effects += [Effect(now, process, name, message, outcome, now) for name, message in effects]
        if not outcome.is_applied:
            return
        for (table, key), row in changes.items():
            rows = self.tables.setdefault(table, {})
            if row is _DELETED:
                rows.pop(key, None)
            else:
                rows[key] = row
            self._history.rows.append(RowChange(now, process, table, key, None if row is _DELETED else row))


class DatabaseTransaction:
    """Reads and changes rows. The end of its ``async with`` block commits, and an exception rolls back.

    A key is anything hashable, and a row anything that can be copied: a number, a text, a dict. Every call raises
    DatabaseFailed if the server has ended the transaction, and IllegalStateError after its end.
    """

    def __init__(self, database: Database, client: DatabaseClient) -> None:
        self.client = client
        self._database = database
        self._changes: dict[_Row, Any] = {}
        self._effects: list[tuple[str, str]] = []
        self._has_ended = False
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<DatabaseTransaction of {self.client.name}>"

    async def get(self, table: str, key: Hashable, *, lock: bool = False) -> Any:
        """Return a row; None if there is none. With ``lock``, other transactions cannot change it until the end."""
        await self._statement()
        if lock:
            await self._database.lock(self, (table, key))
        return self._row(table, key)

    async def select(self, table: str, *, lock: bool = False) -> dict[Any, Any]:
        """Return the rows of a table by their keys, in the order of the keys. With ``lock``, each row is locked."""
        await self._statement()
        own = [key for name, key in self._changes if name == table]
        keys = sorted({*self._database.tables.get(table, ()), *own})
        rows = {}
        for key in keys:
            if lock:
                await self._database.lock(self, (table, key))
            row = self._row(table, key)
            if row is not None:
                rows[key] = row
        return rows

    async def insert(self, table: str, row: Any, *, key: Hashable = None) -> Any:
        """Add a row, and return its key; None takes the next number of the table. Raises RowExists.

        Waits for a transaction that has added a row with the same key.
        """
        await self._change_begins()
        number: Any = self._database.next_number(table) if key is None else key
        await self._database.lock(self, (table, number))
        if self._row(table, number) is not None:
            raise RowExists(f"{table} has a row with the key {number!r}")
        self._change(table, number, row)
        return number

    async def put(self, table: str, key: Hashable, row: Any) -> None:
        """Add or replace a row."""
        await self._change_begins()
        await self._database.lock(self, (table, key))
        self._change(table, key, row)

    async def delete(self, table: str, key: Hashable) -> bool:
        """Delete a row. Returns whether there was one."""
        await self._change_begins()
        await self._database.lock(self, (table, key))
        existed = self._row(table, key) is not None
        self._changes[table, key] = _DELETED
        return existed

    def effect(self, name: str, message: object) -> None:
        """Say that the commit of this transaction is the effect ``name`` of a message, for the checks."""
        self.check()
        self._effects.append((name, str(message)))

    async def commit(self) -> None:
        """Commit. The ``async with`` block calls it. Raises DatabaseFailed, also if the changes are committed."""
        self.check()
        try:
            if self._changes or self._effects:
                await self._database.commit(self, self._changes, self._effects)
                self.rollback()
                await self.client.step_of_work("after a commit")
        finally:
            self.rollback()

    def rollback(self) -> None:
        """End the transaction. Its changes are dropped unless they are committed."""
        if not self._has_ended:
            self._has_ended = True
            self._database.end(self)

    def lose(self) -> None:
        """End the transaction because the server or the process has ended."""
        self._is_lost = True
        self.rollback()

    def check(self) -> None:
        """Raise DatabaseFailed if the transaction is lost, and IllegalStateError if it has ended."""
        if self.client.is_dead:
            raise asyncio.CancelledError
        if self._is_lost:
            raise DatabaseFailed("the database has ended the transaction")
        if self._has_ended:
            raise IllegalStateError("the transaction has ended; begin another one")

    @property
    def is_open(self) -> bool:
        """Whether it can commit."""
        return not (self.client.is_dead or self._is_lost or self._has_ended)

    async def _change_begins(self) -> None:
        self.check()
        await self.client.step_of_work("before the change of a row")
        await self._statement()

    async def _statement(self) -> None:
        self.check()
        await asyncio.sleep(STATEMENT_SECONDS)
        self.check()

    def _row(self, table: str, key: Any) -> Any:
        row = self._changes.get((table, key), self._database.tables.get(table, {}).get(key))
        return None if row is _DELETED else deepcopy(row)

    def _change(self, table: str, key: Any, row: Any) -> None:
        if row is None:
            raise ValueError(f"the row {table}[{key!r}] must not be None; delete() deletes a row")
        self._changes[table, key] = deepcopy(row)


class DatabaseSession:
    """The database as a process of the service sees it: ``instance.database``."""

    def __init__(self, database: Database, client: DatabaseClient) -> None:
        self._database = database
        self._client = client

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[DatabaseTransaction]:
        """Begin a transaction, which the end of the block commits. An exception of the block rolls it back.

        Raises DatabaseFailed if the database is down, or if the commit fails or has an unknown outcome.
        """
        if self._client.is_dead:
            raise asyncio.CancelledError
        transaction = self._database.begin(self._client)
        try:
            yield transaction
            await transaction.commit()
        finally:
            transaction.rollback()

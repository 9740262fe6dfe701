"""The outbox relay and a database that does not answer, in virtual time. ``tests/end_to_end`` has one that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import SerializationError
from aiokafka_lite.processing.outbox import OutboxRelay, PostgresOutbox
from aiokafka_lite.processing.outbox.postgres import Attempt, OutboxSession
from aiokafka_lite.processing.outbox.rows import Lane, OutboxRow
from aiokafka_lite.processing.outbox.sender import RowSender
from tests.waiting import until

ENGINE = create_async_engine("postgresql+asyncpg://", poolclass=None)


class Table(PostgresOutbox):
    """A table in memory, whose first session loses its connection and whose next statement has no answer."""

    def __init__(self) -> None:
        super().__init__(ENGINE)
        self.rows: dict[int, OutboxRow] = {1: OutboxRow(1, 0, "orders", None, b"7", None, 0)}
        self.sessions = 0
        self.deletions = 0

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OutboxSession]:
        self.sessions += 1
        yield Session(self)

    async def listen(self, on_notify: Callable[[], None]) -> None:
        await asyncio.Event().wait()

    async def delete(self, rows: Collection[OutboxRow]) -> None:
        self.deletions += 1
        if self.deletions == 1:
            await asyncio.Event().wait()
        for row in list(rows):
            del self.rows[row.id]


class Session(OutboxSession):
    def __init__(self, table: Table) -> None:
        self._rows = table

    async def balance(self, busy: Collection[int]) -> None: ...

    async def read(self, count: int, busy: Collection[Lane]) -> list[OutboxRow]:
        return [row for row in self._rows.rows.values() if row.lane not in busy]

    async def delete(self, rows: Collection[OutboxRow]) -> None:
        raise ConnectionError("the connection is lost")

    async def fail(self, attempts: Sequence[Attempt]) -> None: ...


async def test_a_deletion_without_an_answer_does_not_stop_the_relay_for_ever(cluster: EmbeddedCluster) -> None:
    table = Table()
    settings: dict[str, Any] = {"connector": cluster.connector}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        relay = OutboxRelay(producer, table)
        running = asyncio.create_task(relay.run())
        await until(lambda: not table.rows or running.done(), within=300.0)
        relay.stop()
        await running
    assert (relay.sent_count, table.deletions) == (1, 2)


@pytest.mark.parametrize(
    "headers", ["[" * 5000 + "]" * 5000, '{"number": %s}' % ("9" * 5000), "[]", '{"number": 9}'], ids=len
)
async def test_headers_that_are_no_object_of_strings_concern_one_row(cluster: EmbeddedCluster, headers: str) -> None:
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        sender = RowSender(producer, "outbox-id")
        wrong = OutboxRow(1, 0, "orders", b"a", b"1", headers, 0)
        other = OutboxRow(2, 0, "orders", b"b", b"2", None, 0)
        await sender.send([wrong, other])
        await sender.wait_settled(10.0)
        outcome = sender.take_outcome()
    assert outcome.sent == [other]
    assert [(row, type(error)) for row, error in outcome.unsent] == [(wrong, SerializationError)]

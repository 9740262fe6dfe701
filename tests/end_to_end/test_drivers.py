"""The drivers of PostgreSQL on a server that does not answer in time."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from aiokafka_lite.processing.outbox import PostgresOutbox
from aiokafka_lite.processing.stores import drivers
from tests.end_to_end.databases import DRIVERS, Database
from tests.real.postgres import Postgres

WITH_SESSIONS = [name for name in DRIVERS if name != "asyncpg"]
"""The pool of asyncpg releases the locks itself."""


async def lock(driver: drivers.Driver, connection: Any) -> int:
    """Take an advisory lock, or raise AssertionError if it is not free. Returns the process of the server."""
    ((is_free, process),) = await driver.fetch(connection, "SELECT pg_try_advisory_lock(7), pg_backend_pid()")
    assert is_free
    return int(process)


@pytest.mark.parametrize("name", WITH_SESSIONS)
async def test_a_connection_whose_locks_are_not_released_in_time_is_closed(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    database = Database(postgres)
    monkeypatch.setattr(drivers, "UNLOCK_TIMEOUT", 0.2)
    async with database.pool(name) as pool, database.pool(name) as others:
        driver, other = drivers.driver_of(pool), drivers.driver_of(others)
        with monkeypatch.context() as slow:
            slow.setattr(drivers, "UNLOCK_ALL", "SELECT pg_sleep(2)")
            async with driver.session() as connection:
                await lock(driver, connection)
        async with other.session() as connection:
            await other.fetch(connection, "SELECT pg_advisory_lock(7)")  # the server may not have seen the end yet


@pytest.mark.parametrize("name", WITH_SESSIONS)
async def test_a_session_on_a_server_that_does_not_answer_ends(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    database = Database(postgres)
    monkeypatch.setattr(drivers, "UNLOCK_TIMEOUT", 0.2)
    async with database.pool(name) as pool:
        driver = drivers.driver_of(pool)
        process = 0
        try:
            async with driver.session() as connection:
                process = await lock(driver, connection)
                os.kill(process, signal.SIGSTOP)
        finally:
            os.kill(process, signal.SIGCONT)
        async with driver.session() as connection:
            await driver.fetch(connection, "SELECT pg_advisory_lock(7)")


@pytest.mark.parametrize("table", ["o" * 63, "shop." + "o" * 58])
async def test_rows_can_be_inserted_into_an_outbox_with_the_longest_name(postgres: Postgres, table: str) -> None:
    database = Database(postgres)
    async with database.pool() as pool:
        await database.run_script("CREATE SCHEMA shop;" + PostgresOutbox(pool, table=table).ddl)
    await database.execute(f"INSERT INTO {table} (topic) VALUES ('orders')")
    assert len(await database.execute(f"SELECT 1 FROM {table}")) == 1

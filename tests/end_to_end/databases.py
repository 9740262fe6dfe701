"""Databases of a PostgreSQL that runs for the tests, and the pools of all drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
from sqlalchemy.ext.asyncio import create_async_engine

from tests.real.postgres import Postgres

DRIVERS = ["asyncpg", "psycopg", "sqlalchemy+asyncpg", "sqlalchemy+psycopg"]
CLIENT_CURSORS = "psycopg with client cursors"
"""A driver of ``Database.pool`` whose results are text: some programs use it behind a proxy."""


class Database:
    """An empty database of a server."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.name = server.create_database()

    @property
    def address(self) -> dict[str, Any]:
        return {"host": self.server.host, "user": "postgres", "database": self.name}

    async def execute(self, statement: str, *parameters: object) -> list[Any]:
        """Run a statement on a connection of its own, and return its rows."""
        connection = await asyncpg.connect(**self.address)
        try:
            return await connection.fetch(statement, *parameters)
        finally:
            await connection.close()

    async def run_script(self, statements: str) -> None:
        """Run several statements, such as a DDL."""
        connection = await asyncpg.connect(**self.address)
        try:
            await connection.execute(statements)
        finally:
            await connection.close()

    @asynccontextmanager
    async def pool(self, driver: str = "asyncpg") -> AsyncIterator[Any]:
        """Open a pool of at least two connections."""
        if driver == "asyncpg":
            async with asyncpg.create_pool(**self.address, min_size=1, max_size=3) as pool:
                yield pool
        elif driver in ("psycopg", CLIENT_CURSORS):
            options = {"cursor_factory": psycopg.AsyncClientCursor} if driver == CLIENT_CURSORS else None
            conninfo = f"host={self.server.host} user=postgres dbname={self.name}"
            check = psycopg_pool.AsyncConnectionPool.check_connection
            async with psycopg_pool.AsyncConnectionPool(
                conninfo, min_size=1, max_size=3, open=False, check=check, kwargs=options
            ) as pool:
                yield pool
        else:
            dialect = driver.partition("+")[2]
            engine = create_async_engine(
                f"postgresql+{dialect}://postgres@/{self.name}?host={self.server.host}", pool_pre_ping=True
            )
            try:
                yield engine
            finally:
                await engine.dispose()

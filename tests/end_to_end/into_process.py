"""A process that carries records into PostgreSQL, until it is killed. See ``test_exactly_once_into``."""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from aiokafka_lite import Consumer
from aiokafka_lite.processing import ExactlyOnceInto
from aiokafka_lite.processing.stores import PostgresStore


async def work(servers: str, topic: str, group: str, host: str, database: str) -> None:
    settings = {"session_timeout": 6.0, "heartbeat_interval": 0.5}
    async with (
        asyncpg.create_pool(host=host, user="postgres", database=database, min_size=1, max_size=2) as pool,
        Consumer(servers, topics=[topic], group_id=group, auto_commit=False, **settings) as consumer,
    ):

        async def process(records: list, connection: asyncpg.Connection) -> None:
            rows = [(record.partition, record.offset, record.value.decode()) for record in records]
            await connection.executemany("INSERT INTO effects (part, position, value) VALUES ($1, $2, $3)", rows)

        await ExactlyOnceInto(consumer, PostgresStore(pool), max_records=20).run(process)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))

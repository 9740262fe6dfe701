"""A process that sends the rows of an outbox, until it is killed. See ``test_outbox``."""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from aiokafka_lite import Producer
from aiokafka_lite.processing.outbox import OutboxRelay, PostgresOutbox, postgres


async def work(servers: str, host: str, database: str, idle_timeout: str) -> None:
    postgres.IDLE_TIMEOUT = int(idle_timeout)
    async with (
        asyncpg.create_pool(host=host, user="postgres", database=database, min_size=1, max_size=2) as pool,
        Producer(servers) as producer,
    ):
        await OutboxRelay(producer, PostgresOutbox(pool), batch_size=20).run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))

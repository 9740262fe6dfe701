"""A process with ``Workers``: ``python -m tests.end_to_end.workers_process SERVERS SOURCE TARGET GROUP``.

It writes each record of one topic to another one, and ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import random
import sys

from aiokafka_lite import ConsumerGroup, Producer, Record, Workers


async def main(servers: str, source: str, target: str, group_id: str) -> None:
    async with Producer(servers) as producer:

        async def copy(record: Record[bytes, bytes]) -> None:
            await asyncio.sleep(random.uniform(0.0, 0.02))
            if random.random() < 0.02:
                raise ConnectionError("the next attempt succeeds")
            await producer.send(target, record.value, key=record.key)

        group = ConsumerGroup(
            servers, group_id=group_id, session_timeout=6.0, heartbeat_interval=0.5, auto_commit_interval=0.2
        )
        workers = Workers(copy, concurrency=32, attempts=20, backoff=0.01, max_backoff=0.1)
        consuming = asyncio.create_task(group.consume([source], workers))
        await asyncio.to_thread(sys.stdin.buffer.read)
        await workers.drain()
        await group.close()
        await consuming


asyncio.run(main(*sys.argv[1:]))

"""A process with ``Workers``: ``python -m tests.end_to_end.workers_process SERVERS SOURCE TARGET RETRY DEAD GROUP``.

It writes the records of one topic to another one, and ends when its input is closed. Some records always fail, and go
through the retry topic to the dead-letter topic.
"""

from __future__ import annotations

import asyncio
import random
import sys

from aiokafka_lite import ConsumerGroup, Producer, Record, Workers
from aiokafka_lite.processing import dead_letter, retry, retry_topic


def is_refused(number: int) -> bool:
    """Return whether the record with this number of its key always fails."""
    return number % 25 == 24


async def main(servers: str, source: str, target: str, second: str, dead: str, group_id: str) -> None:
    async with Producer(servers) as producer:

        async def copy(record: Record[bytes, bytes]) -> None:
            await asyncio.sleep(random.uniform(0.0, 0.02))
            if is_refused(int((record.value or b"").partition(b":")[2])):
                raise ValueError("refused")
            if random.random() < 0.02:
                raise ConnectionError("the next attempt succeeds")
            await producer.send(target, record.value, key=record.key)

        group = ConsumerGroup(
            servers, group_id=group_id, session_timeout=6.0, heartbeat_interval=0.5, auto_commit_interval=0.2
        )
        rules = [
            retry(Exception, attempts=5, backoff=0.01, max_backoff=0.1),
            retry_topic(Exception, topics={second: 0.5}),
            dead_letter(topic=dead),
        ]
        workers = Workers(copy, concurrency=32, rules=rules, producer=producer)
        consuming = asyncio.create_task(group.consume([source, *workers.retry_topics], workers))
        await asyncio.to_thread(sys.stdin.buffer.read)
        await workers.drain()
        await group.close()
        await consuming


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A worker that transforms records exactly once, as a process that can be killed.

Its arguments are servers, input topic, output topic, group, transactional id, strategy (``eager`` or ``cooperative``),
and instance. It sends each record on with its own value, and reports each batch. It ends when its standard input ends,
and when its producer is fenced.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka_lite import Consumer, ExactlyOnce, Producer
from aiokafka_lite.errors import ProducerFenced
from tests.end_to_end.member_process import SETTINGS, end_of_input, say

TRANSACTION_TIMEOUT = 10.0
"""Seconds. A killed worker keeps the partitions of its output open for that long, if no worker has its id again."""


@asynccontextmanager
async def worker(
    servers: str, source: str, target: str, group: str, transactional_id: str, strategy: str, instance: str
) -> AsyncIterator[tuple[ExactlyOnce, Producer]]:
    async with (
        Consumer(
            servers,
            topics=[source],
            group_id=group,
            auto_commit=False,
            group_instance_id=instance or None,
            **SETTINGS[strategy],
        ) as consumer,
        Producer(servers, transactional_id=transactional_id, transaction_timeout=TRANSACTION_TIMEOUT) as producer,
    ):
        yield ExactlyOnce(consumer, producer, max_records=20), producer


async def transform(session: ExactlyOnce, producer: Producer, target: str) -> None:
    async for records in session:
        for record in records:
            producer.send_nowait(target, record.value, key=record.key)
            await asyncio.sleep(0.001)
        say("batch")


async def main(*arguments: str) -> None:
    async with worker(*arguments) as (session, producer):
        working = asyncio.create_task(transform(session, producer, arguments[2]))
        ending = asyncio.create_task(end_of_input())
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        session.stop()
        try:
            await working
        except ProducerFenced as error:
            say("fenced", error=str(error))
    ending.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

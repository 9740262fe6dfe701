"""A writer of ``make soak-real``, a process of its own: it reports each send and its end, one line of JSON each.

Its arguments are servers, topic, partitions, its name and ``idempotent`` or ``plain``. It ends when its standard input
ends. What a process that is killed has not reported counts as sent with an unknown end.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka_lite import Delivery, KafkaError, Producer
from tests.end_to_end.member_process import end_of_input, say

PAUSE = 0.02
"""Seconds between two records."""


async def main(servers: str, topic: str, partitions: str, name: str, kind: str) -> None:
    waiting: dict[asyncio.Task[None], None] = {}
    settings = {"idempotence": kind == "idempotent"}
    async with Producer(servers, delivery_timeout=30.0, request_timeout=5.0, **settings) as producer:
        say("started")
        ending = asyncio.create_task(end_of_input())
        number = 0
        while not ending.done():
            partition, value = number % int(partitions), f"{name}-{number:08d}"
            say("sent", partition=partition, value=value)
            try:
                delivery = await producer.put(topic, value.encode(), partition=partition)
            except KafkaError as error:
                say("failed", value=value, error=type(error).__name__)
            else:
                task = asyncio.create_task(_follow(delivery, value))
                waiting[task] = None
                task.add_done_callback(waiting.pop)
            number += 1
            await asyncio.sleep(PAUSE)
        await producer.flush(60.0)
        if waiting:
            await asyncio.wait(list(waiting))
    say("closed")


async def _follow(delivery: Delivery, value: str) -> None:
    try:
        metadata = await delivery
    except KafkaError as error:
        say("failed", value=value, error=type(error).__name__)
    else:
        say("acknowledged", value=value, partition=metadata.partition, offset=metadata.offset)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

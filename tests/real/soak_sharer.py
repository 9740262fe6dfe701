"""A member of the share group of ``make soak-real``, a process of its own: it reports what it receives and accepts.

Its arguments are servers, topic, group and its name. It ends when its standard input ends. It reports a delivery before
the work on it, and an acknowledgement before it calls the consumer. So a kill loses no important report.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress

from aiokafka_lite import KafkaError, ShareConsumer, ShareRecord, TopicPartition
from aiokafka_lite.errors import IllegalStateError
from tests.end_to_end.member_process import end_of_input, say

WORK = 0.004
"""Seconds of work for a record."""


async def main(servers: str, topic: str, group: str, name: str) -> None:
    def confirm(partition: TopicPartition, offsets: tuple[int, ...], error: KafkaError | None) -> None:
        if error is None:
            say("confirmed", partition=partition.partition, offsets=offsets)

    async with ShareConsumer(
        servers, topics=[topic], group_id=group, client_id=name, acknowledgement_mode="explicit", max_fetch_records=50,
        on_acknowledged=confirm,
    ) as consumer:  # fmt: skip
        say("started")
        working = asyncio.create_task(work(consumer))
        ending = asyncio.create_task(end_of_input())
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    with suppress(IllegalStateError):  # the consumer is closed
        await working
    ending.cancel()
    say("closed")


async def work(consumer: ShareConsumer) -> None:
    """Work, until the consumer is closed."""
    while True:
        records = await consumer.poll(50, timeout=1.0)
        for record in records:
            say("delivered", partition=record.partition, offset=record.offset, count=record.delivery_count)
        for record in records:
            await asyncio.sleep(WORK)
            acknowledge(consumer, record)


def acknowledge(consumer: ShareConsumer, record: ShareRecord) -> None:
    """Accept a record, or release one in twenty on its first delivery."""
    kind = "release" if record.delivery_count == 1 and random.random() < 0.05 else "accept"
    say(kind, partition=record.partition, offset=record.offset, count=record.delivery_count)
    getattr(consumer, kind)(record)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A group member that is a process; its arguments are servers, topic, group, ``eager`` or ``cooperative``, instance.

It says on its standard output, a line of JSON each, what happens to it, with the time of a clock that all processes of
the machine share. It closes in good order when its standard input ends, so it cannot outlive who started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from aiokafka_lite import (
    Consumer,
    CooperativeStickyStrategy,
    RangeStrategy,
    RebalanceHandle,
    RebalanceListener,
    Record,
    TopicPartition,
)

SESSION_TIMEOUT = 6.0
"""Seconds; the shortest that brokers allow by default."""

WORK = 0.004
"""Seconds that a record takes."""

LONG_WORK = 0.8
"""Seconds that one in a hundred takes: long enough for commits to be seen that take it as done with meanwhile."""

STRATEGIES = {"eager": [RangeStrategy()], "cooperative": [CooperativeStickyStrategy()]}


def say(event: str, **facts: Any) -> None:
    """One line, written at once: what was said before a kill has been said."""
    os.write(sys.stdout.fileno(), json.dumps({"event": event, "at": time.monotonic(), **facts}).encode() + b"\n")


class Narrator(RebalanceListener):
    """Tells what comes and goes, and as whom in which generation."""

    consumer: Consumer

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._say("assigned", partitions)

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._say("revoked", partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._say("lost", partitions)

    def _say(self, event: str, partitions: Sequence[TopicPartition]) -> None:
        generation = self.consumer.group_metadata().generation_id
        say(event, generation=generation, partitions=[each.partition for each in partitions])


async def work(consumer: Consumer) -> None:
    async for record in consumer:
        await do(record)
        say("done", partition=record.partition, offset=record.offset)


async def do(record: Record) -> None:
    say("read", partition=record.partition, offset=record.offset)
    await asyncio.sleep(LONG_WORK if record.offset % 100 == 50 else WORK)


async def end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def main(servers: str, topic: str, group: str, strategy: str, instance: str) -> None:
    narrator = Narrator()
    consumer: Consumer = Consumer(
        servers,
        topics=[topic],
        group_id=group,
        strategies=STRATEGIES[strategy],
        listener=narrator,
        group_instance_id=instance or None,
        session_timeout=SESSION_TIMEOUT,
        heartbeat_interval=0.5,
        auto_commit_interval=0.3,
    )
    narrator.consumer = consumer
    async with consumer:
        say("started")
        working = asyncio.create_task(work(consumer))
        ending = asyncio.create_task(end_of_input())
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    await working
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A group member that works, also as a program: a process of its own.

The program's arguments are servers, topic, group, ``eager``, ``cooperative`` or ``consumer``, and instance. It writes
each event as a line of JSON to its standard output, with the time of a clock that all processes of the machine share.
It closes cleanly when its standard input ends, so that it does not outlive the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from aiokafka_lite import Consumer, Record, TopicPartition
from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.group import CooperativeStickyStrategy, RangeStrategy

SESSION_TIMEOUT = 6.0
"""Seconds. The shortest that brokers allow by default."""

WORK = 0.004
"""Seconds of work for a record."""

LONG_WORK = 0.8
"""Seconds of work for one record in fifty, the second of a batch: a commit that counts it too early is seen."""

_TIMES = {"session_timeout": SESSION_TIMEOUT, "heartbeat_interval": 0.5}
"""Under the consumer protocol the brokers set both."""

SETTINGS: dict[str, dict[str, Any]] = {
    "eager": {"strategies": [RangeStrategy()], **_TIMES},
    "cooperative": {"strategies": [CooperativeStickyStrategy()], **_TIMES},
    "consumer": {"group_protocol": "consumer"},
}
"""The settings of each kind of member."""


Say = Callable[..., None]
"""Reports an event, by its name and facts."""


class Work(RebalanceListener):
    """A member that processes one record after the other, and reports its events."""

    def __init__(self, say: Say, servers: str, topic: str, group: str, strategy: str, instance: str) -> None:
        self._say = say
        self.consumer: Consumer = Consumer(
            servers,
            topics=[topic],
            group_id=group,
            listener=self,
            group_instance_id=instance or None,
            auto_commit_interval=0.3,
            **SETTINGS[strategy],
        )

    async def run(self) -> None:
        """Work, until the consumer is closed."""
        async for record in self.consumer:
            await self._do(record)
            self._say("done", partition=record.partition, offset=record.offset)

    async def _do(self, record: Record) -> None:
        await asyncio.sleep(LONG_WORK if record.offset % 50 == 25 else WORK)

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        with suppress(IllegalStateError):  # the session has ended meanwhile, and on_lost follows
            self._report("assigned", partitions, generation=self.consumer.group_metadata().generation_id)

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._report("revoked", partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._report("lost", partitions)  # without a generation: the consumer is not a member now

    def _report(self, event: str, partitions: Sequence[TopicPartition], **facts: int) -> None:
        self._say(event, partitions=[partition.partition for partition in partitions], **facts)


def say(event: str, **facts: Any) -> None:
    """Write one line at once: an event before a kill is never lost."""
    os.write(sys.stdout.fileno(), json.dumps({"event": event, "at": time.monotonic(), **facts}).encode() + b"\n")


async def end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def main(*arguments: str) -> None:
    work = Work(say, *arguments)
    async with work.consumer:
        say("started")
        working = asyncio.create_task(work.run())
        ending = asyncio.create_task(end_of_input())
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    await working
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""The group part of the demo: members come and go while records are written, and every record is worked on.

The members are ordinary consumers that work in this process, as they would in several. Asking for the next record says
that the one before is done with, so a partition that moves goes on where its last owner stopped.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence

import anyio
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from aiokafka_lite.admin import create_topic, delete_topics
from aiokafka_lite.aio.service import unwrapped
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.consumer import Consumer, RebalanceHandle, RebalanceListener
from aiokafka_lite.errors import KafkaTimeout
from aiokafka_lite.producer import Producer
from aiokafka_lite.types import TopicPartition

PARTITIONS = 6
NAMES = ("first", "second", "third")
STALLED_AFTER = 30.0
_AT_ONCE = 20
_PAUSE = 0.01
_SHOWN = 10


class GroupCheck:
    """What was written and how often each record was worked on."""

    def __init__(self) -> None:
        self.written = 0
        self.worked_on: Counter[int] = Counter()
        self.changed = asyncio.Event()

    def done(self, number: int) -> None:
        self.worked_on[number] += 1
        self.changed.set()

    def verdict(self) -> list[str]:
        """All that is wrong: a record is missing, or was never written. Twice is allowed, when a member goes."""
        missing = [number for number in range(self.written) if number not in self.worked_on]
        invented = [number for number in self.worked_on if not 0 <= number < self.written]
        wrong = [f"record {number} was never worked on" for number in missing]
        return (wrong + [f"record {number} was never written" for number in invented])[:_SHOWN]

    @property
    def again(self) -> int:
        """How many were worked on more than once."""
        return sum(times > 1 for times in self.worked_on.values())


class _Member(RebalanceListener):
    """A consumer in the group, and the task that works on what it gets."""

    def __init__(self, servers: str, topic: str, check: GroupCheck) -> None:
        self._check = check
        self.leaving = asyncio.Event()
        self.consumer = Consumer(
            servers,
            topics=[topic],
            group_id=f"{topic}-workers",
            strategies=["cooperative-sticky"],
            listener=self,
            auto_offset_reset="earliest",
        )

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._check.changed.set()

    @property
    def owned(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment)

    async def run(self) -> None:
        """Join, work until told to leave, and leave."""
        async with self.consumer, anyio.create_task_group() as tasks:
            tasks.start_soon(self._work)
            await self.leaving.wait()
            tasks.cancel_scope.cancel()

    async def _work(self) -> None:
        async for record in self.consumer:
            self._check.done(int(record.value or b"-1"))


async def group_demo(servers: str, client: Client, console: Console) -> int:
    """Three members join one after the other, and one leaves; 0 when every record was worked on, else 1."""
    name = f"aiokafka-lite-group-{secrets.token_hex(4)}"
    await create_topic(client, name, partitions=PARTITIONS)
    check = GroupCheck()
    table = Table(box=SIMPLE_HEAD)
    for heading in ("a group of", *NAMES, "settled in"):
        table.add_column(heading, no_wrap=True)
    try:
        async with Producer(servers) as producer, anyio.create_task_group() as tasks:
            enough = asyncio.Event()
            tasks.start_soon(_write, producer, name, check, enough)
            members = [_Member(servers, name, check) for _ in NAMES]
            for number, member in enumerate(members):
                tasks.start_soon(member.run)
                await _settled(members, members[: number + 1], check, table)
            members[0].leaving.set()
            await _settled(members, members[1:], check, table)
            enough.set()
            await _until(check, lambda: len(check.worked_on) >= check.written)
            for member in members:
                member.leaving.set()
    except ExceptionGroup as errors:
        raise unwrapped(errors) from errors
    finally:
        await delete_topics(client, [name])
    console.print(table)
    if faults := check.verdict():
        console.print(*faults, sep="\n", style="red")
        return 1
    console.print(
        f"all {check.written:,} records written meanwhile were worked on by the group, {check.again} of them again",
        style="green",
    )
    return 0


async def _write(producer: Producer, topic: str, check: GroupCheck, enough: asyncio.Event) -> None:
    """A steady trickle, until it is enough."""
    while not enough.is_set():
        values = [b"%d" % number for number in range(check.written, check.written + _AT_ONCE)]
        check.written += _AT_ONCE
        await producer.send_many(topic, values, keys=values)
        await asyncio.sleep(_PAUSE)


async def _settled(members: list[_Member], present: list[_Member], check: GroupCheck, table: Table) -> None:
    """Wait until those who are there share all partitions evenly, and each partition is read."""
    started = time.perf_counter()
    share = PARTITIONS // len(present)
    await _until(
        check,
        lambda: (
            all(len(member.owned) == share for member in present)
            and sorted(partition for member in present for partition in member.owned) == list(range(PARTITIONS))
        ),
    )
    owned = [", ".join(map(str, member.owned)) if member in present else "" for member in members]
    table.add_row(str(len(present)), *owned, f"{time.perf_counter() - started:.2f} s")


async def _until(check: GroupCheck, holds: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(STALLED_AFTER):
            while not holds():
                check.changed.clear()
                await check.changed.wait()
    except TimeoutError:
        raise KafkaTimeout(f"the group came to no rest within {STALLED_AFTER:g} s") from None

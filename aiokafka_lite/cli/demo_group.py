"""The group part of the demo: members join and leave while records are written, and every record is processed.

The members are ordinary consumers in one process. When a member asks for the next record, the previous one counts as
processed, so a partition that moves continues where its last owner stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

import anyio
from rich.console import Console

from ..admin import Admin
from ..aio.deadline import deadline
from ..aio.service import unwrapped
from ..consumer import Consumer, RebalanceHandle, RebalanceListener
from ..producer import Producer
from ..types import TopicPartition
from .demo_results import STALLED_AFTER, show_result
from .temporary import temporary_topic

PARTITIONS = 6
MEMBERS = 3
BURST = 20
PAUSE = 0.01


class GroupCheck:
    """Counts how often each written record is processed."""

    def __init__(self) -> None:
        self.written = 0
        self.processed: Counter[int] = Counter()
        self.changed = asyncio.Event()

    def done(self, number: int) -> None:
        self.processed[number] += 1
        self.changed.set()

    def result(self) -> list[str]:
        """All faults: records that were never processed or never written. Processing twice is allowed."""
        missing = [f"record {number} was not processed" for number in range(self.written) if not self.processed[number]]
        unknown = [number for number in self.processed if not 0 <= number < self.written]
        return missing + [f"record {number} was never written" for number in unknown]

    @property
    def repeated(self) -> int:
        """The number of records that were processed more than once."""
        return sum(times > 1 for times in self.processed.values())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition. Raises KafkaTimeout after ``STALLED_AFTER`` seconds."""
        with deadline(STALLED_AFTER, lambda: "the group did not settle"):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


class _Member(RebalanceListener):
    """A consumer in the group, and the task that processes its records."""

    def __init__(self, servers: str, topic: str, check: GroupCheck) -> None:
        self._check = check
        self.reading = anyio.CancelScope()
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
        """Join, process records until ``reading`` is cancelled, and leave."""
        async with self.consumer:
            with self.reading:
                async for record in self.consumer:
                    self._check.done(int(record.value or b"-1"))


async def group_demo(servers: str, admin: Admin, console: Console) -> int:
    """Three members join one by one, then the first leaves; 0 if every record was processed, else 1."""
    check = GroupCheck()
    try:
        async with (
            temporary_topic(admin, "group", PARTITIONS) as topic,
            Producer(servers) as producer,
            anyio.create_task_group() as tasks,
        ):
            enough = asyncio.Event()
            tasks.start_soon(_write, producer, topic, check, enough)
            members = [_Member(servers, topic, check) for _ in range(MEMBERS)]
            for number, member in enumerate(members, 1):
                tasks.start_soon(member.run)
                await _settled(members[:number], check, console)
            members[0].reading.cancel()
            await _settled(members[1:], check, console)
            enough.set()
            await check.until(lambda: len(check.processed) >= check.written)
            for member in members:
                member.reading.cancel()
    except ExceptionGroup as errors:
        raise unwrapped(errors) from errors
    times = f"{check.repeated} of them twice or more"
    success = f"the group processed all {check.written:,} records written meanwhile, {times}"
    return show_result(console, check.result(), success)


async def _write(producer: Producer, topic: str, check: GroupCheck, enough: asyncio.Event) -> None:
    """Write small bursts of records until there are enough."""
    while not enough.is_set():
        values = [b"%d" % number for number in range(check.written, check.written + BURST)]
        check.written += BURST
        await producer.send_many(topic, values, keys=values)
        await asyncio.sleep(PAUSE)


async def _settled(present: list[_Member], check: GroupCheck, console: Console) -> None:
    """Wait until these members own all partitions, in equal shares."""
    began = time.perf_counter()
    await check.until(
        lambda: (
            all(len(member.owned) == PARTITIONS // len(present) for member in present)
            and sorted(partition for member in present for partition in member.owned) == list(range(PARTITIONS))
        )
    )
    owned = " | ".join(",".join(map(str, member.owned)) for member in present)
    console.print(f"group of {len(present)}: partitions {owned}, settled in {time.perf_counter() - began:.2f} s")

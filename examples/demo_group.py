"""The group part of the demo: members join and leave while records are written, and every record is processed.

The members are ordinary consumers in one process. When a member asks for the next record, the previous one counts as
processed, so a partition that moves continues where its last owner stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import anyio

from aiokafka_lite import Admin, Consumer, Producer
from aiokafka_lite.aio.deadline import deadline
from aiokafka_lite.aio.service import unwrapped
from aiokafka_lite.cli.terminal.temporary import temporary_topic
from demo_results import STALLED_AFTER, show_result

PARTITIONS = 6
MEMBERS = 3
BURST = 20
PAUSE = 0.01


class Load:
    """Numbered records: how many are written, and how often each is processed."""

    def __init__(self) -> None:
        self.written = 0
        self.processed: Counter[int] = Counter()

    async def write_until(
        self, holds: Callable[[], bool], producer: Producer, topic: str, *, burst: int = BURST
    ) -> None:
        """Write small bursts of records until a condition holds. Raises KafkaTimeout after ``STALLED_AFTER`` s."""
        with deadline(STALLED_AFTER, lambda: "the group did not settle"):
            while not holds():
                values = [b"%d" % number for number in range(self.written, self.written + burst)]
                self.written += burst
                await producer.send_many(topic, values, keys=values)
                await asyncio.sleep(PAUSE)

    def faults(self) -> list[str]:
        """Return the records that were never processed or never written. Processing twice is allowed."""
        missing = [f"record {number} was not processed" for number in range(self.written) if not self.processed[number]]
        unknown = [number for number in self.processed if not 0 <= number < self.written]
        return missing + [f"record {number} was never written" for number in unknown]


class _Member:
    """A consumer in the group, and the task that processes its records."""

    def __init__(self, servers: str, topic: str, load: Load) -> None:
        self._load = load
        self.reading = anyio.CancelScope()
        strategies, group_id = ["cooperative-sticky"], f"{topic}-workers"
        self.consumer = Consumer(
            servers, topics=[topic], group_id=group_id, strategies=strategies, auto_offset_reset="earliest"
        )

    @property
    def owned(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment)

    async def run(self) -> None:
        """Join, process records until ``reading`` is cancelled, and leave."""
        async with self.consumer:
            with self.reading:
                async for record in self.consumer:
                    self._load.processed[int(record.value or b"-1")] += 1


async def group_demo(servers: str, admin: Admin) -> int:
    """Let three members join one by one, then the first leave. Return 0 if every record was processed, else 1."""
    load = Load()
    try:
        async with (
            temporary_topic(admin, "group", PARTITIONS) as topic,
            Producer(servers) as producer,
            anyio.create_task_group() as tasks,
        ):
            members = [_Member(servers, topic, load) for _ in range(MEMBERS)]
            for number, member in enumerate(members, 1):
                tasks.start_soon(member.run)
                await _settle(members[:number], load, producer, topic)
            members[0].reading.cancel()
            await _settle(members[1:], load, producer, topic)
            await load.write_until(lambda: len(load.processed) >= load.written, producer, topic, burst=0)
            for member in members:
                member.reading.cancel()
    except ExceptionGroup as errors:
        raise unwrapped(errors) from errors
    repeated = sum(times > 1 for times in load.processed.values())
    success = f"the group processed all {load.written:,} records written meanwhile, {repeated} of them twice or more"
    return show_result(load.faults(), success)


async def _settle(present: list[_Member], load: Load, producer: Producer, topic: str) -> None:
    """Write records until these members own all partitions, in equal shares."""

    def is_settled() -> bool:
        owned = [member.owned for member in present]
        are_equal = all(len(partitions) == PARTITIONS // len(present) for partitions in owned)
        return are_equal and set().union(*owned) == set(range(PARTITIONS))

    began = time.perf_counter()
    await load.write_until(is_settled, producer, topic)
    shares = " | ".join(",".join(map(str, member.owned)) for member in present)
    print(f"group of {len(present)}: partitions {shares}, settled in {time.perf_counter() - began:.2f} s")

"""Random histories of groups with ``Workers``: members join, drain, close and are cancelled at any turn of the loop.

Afterwards each record was processed or is a dead letter, and the records of a key were processed in their order. A
record may be processed again, but not before the records before it.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any, NamedTuple

import pytest

from aiokafka_lite import ConsumerGroup, Producer, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.processing import dead_letter, retry, retry_topic
from aiokafka_lite.types import Record, TopicPartition
from tests.embedded.group.recording_members import ORDERS, each_way, member_of
from tests.embedded.group.test_sessions import group_of

KEYS = 20
RECORDS = 12
"""Records of each key."""
STEPS = 20
PARTITIONS = [*ORDERS, TopicPartition("retry", 0)]

pytestmark = pytest.mark.thorough


class Member(NamedTuple):
    workers: Workers[bytes, bytes]
    group: ConsumerGroup[bytes, bytes]
    task: asyncio.Task[None]


class History:
    """What the members have done. The value of a record is its key and its number."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.processed: dict[str, list[int]] = defaultdict(list)
        self.failed: set[tuple[str, int]] = set()
        """Records that have left their topic."""
        self.violations: list[str] = []

    async def handle(self, record: Record[bytes, bytes]) -> None:
        key, number = key_and_number(record)
        await asyncio.sleep(self.chance.choice([0.0, 0.001, 0.1, 1.0]) * self.chance.random())
        if number % 7 == 6 and (number % 2 or record.topic == "orders"):
            raise ValueError("fails always, or until it is in the retry topic")
        if self.chance.random() < 0.05:
            raise OSError("the next attempt succeeds")
        if self.chance.random() < 0.01:
            await asyncio.sleep(1000.0)  # more than the timeout
        if record.topic == "orders":
            self.check_order(key, number)  # an exception would only be a failed attempt
        self.processed[key].append(number)

    def add_failed(self, error: Exception, record: Record[Any, Any], attempt: int) -> None:
        if attempt == 4:  # it goes to another topic
            self.failed.add(key_and_number(record))

    def check_order(self, key: str, number: int) -> None:
        missing = set(range(number)).difference(self.processed[key])
        if not all((key, offset) in self.failed for offset in missing):
            self.violations.append(f"{key}:{number} was processed before {missing}")


def key_and_number(record: Record[bytes, bytes]) -> tuple[str, int]:
    key, _, number = (record.value or b"").decode().partition(":")
    return key, int(number)


async def has_committed_everything(cluster: EmbeddedCluster) -> bool:
    async with member_of(cluster, topics=()) as reader:
        committed = await reader.committed(PARTITIONS)
        ends = await reader.end_offsets(PARTITIONS)
    return all((0 if offset is None else offset.offset) == ends[partition] for partition, offset in committed.items())


@pytest.mark.parametrize("seed", range(2))
@each_way
async def test_each_record_is_processed_in_order_or_is_a_dead_letter(
    cluster: EmbeddedCluster, seed: int, settings: dict[str, Any]
) -> None:
    chance = random.Random(seed)
    history = History(chance)
    for topic in ("retry", "dead"):
        await cluster.create_topic(topic)
    for number in range(RECORDS):
        for key in range(KEYS):
            await cluster.produce("orders", f"{key}:{number}", key=b"%d" % key, partition=key % len(ORDERS))
    members: list[Member] = []
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        rules = [
            retry(Exception, attempts=4),
            history.add_failed,
            retry_topic(Exception, topics={"retry": 5.0}),
            dead_letter(topic="dead"),
        ]

        def join() -> None:
            workers = Workers(
                history.handle,
                concurrency=chance.choice([1, 4, 32]),
                timeout=3.0,
                rules=rules,
                producer=producer,
                max_pending=chance.choice([3, 50]),
            )
            group = group_of(cluster, auto_commit_interval=0.1, **settings)
            members.append(Member(workers, group, asyncio.create_task(group.consume(["orders", "retry"], workers))))

        join()
        for _ in range(STEPS):
            await asyncio.sleep(chance.choice([0.0, 0.2, 2.0]) * chance.random())
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            if chance.random() < 0.3 and len(members) < 4:
                join()
                continue
            workers, group, task = members.pop(chance.randrange(len(members)))
            match chance.choice(["cancel", "close", "drain"]):
                case "cancel":
                    task.cancel()
                case "close":
                    await group.close()
                case "drain":
                    await workers.drain(timeout=chance.choice([0.01, 5.0]))
                    await group.close()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
            if not members:
                join()
        async with asyncio.timeout(2000.0):  # virtual
            while not await has_committed_everything(cluster):
                assert not any(member.task.done() for member in members)
                await asyncio.sleep(5.0)
        for member in members:
            await member.group.close()
            await member.task
    assert not history.violations
    dead = {key_and_number(record) for record in cluster.records("dead")}
    for key in map(str, range(KEYS)):
        for number in range(RECORDS):
            assert number in history.processed[key] or (key, number) in dead, f"{key}:{number} is lost"

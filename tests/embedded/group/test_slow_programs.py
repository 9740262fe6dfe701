"""Groups with slow programs: the ways of reading that the documentation shows, with a second of work for each record.

Each record is processed and committed in the end. Those that a member had for longer than ``max_poll_interval`` are
processed again, in smaller portions, and a WARNING says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite import (
    Admin,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    EmbeddedCluster,
    Producer,
    Record,
    TopicPartition,
    Workers,
)
from aiokafka_lite.processing import dead_letter, retry_topic
from tests.virtual import in_virtual_time

RECORDS = 70
INTERVAL = 30.0
JOBS = TopicPartition("jobs", 0)
Work = Callable[[Record[Any, Any]], Awaitable[object]]


@asynccontextmanager
async def jobs() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        for topic in ("jobs", "retry", "dead"):
            await cluster.create_topic(topic, partitions=1)
        async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
            await producer.send_many("jobs", [b"%d" % number for number in range(RECORDS)])
        yield cluster


async def iterate(consumer: Consumer, work: Work) -> None:
    async for record in consumer:
        await work(record)


async def poll(consumer: Consumer, work: Work) -> None:
    while True:
        for record in await consumer.poll(timeout=1.0):
            await work(record)


async def poll_and_commit(consumer: Consumer, work: Work) -> None:
    while True:
        for record in await consumer.poll(max_records=500, timeout=1.0):
            await work(record)
            consumer.mark(record)
        await consumer.commit()


async def read_batches(consumer: Consumer, work: Work) -> None:
    async for batch in consumer.batches():
        for record in batch:
            await work(record)


async def committed(cluster: EmbeddedCluster) -> int:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        offsets = (await admin.groups.offsets("g")).done.get("g", {})
    return offsets[JOBS].offset if JOBS in offsets else 0


async def until_committed(cluster: EmbeddedCluster, task: asyncio.Task[None], limit: float) -> None:
    async with asyncio.timeout(limit):
        while await committed(cluster) < RECORDS:
            assert not task.done(), task.exception()
            await asyncio.sleep(limit / 50)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("program", "auto_commit", "is_split"),
    [(iterate, True, False), (poll, True, True), (poll_and_commit, False, True), (read_batches, True, True)],
)
@in_virtual_time
async def test_a_slow_member_commits_each_record_in_the_end(
    program: Any, auto_commit: bool, is_split: bool, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: Counter[int] = Counter()

    async def work(record: Record[Any, Any]) -> None:
        seen[record.offset] += 1
        await asyncio.sleep(1.0)

    async with (
        jobs() as cluster,
        Consumer(
            cluster.bootstrap_servers,
            connector=cluster.connector,
            topics=["jobs"],
            group_id="g",
            group_protocol=protocol,
            auto_commit=auto_commit,
            max_poll_interval=INTERVAL,
        ) as consumer,
    ):
        task = asyncio.create_task(program(consumer, work))
        await until_committed(cluster, task, 400.0)
        task.cancel()
        await asyncio.wait([task])
    assert len(seen) == RECORDS
    assert max(seen.values()) == (2 if is_split else 1)
    text = "the program took longer than max_poll_interval = 30 s for the records of a read, 1 s for each"
    assert caplog.text.count(text) == int(is_split)


@in_virtual_time
async def test_a_member_that_sleeps_for_less_than_the_interval_gets_as_many_records_as_before() -> None:
    async with (
        jobs() as cluster,
        Consumer(
            cluster.bootstrap_servers,
            connector=cluster.connector,
            topics=["jobs"],
            group_id="g",
            max_poll_interval=INTERVAL,
        ) as consumer,
    ):
        sizes = []
        for _ in range(3):
            sizes.append(len(await consumer.poll(max_records=20, timeout=20.0)))
            await asyncio.sleep(29.0)
    assert sizes == [20, 20, 20]


class OneByOne(ConsumerGroupHandler[Any, Any]):
    def __init__(self, work: Work) -> None:
        self.work = work

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
        async for record in claim:
            await self.work(record)
            session.mark(record)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("handler", "seconds"), [(OneByOne, 1.0), (OneByOne, 31.0), (Workers, 1.0), (Workers, 400.0)])
@in_virtual_time
async def test_a_slow_handler_gets_each_record_once(
    handler: Any, seconds: float, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """``max_poll_interval`` has no effect on handlers: their claims have no limit for one record."""
    seen: Counter[int] = Counter()

    async def work(record: Record[Any, Any]) -> None:
        seen[record.offset] += 1
        await asyncio.sleep(seconds)

    async with jobs() as cluster:
        group = ConsumerGroup(
            cluster.bootstrap_servers,
            connector=cluster.connector,
            group_id="g",
            group_protocol=protocol,
            max_poll_interval=INTERVAL,
        )
        task = asyncio.create_task(group.consume(["jobs"], handler(work)))
        await until_committed(cluster, task, RECORDS * seconds + 60.0)
        await group.close()
        await task
    assert seen == dict.fromkeys(range(RECORDS), 1)
    assert "is leaving the group" not in caplog.text


@in_virtual_time
async def test_records_of_a_retry_topic_may_wait_for_longer_than_every_interval_of_the_group() -> None:
    seen: list[tuple[str, float]] = []

    async def work(record: Record[Any, Any]) -> None:
        seen.append((record.topic, asyncio.get_running_loop().time()))
        await asyncio.sleep(1.0)
        if record.value == b"0":
            raise ValueError("not yet")

    async with jobs() as cluster:
        servers, connector = cluster.bootstrap_servers, cluster.connector
        async with Producer(servers, connector=connector) as producer:
            group = ConsumerGroup(servers, connector=connector, group_id="g", max_poll_interval=INTERVAL)
            rules = [retry_topic(ValueError, topics={"retry": 400.0}), dead_letter(topic="dead")]
            workers = Workers(work, rules=rules, producer=producer)
            task = asyncio.create_task(group.consume(["jobs", *workers.retry_topics], workers))
            async with asyncio.timeout(500.0):
                while not cluster.records("dead"):
                    await asyncio.sleep(5.0)
            await group.close()
            await task
    assert Counter(topic for topic, _ in seen) == {"jobs": RECORDS, "retry": 1}
    assert seen[-1][1] - seen[0][1] >= 400.0

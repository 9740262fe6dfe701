"""A call of a member that is cancelled at any await loses no record, leaves no task, and the next call works.

Each call is cancelled after a number of turns of the event loop, for all the numbers that it may need.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.consumer import Claim, ConsumerGroupSession
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.types import Record, TopicPartition
from tests.cancelling import cancel_after
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import ORDERS, member_of, read_all, until_stable
from tests.embedded.group.test_sessions import Recorder, committed, group_of
from tests.waiting import until

TURNS = range(61)


def open_connections(cluster: EmbeddedCluster) -> int:
    """Return the connections of clients and between brokers."""
    return sum(len(node.connections) for node in cluster.nodes.values())


class Marker(Recorder):
    """Records the offsets that it marks."""

    def __init__(self) -> None:
        super().__init__()
        self.marked: dict[TopicPartition, int] = {}

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        async for record in claim:
            self.read.append(record)
            await asyncio.sleep(0)
            session.mark(record)
            self.marked[TopicPartition(record.topic, record.partition)] = record.offset + 1


def offsets_of(records: list[Record]) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = {partition.partition: [] for partition in ORDERS}
    for record in records:
        offsets[record.partition].append(record.offset)
    return offsets


@pytest.mark.parametrize("group", [True, False], ids=["in a group", "alone"])
async def test_a_cancelled_seek_to_the_beginning_loses_no_record(cluster: EmbeddedCluster, group: bool) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 5)
    interrupted = 0
    async with member_of(cluster, **({} if group else {"group_id": None})) as consumer:
        await read_all(consumer, 30)
        tasks = len(asyncio.all_tasks())
        for turns in TURNS:
            interrupted += not await cancel_after(turns, consumer.seek_to_beginning())
            # A seek that never began has moved nothing. One that began has its effect, although its call was cancelled.
            expected = 30 if turns else 0
            records = await read_all(consumer, expected) + await consumer.poll(timeout=2.0)
            assert offsets_of(records) == dict.fromkeys(range(6), list(range(5)) if turns else [])
        assert len(asyncio.all_tasks()) <= tasks
    assert interrupted > 1


@pytest.mark.parametrize("group", [True, False], ids=["in a group", "alone"])
async def test_a_cancelled_seek_to_the_end_skips_only_the_present_records(
    cluster: EmbeddedCluster, group: bool
) -> None:
    async with member_of(cluster, **({} if group else {"group_id": None})) as consumer:
        assert await consumer.poll(timeout=10.0) == []
        end = 0
        for turns in TURNS:
            consumer.pause()
            for partition in ORDERS:
                fill(cluster, partition, 2)
            end += 2
            await cancel_after(turns, consumer.seek_to_end())
            positions = {await consumer.position(partition) for partition in ORDERS}
            assert positions == {end if turns else end - 2}
            for partition in ORDERS:
                fill(cluster, partition, 1)
            end += 1
            consumer.resume()
            fresh = await read_all(consumer, 6 if turns else 18)
            expected = list(range(end - (1 if turns else 3), end))
            assert offsets_of(fresh) == {partition.partition: expected for partition in ORDERS}


async def test_a_seek_between_cancelled_reads_loses_no_record(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 61)
    records: list[Record] = []
    async with member_of(cluster) as consumer:
        await until_stable_reading(consumer)

        async def poll() -> None:
            records.extend(await consumer.poll(3, timeout=0.01))

        for turns in TURNS:
            await cancel_after(turns, poll())
            consumer.seek(ORDERS[0], turns)
            records.clear()
            await cancel_after(turns, poll())
            records += await read_all(consumer, 61 - turns - len(records))
            assert [record.offset for record in records] == list(range(turns, 61))
            records.clear()


async def until_stable_reading(consumer: Any) -> None:
    reading = asyncio.ensure_future(read_all(consumer, 1))
    await until_stable(consumer)
    await reading


@pytest.mark.thorough
@pytest.mark.parametrize("turns", [*TURNS, *range(70, 400, 30)])
async def test_a_cancelled_consume_leaves_the_group_and_loses_no_record(cluster: EmbeddedCluster, turns: int) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 20)
    connections = open_connections(cluster)
    handler = Marker()
    group = group_of(cluster)
    before = asyncio.all_tasks()
    await cancel_after(turns, group.consume(["orders"], handler))
    assert asyncio.all_tasks() == before
    assert members_in(cluster) == 0
    await closed_connections(cluster, connections)
    assert await committed(cluster) == handler.marked
    task = asyncio.create_task(group.consume(["orders"], handler))
    async with asyncio.timeout(60):
        while len({(record.partition, record.offset) for record in handler.read}) < 120:
            await asyncio.sleep(0.05)  # virtual
        await asyncio.sleep(1.0)
    await group.close()
    await task
    assert await committed(cluster) == dict.fromkeys(ORDERS, 20)


def members_in(cluster: EmbeddedCluster) -> int:
    groups = (node.groups.group("workers") for node in cluster.nodes.values())
    return sum(len(group.members) for group in groups if group is not None)


async def closed_connections(cluster: EmbeddedCluster, before: int) -> None:
    """Wait until the brokers have seen the connections close."""
    async with asyncio.timeout(5):
        while open_connections(cluster) > before:
            await asyncio.sleep(0.01)  # virtual


async def test_a_cancelled_commit_keeps_the_refusals_for_the_next_one(cluster: EmbeddedCluster) -> None:
    """The marks of a lost partition are reported by the first commit that returns."""
    fill(cluster, ORDERS[0], 5)
    interrupted = 0
    async with member_of(cluster, max_poll_interval=20.0, auto_commit=False) as consumer:
        records = await read_all(consumer, 5)
        await until(lambda: not consumer.assignment)
        for turns in range(12):
            consumer.mark(records[0])
            if not await cancel_after(turns, consumer.commit()):
                interrupted += 1
                assert set((await consumer.commit()).refused) == {ORDERS[0]}
    assert interrupted


async def test_a_cancelled_read_leaves_the_consumer_to_other_tasks(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 40)
    seen: list[int] = []
    async with member_of(cluster) as consumer:

        async def iterate() -> None:
            async for record in consumer:
                seen.append(record.offset)
                await asyncio.sleep(0)

        async def poll() -> None:
            seen.extend(record.offset for record in await consumer.poll(2, timeout=1.0))

        await consumer.wait_assigned()
        for turns in range(25):
            await cancel_after(turns, iterate() if turns % 2 else poll())
        while len(seen) < 40:
            await poll()
    assert seen == list(range(40))


async def test_a_cancelled_wait_for_the_assignment_leaves_the_member_to_join(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        for turns in range(40):
            await cancel_after(turns, consumer.wait_assigned())
        assert sorted(await consumer.wait_assigned()) == ORDERS

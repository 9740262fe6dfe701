"""Members join, leave and die, and every partition has one reader at a time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.group import MemberState, RoundRobinStrategy, StickyStrategy
from aiokafka_lite.protocol.messages import HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest
from tests.case_notes import seeds
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import (
    CONSUMER,
    COOPERATIVE,
    ORDERS,
    Ownership,
    Worker,
    each_way,
    member_of,
    until_stable,
)
from tests.waiting import until

QUICK: dict[str, Any] = {"session_timeout": 6.0, "heartbeat_interval": 1.0}

STRATEGIES: dict[str, dict[str, Any]] = {
    "default": {},
    "roundrobin": {"strategies": [RoundRobinStrategy()]},
    "sticky": {"strategies": [StickyStrategy()]},
    "cooperative": COOPERATIVE,
    "consumer": CONSUMER,
}
"""The strategies of the classic protocol, and the consumer protocol, in which the coordinator assigns."""
each_strategy = pytest.mark.parametrize("settings", STRATEGIES.values(), ids=STRATEGIES)


@each_strategy
async def test_partitions_are_divided_and_taken_over(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    workers = [await Worker(cluster, ownership, f"worker-{number}", **settings).start() for number in range(3)]
    await until_stable(*(worker.consumer for worker in workers))
    assert [len(worker.consumer.assignment) for worker in workers] == [2, 2, 2]
    await workers.pop().stop()
    await until_stable(*(worker.consumer for worker in workers))
    assert [len(worker.consumer.assignment) for worker in workers] == [3, 3]
    await workers.pop().die()
    await until_stable(workers[0].consumer, within=60.0)  # after the session of the dead member has ended
    await workers[0].stop()
    assert ownership.clashes == []
    assert ownership.owners == {}


@pytest.mark.thorough
@each_strategy
@pytest.mark.parametrize("seed", seeds(3, usual=1))
async def test_many_joining_and_leaving_members_read_every_record_once(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any], seed: int
) -> None:
    choice = random.Random(seed)
    for partition in ORDERS:
        fill(cluster, partition, 300)
    workers: list[Worker] = []
    for number in range(40):
        if len(workers) > 1 and choice.random() < 0.45:
            await workers.pop(choice.randrange(len(workers))).stop()
        else:
            name = f"worker-{number}"
            workers.append(
                await Worker(cluster, ownership, name, work=choice.choice([0.0, 0.01, 0.4]), **settings).start()
            )
        await asyncio.sleep(choice.choice([0.0, 0.1, 2.0, 5.0]))
    await until_stable(*(worker.consumer for worker in workers), within=20.0)
    while sum(ownership.read.values()) < 1_800:
        await asyncio.sleep(1.0)
    await asyncio.sleep(5.0)
    for worker in workers:
        assert worker.error is None
        await worker.stop()
    assert ownership.clashes == []
    assert len(ownership.read) == 1_800
    # Only a record that was in progress when its reader closed is read again.
    assert sum(ownership.read.values()) - 1_800 <= 40


@pytest.mark.thorough
@each_strategy
@pytest.mark.parametrize("seed", seeds(2, usual=1))
async def test_members_that_die_lose_no_record(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any], seed: int
) -> None:
    choice = random.Random(seed)
    # Under the consumer protocol the brokers set the session: 45 seconds.
    settings, session = (settings, 45.0) if settings is CONSUMER else ({**QUICK, **settings}, 6.0)
    for partition in ORDERS:
        fill(cluster, partition, 100)
    workers: list[Worker] = []
    for number in range(30):
        if len(workers) > 2 and choice.random() < 0.5:
            worker = workers.pop(choice.randrange(len(workers)))
            await (worker.die() if choice.random() < 0.5 else worker.stop())
        else:
            workers.append(await Worker(cluster, ownership, f"worker-{number}", work=0.2, **settings).start())
        await asyncio.sleep(choice.choice([0.0, 0.5, 3.0]))
    await until_stable(*(worker.consumer for worker in workers), within=session + 14.0)
    async with asyncio.timeout(300):
        while len(ownership.read) < 600:
            await asyncio.sleep(1.0)
    for worker in workers:
        assert worker.error is None
        await worker.stop()
    assert ownership.clashes == []


async def test_cooperative_members_read_on_while_others_join(cluster: EmbeddedCluster, ownership: Ownership) -> None:
    first = await Worker(cluster, ownership, "first", **COOPERATIVE).start()
    await until_stable(first.consumer)
    kept = set(first.consumer.assignment)
    second = await Worker(cluster, ownership, "second", **COOPERATIVE).start()
    async with asyncio.timeout(30):
        while second.consumer.assignment == () or len(first.consumer.assignment) == 6:
            kept &= set(first.consumer.assignment)
            await asyncio.sleep(0.01)
    await until_stable(first.consumer, second.consumer)
    assert len(kept) >= 3
    revoked = [event for event in ownership.events if event[1] == "revoked"]
    assert [len(partitions) for _, _, partitions in revoked] == [3]
    await first.stop()
    await second.stop()


async def test_a_partition_that_a_cooperative_member_releases_is_read_by_another_at_once(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    loop = asyncio.get_running_loop()
    workers = [await Worker(cluster, ownership, f"worker-{number}", **COOPERATIVE).start() for number in range(3)]
    await until_stable(*(worker.consumer for worker in workers))
    for number in range(3, 6):
        newcomer = await Worker(cluster, ownership, f"worker-{number}", **COOPERATIVE).start()
        workers.append(newcomer)
        before = len(ownership.events)
        async with asyncio.timeout(10.0):
            while not any(what == "revoked" for _, what, _ in ownership.events[before:]):
                await asyncio.sleep(0.01)
            released = loop.time()
            while not newcomer.consumer.assignment:
                await asyncio.sleep(0.01)
        assert loop.time() - released < 0.5  # before the next regular heartbeat, which comes every three seconds
        await until_stable(*(worker.consumer for worker in workers))
    cluster.history.clear()
    await asyncio.sleep(60.0)
    # A stable group sends a heartbeat every three seconds, after a few early ones.
    assert len(cluster.history.of(HeartbeatRequest)) <= 6 * (20 + 5)
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []


async def test_an_eager_member_releases_all_partitions(cluster: EmbeddedCluster, ownership: Ownership) -> None:
    first = await Worker(cluster, ownership, "first").start()
    await until_stable(first.consumer)
    second = await Worker(cluster, ownership, "second").start()
    await until_stable(first.consumer, second.consumer)
    assert [len(event[2]) for event in ownership.events if event[:2] == ("first", "revoked")] == [6]
    await first.stop()
    await second.stop()


@pytest.mark.parametrize("seed", seeds(3, usual=1))
async def test_restarting_static_members_keep_their_partitions(
    cluster: EmbeddedCluster, ownership: Ownership, seed: int
) -> None:
    choice = random.Random(seed)
    for partition in ORDERS:
        fill(cluster, partition, 200)

    async def start(number: int) -> Worker:
        name = f"worker-{number}"
        return await Worker(cluster, ownership, name, work=0.1, group_instance_id=name).start()

    workers = [await start(number) for number in range(3)]
    await until_stable(*(worker.consumer for worker in workers))
    generation = workers[0].consumer.group_metadata().generation_id
    owned = [worker.consumer.assignment for worker in workers]
    for _ in range(20):
        number = choice.randrange(3)
        await (workers[number].die() if choice.random() < 0.5 else workers[number].stop())
        await asyncio.sleep(choice.choice([0.0, 1.0, 10.0]))
        workers[number] = await start(number)
        await asyncio.sleep(choice.choice([0.5, 5.0]))
    await until_stable(*(worker.consumer for worker in workers), within=10.0)
    assert [worker.consumer.assignment for worker in workers] == owned
    assert {worker.consumer.group_metadata().generation_id for worker in workers} == {generation}
    async with asyncio.timeout(600):
        while len(ownership.read) < 1_200:
            await asyncio.sleep(1.0)
    for worker in workers:
        assert worker.error is None
        await worker.stop(leave_group=True)
    assert ownership.clashes == []


@pytest.mark.thorough
@each_way
async def test_twenty_members_are_stable_ten_seconds_after_a_minute_of_churn(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    choice = random.Random(20)
    for partition in ORDERS:
        fill(cluster, partition, 300)
    workers = [
        await Worker(cluster, ownership, f"worker-{number}", work=0.05, **settings).start() for number in range(20)
    ]
    loop = asyncio.get_running_loop()
    ends = loop.time() + 60.0
    number = 20
    while loop.time() < ends:
        await workers.pop(choice.randrange(len(workers))).stop()
        workers.append(await Worker(cluster, ownership, f"worker-{number}", work=0.05, **settings).start())
        number += 1
        await asyncio.sleep(choice.random() * 2)
    await until_stable(*(worker.consumer for worker in workers), within=10.0)
    async with asyncio.timeout(300):
        while len(ownership.read) < 1_800:
            await asyncio.sleep(1.0)
    for worker in workers:
        assert worker.error is None
        await worker.stop()
    assert ownership.clashes == []


async def test_a_cooperative_member_that_cannot_reach_its_coordinator_while_it_joins_loses_its_partitions(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    """Its JoinGroup waits without an answer; by the end of a session another member may own its partitions."""
    settings: dict[str, Any] = {"session_timeout": 12.0, "max_poll_interval": 200.0, **COOPERATIVE}
    worker = await Worker(cluster, ownership, "one", **settings).start()
    await until_stable(worker.consumer)
    with (
        cluster.on(JoinGroupRequest, times=None).drop(times=None),
        cluster.on(HeartbeatRequest).fail(ErrorCode.REBALANCE_IN_PROGRESS),
    ):
        await until(lambda: worker.consumer.membership is MemberState.JOINING)
        assert worker.consumer.assignment
        dead = cluster.on(HeartbeatRequest, times=None).drop(times=None)
        began = asyncio.get_running_loop().time()
        await until(lambda: not worker.consumer.assignment)
        assert asyncio.get_running_loop().time() - began <= 13.0
        dead.remove()
    await until_stable(worker.consumer)
    await worker.stop()


async def test_a_member_that_notices_a_rebalance_late_releases_its_partitions_before_others_own_them(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    """The coordinator counts the rebalance timeout from the first JoinGroup, and the busy member's loop is blocked."""
    fill(cluster, ORDERS[0], 1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    settings: dict[str, Any] = {"session_timeout": 15.0, "heartbeat_interval": 1.0, "rebalance_timeout": 20.0}
    busy = await Worker(cluster, ownership, "busy", work=60.0, **settings).start()
    await until_stable(busy.consumer)
    await until(lambda: bool(busy.read))
    other = await Worker(cluster, ownership, "other", **settings).start()
    await until(lambda: any(exchange.client_id == "other" for exchange in cluster.history.of(JoinGroupRequest)))
    loop.now += 8.0
    await asyncio.sleep(30.0)
    assert other.consumer.assignment
    assert ownership.clashes == []
    await busy.stop()
    await other.stop()


async def test_a_cooperative_member_keeps_its_partitions_while_the_others_take_long_to_join(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    settings: dict[str, Any] = {"session_timeout": 12.0, "max_poll_interval": 100.0, **COOPERATIVE}
    quick = await Worker(cluster, ownership, "quick", **settings).start()
    async with member_of(cluster, strategies=["cooperative-sticky", "range"], max_poll_interval=100.0) as slow:
        reading = asyncio.create_task(slow.poll(timeout=60.0))
        await until_stable(quick.consumer, slow)
        for partition in ORDERS:
            fill(cluster, partition, 5)
        assert await reading  # in hand for a minute, and slow is an eager member
        third = await Worker(cluster, ownership, "third", **settings).start()
        await until(lambda: quick.consumer.membership is MemberState.JOINING)
        owned = quick.consumer.assignment
        await asyncio.sleep(60.0)
        assert quick.consumer.membership is MemberState.JOINING
        assert quick.consumer.assignment == owned
        slow.mark()
        await until_stable(quick.consumer, slow, third.consumer)
        assert not any(kind == "lost" for _, kind, _ in ownership.events)
        await third.stop()
    await quick.stop()


async def test_heartbeats_that_are_all_refused_by_an_unknown_error_end_the_session(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, session_timeout=12.0) as consumer:
        await until_stable(consumer)
        with cluster.on(HeartbeatRequest, times=None).fail(ErrorCode.UNKNOWN_SERVER_ERROR, times=None) as fault:
            began = asyncio.get_running_loop().time()
            await until(lambda: not consumer.assignment)
            assert asyncio.get_running_loop().time() - began <= 15.0
            assert fault.hits < 60
        await until_stable(consumer)


@pytest.mark.parametrize("read", ["poll", "next"])
async def test_unsubscribing_ends_a_read_of_another_task(cluster: EmbeddedCluster, read: str) -> None:
    async with member_of(cluster) as consumer:
        await until_stable(consumer)
        reading = asyncio.create_task(consumer.poll(timeout=60.0) if read == "poll" else anext(consumer))  # type: ignore[arg-type]
        await asyncio.sleep(1.0)
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match="nothing to read"):
            await reading


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_broker_that_takes_no_commits_during_a_rebalance_does_not_delay_it(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    """Kafka takes them until the members have joined again; librdkafka's mock cluster does not."""
    fill(cluster, ORDERS[0], 10)
    one = await Worker(cluster, ownership, "one", auto_commit_interval=3600.0, **QUICK, **settings).start()
    await until(lambda: len(one.read) == 10)
    with cluster.on(OffsetCommitRequest, times=None).fail(ErrorCode.REBALANCE_IN_PROGRESS, times=None):
        two = await Worker(cluster, ownership, "two", **QUICK, **settings).start()
        await until_stable(one.consumer, two.consumer, within=5.0)
    assert ownership.clashes == []
    await one.stop()
    await two.stop()

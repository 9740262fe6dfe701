"""Groups that change between the classic and the consumer protocol while they have members (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.admin import Admin, GroupType
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.group import RangeStrategy
from tests.embedded.consumer.logs import fill
from tests.embedded.group.members import COOPERATIVE, ORDERS, Ownership, Worker, until_stable

CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
EAGER: dict[str, Any] = {"strategies": [RangeStrategy()]}
RECORDS = 10

each_strategy = pytest.mark.parametrize("classic", [COOPERATIVE, EAGER], ids=["cooperative", "eager"])


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A broker with a topic of six partitions. Assignments are not delayed: virtual time does not move that clock."""
    async with EmbeddedCluster(tcp=False, seed=1, configs={"group.consumer.assignment.interval.ms": "0"}) as cluster:
        await cluster.create_topic("orders", partitions=6)
        yield cluster


async def group_type(cluster: EmbeddedCluster) -> GroupType:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        (listed,) = await admin.groups.list()
        assert listed.type is not None
        return listed.type


async def read_once(cluster: EmbeddedCluster, ownership: Ownership) -> None:
    """Write records to each partition, and wait until each record has been read, and none of them twice."""
    before = len(ownership.read)
    for partition in ORDERS:
        fill(cluster, partition, RECORDS)
    async with asyncio.timeout(30):
        while len(ownership.read) < before + RECORDS * len(ORDERS):
            await asyncio.sleep(0.05)  # virtual time
    assert set(ownership.read.values()) == {1}


@each_strategy
async def test_a_member_of_the_consumer_protocol_joins_classic_members(
    cluster: EmbeddedCluster, ownership: Ownership, classic: dict[str, Any]
) -> None:
    workers = [await Worker(cluster, ownership, f"classic-{number}", **classic).start() for number in range(2)]
    await until_stable(*(each.consumer for each in workers))
    await read_once(cluster, ownership)
    workers.append(await Worker(cluster, ownership, "new", **CONSUMER).start())
    await until_stable(*(each.consumer for each in workers))
    assert [len(each.consumer.assignment) for each in workers] == [2, 2, 2]
    assert await group_type(cluster) is GroupType.CONSUMER
    await read_once(cluster, ownership)
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []
    assert [worker.error for worker in workers] == [None, None, None]


@each_strategy
@pytest.mark.parametrize("upgrades", [True, False], ids=["upgrade", "downgrade"])
async def test_three_members_migrate_one_after_the_other(
    cluster: EmbeddedCluster, ownership: Ownership, classic: dict[str, Any], upgrades: bool
) -> None:
    before, after = (classic, CONSUMER) if upgrades else (CONSUMER, classic)
    workers = [await Worker(cluster, ownership, f"before-{number}", **before).start() for number in range(3)]
    await until_stable(*(each.consumer for each in workers))
    for number in range(3):
        await read_once(cluster, ownership)
        await workers.pop(0).stop()
        workers.append(await Worker(cluster, ownership, f"after-{number}", **after).start())
        await until_stable(*(each.consumer for each in workers))
    await read_once(cluster, ownership)
    assert await group_type(cluster) is (GroupType.CONSUMER if upgrades else GroupType.CLASSIC)
    assert [worker.error for worker in workers] == [None, None, None]
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []


@each_strategy
async def test_a_group_becomes_classic_when_its_last_member_of_the_consumer_protocol_dies(
    cluster: EmbeddedCluster, ownership: Ownership, classic: dict[str, Any]
) -> None:
    new = await Worker(cluster, ownership, "new", **CONSUMER).start()
    workers = [await Worker(cluster, ownership, f"classic-{number}", **classic).start() for number in range(2)]
    await until_stable(new.consumer, *(each.consumer for each in workers))
    await read_once(cluster, ownership)
    await new.consumer.commit()
    await new.die()
    await until_stable(*(each.consumer for each in workers), within=120.0)
    assert await group_type(cluster) is GroupType.CLASSIC
    await read_once(cluster, ownership)
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []

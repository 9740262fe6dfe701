"""Each order has one effect in a store, after any fault of members, commits and the store. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, Record
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, ErrorCode
from aiokafka_lite.processing import ExactlyOnceInto
from aiokafka_lite.processing.stores import MemoryStore, OffsetChange
from aiokafka_lite.processing.stores.memory import MemoryTransaction
from aiokafka_lite.protocol.messages import ConsumerGroupHeartbeatRequest, HeartbeatRequest
from aiokafka_lite.types import GroupMetadata, TopicPartition
from tests.embedded.exactly_once.billing_workers import STRATEGIES, write
from tests.waiting import until

COUNT = 200


class Fault(Exception):
    """A connection to the store is lost."""


class FaultyStore(MemoryStore):
    """Loses connections at random, also during a commit: before it, and after it."""

    def __init__(self, seed: int, share: float = 0.1) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.share = share
        self.lost_answers = 0
        """Commits that happened, and raised."""

    async def _stumble(self) -> None:
        await asyncio.sleep(self._random.random() * 0.05)
        if self._random.random() < self.share:
            raise Fault

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryTransaction]:
        await self._stumble()
        async with super().transaction() as transaction:
            yield transaction
            await self._stumble()
        try:
            await self._stumble()
        except Fault:
            self.lost_answers += 1
            raise

    async def claim(
        self,
        transaction: MemoryTransaction,
        member: GroupMetadata,
        partitions: Sequence[TopicPartition],
        *,
        force: bool = False,
    ) -> dict[TopicPartition, int | None]:
        await self._stumble()
        return await super().claim(transaction, member, partitions, force=force)

    async def save(
        self, transaction: MemoryTransaction, group_id: str, changes: Mapping[TopicPartition, OffsetChange]
    ) -> None:
        await self._stumble()
        await super().save(transaction, group_id, changes)

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, Fault)


@asynccontextmanager
async def member(
    cluster: EmbeddedCluster, store: MemoryStore, strategy: str = "eager", **own: Any
) -> AsyncIterator[ExactlyOnceInto[bytes, bytes, MemoryTransaction]]:
    async with (
        Consumer(
            cluster.bootstrap_servers,
            topics=["orders"],
            group_id="billing",
            auto_commit=False,
            connector=cluster.connector,
            **STRATEGIES[strategy],
        ) as consumer,
        ExactlyOnceInto(consumer, store, **{"max_records": 7, **own}) as batches,
    ):
        yield batches


async def bill(records: list[Record], transaction: MemoryTransaction) -> None:
    transaction.extend(values(records))
    await asyncio.sleep(0.05)


def values(records: list[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


async def work(cluster: EmbeddedCluster, store: MemoryStore, strategy: str = "eager") -> None:
    """Work until it is cancelled."""
    async with member(cluster, store, strategy) as batches:
        await batches.run(bill)


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a worker. It may have ended with an error of Kafka, which a supervisor would restart."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def finish(cluster: EmbeddedCluster, store: MemoryStore, orders: list[str], strategy: str = "eager") -> None:
    """Let one member process the remaining orders, and check that each order has one effect."""
    working = asyncio.create_task(work(cluster, store, strategy))
    await until(lambda: len(set(store.effects)) == len(orders) or working.done(), within=600.0)
    assert not working.done(), working
    await cancelled(working)
    assert sorted(map(str, store.effects)) == sorted(orders)


async def test_a_batch_and_its_offsets_are_committed_together(cluster: EmbeddedCluster) -> None:
    store = MemoryStore()
    assert repr(store) == "<MemoryStore effects=0 offsets=0>"
    await finish(cluster, store, await write(cluster, COUNT))
    assert repr(store) == f"<MemoryStore effects={COUNT} offsets=3>"


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("seed", range(5))
async def test_lost_connections_and_changing_members_repeat_nothing(
    cluster: EmbeddedCluster, strategy: str, seed: int
) -> None:
    chance, store = random.Random(seed), FaultyStore(seed)
    orders = await write(cluster, COUNT)
    working = [asyncio.create_task(work(cluster, store, strategy)) for _ in range(2)]
    for _ in range(4):
        await asyncio.sleep(chance.random() * 3)
        await cancelled(working.pop(0))
        working.append(asyncio.create_task(work(cluster, store, strategy)))

    def has_lost_one_or_is_idle() -> bool:
        return store.lost_answers > 0 or len(set(store.effects)) == len(orders)

    await until(has_lost_one_or_is_idle, within=600.0)
    while not store.lost_answers:  # all commits had luck, so there is more to do
        orders.extend(await write(cluster, 50, first=len(orders)))
        await until(has_lost_one_or_is_idle, within=600.0)
    for task in working:
        await cancelled(task)
    await finish(cluster, store, orders, strategy)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
async def test_a_member_that_loses_its_partitions_during_a_batch_repeats_nothing(
    cluster: EmbeddedCluster, strategy: str
) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    heartbeat = ConsumerGroupHeartbeatRequest if strategy == "consumer" else HeartbeatRequest
    async with member(cluster, store, strategy) as batches:
        records, transaction = await anext(batches)
        transaction.extend(values(records))
        with cluster.on(heartbeat).fail(ErrorCode.UNKNOWN_MEMBER_ID, times=1):
            await asyncio.sleep(17.0)  # it is a member again, and has the same partitions
        records, transaction = await anext(batches)
        transaction.extend(values(records))
        batches.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
    await finish(cluster, store, orders, strategy)


async def test_a_zombie_commits_nothing_after_another_member_has_its_partitions(cluster: EmbeddedCluster) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    async with member(cluster, store) as zombie:
        records, transaction = await anext(zombie)
        transaction.extend(values(records))
        with cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID):  # also of the next member, until it joins
            await asyncio.sleep(4.0)
        working = asyncio.create_task(work(cluster, store))
        await until(lambda: set(values(records)) <= set(map(str, store.effects)) or working.done(), within=600.0)
        again, _ = await anext(zombie)
        assert not set(values(again)) & set(map(str, store.effects))
        await cancelled(working)
    await finish(cluster, store, orders)


async def test_a_member_that_the_coordinator_has_removed_joins_again_and_repeats_nothing(
    cluster: EmbeddedCluster,
) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    removed: list[str] = []
    async with (
        Consumer(
            cluster.bootstrap_servers,
            topics=["orders"],
            group_id="billing",
            auto_commit=False,
            connector=cluster.connector,
        ) as consumer,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
    ):
        batches = ExactlyOnceInto(consumer, store, max_records=7)

        async def remove_and_bill(records: list[Record], transaction: MemoryTransaction) -> None:
            if not removed:
                former = consumer.group_metadata()
                removed.append(former.member_id)
                (await admin.groups.remove_members("billing", removed)).raise_for_errors()
                successor = GroupMetadata("billing", former.generation_id + 1, member_id="successor")
                await store.claim(transaction, successor, list(consumer.assignment))
            await bill(records, transaction)

        working = asyncio.create_task(batches.run(remove_and_bill))
        await until(lambda: len(set(store.effects)) == COUNT or working.done(), within=600.0)
        assert not working.done(), working
        assert consumer.group_metadata().member_id not in removed
        await cancelled(working)
    await finish(cluster, store, orders)


async def test_offsets_of_the_store_win_over_those_of_kafka(cluster: EmbeddedCluster) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    async with Consumer(
        cluster.bootstrap_servers, topics=["orders"], group_id="billing", auto_commit=False, connector=cluster.connector
    ) as consumer:
        store.offsets |= {("billing", TopicPartition("orders", number)): 0 for number in range(3)}
        records = await consumer.poll(20, timeout=10.0)
        offsets = {TopicPartition("orders", record.partition): record.offset + 1 for record in records}
        (await consumer.commit(offsets)).raise_for_refused()
    await finish(cluster, store, orders)


async def test_a_group_that_is_new_to_the_store_begins_at_its_offsets_in_kafka(cluster: EmbeddedCluster) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    async with Consumer(
        cluster.bootstrap_servers, topics=["orders"], group_id="billing", auto_commit=False, connector=cluster.connector
    ) as consumer:
        records = await consumer.poll(20, timeout=10.0)
        offsets = {TopicPartition("orders", record.partition): record.offset + 1 for record in records}
        (await consumer.commit(offsets)).raise_for_refused()
    await finish(cluster, store, sorted(set(orders) - set(values(records))))


async def test_a_group_whose_generations_began_again_continues(cluster: EmbeddedCluster) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    former = GroupMetadata("billing", generation_id=1000, member_id="former")
    async with store.transaction() as transaction:
        await store.claim(transaction, former, [TopicPartition("orders", number) for number in range(3)])
    await finish(cluster, store, orders)


async def test_an_error_that_does_not_pass_is_raised(cluster: EmbeddedCluster) -> None:
    store = FaultyStore(seed=0, share=0.0)
    orders = await write(cluster, COUNT)

    async def wrong(records: list[Record], transaction: MemoryTransaction) -> None:
        transaction.append("wrong")
        raise ZeroDivisionError

    async with member(cluster, store) as batches:
        with pytest.raises(ZeroDivisionError):
            await batches.run(wrong)
    await finish(cluster, store, orders)


async def test_an_error_of_a_zombie_ends_nothing(cluster: EmbeddedCluster) -> None:
    """The rows of the new owner may be the reason, as when both insert the same key."""
    store, orders = MemoryStore(), await write(cluster, COUNT)
    errors: list[ZeroDivisionError] = []
    async with member(cluster, store) as batches:

        async def bill_once(records: list[Record], transaction: MemoryTransaction) -> None:
            if not errors:
                places = {TopicPartition(record.topic, record.partition) for record in records}
                await store.claim(transaction, GroupMetadata("billing", 1000, member_id="successor"), list(places))
                errors.append(ZeroDivisionError())
                raise errors[0]
            await bill(records, transaction)

        working = asyncio.create_task(batches.run(bill_once))
        await until(lambda: len(set(store.effects)) == COUNT or working.done(), within=600.0)
        assert not working.done(), working
        await cancelled(working)
    await finish(cluster, store, orders)


async def test_iterations_may_be_cancelled_at_every_turn(cluster: EmbeddedCluster) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    async with member(cluster, store, max_records=2) as batches:
        await anext(batches)
        for turn in range(60):
            working = asyncio.create_task(batches.run(bill))
            for _ in range(turn):
                await asyncio.sleep(0)
            await asyncio.sleep(0.05 * (turn % 3))
            await cancelled(working)
    await finish(cluster, store, orders)


async def test_a_plain_function_is_refused_and_its_transaction_is_rolled_back(cluster: EmbeddedCluster) -> None:
    store, orders = MemoryStore(), await write(cluster, COUNT)
    async with member(cluster, store) as batches:
        with pytest.raises(ConfigurationError, match="process must be an async function, got <function"):
            await batches.run(lambda records, transaction: None)  # type: ignore[arg-type, return-value]
    await finish(cluster, store, orders)


async def test_wrong_arguments_are_refused(cluster: EmbeddedCluster) -> None:
    settings: dict[str, Any] = {"connector": cluster.connector}
    servers = cluster.bootstrap_servers
    right = Consumer(servers, topics=["orders"], group_id="billing", auto_commit=False, **settings)
    for arguments, error in [
        ((object(), MemoryStore()), "consumer must be a Consumer"),
        ((right, object()), "store must be an object with transaction"),
        ((Consumer(servers, topics=["orders"], group_id="billing", **settings), MemoryStore()), "auto_commit=False"),
        ((Consumer(servers, topics=["orders"], **settings), MemoryStore()), "group_id and topics"),
    ]:
        with pytest.raises(ConfigurationError, match=error):
            ExactlyOnceInto(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_records"):
        ExactlyOnceInto(right, MemoryStore(), max_records=0)

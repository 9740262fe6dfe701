"""Every public coroutine of ``admin.transactions``, cancelled at every turn of the event loop that it takes.

A cancelled call leaves no task, and can be repeated. Its change is made whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite import TopicPartition
from aiokafka_lite.admin import Admin, ProducerState
from aiokafka_lite.admin.results import Results
from aiokafka_lite.admin.transactions import Transactions
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from tests.cancelling import Covered, at_every_turn, public_coroutines, until_no_other_tasks
from tests.embedded.transactions.raw_producer import TransactionalPeer

HERE = TopicPartition("t", 0)
covers = Covered()


LOOKUPS: dict[str, Callable[[Transactions], Awaitable[object]]] = {
    "list": lambda transactions: transactions.list(),
    "coordinators": lambda transactions: transactions.coordinators(["open", "other"]),
    "describe": lambda transactions: transactions.describe(["open", "other"]),
    "describe_producers": lambda transactions: transactions.describe_producers([HERE]),
    "describe_producers of one broker": lambda transactions: transactions.describe_producers([HERE], broker=1),
    "find_hanging": lambda transactions: transactions.find_hanging(max_transaction_timeout=0.0),
    "find_hanging of one broker": lambda transactions: transactions.find_hanging(broker=1),
}


def plain(result: object) -> object:
    """Return a value that can be compared."""
    return (result.done, result.failed) if isinstance(result, Results) else result


@covers("Transactions.list", "Transactions.coordinators", "Transactions.describe")
@covers("Transactions.describe_producers", "Transactions.find_hanging")
@pytest.mark.parametrize("name", LOOKUPS)
async def test_a_lookup_of_transactions_that_is_cancelled_can_be_repeated(
    cluster: EmbeddedCluster, admin: Admin, name: str
) -> None:
    await cluster.create_topic("t", 1, 3)
    async with TransactionalPeer(cluster, "open") as writer, TransactionalPeer(cluster, "other") as other:
        await writer.initialize()
        await writer.write("t", b"1")
        await other.initialize()
        expected = plain(await LOOKUPS[name](admin.transactions))
        tasks = asyncio.all_tasks()
        results = await at_every_turn(lambda: LOOKUPS[name](admin.transactions), pause=0.1)
        assert results
        assert all(plain(result) == expected for result in results)
        await until_no_other_tasks(tasks)


@covers("Transactions.fence_producers")
async def test_producers_are_fenced_again_after_a_cancelled_call(cluster: EmbeddedCluster, admin: Admin) -> None:
    await cluster.create_topic("t", 1, 3)
    epochs: list[int] = []
    async with TransactionalPeer(cluster, "id") as writer:

        async def write() -> None:
            assert await writer.initialize() is ErrorCode.NONE
            assert await writer.write("t", b"1") is ErrorCode.NONE

        async def fence() -> None:
            fenced = await admin.transactions.fence_producers("id")
            epochs.append(fenced["id"].producer_epoch)
            assert fenced["id"].producer_epoch > writer.epoch

        tasks = asyncio.all_tasks()
        await at_every_turn(fence, write, pause=0.1)
        await write()
        await fence()
        assert await writer.commit() is ErrorCode.PRODUCER_FENCED
        await until_no_other_tasks(tasks)
        await writer.until_complete()
        assert await writer.read("t") == []
    assert epochs == sorted(epochs)


@covers("Transactions.abort")
@pytest.mark.parametrize("by", ["start_offset", "producer"])
async def test_a_cancelled_abort_of_a_transaction_can_be_repeated(
    cluster: EmbeddedCluster, admin: Admin, by: str
) -> None:
    await cluster.create_topic("t", 1, 3)
    count = 0
    hanging: list[ProducerState] = []

    async def all_open() -> list[ProducerState]:
        producers = (await admin.transactions.describe_producers([HERE]))[HERE]
        return [producer for producer in producers if producer.start_offset is not None]

    async def abort() -> None:
        (producer,) = hanging
        arguments: dict[str, Any] = {"producer": producer}
        if by == "start_offset":
            arguments = {"start_offset": producer.start_offset}
        await admin.transactions.abort(HERE, **arguments)

    async def end_and_open() -> None:
        """End what the cancelled call has left open, and open the next transaction."""
        nonlocal count
        hanging[:] = await all_open()
        if hanging:
            await abort()
        count += 1
        async with TransactionalPeer(cluster, f"id-{count}") as writer:
            await writer.initialize()
            assert await writer.write("t", b"%d" % count) is ErrorCode.NONE
        hanging[:] = await all_open()

    tasks = asyncio.all_tasks()
    await at_every_turn(abort, end_and_open, pause=0.1)
    await end_and_open()
    await abort()
    assert await all_open() == []
    await until_no_other_tasks(tasks)
    async with TransactionalPeer(cluster, "reader") as reader:
        partition = await reader.fetch("t")
        assert partition.last_stable_offset == partition.high_watermark
        assert await reader.read("t") == []


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(Transactions) == covers

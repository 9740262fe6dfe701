"""Two calls of one client at the same time, both cancelled: after any turns of the event loop, sampled by seed.

``tests/embedded/group/test_every_call.py`` cancels single calls at every turn. Here the calls share the lookups,
connections, locks and buffers of the client. Time is virtual, so a failing sample repeats.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, OffsetAndMetadata, Producer, ShareConsumer, TopicPartition
from aiokafka_lite.admin import NewTopic, OffsetSpec
from aiokafka_lite.aio import virtual_time
from tests.embedded.producer.producers_and_logs import values_of

FIRST = TopicPartition("orders", 0)
SAMPLES = 120
CLOSES = 40
MOST_TURNS = 40
"""Most calls end within this many turns on a connected client; a start and a close take longer."""

Call = Callable[[], Awaitable[object]]


async def cancel_both(first: Call, second: Call, turns: tuple[int, int]) -> None:
    """Start two calls and cancel each after its turns. A call that ends before its cancellation must not raise an
    error."""
    tasks = [asyncio.ensure_future(first()), asyncio.ensure_future(second())]
    for turn in range(max(turns) + 1):
        for task, last in zip(tasks, turns):
            if turn == last:
                task.cancel()
        await asyncio.sleep(0)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert not isinstance(result, Exception), repr(result)


def turns_of(random: Random) -> tuple[int, int]:
    return random.randrange(MOST_TURNS), random.randrange(MOST_TURNS)


@asynccontextmanager
async def a_cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", 3, 2)
        yield cluster


def in_virtual_time(test: Callable[[EmbeddedCluster, Random], Coroutine[Any, Any, None]], seed: int) -> None:
    """Run a test with a cluster. No task remains, and nothing reaches the handler of the event loop."""
    complaints: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        async with a_cluster() as cluster:
            await test(cluster, Random(seed))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual_time.run(main(), seed=seed)
    assert not complaints


def tasks_of_clients() -> Counter[str]:
    """Return the tasks of this test and its clients, not the brokers' tasks for their connections."""
    return Counter(name for task in asyncio.all_tasks() if not (name := task.get_name()).startswith("node "))


async def until_tasks(names: Counter[str]) -> None:
    """Wait until no other tasks are left."""
    with anyio.move_on_after(10.0):
        while tasks_of_clients() - names:
            await asyncio.sleep(0.05)
    assert not tasks_of_clients() - names


def consumer_of(cluster: EmbeddedCluster) -> Consumer:
    return Consumer(
        cluster.bootstrap_servers, topics=["orders"], group_id="g", connector=cluster.connector, auto_commit=False
    )


def lookups_of(consumer: Consumer) -> list[Call]:
    return [
        lambda: consumer.position(FIRST),
        lambda: consumer.lag(),
        lambda: consumer.beginning_offsets([FIRST]),
        lambda: consumer.end_offsets([FIRST]),
        lambda: consumer.offsets_for_times({FIRST: 1}),
        lambda: consumer.committed([FIRST]),
        lambda: consumer.commit({FIRST: OffsetAndMetadata(0)}),
        lambda: consumer.topics(),
        lambda: consumer.partitions_for("orders"),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_read_beside_another_call_loses_and_repeats_nothing(seed: int) -> None:
    async def test(cluster: EmbeddedCluster, random: Random) -> None:
        seen: list[int] = []
        async with consumer_of(cluster) as consumer, producer_of(cluster) as producer:
            await producer.send("orders", b"0", partition=0)
            while not seen:
                seen += [record.offset for record in await consumer.poll(timeout=5.0)]
            tasks = tasks_of_clients()

            async def poll() -> None:
                seen.extend(record.offset for record in await consumer.poll(2, timeout=1.0))

            async def iterate() -> None:
                seen.append((await anext(consumer)).offset)

            lookups = lookups_of(consumer)
            for number in range(SAMPLES):
                await producer.send("orders", b"%d" % number, partition=0)
                await cancel_both(random.choice((poll, iterate)), random.choice(lookups), turns_of(random))
            while len(seen) < SAMPLES + 1:
                await poll()
            await until_tasks(tasks)
        assert seen == list(range(SAMPLES + 1))

    in_virtual_time(test, seed)


@pytest.mark.parametrize("seed", range(3))
def test_lookups_seeks_and_commits_that_are_cancelled_together_can_be_repeated(seed: int) -> None:
    async def test(cluster: EmbeddedCluster, random: Random) -> None:
        async with consumer_of(cluster) as consumer:
            while len(consumer.assignment) < 3:
                await consumer.poll(timeout=1.0)
            tasks = tasks_of_clients()
            calls: list[Call] = [
                *lookups_of(consumer),
                lambda: consumer.seek_to_beginning(),
                lambda: consumer.seek_to_end([FIRST]),
                lambda: consumer.seek_to_committed(),
            ]
            for _ in range(SAMPLES):
                await cancel_both(random.choice(calls), random.choice(calls), turns_of(random))
            for call in calls:
                await call()
            await until_tasks(tasks)

    in_virtual_time(test, seed)


def producer_of(cluster: EmbeddedCluster) -> Producer:
    return Producer(cluster.bootstrap_servers, connector=cluster.connector, linger=0.0)


@pytest.mark.parametrize("seed", range(3))
def test_sends_that_are_cancelled_together_are_written_once_or_not(seed: int) -> None:
    async def test(cluster: EmbeddedCluster, random: Random) -> None:
        sent: list[bytes] = []
        acknowledged: list[bytes] = []
        async with producer_of(cluster) as producer:

            def value() -> bytes:
                sent.append(b"%06d" % len(sent))
                return sent[-1]

            await producer.send("orders", value(), partition=0)
            tasks = tasks_of_clients()

            async def send() -> None:
                own = value()
                await producer.send("orders", own, partition=0)
                acknowledged.append(own)

            async def put() -> None:
                own = value()
                await (await producer.put("orders", own, partition=0))
                acknowledged.append(own)

            async def many() -> None:
                own = [value(), value()]
                await producer.send_many("orders", own, partition=0)
                acknowledged.extend(own)

            calls: list[Call] = [send, put, many, producer.flush]
            for _ in range(SAMPLES):
                await cancel_both(random.choice(calls), random.choice(calls), turns_of(random))
            await send()
            await producer.flush()
            await until_tasks(tasks)
        log = values_of(cluster, "orders", 0)
        assert len(log) == len(set(log))
        assert set(acknowledged) <= set(log) <= set(sent)

    in_virtual_time(test, seed)


def admin_of(cluster: EmbeddedCluster) -> Admin:
    return Admin(cluster.bootstrap_servers, connector=cluster.connector)


def calls_of(admin: Admin) -> list[Call]:
    return [
        lambda: admin.topics.list(),
        lambda: admin.topics.describe(["orders"]),
        lambda: admin.topics.create([NewTopic("orders", partitions=1, replication_factor=1)]),
        lambda: admin.offsets.list({FIRST: OffsetSpec.LATEST}),
        lambda: admin.records.delete({FIRST: 0}),
        lambda: admin.groups.list(),
        lambda: admin.groups.describe(["g"]),
        lambda: admin.groups.offsets(["g"]),
        lambda: admin.cluster.describe(),
    ]


@pytest.mark.parametrize("seed", range(2))
def test_admin_calls_that_are_cancelled_together_can_be_repeated(seed: int) -> None:
    async def test(cluster: EmbeddedCluster, random: Random) -> None:
        async with admin_of(cluster) as admin:
            calls = calls_of(admin)
            for call in calls:
                await call()
            tasks = tasks_of_clients()
            for _ in range(SAMPLES):
                await cancel_both(random.choice(calls), random.choice(calls), turns_of(random))
            for call in calls:
                await call()
            await until_tasks(tasks)

    in_virtual_time(test, seed)


def transactional_of(cluster: EmbeddedCluster) -> Producer:
    return Producer(
        cluster.bootstrap_servers, connector=cluster.connector, transactional_id="orders-1", transaction_timeout=20.0
    )


async def one_transaction(producer: Producer) -> None:
    async with producer.transaction() as transaction:
        await transaction.send("orders", b"x", partition=0)


def share_consumer_of(cluster: EmbeddedCluster) -> ShareConsumer:
    return ShareConsumer(cluster.bootstrap_servers, connector=cluster.connector, topics=["orders"], group_id="shared")


KINDS: dict[str, tuple[Callable[[EmbeddedCluster], Any], Callable[[Any], Awaitable[object]]]] = {
    "consumer": (consumer_of, lambda consumer: consumer.poll(timeout=1.0)),
    "producer": (producer_of, lambda producer: producer.send("orders", b"x", partition=0)),
    "admin": (admin_of, lambda admin: admin.topics.list()),
    "transactional producer": (transactional_of, one_transaction),
    "share consumer": (share_consumer_of, lambda consumer: consumer.poll(timeout=1.0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_and_a_close_that_are_cancelled_together_leave_nothing(kind: str) -> None:
    make, call = KINDS[kind]

    async def test(cluster: EmbeddedCluster, random: Random) -> None:
        tasks = asyncio.all_tasks()
        for _ in range(CLOSES):
            client = make(cluster)
            await client.start()
            await asyncio.sleep(random.choice((0.0, 0.01, 0.5)))
            running = [asyncio.ensure_future(call(client)), asyncio.ensure_future(client.close())]
            for task in running:
                for _ in range(random.randrange(MOST_TURNS)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)  # the call may say that the client was closed
            await client.close()
            assert asyncio.all_tasks() <= tasks
            for _ in range(100):
                if not any(node.connections for node in cluster.nodes.values()):
                    break
                await asyncio.sleep(0.05)
            assert not any(node.connections for node in cluster.nodes.values())

    in_virtual_time(test, 1)

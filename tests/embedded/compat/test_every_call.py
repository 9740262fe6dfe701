"""Every public coroutine of ``aiokafka_lite.compat.aiokafka``, cancelled at every turn of the event loop that it takes.

Reads lose and repeat no record. A send is in the log once or not at all. Other calls can be repeated. A stopped client
leaves no task, no member and no connection.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    TopicPartition,
)
from aiokafka_lite.compat.aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka_lite.compat.aiokafka.client import AIOKafkaClient
from aiokafka_lite.compat.aiokafka.errors import KafkaTimeoutError
from aiokafka_lite.compat.aiokafka.positions import PositionCalls
from aiokafka_lite.compat.aiokafka.producer import TransactionContext
from aiokafka_lite.compat.aiokafka.running import Managed
from tests.cancelling import Covered, at_every_turn, cancel_after, public_coroutines, turns_to_try
from tests.waiting import until

FIRST = TopicPartition("orders", 0)
covers = Covered()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Two brokers that allow short sessions, with the topics ``orders`` and ``dishes``."""
    async with EmbeddedCluster(brokers=2, seed=1, configs={"group.min.session.timeout.ms": "100"}) as cluster:
        await cluster.create_topic("orders", 2)
        await cluster.create_topic("dishes", 1)
        yield cluster


def consumer_of(cluster: EmbeddedCluster, *topics: str, **settings: Any) -> AIOKafkaConsumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **settings}
    return AIOKafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **settings)


def producer_of(cluster: EmbeddedCluster, **settings: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)


def members_of(cluster: EmbeddedCluster) -> int:
    groups = (node.groups.group("billing") for node in cluster.nodes.values())
    return sum(len(group.members) for group in groups if group is not None)


def connections_of(cluster: EmbeddedCluster) -> int:
    return sum(len(node.connections) for node in cluster.nodes.values())


# Reading.

READS: dict[str, Callable[[AIOKafkaConsumer[Any, Any]], Awaitable[Any]]] = {
    "getone": lambda consumer: consumer.getone(),
    "getone of a partition": lambda consumer: consumer.getone(FIRST),
    "anext": lambda consumer: anext(consumer),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=1000, max_records=2),
}


@covers("AIOKafkaConsumer.getone", "AIOKafkaConsumer.getmany", "AIOKafkaConsumer.__anext__")
@pytest.mark.parametrize("group", [None, "billing"])
@pytest.mark.parametrize("name", READS)
async def test_a_read_that_is_cancelled_loses_and_repeats_nothing(
    cluster: EmbeddedCluster, name: str, group: str | None
) -> None:
    seen: list[int] = []
    written = 0
    async with consumer_of(cluster, "orders", group_id=group) as consumer:

        async def call() -> None:
            result = await READS[name](consumer)
            records = [record for some in result.values() for record in some] if isinstance(result, dict) else [result]
            seen.extend(record.offset for record in records)

        async def before() -> None:
            nonlocal written
            while len(seen) < written:
                await call()
            for _ in range(2):
                await cluster.produce("orders", b"x", partition=0)
            written += 2

        await at_every_turn(call, before)
        while len(seen) < written:
            await call()
        assert await consumer.getmany(timeout_ms=0) == {}
        if group is not None:
            await consumer.commit()
            assert await consumer.committed(FIRST) == written
    assert seen == list(range(written))


# Lookups, seeks, commits.


async def looked_up_position(consumer: AIOKafkaConsumer[Any, Any]) -> int:
    await consumer.seek_to_committed(FIRST)
    return await consumer.position(FIRST)


ASKS: dict[str, tuple[Callable[[AIOKafkaConsumer[Any, Any]], Awaitable[object]], object]] = {
    "commit": (lambda consumer: consumer.commit({FIRST: 3}), None),
    "committed": (lambda consumer: consumer.committed(FIRST), 3),
    "topics": (lambda consumer: consumer.topics(), {"orders", "dishes"}),
    "position": (lambda consumer: looked_up_position(consumer), 3),
    "seek_to_beginning": (lambda consumer: consumer.seek_to_beginning(FIRST), True),
    "seek_to_end": (lambda consumer: consumer.seek_to_end(FIRST), True),
    "seek_to_committed": (lambda consumer: consumer.seek_to_committed(FIRST), {FIRST: 3}),
    "beginning_offsets": (lambda consumer: consumer.beginning_offsets([FIRST]), {FIRST: 0}),
    "end_offsets": (lambda consumer: consumer.end_offsets([FIRST]), {FIRST: 4}),
    "offsets_for_times": (lambda consumer: consumer.offsets_for_times({FIRST: 9_999_999_999_999}), {FIRST: None}),
}


@covers("AIOKafkaConsumer.commit", "AIOKafkaConsumer.committed", "AIOKafkaConsumer.topics")
@covers(*(f"PositionCalls.{name}" for name in ASKS if name not in ("commit", "committed", "topics")))
@pytest.mark.parametrize("name", ASKS)
async def test_a_lookup_that_is_cancelled_can_be_repeated(cluster: EmbeddedCluster, name: str) -> None:
    call, expected = ASKS[name]
    for _ in range(4):
        await cluster.produce("orders", b"x", partition=0)
    async with consumer_of(cluster, "orders", group_id="billing", enable_auto_commit=False) as consumer:
        for _ in range(4):
            await consumer.getone(FIRST)
        await consumer.commit({FIRST: 3})
        tasks = asyncio.all_tasks()
        results = await at_every_turn(lambda: call(consumer))
        assert results[-1] == expected
        assert all(result == expected for result in results)
        await until(lambda: asyncio.all_tasks() <= tasks)
        await consumer.seek_to_end(FIRST)
        await cluster.produce("orders", b"new", partition=0)
        assert (await consumer.getone(FIRST)).value == b"new"


@covers("AIOKafkaConsumer.start", "AIOKafkaConsumer.stop", "Managed.__aenter__", "Managed.__aexit__")
@covers("Managed.start", "Managed.stop")
@pytest.mark.parametrize("group", [None, "billing"])
@pytest.mark.parametrize("name", ["start", "stop"])
async def test_a_consumer_whose_start_or_stop_is_cancelled_leaves_nothing(
    cluster: EmbeddedCluster, name: str, group: str | None
) -> None:
    before = asyncio.all_tasks()
    for turns in turns_to_try():
        # A stop() that is cancelled at once does not leave the group: the next member waits for the end of the session.
        consumer = consumer_of(cluster, "orders", group_id=group, session_timeout_ms=500, heartbeat_interval_ms=100)
        if name == "stop":
            await consumer.start()
        is_over = await cancel_after(turns, getattr(consumer, name)())
        await consumer.stop()
        await until(lambda: connections_of(cluster) == 0)
        assert not {task for task in asyncio.all_tasks() - before if not task.get_name().startswith("node ")}
        if is_over:
            break
    await until(lambda: members_of(cluster) == 0)


@pytest.mark.parametrize("group", [None, "billing"])
async def test_a_consumer_whose_start_is_cancelled_needs_no_stop(cluster: EmbeddedCluster, group: str | None) -> None:
    """``async with`` calls no stop() then. A member that had joined once kept its partitions and connections."""
    for turns in turns_to_try():
        consumer = consumer_of(cluster, "orders", group_id=group, session_timeout_ms=500, heartbeat_interval_ms=100)
        if await cancel_after(turns, consumer.start()):
            await consumer.stop()
            break
        await until(lambda: connections_of(cluster) == 0)
    await until(lambda: members_of(cluster) == 0)


async def test_a_consumer_whose_start_was_cancelled_starts_again(cluster: EmbeddedCluster) -> None:
    await cluster.produce("orders", b"soup", partition=0)
    for turns in (0, 1, 3, 9, 27, 81):
        consumer = consumer_of(cluster, "orders", group_id="billing", enable_auto_commit=False)
        await cancel_after(turns, consumer.start())
        async with consumer:
            assert (await consumer.getone()).value == b"soup"


# Consumers that another one replaces.


async def test_a_replaced_consumer_leaves_its_group_and_closes_its_connections(cluster: EmbeddedCluster) -> None:
    await cluster.produce("orders", b"soup", partition=0)
    await cluster.produce("dishes", b"fish", partition=0)
    settings = {"group_id": "billing", "enable_auto_commit": False}
    async with consumer_of(cluster, "orders", **settings) as consumer:
        assert (await consumer.getone()).value == b"soup"
        connections, tasks = connections_of(cluster), len(asyncio.all_tasks())
        for _ in range(3):
            consumer.unsubscribe()
            consumer.subscribe(["dishes"])
            assert (await consumer.getone()).value == b"fish"
            await until(lambda: members_of(cluster) == 1)
            await until(lambda: connections_of(cluster) <= connections)
            await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert members_of(cluster) == 0


async def test_a_replaced_consumer_leaves_its_group_although_no_call_follows(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, "orders", group_id="billing") as consumer:
        assert members_of(cluster) == 1
        consumer.unsubscribe()
        await until(lambda: members_of(cluster) == 0)


async def test_stop_closes_the_consumers_that_were_replaced(cluster: EmbeddedCluster) -> None:
    before = asyncio.all_tasks()
    for turns in range(40):
        consumer = consumer_of(cluster, "orders", group_id="billing")
        await consumer.start()
        consumer.unsubscribe()
        consumer.subscribe(["dishes"])
        for _ in range(turns):
            await asyncio.sleep(0)
        await consumer.stop()
        assert members_of(cluster) == 0
        await until(lambda: connections_of(cluster) == 0)
        assert not {task for task in asyncio.all_tasks() - before if not task.get_name().startswith("node ")}


async def test_a_cancelled_call_does_not_keep_a_replaced_consumer_open(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, "orders", group_id="billing") as consumer:
        for turns in range(12):
            await consumer.getmany(timeout_ms=0)
            consumer.unsubscribe()
            await cancel_after(turns, consumer.getmany(timeout_ms=0))
            await until(lambda: members_of(cluster) == 0)
            consumer.subscribe(["orders"])


# Writing.

Send = Callable[[AIOKafkaProducer, bytes], Awaitable[object]]


async def send(producer: AIOKafkaProducer, value: bytes) -> None:
    await (await producer.send("orders", value, partition=0))


async def send_and_wait(producer: AIOKafkaProducer, value: bytes) -> None:
    await producer.send_and_wait("orders", value, partition=0)


async def send_batch(producer: AIOKafkaProducer, value: bytes) -> None:
    batch = producer.create_batch()
    batch.append(key=None, value=value, timestamp=None)
    await (await producer.send_batch(batch, "orders", partition=0))


async def flush(producer: AIOKafkaProducer, value: bytes) -> None:
    sent = await producer.send("orders", value, partition=0)
    await producer.flush()
    assert sent.done()


SENDS: dict[str, Send] = {"send": send, "send_and_wait": send_and_wait, "send_batch": send_batch, "flush": flush}


@covers(*(f"AIOKafkaProducer.{name}" for name in SENDS))
@pytest.mark.parametrize("name", SENDS)
async def test_a_send_that_is_cancelled_is_in_the_log_once_or_not_at_all(cluster: EmbeddedCluster, name: str) -> None:
    numbers, done = itertools.count(), set()
    async with producer_of(cluster, enable_idempotence=True) as producer:

        async def call() -> None:
            value = b"%d" % next(numbers)
            await SENDS[name](producer, value)
            done.add(value)

        await at_every_turn(call)
        await call()
    values = [record.value for record in cluster.records("orders", 0)]
    assert set(values) >= done
    assert max(Counter(values).values()) == 1


@covers("AIOKafkaProducer.partitions_for")
async def test_a_lookup_of_partitions_that_is_cancelled_can_be_repeated(cluster: EmbeddedCluster) -> None:
    names = (f"new-{number}" for number in itertools.count())  # each is created by the question
    async with producer_of(cluster) as producer:
        assert (await at_every_turn(lambda: producer.partitions_for(next(names))))[-1] == {0}
        assert await producer.partitions_for("orders") == {0, 1}


@covers("AIOKafkaProducer.start", "AIOKafkaProducer.stop")
@pytest.mark.parametrize("name", ["start", "stop"])
async def test_a_producer_whose_start_or_stop_is_cancelled_leaves_nothing(cluster: EmbeddedCluster, name: str) -> None:
    before = asyncio.all_tasks()
    for turns in turns_to_try():
        producer, sent = producer_of(cluster), None
        if name == "stop":
            await producer.start()
            sent = await producer.send("orders", b"x", partition=0)
        is_over = await cancel_after(turns, getattr(producer, name)())
        await producer.stop()
        if sent is not None:
            with suppress(KafkaTimeoutError):  # a cancelled stop() has not waited for the answer
                await sent
        await until(lambda: connections_of(cluster) == 0)
        assert not {task for task in asyncio.all_tasks() - before if not task.get_name().startswith("node ")}
        if is_over:
            return


@covers("AIOKafkaProducer.begin_transaction", "AIOKafkaProducer.commit_transaction")
@covers("AIOKafkaProducer.abort_transaction", "AIOKafkaProducer.send_offsets_to_transaction")
@covers("TransactionContext.__aenter__", "TransactionContext.__aexit__")
@pytest.mark.parametrize("ends_with_error", [False, True], ids=["commits", "aborts"])
async def test_a_transaction_that_is_cancelled_is_whole_or_absent(
    cluster: EmbeddedCluster, ends_with_error: bool
) -> None:
    numbers = itertools.count()
    done: list[int] = []
    producers: list[AIOKafkaProducer] = []

    async def before() -> None:
        """End the open transaction, by a producer of the same transactional id."""
        while producers:
            await producers.pop().stop()
        producers.append(producer_of(cluster, transactional_id="orders-1"))
        await producers[0].start()

    async def call() -> None:
        number = next(numbers)
        with suppress(ZeroDivisionError):
            async with producers[0].transaction():
                for partition in range(2):
                    await producers[0].send_and_wait("orders", b"%d" % number, partition=partition)
                await producers[0].send_offsets_to_transaction({FIRST: number + 1}, "billing")
                if ends_with_error:
                    raise ZeroDivisionError
            done.append(number)

    await at_every_turn(call, before)
    await before()
    await producers[0].stop()
    first, second = ([int(record.value or b"") for record in cluster.records("orders", number)] for number in range(2))
    assert first == second == sorted(set(first))
    assert set(first) >= set(done)
    if ends_with_error:
        assert first == []
    async with consumer_of(cluster, "orders", group_id="billing") as consumer:
        assert await consumer.committed(FIRST) == (None if ends_with_error else first[-1] + 1)


# Administration.


ADMIN: dict[str, Callable[[AIOKafkaAdminClient, str], Awaitable[Any]]] = {
    "create_topics": lambda admin, name: admin.create_topics([NewTopic(name, 1, 1)]),
    "delete_topics": lambda admin, name: admin.delete_topics([name]),
    "create_partitions": lambda admin, name: admin.create_partitions({"orders": NewPartitions(3)}, validate_only=True),
    "list_topics": lambda admin, name: admin.list_topics(),
    "describe_topics": lambda admin, name: admin.describe_topics(["orders"]),
    "describe_cluster": lambda admin, name: admin.describe_cluster(),
    "delete_records": lambda admin, name: admin.delete_records({FIRST: RecordsToDelete(1)}),
    "list_consumer_groups": lambda admin, name: admin.list_consumer_groups(),
    "find_coordinator": lambda admin, name: admin.find_coordinator("billing"),
    "list_consumer_group_offsets": lambda admin, name: admin.list_consumer_group_offsets("billing"),
    "describe_consumer_groups": lambda admin, name: admin.describe_consumer_groups(["billing"]),
    "describe_configs": lambda admin, name: admin.describe_configs([ConfigResource("topic", "orders")]),
    "alter_configs": lambda admin, name: admin.alter_configs(
        [ConfigResource("topic", "orders", {"retention.ms": "1000"})]
    ),
}


@covers(*(f"AIOKafkaAdminClient.{name}" for name in ADMIN))
@pytest.mark.parametrize("name", ADMIN)
async def test_a_call_of_the_admin_client_that_is_cancelled_can_be_repeated(
    cluster: EmbeddedCluster, name: str
) -> None:
    await cluster.produce("orders", b"x", partition=0)
    names = (f"new-{number}" for number in itertools.count())
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        try:
            await ADMIN[name](admin, next(names))
        except Exception as error:  # noqa: BLE001 - the call gives the same error after a cancellation
            pytest.fail(repr(error))
        tasks = asyncio.all_tasks()
        await at_every_turn(lambda: ADMIN[name](admin, next(names)))
        await until(lambda: all(task.get_name().startswith("node ") for task in asyncio.all_tasks() - tasks))
        assert "orders" in await admin.list_topics()


@covers(*(f"AIOKafkaAdminClient.{name}" for name in ("start", "close", "__aenter__", "__aexit__")))
@pytest.mark.parametrize("name", ["start", "close"])
async def test_an_admin_client_whose_start_or_close_is_cancelled_leaves_nothing(
    cluster: EmbeddedCluster, name: str
) -> None:
    before = asyncio.all_tasks()
    for turns in turns_to_try():
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        if name == "close":
            await admin.start()
        is_over = await cancel_after(turns, getattr(admin, name)())
        await admin.close()
        await until(lambda: connections_of(cluster) == 0)
        assert not {task for task in asyncio.all_tasks() - before if not task.get_name().startswith("node ")}
        if is_over:
            return


CLIENT: dict[str, Callable[[AIOKafkaClient], Awaitable[object]]] = {
    "bootstrap": lambda client: client.bootstrap(),
    "fetch_all_metadata": lambda client: client.fetch_all_metadata(),
    "force_metadata_update": lambda client: client.force_metadata_update(),
    "set_topics": lambda client: client.set_topics(["orders"]),
    "add_topic": lambda client: client.add_topic("orders"),
}


@covers("AIOKafkaClient.bootstrap", "AIOKafkaClient.fetch_all_metadata", "AIOKafkaClient.close")
@pytest.mark.parametrize("name", CLIENT)
async def test_a_call_of_a_client_that_is_cancelled_can_be_repeated(cluster: EmbeddedCluster, name: str) -> None:
    before = asyncio.all_tasks()
    clients: list[AIOKafkaClient] = []

    async def close() -> None:
        while clients:
            closing = asyncio.ensure_future(clients[0].close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            await clients.pop().close()

    async def fresh() -> None:
        await close()
        clients.append(AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers))

    await at_every_turn(lambda: CLIENT[name](clients[0]), fresh)
    for turns in range(3):  # again on the same client
        await cancel_after(turns, CLIENT[name](clients[0]))
    assert await CLIENT[name](clients[0]) is not False
    await close()
    await until(lambda: connections_of(cluster) == 0)
    assert not {task for task in asyncio.all_tasks() - before if not task.get_name().startswith("node ")}


def test_every_public_coroutine_is_covered_here() -> None:
    readers = (AIOKafkaConsumer, PositionCalls, Managed)
    others = (AIOKafkaProducer, TransactionContext, AIOKafkaAdminClient, AIOKafkaClient)
    assert public_coroutines(*readers, *others) == covers

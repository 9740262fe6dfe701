"""The result of a read while other tasks read, change the subscription, or stop the consumer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat import aiokafka
from tests.waiting import DEADLINE


async def write(library: Any, cluster: EmbeddedCluster, partition: int, *values: bytes, topic: str = "orders") -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=partition)


def consumer_of(library: Any, cluster: EmbeddedCluster, *topics: str, **settings: Any) -> Any:
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **settings}
    return library.AIOKafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **settings)


@pytest.mark.parametrize("group", [None, "billing"])
async def test_a_task_for_each_partition_reads_its_own_records(
    library: Any, cluster: EmbeddedCluster, group: str | None
) -> None:
    first, second = (library.TopicPartition("orders", number) for number in range(2))
    async with consumer_of(library, cluster, "orders", group_id=group) as consumer, asyncio.timeout(DEADLINE):
        waiting = asyncio.create_task(consumer.getone(first))
        of_second = asyncio.create_task(consumer.getmany(second, timeout_ms=1000 * DEADLINE))
        await asyncio.sleep(0)
        await write(library, cluster, 1, b"tea")
        assert [record.value for record in (await of_second)[second]] == [b"tea"]
        assert await consumer.getmany(second, timeout_ms=0) == {}
        await write(library, cluster, 0, b"soup")
        assert (await waiting).value == b"soup"


async def test_a_cancelled_read_loses_no_record_of_another_task(library: Any, cluster: EmbeddedCluster) -> None:
    first, second = (library.TopicPartition("orders", number) for number in range(2))
    async with consumer_of(library, cluster, "orders") as consumer, asyncio.timeout(DEADLINE):
        tasks = [asyncio.create_task(consumer.getone(partition)) for partition in (first, second, second)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        await write(library, cluster, 1, b"0", b"1")
        assert {(await task).value for task in tasks[1:]} == {b"0", b"1"}


async def test_a_record_found_for_another_task_reaches_it_while_older_reads_wait(
    library: Any, cluster: EmbeddedCluster
) -> None:
    await cluster.create_topic("dishes", 3)
    partitions = [library.TopicPartition("dishes", number) for number in range(3)]
    async with consumer_of(library, cluster, "dishes") as consumer, asyncio.timeout(DEADLINE):
        tasks = [asyncio.create_task(consumer.getone(partition)) for partition in partitions]
        await asyncio.sleep(0)
        await write(library, cluster, 2, b"2", b"3", topic="dishes")
        assert (await tasks[2]).value == b"2"
        await write(library, cluster, 1, b"1", topic="dishes")
        await write(library, cluster, 0, b"0", topic="dishes")
        assert [(await task).value for task in tasks] == [b"0", b"1", b"2"]
        assert (await consumer.getone()).value == b"3"


async def test_a_read_does_not_wait_behind_older_reads(library: Any, cluster: EmbeddedCluster) -> None:
    first, second = (library.TopicPartition("orders", number) for number in range(2))
    async with consumer_of(library, cluster, "orders") as consumer, asyncio.timeout(DEADLINE):
        tasks = [asyncio.create_task(consumer.getone(first)) for _ in range(3)]
        for timeout_ms in (0, 10):
            assert await consumer.getmany(second, timeout_ms=timeout_ms) == {}
        await write(library, cluster, 1, b"tea")
        assert (await consumer.getone(second)).value == b"tea"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_stop_ends_reads_that_have_nothing_to_read(cluster: EmbeddedCluster) -> None:
    """With aiokafka, they wait without a bound."""
    consumer = consumer_of(aiokafka, cluster)
    await consumer.start()
    tasks = [asyncio.create_task(consumer.getone()) for _ in range(2)]
    for _ in range(9):
        await asyncio.sleep(0)
    await consumer.stop()
    async with asyncio.timeout(DEADLINE):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in ended] == [aiokafka.ConsumerStoppedError] * 2


async def test_stop_ends_a_getmany_that_waits_without_an_error(library: Any, cluster: EmbeddedCluster) -> None:
    consumer = consumer_of(library, cluster, "orders", group_id="billing")
    await consumer.start()
    waiting = [asyncio.create_task(consumer.getmany(timeout_ms=1000 * DEADLINE)) for _ in range(2)]
    await asyncio.sleep(0)
    await consumer.stop()
    assert await asyncio.gather(*waiting) == [{}, {}]
    with pytest.raises(library.ConsumerStoppedError):
        await consumer.getmany()


async def test_a_read_that_waits_follows_the_subscription(cluster: EmbeddedCluster) -> None:
    """With aiokafka, a read that began before the change waits although there are records."""
    await write(aiokafka, cluster, 0, b"soup")
    settings = {"group_id": "billing", "enable_auto_commit": False}
    async with consumer_of(aiokafka, cluster, **settings) as consumer, asyncio.timeout(DEADLINE):
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        consumer.assign([aiokafka.TopicPartition("orders", 0)])
        assert (await waiting).value == b"soup"
        for turns in range(12):
            waiting = asyncio.create_task(consumer.getone())
            for _ in range(turns):
                await asyncio.sleep(0)
            consumer.unsubscribe()
            consumer.subscribe(["orders"])
            assert (await waiting).value == b"soup"


async def test_nothing_is_read_of_partitions_that_are_not_assigned(cluster: EmbeddedCluster) -> None:
    """aiokafka may wait without a bound."""
    async with consumer_of(aiokafka, cluster) as consumer:
        assert await consumer.getmany(timeout_ms=10) == {}
    async with consumer_of(aiokafka, cluster, "orders", group_id="billing") as consumer:
        strange = aiokafka.TopicPartition("orders", 7)
        assert await consumer.getmany(strange, timeout_ms=10) == {}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
async def test_the_last_stable_offset_is_known(library: Any, cluster: EmbeddedCluster, level: str) -> None:
    await write(library, cluster, 0, b"0", b"1")
    partition = library.TopicPartition("orders", 0)
    producer = library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="orders-1")
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"open", partition=0)
        async with consumer_of(library, cluster, isolation_level=level) as consumer:
            consumer.assign([partition])
            assert consumer.last_stable_offset(partition) is None
            await consumer.getone()
            assert consumer.last_stable_offset(partition) == 2
        await producer.commit_transaction()

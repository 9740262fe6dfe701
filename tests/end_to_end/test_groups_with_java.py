"""Groups shared with the Java client (Kafka's console consumer), in which members report to the leader what they
own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.settings.group import GroupProtocolName
from tests.end_to_end.conftest import Kafka, missing
from tests.end_to_end.test_groups import OURS, new_group, settled, write
from tests.real.jvm import java_problem, run_tool
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE, until

PARTITIONS = 6
EACH = 5
HALF = PARTITIONS // 2 * EACH
"""The records of the three partitions that the Java member owns in the end. The other member has as many."""
JAVAS = {
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


@asynccontextmanager
async def java_member(kafka: Kafka, topic: str, group: str, strategy: str) -> AsyncIterator[list[int]]:
    """Run a member by Kafka's console consumer. It ends after HALF records; then the list has its values.

    It ends when it has read all of its records, so that no other member reads one of them. It reads from the beginning.
    With Java's default, "latest", it would skip records that the test writes before the member has looked up the ends
    of its partitions.
    """
    values: list[int] = []
    reading = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(HALF))
    reading += ("--timeout-ms", str(int(DEADLINE * 1000)))
    settings = (f"partition.assignment.strategy={JAVAS[strategy]}", "heartbeat.interval.ms=500")
    running = asyncio.create_task(
        asyncio.to_thread(kafka.tool, "console-consumer", *reading, *_each("--command-property", settings))
    )
    try:
        yield values
    finally:
        values += [int(line) for line in (await running).split() if line.isdigit()]


def _each(option: str, values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in (option, value)]


def ours(kafka: Kafka, topic: str, group: str, strategy: str) -> Consumer:
    return Consumer(
        kafka.bootstrap_servers, topics=[topic], group_id=group, strategies=[OURS[strategy]()], heartbeat_interval=0.5
    )


@pytest.mark.parametrize("strategy", JAVAS)
async def test_our_leader_leaves_java_members_and_ours_what_they_have(kafka: Kafka, strategy: str) -> None:
    needs_the_embedded_cluster(kafka)
    topic, group = await kafka.create_topic(partitions=PARTITIONS), new_group()
    async with ours(kafka, topic, group, strategy) as first, ours(kafka, topic, group, strategy) as third:
        await settled(lambda: len(first.assignment) == len(third.assignment) == 3, first, third)
        before = [set(first.assignment), set(third.assignment)]
        async with java_member(kafka, topic, group, strategy) as values:
            await settled(lambda: len(first.assignment) == len(third.assignment) == 2, first, third)
            assert set(first.assignment) < before[0]
            assert set(third.assignment) < before[1]
            javas = set(range(PARTITIONS)) - {partition.partition for partition in first.assignment + third.assignment}
            await third.close()
            await settled(lambda: len(first.assignment) == 3, first)
            # Only the third member's partitions move: the leader has read what the Java member owns.
            assert not javas & {partition.partition for partition in first.assignment}
            await write(kafka, topic, PARTITIONS, EACH)
            seen = await drain(first, HALF)
        await settled(lambda: len(first.assignment) == PARTITIONS, first)
    assert len(values) == HALF
    assert len(seen) == HALF


@pytest.mark.parametrize("strategy", JAVAS)
async def test_a_leader_by_java_leaves_our_members_what_they_have(kafka: Kafka, strategy: str) -> None:
    needs_the_embedded_cluster(kafka)
    topic, group = await kafka.create_topic(partitions=PARTITIONS), new_group()
    async with ours(kafka, topic, group, strategy) as early:
        await settled(lambda: len(early.assignment) == PARTITIONS, early)
        async with java_member(kafka, topic, group, strategy):
            await settled(lambda: len(early.assignment) == 3, early)
            await early.close()  # Java leads from now on
            async with ours(kafka, topic, group, strategy) as first, ours(kafka, topic, group, strategy) as second:
                await settled(lambda: len(first.assignment) == len(second.assignment) == 2, first, second)
                kept = set(first.assignment)
                await second.close()
                await settled(lambda: len(first.assignment) == 3, first)
                assert kept < set(first.assignment)  # so the Java leader has read what our member owns
                await write(kafka, topic, PARTITIONS, EACH)
                assert len(await drain(first, HALF)) == HALF


def needs_the_embedded_cluster(kafka: Kafka) -> None:
    if kafka.kind != "embedded":
        pytest.skip("the broker does not read what members exchange, and Java's tools are slow")


async def drain(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with asyncio.timeout(DEADLINE):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(timeout=1.0)]
    return values


@pytest.mark.parametrize(("others", "javas"), [("classic", "consumer"), ("consumer", "classic")])
async def test_a_java_member_joins_a_group_of_the_other_protocol(others: GroupProtocolName, javas: str) -> None:
    """The Java member shares the partitions with our member and one of librdkafka. When it leaves, they have all of
    them."""
    if (problem := java_problem()) is not None:
        missing(f"Kafka's own tools cannot run here: {problem}")
    fast = {"group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.heartbeat.interval.ms": "200"}
    async with EmbeddedCluster(brokers=1, configs=fast) as cluster:
        await cluster.create_topic("t", PARTITIONS)
        servers = cluster.bootstrap_servers
        reading = ("--topic", "t", "--group", "g", "--from-beginning", "--max-messages", str(PARTITIONS // 3 * EACH))
        reading += ("--timeout-ms", str(int(DEADLINE * 1000)), "--command-property", f"group.protocol={javas}")
        consumer = Consumer(
            servers,
            topics=["t"],
            group_id="g",
            group_protocol=others,
            auto_offset_reset="earliest",
            **({"heartbeat_interval": 0.2} if others == "classic" else {}),
        )
        async with consumer, Producer(servers) as producer, asyncio.TaskGroup() as tasks:
            counts: Counter[int] = Counter()
            reader = tasks.create_task(_read(consumer, counts))
            async with librdkafka_member(servers, others, counts) as others_own:
                await until(lambda: len(consumer.assignment) == len(others_own) == PARTITIONS // 2)
                java = tasks.create_task(asyncio.to_thread(run_tool, NEWEST, "console-consumer", servers, *reading))
                await until(lambda: len(consumer.assignment) == len(others_own) == PARTITIONS // 3)
                for partition in range(PARTITIONS):
                    await producer.send_many("t", [b"%d" % number for number in range(EACH)], partition=partition)
                assert len((await java).split()) == PARTITIONS // 3 * EACH
                await until(lambda: len(consumer.assignment) == len(others_own) == PARTITIONS // 2)
                await until(lambda: counts.total() == PARTITIONS // 3 * 2 * EACH)
            reader.cancel()
        assert list(counts.values()) == [EACH] * (PARTITIONS // 3 * 2)


@asynccontextmanager
async def librdkafka_member(
    servers: str, protocol: GroupProtocolName, counts: Counter[int]
) -> AsyncIterator[list[Any]]:
    """Run a member of group "g" by confluent-kafka; yields the partitions that it owns. It counts the records of
    each one.

    All its calls are made in a thread: they may wait for the broker, which runs in the test's event loop.
    """
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": servers, "group.id": "g", "group.protocol": protocol}
    settings |= {"auto.offset.reset": "earliest", "log_level": 0}
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = 200
    owned: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        member = confluent.Consumer(settings)
        member.subscribe(["t"])
        while not stop.is_set():
            for message in member.consume(100, 0.1):
                counts[message.partition()] += 1
            owned[:] = member.assignment()
        member.close()

    running = asyncio.create_task(asyncio.to_thread(read))
    try:
        yield owned
    finally:
        stop.set()
        await running


async def _read(consumer: Consumer, counts: Counter[int]) -> None:
    """Count the records of each partition."""
    async for record in consumer:
        counts[record.partition] += 1

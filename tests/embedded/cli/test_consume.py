"""``consume --group NEW --until end`` prints everything, however slow the brokers are."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("typer")

from aiokafka_lite.admin import Admin
from aiokafka_lite.cli.consume import ConsumeJob, consume
from aiokafka_lite.cli.terminal.connection import ConnectionOptions
from aiokafka_lite.cli.terminal.formats import Line
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import fill

REQUESTS = [
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
]


@dataclass(frozen=True, slots=True)
class NoDataDir(ConnectionOptions):
    """Reaches the embedded cluster without a socket."""

    embedded: EmbeddedCluster = None  # type: ignore[assignment]  # each test gives it

    def consumer(self, group: str | None, **options: object) -> Consumer:
        consumer: Any = ConnectionOptions.consumer(self, group, connector=self.embedded.connector, **options)
        return consumer

    def new_admin(self) -> Admin:
        return Admin(self.embedded.bootstrap_servers, connector=self.embedded.connector)


def job(**changes: Any) -> ConsumeJob:
    arguments: dict[str, Any] = {
        "topics": ("orders",),
        "regex": None,
        "partitions": (),
        "group": "new",
        "start": "earliest",
        "until": "end",
        "max_records": None,
        "line": Line(),
        "settings": {},
    }
    return ConsumeJob(**{**arguments, **changes})


async def slow_orders(cluster: EmbeddedCluster, partitions: int, chance: random.Random) -> NoDataDir:
    """Return a connection to a topic with 50 records in each partition; the brokers answer some requests late."""
    await cluster.create_topic("orders", partitions=partitions)
    for number in range(partitions):
        fill(cluster, TopicPartition("orders", number), 50)
    for request in chance.sample(REQUESTS, 3):
        cluster.on(request, times=chance.randint(1, 3)).delay(chance.choice([0.05, 0.3, 1.0, 4.0]))
    return NoDataDir(cluster.bootstrap_servers, None, (), None, embedded=cluster)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(12))
async def test_a_new_group_reads_everything_up_to_the_end(
    cluster: EmbeddedCluster, seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = await slow_orders(cluster, 2, random.Random(seed))
    assert await consume(connection, job()) == 0
    lines = sorted(map(int, capfd.readouterr().out.split()))
    assert lines == sorted([*range(50)] * 2)


async def test_an_unknown_topic_of_a_group_is_an_error(cluster: EmbeddedCluster) -> None:
    connection = NoDataDir(cluster.bootstrap_servers, None, (), 2.0, embedded=cluster)
    with pytest.raises(KafkaError, match="there is no topic 'orders'"):
        await consume(connection, job())


async def first_line_on_stderr(command: Coroutine[Any, Any, int], capfd: pytest.CaptureFixture[str]) -> str:
    """Run the command until it has written to stderr, and stop it."""
    running = asyncio.create_task(command)
    text = ""
    try:
        async with asyncio.timeout(60.0):
            while not text:
                await asyncio.sleep(0.5)
                text = capfd.readouterr().err
    finally:
        running.cancel()
        await asyncio.wait([running])
    return text


async def test_an_offset_that_looks_like_a_time_is_named(
    cluster: EmbeddedCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    await cluster.create_topic("orders", partitions=1)
    connection = NoDataDir(cluster.bootstrap_servers, None, (), None, embedded=cluster)
    text = await first_line_on_stderr(consume(connection, job(group=None, start="1700000000000", until=None)), capfd)
    assert "no partition has the offset 1700000000000 yet (the largest end is 0): waiting for new records" in text
    assert "for a time in milliseconds, write --from @1700000000000" in text


async def test_a_member_without_partitions_says_what_it_waits_for(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("orders", partitions=1)
    connection = NoDataDir(cluster.bootstrap_servers, None, (), None, embedded=cluster)
    async with connection.consumer("new", topics=["orders"]) as owner:
        await owner.wait_assigned()
        running = asyncio.create_task(consume(connection, job(until=None)))
        try:
            async with asyncio.timeout(60.0):
                while "has assigned it no partition of 'orders' (1 partition)" not in caplog.text:
                    await asyncio.sleep(0.5)
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.mark.parametrize("seed", range(10))
async def test_a_command_that_is_stopped_at_any_time_ends_without_an_error(
    cluster: EmbeddedCluster, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("orders", partitions=2)
    fill(cluster, TopicPartition("orders", 0), 50)
    chance = random.Random(seed)
    for request in REQUESTS:
        cluster.on(request, times=3).delay(0.5)
    connection = NoDataDir(cluster.bootstrap_servers, None, (), None, embedded=cluster)
    command = asyncio.create_task(consume(connection, job(start="10", until=None)))
    await asyncio.sleep(chance.uniform(0.0, 8.0))
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    assert "failed to close" not in caplog.text


@pytest.mark.parametrize("seed", range(3))
async def test_two_commands_of_one_group_read_everything_between_them(
    cluster: EmbeddedCluster, seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    connection = await slow_orders(cluster, 4, chance)

    async def later() -> int:
        await asyncio.sleep(chance.uniform(0.0, 10.0))
        return await consume(connection, job())

    assert await asyncio.gather(consume(connection, job()), later()) == [0, 0]
    assert set(Counter(map(int, capfd.readouterr().out.split()))) == set(range(50))


@pytest.mark.parametrize("pause", [1.0, 3.0, 5.0])
async def test_a_rebalance_during_the_wait_for_a_position_is_no_error(cluster: EmbeddedCluster, pause: float) -> None:
    await cluster.create_topic("orders", partitions=4)
    for node in cluster.nodes:
        cluster.on(ListOffsetsRequest, node=node, nth=2).delay(8.0)
    connection = NoDataDir(cluster.bootstrap_servers, None, (), None, embedded=cluster)

    async def later() -> int:
        await asyncio.sleep(pause)
        return await consume(connection, job())

    assert await asyncio.gather(consume(connection, job()), later()) == [0, 0]

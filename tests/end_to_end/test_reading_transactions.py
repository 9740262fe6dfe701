"""Transactions that librdkafka and Java wrote, as readers of both isolation levels see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import confluent_kafka
import pytest

from aiokafka_lite import Consumer
from aiokafka_lite.admin import Admin
from aiokafka_lite.types import IsolationLevel
from tests.end_to_end.conftest import Kafka, missing
from tests.end_to_end.read_topic import DEADLINE, take
from tests.end_to_end.test_admin import newest_tool
from tests.real.jvm import JavaMissing, run_source
from tests.real.releases import NEWEST, since
from tests.waiting import TRANSACTION_TIMEOUT

ENDED_AND_OPEN = 4 * 15, 5
"""The records that a writer writes in its ended transactions, and in its open transaction."""
COMMITTED = 2 * 10 + 2 * 5


def a_producer(kafka: Kafka, name: str) -> confluent_kafka.Producer:
    settings = {"transactional.id": name, "linger.ms": 0, "log_level": 0}
    settings["transaction.timeout.ms"] = int(TRANSACTION_TIMEOUT * 1000)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    producer.init_transactions(DEADLINE)
    return producer


def librdkafka_writes(kafka: Kafka, topic: str) -> confluent_kafka.Producer:
    """Return two producers in turn, each with committed and aborted transactions that overlap; the last one stays
    open."""
    first, second = a_producer(kafka, f"{topic}-a"), a_producer(kafka, f"{topic}-b")

    def write(producer: confluent_kafka.Producer, name: str) -> None:
        for number in range(5):
            producer.produce(topic, f"{name}-{number}".encode(), partition=0)
        assert producer.flush(DEADLINE) == 0

    for turn in range(4):
        first.begin_transaction()
        second.begin_transaction()
        write(first, f"first {turn} {'committed' if turn % 2 else 'aborted'}")
        write(second, f"second {turn} {'aborted' if turn % 2 else 'committed'}")
        write(first, f"first {turn} {'committed' if turn % 2 else 'aborted'} more")
        (first.commit_transaction if turn % 2 else first.abort_transaction)(DEADLINE)
        (second.abort_transaction if turn % 2 else second.commit_transaction)(DEADLINE)
    first.begin_transaction()
    write(first, "first open")
    return first


@asynccontextmanager
async def written_by_librdkafka(kafka: Kafka, topic: str) -> AsyncIterator[None]:
    # Held until the end: when it is collected, it aborts the open transaction.
    still_open = await asyncio.to_thread(librdkafka_writes, kafka, topic)
    yield
    await asyncio.to_thread(still_open.abort_transaction, DEADLINE)


@asynccontextmanager
async def written_by_java(kafka: Kafka, topic: str) -> AsyncIterator[None]:
    """Write the same with the Java client of the broker's release."""
    version = NEWEST if kafka.kind == "given" else kafka.version
    names = (f"{topic}-a", f"{topic}-b")
    try:
        await asyncio.to_thread(run_source, version, "WriteTransactions", kafka.bootstrap_servers, topic, *names)
    except JavaMissing as problem:
        missing(f"Java's producer cannot run here: {problem}")
    yield
    async with Admin(kafka.bootstrap_servers) as admin:  # ends the open transaction
        (await admin.transactions.fence_producers(names)).raise_for_errors()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(
    "written, size", [(written_by_librdkafka, 300), (written_by_librdkafka, 1_000_000), (written_by_java, 1_000_000)]
)
async def test_a_reader_sees_what_its_isolation_level_lets_it_see(
    kafka: Kafka, isolation: str, written: Callable[[Kafka, str], AbstractAsyncContextManager[None]], size: int
) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with written(kafka, topic):
        await check_reader(kafka, topic, isolation, size)


async def check_reader(kafka: Kafka, topic: str, isolation: str, size: int) -> None:
    committed = IsolationLevel[isolation.upper()] is IsolationLevel.READ_COMMITTED
    expected = COMMITTED if committed else sum(ENDED_AND_OPEN)
    async with Consumer(
        kafka.bootstrap_servers, topics=[topic], isolation_level=isolation, max_partition_fetch_bytes=size
    ) as consumer:
        values: list[str] = []
        async with asyncio.timeout(DEADLINE):
            while len(values) < expected:
                values += [(record.value or b"").decode() for record in await consumer.poll(timeout=5.0)]
        assert await consumer.poll(timeout=1.0) == []
        (end,) = (await consumer.end_offsets(consumer.assignment)).values()
        # Markers of ended transactions count as read; an open transaction is beyond the end for read_committed.
        assert await consumer.position(consumer.assignment[0]) == end
        assert await consumer.lag() == {consumer.assignment[0]: 0}
    assert len(values) == expected
    assert any("aborted" in value or "open" in value for value in values) == (not committed)
    for name in {value.rpartition("-")[0] for value in values}:  # in order, none missing, none twice
        assert [value for value in values if value.startswith(f"{name}-")] == [f"{name}-{i}" for i in range(5)]


@since("2.1", "Kafka's newest tools need brokers since 2.1")
async def test_transactions_of_javas_producer_are_read_whole(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    said = await newest_tool(
        kafka,
        "producer-perf-test",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "4000"),
        *("--transactional-id", f"perf-{topic}", "--transaction-duration-ms", "50"),
    )
    assert "2000 records sent" in said
    async with Consumer(kafka.bootstrap_servers, topics=[topic]) as consumer:
        assert len(await take(consumer, 2000)) == 2000
        assert await consumer.poll(timeout=1.0) == []
        assert set((await consumer.lag()).values()) == {0}
        # The markers of transactions have offsets, too. Their number depends on the speed of the machine.
        assert sum((await consumer.end_offsets(consumer.assignment)).values()) > 2000

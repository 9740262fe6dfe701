"""Two-phase commit (KIP-939) on the embedded broker and on Apache Kafka, which offers it as an unstable version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from aiokafka_lite import Admin, Consumer, Producer, TopicPartition
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.coordinators import CoordinatorKind
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ErrorCode, ProducerFenced, TransactionAborted
from aiokafka_lite.protocol.messages import EndTxnRequest, InitProducerIdRequest
from aiokafka_lite.settings.client import ClientConfig
from tests.end_to_end.conftest import missing
from tests.end_to_end.databases import Database
from tests.pure.documents import PAGES, blocks
from tests.real.jvm import JvmKafka, java_problem
from tests.real.postgres import Postgres
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

SETTINGS = {"transaction.two.phase.commit.enable": "true"}
PARTITION = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    if (problem := java_problem()) is not None:
        missing(f"two-phase commit is not tested on Kafka: {problem}")
    broker = JvmKafka(NEWEST, settings={**SETTINGS, "unstable.api.versions.enable": "true"}).start()
    yield broker.bootstrap_servers
    broker.stop()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def servers(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    if request.param == "real":
        yield request.getfixturevalue("real")
        return
    async with EmbeddedCluster(brokers=1, configs=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


def two_phase(servers: str, stored: str | None = None) -> Producer:
    return Producer(servers, transactional_id="p", two_phase_commit=True, prepared_transaction=stored)


async def prepared(producer: Producer, value: bytes) -> str:
    await producer.begin_transaction()
    producer.send_nowait("orders", value)
    return await producer.prepare_transaction()


async def committed(servers: str) -> list[bytes | None]:
    """Return the values that a reader of committed records sees when no transaction is open."""
    async with Consumer(servers) as reader, Consumer(servers, isolation_level="read_uncommitted") as everything:
        async with asyncio.timeout(DEADLINE):
            while await reader.end_offsets([PARTITION]) != await everything.end_offsets([PARTITION]):
                await asyncio.sleep(0.05)
        reader.assign([PARTITION])
        await reader.seek_to_beginning([PARTITION])
        return [record.value async for records in reader.read_until() for record in records]


async def test_another_system_decides_about_transactions(servers: str) -> None:
    async with Admin(servers) as admin:
        (await admin.topics.create([NewTopic("orders", partitions=1)])).raise_for_errors()
        async with two_phase(servers) as producer:
            stored = await prepared(producer, b"decided")
            description = (await admin.transactions.describe("p"))["p"]
            assert (description.state.name, description.timeout) == ("ONGOING", (2**31 - 1) / 1000)
        async with two_phase(servers, stored) as producer:
            assert await committed(servers) == [b"decided"]
            await prepared(producer, b"undecided")
        async with two_phase(servers, stored) as producer:
            stored = await prepared(producer, b"aborted")
            await producer.abort_transaction()
        with pytest.raises(TransactionAborted, match="it was aborted"):
            await two_phase(servers, stored).start()
        async with two_phase(servers) as producer:
            await prepared(producer, b"forced")
            (await admin.transactions.fence_producers("p")).raise_for_errors()
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
        async with two_phase(servers) as producer:
            await producer.begin_transaction()
            stored = await producer.prepare_transaction()
            await producer.commit_transaction()
            assert stored == ""
            await prepared(producer, b"by the producer itself")
            await producer.commit_transaction()
        assert await committed(servers) == [b"decided", b"by the producer itself"]


async def test_no_release_keeps_a_transaction_at_its_initialization(servers: str) -> None:
    async with Client(ClientConfig(bootstrap_servers=servers)) as client:
        coordinator = await client.coordinator("q", CoordinatorKind.TRANSACTION)
        request = InitProducerIdRequest(
            transactional_id="q", transaction_timeout_ms=1000, enable2_pc=True, keep_prepared_txn=True
        )
        assert (await coordinator.send(request)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_the_example_of_the_page_writes_to_the_database_and_to_kafka_both_or_none(postgres: Postgres) -> None:
    page = next(page for page in PAGES if page.name == "transactions.md")
    (code,) = (block.text for block in blocks(page) if "kafka_prepared" in block.text)
    (table,) = (line.removeprefix("# ") for line in code.splitlines() if line.startswith("# CREATE TABLE"))
    database = Database(postgres)
    await database.run_script(f"{table} CREATE TABLE orders (name text PRIMARY KEY);")

    async def in_database() -> list[bytes]:
        return [row["name"].encode() for row in await database.execute("SELECT name FROM orders ORDER BY name")]

    async with EmbeddedCluster(brokers=1, configs=SETTINGS) as cluster:
        example: dict[str, Any] = {}
        exec(code.replace("localhost:9092", cluster.bootstrap_servers), example)
        await cluster.create_topic("orders")

        async def write(*orders: str) -> None:
            connection = await asyncpg.connect(**database.address)
            try:
                await example["write_orders"](connection, orders)
            finally:
                await connection.close()

        await write("a", "b")
        with pytest.raises(asyncpg.UniqueViolationError):
            await write("c", "a")  # the database rolls back the second order; the transaction stays prepared
        await write("d")
        assert await committed(cluster.bootstrap_servers) == await in_database() == [b"a", b"b", b"c", b"d"]
        # The program ends between the two commits. The first request is that of its start.
        with cluster.on(EndTxnRequest, nth=2).fail(ErrorCode.UNKNOWN_SERVER_ERROR), pytest.raises(BrokerError):
            await write("e", "f")
        assert await in_database() == [b"a", b"b", b"c", b"d", b"e"]
        await write()
        assert await committed(cluster.bootstrap_servers) == await in_database()

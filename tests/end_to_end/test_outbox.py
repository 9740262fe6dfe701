"""From a table of PostgreSQL to Kafka: no row is lost, and each key keeps its order, whatever ends meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from aiokafka_lite import Consumer, Producer, Record, TopicPartition
from aiokafka_lite.admin import delete_topics
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.processing.outbox import OutboxRelay, PostgresOutbox, relay, sender
from aiokafka_lite.processing.stores.drivers import driver_of
from aiokafka_lite.settings.client import ClientConfig
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.databases import CLIENT_CURSORS, DRIVERS, Database
from tests.real.postgres import Postgres
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE, LOOK_AGAIN, until

pytestmark = since(NEWEST, "the producer below the relay is tested on all releases")

KEYS = 40
COUNT = 400

OF_PRODUCER = ("delivery_timeout", "max_request_size")
"""Settings of ``Outbox.relay`` that go to the producer."""

_INSERT = """
INSERT INTO kafka_outbox (topic, key, value)
SELECT $1, convert_to('key-' || number % $3, 'utf8'), convert_to(number::text, 'utf8')
FROM generate_series(1, $2) AS number RETURNING id
"""


class Outbox:
    """A table of rows, and the topic for them."""

    def __init__(self, kafka: Kafka, database: Database, topic: str) -> None:
        self.kafka, self.database, self.topic = kafka, database, topic
        self.expected: set[int] = set()
        """The ids of all rows that were committed for the topic."""

    async def insert(self, count: int = COUNT, *, keys: int = KEYS) -> None:
        """Commit rows of ``keys`` keys."""
        rows = await self.database.execute(_INSERT, self.topic, count, keys)
        self.expected |= {row["id"] for row in rows}

    async def add(self, key: bytes | None, value: bytes | None, topic: str = "", headers: str | None = None) -> int:
        """Commit one row, and return its id."""
        ((number,),) = await self.database.execute(
            "INSERT INTO kafka_outbox (topic, key, value, headers) VALUES ($1, $2, $3, $4::jsonb) RETURNING id",
            *(topic or self.topic, key, value, headers),
        )
        if topic in ("", self.topic):
            self.expected.add(number)
        return int(number)

    @asynccontextmanager
    async def relay(self, driver: str = "asyncpg", **settings: Any) -> AsyncIterator[OutboxRelay]:
        """Run a relay with a producer of its own. Its error is raised at the end."""
        of_producer = {name: settings.pop(name) for name in tuple(settings) if name in OF_PRODUCER}
        async with (
            self.database.pool(driver) as pool,
            Producer(self.kafka.bootstrap_servers, **of_producer, allow_auto_create_topics=False) as producer,
        ):
            outbox = OutboxRelay(producer, PostgresOutbox(pool), **settings)
            running = asyncio.create_task(outbox.run())
            try:
                yield outbox
            finally:
                outbox.stop()
                async with asyncio.timeout(DEADLINE):
                    await running

    async def rows(self, condition: str = "true") -> list[Any]:
        return await self.database.execute(f"SELECT * FROM kafka_outbox WHERE {condition} ORDER BY id")

    async def until_empty(self, condition: str = "true") -> None:
        """Return when no row of the condition is left."""
        async with asyncio.timeout(DEADLINE):
            while await self.rows(condition):
                await asyncio.sleep(LOOK_AGAIN)

    async def until_it_listens(self) -> None:
        """Return when a relay hears of new rows. It may read those before."""
        listening = (
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN %'"
        )
        async with asyncio.timeout(DEADLINE):
            while not await self.database.execute(listening):
                await asyncio.sleep(LOOK_AGAIN)

    async def records(self) -> list[Record]:
        """Read the whole topic."""
        async with Consumer(self.kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            partitions = [TopicPartition(self.topic, number) for number in range(3)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            records: list[Record] = []
            async with asyncio.timeout(DEADLINE):
                while len(records) < sum(ends.values()):
                    records += await consumer.poll(timeout=1.0)
        return records

    async def check(self, *, most_repeated: int = 0) -> None:
        """Check the history: each row is in the topic, and each key has its rows in order.

        A row that is repeated may only go back in its key: then all rows behind it follow again.
        """
        records = await self.records()
        counts = Counter(map(id_of, records))
        assert set(counts) == self.expected
        assert counts.total() - len(counts) <= most_repeated, "rows were repeated"
        by_key: dict[bytes | None, list[int]] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(id_of(record))
        for key, ids in by_key.items():
            if key is not None:
                assert list(dict.fromkeys(ids)) == sorted(set(ids)), f"{key!r} is out of order: {ids}"
                assert ids[-1] == max(ids), f"the last record of {key!r} is not its last row: {ids}"


def id_of(record: Record) -> int:
    """Return the id of a record's row."""
    return int(dict(record.headers)["outbox-id"])


@pytest.fixture
async def outbox(kafka: Kafka, postgres: Postgres) -> Outbox:
    database = Database(postgres)
    async with database.pool() as pool:
        await database.run_script(PostgresOutbox(pool).ddl)
    return Outbox(kafka, database, await kafka.create_topic())


@pytest.mark.parametrize("driver", [*DRIVERS, CLIENT_CURSORS])
async def test_rows_are_sent_in_order_by_key_and_deleted_with_each_driver(outbox: Outbox, driver: str) -> None:
    await outbox.insert()
    async with outbox.relay(driver) as relaying:
        await outbox.until_empty()
        await outbox.insert()
        await outbox.until_empty()
        assert relaying.sent_count == 2 * COUNT
    await outbox.check()


async def test_a_row_becomes_a_record_with_its_key_value_and_headers(outbox: Outbox) -> None:
    ids = [
        await outbox.add(b"table-7", b"two coffees", headers='{"source": "shop", "caf\\u00e9": "\\u2615"}'),
        await outbox.add(b"table-7", None),
        await outbox.add(None, b""),
    ]
    async with outbox.relay(id_header="row"):
        await outbox.until_empty()
    records = sorted(await outbox.records(), key=lambda record: record.headers[0])
    assert [(record.key, record.value) for record in records] == [
        *((b"table-7", b"two coffees"), (b"table-7", None), (None, b"")),
    ]
    assert [dict(record.headers)["row"] for record in records] == [b"%d" % number for number in ids]
    assert sorted(dict(records[0].headers).items()) == [
        *(("café", "☕".encode()), ("row", b"%d" % ids[0]), ("source", b"shop")),
    ]


async def test_new_rows_are_sent_without_polling(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "POLL_INTERVAL", 10 * DEADLINE)
    for driver in DRIVERS:
        async with outbox.relay(driver) as relaying:
            await outbox.until_it_listens()
            for count in range(1, 6):
                await outbox.insert(1)
                await until(lambda count=count: relaying.sent_count == count, "a notification")  # type: ignore[misc]


async def test_rows_are_found_without_the_trigger(outbox: Outbox) -> None:
    await outbox.database.execute("DROP TRIGGER kafka_outbox_notify ON kafka_outbox")
    async with outbox.relay():
        for _ in range(3):
            await outbox.insert(1)
            await outbox.until_empty()
    await outbox.check()


async def test_several_relays_share_the_rows_and_repeat_none(outbox: Outbox) -> None:
    async with outbox.relay(batch_size=10) as first:
        await outbox.insert()
        await outbox.until_empty()
        async with outbox.relay("psycopg", batch_size=10) as second, outbox.relay(batch_size=10) as third:
            async with asyncio.timeout(DEADLINE):
                while not (second.sent_count and third.sent_count):
                    await outbox.insert(KEYS)
                    await outbox.until_empty()
            before = first.sent_count
            await outbox.insert()
            await outbox.until_empty()
            assert first.sent_count > before
        await outbox.insert()  # the shares of the others go to the first relay
        await outbox.until_empty()
    await outbox.check()


async def test_killed_relays_lose_nothing_and_keep_the_order(outbox: Outbox) -> None:
    server, database = outbox.kafka.bootstrap_servers, outbox.database
    arguments = (server, database.server.host, database.name, "30")
    command = (sys.executable, "-m", "tests.end_to_end.outbox_process", *arguments)
    processes: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(4):
            await outbox.insert()
            while len(processes) < 2:
                processes.append(
                    await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": ""})
                )
            async with asyncio.timeout(DEADLINE):
                while len(await outbox.rows()) > COUNT * 3 // 4:
                    await asyncio.sleep(LOOK_AGAIN)
            victim = processes.pop(0)
            victim.kill()
            await victim.wait()
        await outbox.until_empty()
    finally:
        for process in processes:
            process.kill()
            await process.wait()
    await outbox.check(most_repeated=4 * 20)  # the rows of one read of each victim


@pytest.mark.skipif(sys.platform == "win32", reason="SIGSTOP")
async def test_a_suspended_relay_loses_its_share_to_another(outbox: Outbox) -> None:
    arguments = (outbox.kafka.bootstrap_servers, outbox.database.server.host, outbox.database.name, "2")
    command = (sys.executable, "-m", "tests.end_to_end.outbox_process", *arguments)
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": ""})
    try:
        await outbox.insert()
        await outbox.until_empty()
        process.send_signal(signal.SIGSTOP)
        await outbox.insert()
        async with outbox.relay():
            await outbox.until_empty()
            process.send_signal(signal.SIGCONT)
            await outbox.insert()
            await outbox.until_empty()
    finally:
        process.kill()
        await process.wait()
    await outbox.check(most_repeated=20)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_database_that_crashes_and_starts_again_repeats_nothing(outbox: Outbox, driver: str) -> None:
    async with outbox.relay(driver, batch_size=5):
        for _ in range(3):
            await outbox.insert()
            async with asyncio.timeout(DEADLINE):
                while len(await outbox.rows()) > COUNT // 2:
                    await asyncio.sleep(LOOK_AGAIN)
            await asyncio.to_thread(outbox.database.server.stop, signal.SIGQUIT)
            await asyncio.to_thread(outbox.database.server.start)
        await outbox.until_empty()
    await outbox.check()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_connections_that_are_cut_repeat_nothing(outbox: Outbox, driver: str) -> None:
    await outbox.insert()
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with outbox.relay(driver, batch_size=3):
        for _ in range(20):
            await outbox.database.execute(cut)
            await asyncio.sleep(0.02)
        await outbox.until_empty()
    await outbox.check()


async def test_a_relay_that_is_cancelled_anywhere_repeats_nothing(outbox: Outbox) -> None:
    await outbox.insert()
    async with outbox.database.pool() as pool, Producer(outbox.kafka.bootstrap_servers) as producer:
        relaying = OutboxRelay(producer, PostgresOutbox(pool), batch_size=5)
        for turn in range(60):
            running = asyncio.create_task(relaying.run())
            await asyncio.sleep(turn % 15 * 0.004)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        running = asyncio.create_task(relaying.run())
        await outbox.until_empty()
        relaying.stop()
        await running
    await outbox.check()


async def test_a_row_that_cannot_be_sent_blocks_its_key_until_it_is_set_aside(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "SHORTEST_PAUSE", relay.LONGEST_PAUSE)
    first = await outbox.add(b"key-1", b"first")
    large = await outbox.add(b"key-1", b"x" * 3000)
    headers = await outbox.add(b"key-2", b"", headers='["no", "object"]')
    name = await outbox.add(b"key-3", b"", topic="not a topic")
    missing = await outbox.add(b"key-4", b"", topic="missing-topic")
    keyless = await outbox.add(None, b"x" * 3000)
    await outbox.insert()
    outbox.expected -= {large, headers, keyless}
    async with outbox.relay(max_attempts=4, max_request_size=2048) as relaying:
        blocked = "key = 'key-1' OR key = 'key-2'"
        await outbox.until_empty(f"NOT ({blocked}) AND attempts = 0")
        assert {row["topic"] for row in await outbox.rows(f"({blocked}) AND attempts = 0")} == {outbox.topic}
        assert await outbox.rows("failed_at IS NOT NULL") == []
        assert {id_of(record) for record in await outbox.records() if record.key == b"key-1"} == {first}
        monkeypatch.setattr(relay, "SHORTEST_PAUSE", 0.1)
        await outbox.database.execute("UPDATE kafka_outbox SET retry_at = now() WHERE attempts > 0")
        await outbox.until_empty("failed_at IS NULL")
        assert relaying.set_aside_count == 5
    await outbox.check()
    rows = await outbox.rows()
    assert [(row["id"], row["attempts"]) for row in rows] == [
        (number, 4) for number in (large, headers, name, missing, keyless)
    ]
    errors = [row["error"].partition(":")[0] for row in rows]
    assert errors == ["RecordTooLarge", "SerializationError", "InvalidTopic", "UnknownTopic", "RecordTooLarge"]
    assert sum("set aside after 4 attempts" in message for message in caplog.messages) >= 1

    await outbox.database.execute("UPDATE kafka_outbox SET failed_at = NULL, attempts = 0 WHERE value <> ''")
    outbox.expected |= {large, keyless}
    async with outbox.relay():  # whose producer accepts larger records
        await outbox.until_empty("failed_at IS NULL")
    assert {id_of(record) for record in await outbox.records()} == outbox.expected


async def test_a_topic_that_is_created_later_gets_its_rows_in_order(outbox: Outbox) -> None:
    later = f"later-{outbox.topic}"
    ids = [await outbox.add(b"key", b"%d" % number, topic=later) for number in range(5)]
    async with outbox.relay() as relaying:
        await outbox.until_empty("id = (SELECT min(id) FROM kafka_outbox) AND attempts = 0")
        await outbox.kafka.create_topic(later)
        await outbox.until_empty()
        assert relaying.set_aside_count == 0
    outbox.topic, outbox.expected = later, set(ids)
    await outbox.check()


async def test_rows_behind_one_that_a_broker_refuses_are_sent_again_behind_it(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "SHORTEST_PAUSE", 0.5)
    outbox.topic = await outbox.kafka.create_topic(max_message_bytes=1000)
    outbox.expected.clear()
    await outbox.add(b"key", b"1")
    large = await outbox.add(b"key", os.urandom(2000))
    await outbox.add(b"key", b"3")
    await outbox.add(b"other", b"4")
    outbox.expected.remove(large)
    async with outbox.relay(max_attempts=2):
        await outbox.until_empty("failed_at IS NULL")
    await outbox.check(most_repeated=1)


async def test_large_rows_of_a_key_are_not_overtaken(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "RISKY_SIZE", 1500)
    outbox.topic = await outbox.kafka.create_topic(max_message_bytes=1000)
    outbox.expected.clear()
    await outbox.add(b"key", b"1")
    large = await outbox.add(b"key", os.urandom(2000))
    await outbox.add(b"key", b"3")
    outbox.expected.remove(large)
    async with outbox.relay(max_attempts=2):
        await outbox.until_empty("failed_at IS NULL")
    await outbox.check()


async def test_many_rows_behind_a_blocked_key_do_not_stop_the_others(outbox: Outbox) -> None:
    await outbox.add(b"key-0", b"x" * 3000)
    await outbox.insert(5000, keys=1)
    await outbox.insert()
    async with outbox.relay(batch_size=100, max_request_size=2048):
        await outbox.until_empty("key <> 'key-0'")
        assert len(await outbox.rows()) == 5001 + COUNT // KEYS


async def test_rows_for_a_topic_that_was_deleted_are_set_aside(outbox: Outbox) -> None:
    if outbox.kafka.kind == "given":
        pytest.skip("deletes a topic")
    gone = await outbox.kafka.create_topic()
    await outbox.add(b"key", b"", topic=gone)
    async with outbox.relay(max_attempts=1, delivery_timeout=2.0):
        await outbox.until_empty()
        async with Client(ClientConfig(bootstrap_servers=outbox.kafka.bootstrap_servers)) as client:
            await delete_topics(client, [gone])
        await outbox.add(b"key", b"", topic=gone)
        await outbox.insert()
        await outbox.until_empty(f"topic <> '{gone}'")
        await outbox.until_empty("failed_at IS NULL")


@pytest.mark.parametrize("driver", DRIVERS)
async def test_connections_go_back_to_the_pool_as_they_were(outbox: Outbox, driver: str) -> None:
    locks = (
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    async with outbox.database.pool(driver) as pool, Producer(outbox.kafka.bootstrap_servers) as producer:
        relaying = OutboxRelay(producer, PostgresOutbox(pool))
        running = asyncio.create_task(relaying.run())
        await outbox.insert()
        await outbox.until_empty()
        assert await outbox.database.execute(locks) != []
        relaying.stop()
        await running
        assert await outbox.database.execute(locks) == []
        used = driver_of(pool)
        async with used.transaction() as one, used.transaction() as other:
            for connection in (one, other):
                assert [*await used.fetch(connection, "SHOW idle_session_timeout")] == [("0",)]


async def test_a_pool_that_is_used_up_is_reported(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "CONNECT_TIMEOUT", 0.2)
    async with outbox.database.pool() as pool, Producer(outbox.kafka.bootstrap_servers) as producer:
        relaying = OutboxRelay(producer, PostgresOutbox(pool))
        async with pool.acquire(), pool.acquire(), pool.acquire():
            running = asyncio.create_task(relaying.run())
            await until(lambda: "has no session of the database" in caplog.text)
        await outbox.insert()
        await outbox.until_empty()
        relaying.stop()
        await running
    with pytest.raises(ConfigurationError, match="at least 2 connections"):
        PostgresOutbox(asyncpg.create_pool(min_size=1, max_size=1))


async def test_a_table_that_is_missing_is_an_error_with_the_statements_that_create_it(outbox: Outbox) -> None:
    await outbox.database.execute("DROP TABLE kafka_outbox")
    for driver in DRIVERS:
        async with outbox.database.pool(driver) as pool, Producer(outbox.kafka.bootstrap_servers) as producer:
            with pytest.raises(ConfigurationError, match=r"run:\nCREATE TABLE kafka_outbox \("):
                await OutboxRelay(producer, PostgresOutbox(pool)).run()


async def test_the_page_shows_the_statements_that_create_the_table(outbox: Outbox) -> None:
    page = Path(__file__).parents[2] / "docs" / "outbox.md"
    async with outbox.database.pool() as pool:
        assert PostgresOutbox(pool).ddl in page.read_text(encoding="utf-8")


async def test_a_table_in_a_schema_has_a_channel_of_its_own(outbox: Outbox) -> None:
    async with outbox.database.pool() as pool, Producer(outbox.kafka.bootstrap_servers) as producer:
        await outbox.database.execute("CREATE SCHEMA shop")
        table = PostgresOutbox(pool, table="shop.Outbox")
        await outbox.database.run_script(table.ddl)
        relaying = OutboxRelay(producer, table)
        running = asyncio.create_task(relaying.run())
        await outbox.database.execute("INSERT INTO shop.outbox (topic) VALUES ($1)", outbox.topic)
        await until(lambda: relaying.sent_count == 1)
        relaying.stop()
        await running


async def test_a_producer_that_is_closed_ends_the_relay(outbox: Outbox) -> None:
    async with outbox.database.pool() as pool:
        async with Producer(outbox.kafka.bootstrap_servers) as producer:
            relaying = OutboxRelay(producer, PostgresOutbox(pool))
            running = asyncio.create_task(relaying.run())
            await outbox.insert()
            await outbox.until_empty()
            with pytest.raises(IllegalStateError, match="runs already"):
                await relaying.run()
        await outbox.insert()
        with pytest.raises(IllegalStateError):
            await running


async def test_wrong_arguments_are_refused(outbox: Outbox) -> None:
    servers = outbox.kafka.bootstrap_servers
    async with outbox.database.pool() as pool:
        table = PostgresOutbox(pool)
        with pytest.raises(ConfigurationError, match="pool must be an asyncpg"):
            PostgresOutbox(object())  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="table must be a name"):
            PostgresOutbox(pool, table="outbox; DROP TABLE users")
        with pytest.raises(ConfigurationError, match="producer must be a Producer"):
            OutboxRelay(servers, table)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="outbox must be a PostgresOutbox"):
            OutboxRelay(Producer(servers), pool)
        with pytest.raises(ConfigurationError, match="no transactional_id"):
            OutboxRelay(Producer(servers, transactional_id="relay"), table)
        with pytest.raises(ConfigurationError, match="acks='all'"):
            OutboxRelay(Producer(servers, acks=1), table)
        with pytest.raises(ValueError, match="max_attempts"):
            OutboxRelay(Producer(servers), table, max_attempts=0)

"""From Kafka into PostgreSQL: each record once, while members, processes, connections and the database end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.processing import ExactlyOnceInto
from aiokafka_lite.processing.stores import PostgresStore
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.databases import DRIVERS, Database
from tests.real.postgres import Postgres
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE, LOOK_AGAIN

pytestmark = since(NEWEST, "the group below is tested on all releases")

COUNT = 400

EFFECTS = "CREATE TABLE effects (id bigserial PRIMARY KEY, part int, position bigint, value text)"
"""Without a unique constraint: a record that is processed twice has two rows."""

CLASSIC: dict[str, Any] = {"session_timeout": 6.0, "heartbeat_interval": 0.5}

OF_THIS_MEMBER = "SELECT partition FROM kafka_offsets WHERE member_id <> 'another'"


class Effects(Database):
    """A database with the tables of the store and of the effects."""

    async def values(self) -> list[str]:
        return [row["value"] for row in await self.execute("SELECT value FROM effects ORDER BY id")]

    async def until_complete(self, working: asyncio.Task[None] | None = None, count: int = COUNT) -> None:
        """Return when there are that many distinct effects. Raises the error of the worker, which may not end."""
        async with asyncio.timeout(DEADLINE):
            while len(set(await self.values())) < count:
                if working is not None and working.done():
                    raise AssertionError("the worker ended") from working.exception()
                await asyncio.sleep(LOOK_AGAIN)

    async def check(self, count: int = COUNT) -> None:
        """Check the history: each record once, in order within its partition, and the offsets of the store after it."""
        rows = await self.execute("SELECT part, position, value FROM effects ORDER BY id")
        assert sorted(int(row["value"]) for row in rows) == list(range(count))
        last: dict[int, int] = {}
        for row in rows:
            assert row["position"] > last.get(row["part"], -1), f"out of order: {row}"
            last[row["part"]] = row["position"]
        offsets = await self.execute("SELECT partition, next_offset FROM kafka_offsets")
        assert {row["partition"]: row["next_offset"] for row in offsets if row["partition"] in last} == {
            partition: position + 1 for partition, position in last.items()
        }


@pytest.fixture
async def database(postgres: Postgres) -> Effects:
    database = Effects(postgres)
    await database.execute(PostgresStore(AN_ENGINE).ddl)
    await database.execute(EFFECTS)
    return database


AN_ENGINE = create_async_engine("postgresql+asyncpg://", poolclass=None)


class Pipe:
    def __init__(self, kafka: Kafka, topic: str, database: Effects) -> None:
        self.kafka, self.topic, self.database = kafka, topic, database
        self.group = f"group-{uuid.uuid4().hex[:8]}"

    @asynccontextmanager
    async def batches(self, pool: Any, **settings: Any) -> AsyncIterator[ExactlyOnceInto[bytes, bytes, Any]]:
        own = settings.pop("consumer", CLASSIC)
        async with (
            Consumer(
                self.kafka.bootstrap_servers, topics=[self.topic], group_id=self.group, auto_commit=False, **own
            ) as consumer,
            ExactlyOnceInto(consumer, PostgresStore(pool), **{"max_records": 20, **settings}) as batches,
        ):
            yield batches

    async def work(self, driver: str = "asyncpg", **settings: Any) -> None:
        """Work until the task is cancelled."""
        async with self.database.pool(driver) as pool, self.batches(pool, **settings) as batches:
            await batches.run(insert)


async def insert(records: list[Any], connection: Any) -> None:
    """Insert the effects of the records, with any of the drivers."""
    rows = [(record.partition, record.offset, record.value.decode()) for record in records]
    columns = "INSERT INTO effects (part, position, value) VALUES "
    if hasattr(connection, "fetchval"):
        await connection.executemany(columns + "($1, $2, $3)", rows)
    elif hasattr(connection, "cursor"):
        async with connection.cursor() as cursor:
            await cursor.executemany(columns + "(%s, %s, %s)", rows)
    else:
        names = [dict(zip(("part", "position", "value"), row)) for row in rows]
        await connection.execute(text(columns + "(:part, :position, :value)"), names)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def write(kafka: Kafka, topic: str, count: int = COUNT) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        values = [str(number) for number in range(count)]
        for result in await producer.send_many(topic, values, keys=values):
            assert not isinstance(result, Exception), result


@pytest.fixture
async def pipe(kafka: Kafka, database: Effects) -> Pipe:
    topic = await kafka.create_topic(partitions=4)
    await write(kafka, topic)
    return Pipe(kafka, topic, database)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_each_record_has_one_effect_with_each_driver(pipe: Pipe, driver: str) -> None:
    working = asyncio.create_task(pipe.work(driver))
    await pipe.database.until_complete(working)
    await cancelled(working)
    await pipe.database.check()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_that_join_and_leave_repeat_nothing(pipe: Pipe, protocol: str) -> None:
    settings: dict[str, Any] = {"consumer": {"group_protocol": "consumer"} if protocol == "consumer" else CLASSIC}
    working = [asyncio.create_task(pipe.work(max_records=5, **settings))]
    for _ in range(3):
        await asyncio.sleep(0.3)
        working.append(asyncio.create_task(pipe.work(max_records=5, **settings)))
        await asyncio.sleep(0.3)
        await cancelled(working.pop(0))
    await pipe.database.until_complete()
    for task in working:
        await cancelled(task)
    await pipe.database.check()


async def test_killed_processes_repeat_nothing(pipe: Pipe) -> None:
    arguments = (pipe.kafka.bootstrap_servers, pipe.topic, pipe.group, pipe.database.server.host, pipe.database.name)
    command = (sys.executable, "-m", "tests.end_to_end.into_process", *arguments)
    for _ in range(3):
        before = len(await pipe.database.values())
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": ""})
        async with asyncio.timeout(DEADLINE):
            while len(await pipe.database.values()) < min(before + 30, COUNT):
                await asyncio.sleep(LOOK_AGAIN)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    working = asyncio.create_task(pipe.work())
    await pipe.database.until_complete(working)
    await cancelled(working)
    await pipe.database.check()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_database_that_crashes_and_starts_again_loses_and_repeats_nothing(pipe: Pipe, driver: str) -> None:
    working = asyncio.create_task(pipe.work(driver, max_records=3))
    for goal in (50, 150, 250):
        await pipe.database.until_complete(working, goal)
        await asyncio.to_thread(pipe.database.server.stop, signal.SIGQUIT)
        await asyncio.to_thread(pipe.database.server.start)
    await pipe.database.until_complete(working)
    await cancelled(working)
    await pipe.database.check()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_connections_that_are_cut_during_commits_repeat_nothing(pipe: Pipe, driver: str) -> None:
    working = asyncio.create_task(pipe.work(driver, max_records=2))
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for _ in range(30):
        await pipe.database.execute(cut)
        await asyncio.sleep(0.02)
    await pipe.database.until_complete(working)
    await cancelled(working)
    await pipe.database.check()


async def test_iterations_that_are_cancelled_anywhere_lose_and_repeat_nothing(pipe: Pipe) -> None:
    async with pipe.database.pool() as pool, pipe.batches(pool, max_records=5) as batches:
        for turn in range(60):
            working = asyncio.create_task(batches.run(insert))
            await asyncio.sleep(turn % 10 * 0.004)
            await cancelled(working)
        working = asyncio.create_task(batches.run(insert))
        await pipe.database.until_complete(working)
        await cancelled(working)
    await pipe.database.check()


async def test_a_former_owner_cannot_commit_after_another_member_has_claimed_its_partitions(pipe: Pipe) -> None:
    async with pipe.database.pool() as pool, pipe.batches(pool) as zombie:
        records, connection = await anext(zombie)
        await insert(records, connection)
        await pipe.database.execute("UPDATE kafka_offsets SET generation = generation + 1, member_id = 'another'")
        # The commit is refused. The coordinator confirms the member, so the partitions are claimed again.
        await anext(zombie)
        assert await pipe.database.values() == []
        claimed = {row["partition"] for row in await pipe.database.execute(OF_THIS_MEMBER)}
        assert claimed >= {record.partition for record in records}
    working = asyncio.create_task(pipe.work())
    await pipe.database.until_complete(working)
    await cancelled(working)
    await pipe.database.check()


async def test_a_body_that_raises_is_rolled_back_and_its_records_are_returned_again(pipe: Pipe) -> None:
    async with pipe.database.pool() as pool, pipe.batches(pool) as batches:
        offsets = []
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async for records, connection in batches:
                    offsets.append(records[0].offset)
                    await insert(records, connection)
                    raise ZeroDivisionError
        assert offsets == [0, 0, 0]
    assert await pipe.database.values() == []


async def test_offsets_are_copied_to_kafka_for_tools(pipe: Pipe) -> None:
    working = asyncio.create_task(pipe.work())
    await pipe.database.until_complete(working)
    await cancelled(working)
    async with Consumer(pipe.kafka.bootstrap_servers, topics=[pipe.topic], group_id=pipe.group) as consumer:
        partitions = [TopicPartition(pipe.topic, number) for number in range(4)]
        committed = await consumer.committed(partitions)
        assert sum(0 if offset is None else offset.offset for offset in committed.values()) > 0


async def test_a_store_without_its_table_prints_the_statement_that_creates_it(pipe: Pipe) -> None:
    await pipe.database.execute("DROP TABLE kafka_offsets")
    async with pipe.database.pool() as pool, pipe.batches(pool) as batches:
        with pytest.raises(ConfigurationError, match=r"run:\nCREATE TABLE kafka_offsets \("):
            await anext(batches)


async def test_a_transaction_that_the_program_has_ended_is_an_error(pipe: Pipe) -> None:
    async with pipe.database.pool() as pool, pipe.batches(pool) as batches:
        _, connection = await anext(batches)
        await connection.execute("ROLLBACK")
        with pytest.raises(IllegalStateError, match="ended by the program"):
            await anext(batches)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="pool must be an asyncpg"):
        PostgresStore(object())  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="table must be a name"):
        PostgresStore(AN_ENGINE, table="offsets; DROP TABLE users")

"""The outbox relay beside PostgreSQL and Apache Kafka on one machine: ``python -m benchmarks.outbox``.

For each driver, in a process of its own: a table with ROWS rows is emptied by one relay, whose CPU is measured. Then a
process inserts rows in transactions of 100, as fast as it can, while the relay sends them. Then single rows are
inserted into the empty table: the latency is from the begin of the INSERT to the acknowledgement by Kafka. The server
runs with fsync.

The relay of txoutbox, if it is installed, does the same work with asyncpg and with the ``Producer`` of this package: it
locks rows instead of shards, and deletes each row by a statement of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import asyncpg
import psycopg_pool
from sqlalchemy.ext.asyncio import create_async_engine

from aiokafka_lite import Producer
from aiokafka_lite.processing.outbox import OutboxRelay, PostgresOutbox
from benchmarks.compare import in_turn
from benchmarks.kafka import apache_kafka, new_topic
from benchmarks.stopwatch import Stopwatch
from tests.real.postgres import Postgres

ROWS = 100_000
SIZE = 100
KEYS = 10_000
TRANSACTION = 100
SINGLE_ROWS = 200
DRIVERS = ("asyncpg", "psycopg", "sqlalchemy+asyncpg")
TXOUTBOX = "txoutbox"

_INSERT = (
    "INSERT INTO kafka_outbox (topic, key, value) SELECT $1, convert_to('key-' || (number % $3), 'utf8'),"
    " convert_to(repeat('v', $4), 'utf8') FROM generate_series(1, $2) AS number"
)
_INSERT_INTO_TXOUTBOX = (
    "INSERT INTO outbox (topic, key, payload) SELECT $1, 'key-' || (number % $3),"
    " convert_to(repeat('v', $4), 'utf8') FROM generate_series(1, $2) AS number"
)


class Relay(Protocol):
    """A relay as this program uses it."""

    sent_count: int

    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Txoutbox:
    """The relay of txoutbox, with batches as large as ours."""

    def __init__(self, producer: Producer[Any, Any], pool: asyncpg.Pool[Any]) -> None:
        import txoutbox
        from txoutbox.adapters.postgres import PostgresStorage

        self.sent_count = 0
        self._producer = producer
        self._storage = PostgresStorage(pool, delete_on_ack=True, notify_channel="outbox")
        config = txoutbox.RelayConfig(batch_size=2000, concurrency=2000)
        self._relay = txoutbox.Relay(self._storage, self._publish, config=config)
        self.ddl: str = self._storage.schema_sql()

    async def _publish(self, message: Any) -> None:
        await self._producer.send(message.topic, message.payload, key=message.key)
        self.sent_count += 1

    async def run(self) -> None:
        listener = await self._storage.listen(self._relay.wake)
        try:
            await self._relay.run()
        finally:
            await listener.close()

    def stop(self) -> None:
        self._relay.stop()


@asynccontextmanager
async def pool_of(driver: str, host: str, database: str) -> AsyncIterator[Any]:
    """Open a pool of a driver."""
    if driver == "asyncpg":
        async with asyncpg.create_pool(host=host, user="postgres", database=database) as pool:
            yield pool
    elif driver == "psycopg":
        conninfo = f"host={host} user=postgres dbname={database}"
        async with psycopg_pool.AsyncConnectionPool(conninfo, open=False) as pool:
            yield pool
    else:
        engine = create_async_engine(f"postgresql+{driver.partition('+')[2]}://postgres@/{database}?host={host}")
        yield engine
        await engine.dispose()


def statement(driver: str) -> str:
    """Return the statement that inserts rows into the table of a candidate."""
    return _INSERT_INTO_TXOUTBOX if driver == TXOUTBOX else _INSERT


async def insert(driver: str, host: str, database: str, topic: str, rows: int) -> None:
    """Insert rows in small transactions, as a service does."""
    connection = await asyncpg.connect(host=host, user="postgres", database=database)
    for _ in range(rows // TRANSACTION):
        await connection.execute(statement(driver), topic, TRANSACTION, KEYS, SIZE)
    await connection.close()


async def until_sent(relay: Relay, count: int, pause: float = 0.01) -> None:
    """Wait until the relay has sent so many rows in total."""
    while relay.sent_count < count:
        await asyncio.sleep(pause)


async def measure(servers: str, host: str, database: str, driver: str, rows: int) -> None:
    """Measure a driver, and print its row of the table."""
    topic = await new_topic(servers)
    async with (
        pool_of("asyncpg", host, database) as pool,
        pool_of("asyncpg" if driver == TXOUTBOX else driver, host, database) as own,
        Producer(servers) as producer,
    ):
        relay: Relay
        if driver == TXOUTBOX:
            relay = Txoutbox(producer, own)
            ddl = relay.ddl
        else:
            relay = OutboxRelay(producer, PostgresOutbox(own))
            ddl = PostgresOutbox(own).ddl
        await pool.execute(ddl)
        await pool.execute(statement(driver), topic, rows, KEYS, SIZE)
        await pool.execute("VACUUM ANALYZE")
        watch = Stopwatch()
        running = asyncio.create_task(relay.run())
        await until_sent(relay, rows)
        wall, cpu = watch.read()

        began = time.perf_counter()
        arguments = (driver, host, database, topic, str(rows))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.outbox", "--insert", *arguments, env=dict(os.environ)
        )
        await process.wait()
        inserted = time.perf_counter() - began
        await until_sent(relay, 2 * rows)
        beside = time.perf_counter() - began

        latencies: list[float] = []
        for number in range(SINGLE_ROWS):
            began = time.perf_counter()
            await pool.execute(statement(driver), topic, 1, KEYS, SIZE)
            await until_sent(relay, 2 * rows + number + 1, 0.0005)
            latencies.append(time.perf_counter() - began)
        relay.stop()
        with suppress(asyncio.CancelledError):
            await running
    p99 = statistics.quantiles(latencies, n=100)[98]
    print(
        f"| {driver} | {rows / wall:,.0f} | {cpu / rows * 1e6:.1f} | {rows / inserted:,.0f} | {rows / beside:,.0f}"
        f" | {statistics.median(latencies) * 1e3:.1f} | {p99 * 1e3:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outbox", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--insert", nargs=5, metavar=("DRIVER", "HOST", "DATABASE", "TOPIC", "ROWS"), help="only insert"
    )
    parser.add_argument("--measure", nargs=4, metavar=("SERVERS", "HOST", "DATABASE", "DRIVER"))
    options = parser.parse_args()
    if options.insert:
        *names, rows = options.insert
        asyncio.run(insert(*names, int(rows)))
        return
    if options.measure:
        asyncio.run(measure(*options.measure, options.rows))
        return
    candidates = [*DRIVERS, *([TXOUTBOX] if importlib.util.find_spec(TXOUTBOX) is not None else [])]
    with apache_kafka() as (servers, kafka), Postgres(fsync=True) as postgres:
        print(f"{kafka}, {postgres.version()}, {options.rows:,} rows of {SIZE} bytes\n")
        print("| driver | rows/s, full table | CPU µs of a row | rows/s inserted | rows/s sent beside | ms p50 | p99 |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for number in range(options.rounds):
            for driver in in_turn(candidates, number):
                arguments = [servers, postgres.host, postgres.create_database(), driver]
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.outbox",
                    "--rows",
                    str(options.rows),
                    "--measure",
                    *arguments,
                ]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

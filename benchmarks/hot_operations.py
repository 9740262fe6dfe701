"""The operations that ``benchmarks.instructions`` counts: ``python -m benchmarks.hot_operations SERVERS [NAME ...]``.

This process runs under callgrind, which writes a dump of its counters whenever the process calls ``getpriority``, and
sets them to zero. So the code between two such calls is one sample. The broker has a process of its own, whose
instructions are not counted. Each operation has warmed up before its first sample.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from aiokafka_lite import Consumer, Producer, TopicPartition
from benchmarks.records import WORKLOADS, our_columns, our_encode
from benchmarks.worker import iterates, polls, takes_batches

SAMPLES = 5
WARM_UPS = 2
MARK = "getpriority"
"""The function of the C library that ends a part of the count. Nothing else calls it."""

TOPIC, PARTITIONS = "hot", 4
READ_TOPIC, READ_RECORDS = "read", 8_000
VALUE = b"v" * 100
HEARTBEAT = 0.05

Sample = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, and what one sample of it does so many times."""

    name: str
    unit: str
    count: int
    prepare: Callable[[str, int], AbstractAsyncContextManager[Sample]]
    """Takes the bootstrap servers and ``count``, and yields the function that makes a sample."""


@asynccontextmanager
async def send_nowait(servers: str, count: int) -> AsyncIterator[Sample]:
    async with Producer(servers, batch_size=1 << 20, linger=0.005) as producer:

        async def sample() -> None:
            deliveries = [producer.send_nowait(TOPIC, VALUE) for _ in range(count)]
            await producer.flush()
            for delivery in deliveries:
                await delivery

        yield sample


@asynccontextmanager
async def lone_send(servers: str, count: int) -> AsyncIterator[Sample]:
    async with Producer(servers) as producer:

        async def sample() -> None:
            for _ in range(count):
                await producer.send(TOPIC, VALUE)

        yield sample


def transaction(records: int) -> Callable[[str, int], AbstractAsyncContextManager[Sample]]:
    @asynccontextmanager
    async def prepare(servers: str, count: int) -> AsyncIterator[Sample]:
        linger = 0.005 if records > 1 else 0.0
        async with Producer(servers, transactional_id=uuid.uuid4().hex, linger=linger) as producer:

            async def sample() -> None:
                for _ in range(count):
                    async with producer.transaction() as transaction:
                        for _ in range(records):
                            transaction.send_nowait(TOPIC, VALUE)

            yield sample

    return prepare


def read(
    all_records: Callable[[Consumer, int], Awaitable[None]],
) -> Callable[[str, int], AbstractAsyncContextManager[Sample]]:
    @asynccontextmanager
    async def prepare(servers: str, count: int) -> AsyncIterator[Sample]:
        partitions = [TopicPartition(READ_TOPIC, number) for number in range(PARTITIONS)]
        async with Consumer(servers, isolation_level="read_uncommitted", auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)

            async def sample() -> None:
                for partition in partitions:
                    consumer.seek(partition, 0)
                await all_records(consumer, count)

            yield sample

    return prepare


@asynccontextmanager
async def _member(servers: str, heartbeat: float) -> AsyncIterator[Consumer]:
    """Yield a member that owns a partition and reads nothing."""
    async with Consumer(
        servers, topics=[TOPIC], group_id=uuid.uuid4().hex, auto_commit=False, heartbeat_interval=heartbeat
    ) as consumer:
        while not consumer.assignment:
            await consumer.poll(1, timeout=0.1)
        consumer.pause()
        await consumer.poll(timeout=1.0)  # the fetch in flight ends
        yield consumer


@asynccontextmanager
async def commit(servers: str, count: int) -> AsyncIterator[Sample]:
    async with _member(servers, heartbeat=3.0) as consumer:
        partition = consumer.assignment[0]

        async def sample() -> None:
            for offset in range(count):
                (await consumer.commit({partition: offset})).raise_for_refused()

        yield sample


@asynccontextmanager
async def heartbeat(servers: str, count: int) -> AsyncIterator[Sample]:
    async with _member(servers, HEARTBEAT) as consumer:

        def heartbeats() -> int:
            group = consumer.metrics().group
            assert group is not None
            assert group.member is not None
            return group.member.heartbeats.latency.count

        async def sample() -> None:
            last = heartbeats() + count
            while (missing := last - heartbeats()) > 0:
                await asyncio.sleep(missing * HEARTBEAT)

        yield sample


@asynccontextmanager
async def lookup(servers: str, count: int) -> AsyncIterator[Sample]:
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    async with Consumer(servers) as consumer:

        async def sample() -> None:
            for _ in range(count):
                await consumer.end_offsets(partitions)

        yield sample


def plain(call: Callable[[], object]) -> Callable[[str, int], AbstractAsyncContextManager[Sample]]:
    """Prepare a call that needs no broker."""

    @asynccontextmanager
    async def prepare(servers: str, count: int) -> AsyncIterator[Sample]:
        async def sample() -> None:
            call()

        yield sample

    return prepare


ROWS = WORKLOADS["usual: key of 8, value of 100"]
BATCH = our_encode(ROWS)

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("send_nowait, deliveries awaited", "record", 3_000, send_nowait),
        Operation("lone send", "send", 50, lone_send),
        Operation("poll(5000)", "record", READ_RECORDS, read(polls(5000))),
        Operation("async for", "record", READ_RECORDS, read(iterates)),
        Operation("batches(5000), all values", "record", READ_RECORDS, read(takes_batches)),
        Operation("commit", "commit", 50, commit),
        Operation("heartbeat", "heartbeat", 20, heartbeat),
        Operation("lookup of end offsets", "lookup", 50, lookup),
        Operation("transaction of 1", "transaction", 20, transaction(1)),
        Operation("transaction of 100", "transaction", 5, transaction(100)),
        Operation("decode a batch to columns", "record", len(ROWS), plain(lambda: our_columns(BATCH))),
        Operation("encode a batch, append by append", "record", len(ROWS), plain(lambda: our_encode(ROWS))),
    )
}


async def fill(servers: str) -> None:
    """Write what the consumers read, and one record into each partition of the other topic."""
    async with Producer(servers, batch_size=1 << 20) as producer:
        for number in range(PARTITIONS):
            await producer.send(TOPIC, VALUE, partition=number)
            values = [VALUE] * (READ_RECORDS // PARTITIONS)
            await producer.send_many(READ_TOPIC, values, partition=number)


def mark() -> None:
    os.getpriority(os.PRIO_PROCESS, 0)


async def take_samples(operation: Operation, servers: str) -> None:
    async with operation.prepare(servers, operation.count) as sample:
        for _ in range(WARM_UPS):
            await sample()
        for _ in range(SAMPLES):
            gc.collect()
            mark()
            await sample()
            mark()


async def main(servers: str, *names: str) -> None:
    await fill(servers)
    for name in names:
        await take_samples(OPERATIONS[name], servers)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""What being a member of a group takes: ``python -m benchmarks.groups``.

From a join to its first record: so many members have settled and read for a while, then one more joins, and the time
runs until it has a record in hand. Then the memory that 1,000 assigned, empty partitions take, and what idling with
them costs. On Apache Kafka, found as the tests find it, and on an embedded cluster, whose brokers are part of its
figures. On both, groups form without the wait for company when the first member joins
(group.initial.rebalance.delay.ms=0).
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka_lite import Consumer, EmbeddedCluster, Producer
from aiokafka_lite.group import CooperativeStickyStrategy, MemberState
from aiokafka_lite.net.connection import Connection
from benchmarks.kafka import apache_kafka, new_topic

MEMBERS = (1, 10, 50)
PARTITIONS = 50
ROUNDS = 3
SETTLED = 8.0
"""Seconds after which heartbeats of a cooperative group come at their interval again; they come sooner at first."""

MANY = 1_000
IDLE = 10.0
STRATEGIES = {"eager": None, "cooperative": [CooperativeStickyStrategy()]}


def member(servers: str, topic: str, group: str, strategy: str) -> Consumer:
    return Consumer(servers, topics=[topic], group_id=group, strategies=STRATEGIES[strategy], auto_commit=False)


async def fill(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        for number in range(PARTITIONS * 10):
            producer.send_nowait(topic, b"v" * 100, partition=number % PARTITIONS)
        await producer.flush()


async def first_record(servers: str, topic: str, group: str, count: int, strategy: str) -> float:
    """Seconds from when the last of ``count`` members begins to join until it has its first record."""
    members = [member(servers, topic, group, strategy) for _ in range(count)]
    reading: list[asyncio.Task[None]] = []
    try:
        for each in members[:-1]:
            await each.start()
            reading.append(asyncio.create_task(read_on(each)))
        await until_settled(members[:-1])
        await asyncio.sleep(SETTLED if count > 1 else 0.0)
        last = members[-1]
        await last.start()  # connecting and metadata: the group begins to be asked here
        began = time.perf_counter()
        async with asyncio.timeout(120):
            await anext(last)
        return time.perf_counter() - began
    finally:
        await asyncio.gather(*(each.close() for each in members))
        await asyncio.gather(*reading)


async def read_on(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


async def until_settled(members: list[Consumer]) -> None:
    async with asyncio.timeout(180):
        while members and not (
            all(each.membership is MemberState.STABLE for each in members)
            and sum(len(each.assignment) for each in members) == PARTITIONS
            and len({each.group_metadata().generation_id for each in members}) == 1
        ):
            await asyncio.sleep(0.05)


@contextmanager
def requests_counted() -> Iterator[list[str]]:
    """The requests that connections of this process send meanwhile."""
    sent: list[str] = []
    original = Connection.send_nowait

    def counting(self: Connection, request: object, **settings: object) -> object:
        sent.append(type(request).__name__)
        return original(self, request, **settings)  # type: ignore[arg-type]

    Connection.send_nowait = counting  # type: ignore[method-assign,assignment]
    try:
        yield sent
    finally:
        Connection.send_nowait = original  # type: ignore[method-assign]


async def many_partitions(servers: str, topic: str, group: str) -> str:
    """Memory for each of ``MANY`` partitions, and the cost of waiting for records of them."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    async with member(servers, topic, group, "eager") as consumer:
        reading = asyncio.create_task(read_on(consumer))
        async with asyncio.timeout(120):
            while len(consumer.assignment) < MANY:
                await asyncio.sleep(0.05)
            for partition in consumer.assignment:
                await consumer.position(partition)
        await asyncio.sleep(2.0)
        gc.collect()
        memory = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        with requests_counted() as sent:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(IDLE)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        kinds = {name: sent.count(name) for name in sorted(set(sent))}
    await reading
    return (
        f"{MANY:,} partitions: {memory / MANY / 1024:.1f} KiB each; idle {cpu / wall:.2%} of a core, "
        f"{len(sent) / wall:.1f} requests/s {kinds}"
    )


async def measure(servers: str) -> None:
    stamp = f"{time.time_ns():x}"
    topic = await new_topic(servers, f"groups-{stamp}", PARTITIONS)
    await fill(servers, topic)
    for strategy in STRATEGIES:
        for count in MEMBERS:
            times = [
                await first_record(servers, topic, f"{topic}-{strategy}-{count}-{number}", count, strategy)
                for number in range(ROUNDS)
            ]
            median = statistics.median(times)
            shown = ", ".join(f"{each:.3f}" for each in times)
            print(f"{strategy}, {count} members: first record after {median:.3f} s ({shown})", flush=True)
    many = await new_topic(servers, f"many-{stamp}", MANY)
    print(await many_partitions(servers, many, many), "\n", flush=True)


async def on_embedded() -> None:
    async with EmbeddedCluster(brokers=3, configs={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        await measure(cluster.bootstrap_servers)


def main() -> None:
    print("Embedded cluster of three brokers over TCP, in the same process\n")
    asyncio.run(on_embedded())
    with apache_kafka() as (servers, name):
        print(f"{name}\n")
        asyncio.run(measure(servers))


if __name__ == "__main__":
    main()

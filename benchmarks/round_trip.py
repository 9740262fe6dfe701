"""Produce and consume records of 100 bytes on Apache Kafka, against aiokafka: ``python -m benchmarks.round_trip``.

Kafka is found as the tests find it (KAFKA_BOOTSTRAP, a container, plain Java). Both clients run in turn in each round,
with the same settings: acks=all, idempotent, batches of 64 KiB, no linger, no compression, three partitions. Connecting
is not part of the time; waiting for the last acknowledgement is. CPU is this process's, without the broker's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiokafka_lite import BufferFull, Consumer, Producer
from aiokafka_lite.admin import create_topic
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.config import ClientConfig
from benchmarks.compare import tabulate
from tests.real.releases import NEWEST, wanted
from tests.real.servers import Servers, Unavailable

COUNT = 50_000
ROUNDS = 5
PARTITIONS = 3
VALUE = b"v" * 100
KEYS = [b"key-%05d" % number for number in range(1000)]

Timed = tuple[float, float]
Run = Callable[[str, str], Awaitable[Timed]]


class Stopwatch:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Timed:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


async def ours_produces(servers: str, topic: str) -> Timed:
    async with Producer(servers, acks="all", batch_size=65536) as producer:
        await producer.partitions_for(topic)
        watch = Stopwatch()
        for number in range(COUNT):
            while True:
                try:
                    producer.send_nowait(topic, VALUE, key=KEYS[number % 1000])
                    break
                except BufferFull:
                    await producer.drain()
        await producer.flush()
        return watch.read()


async def aiokafka_produces(servers: str, topic: str) -> Timed:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", enable_idempotence=True, max_batch_size=65536
    )
    await producer.start()
    try:
        await producer.partitions_for(topic)
        watch = Stopwatch()
        for number in range(COUNT):
            await producer.send(topic, VALUE, key=KEYS[number % 1000])
        await producer.flush()
        return watch.read()
    finally:
        await producer.stop()


async def ours_polls(servers: str, topic: str) -> Timed:
    async with Consumer(servers, topics=[topic]) as consumer:
        watch, left = Stopwatch(), COUNT
        while left > 0:
            left -= len(await consumer.poll(max_records=5000, timeout=10.0))
        return watch.read()


async def ours_iterates(servers: str, topic: str) -> Timed:
    async with Consumer(servers, topics=[topic]) as consumer:
        watch, left = Stopwatch(), COUNT
        async for _ in consumer:
            left -= 1
            if left == 0:
                break
        return watch.read()


async def aiokafka_polls(servers: str, topic: str) -> Timed:
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        watch, left = Stopwatch(), COUNT
        while left > 0:
            batches = await consumer.getmany(timeout_ms=10_000, max_records=5000)
            left -= sum(map(len, batches.values()))
        return watch.read()
    finally:
        await consumer.stop()


async def aiokafka_iterates(servers: str, topic: str) -> Timed:
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        watch, left = Stopwatch(), COUNT
        async for _ in consumer:
            left -= 1
            if left == 0:
                break
        return watch.read()
    finally:
        await consumer.stop()


async def new_topic(servers: str, name: str) -> str:
    async with Client(ClientConfig(bootstrap_servers=servers)) as client:
        await create_topic(client, name, partitions=PARTITIONS)
        with suppress(Exception):  # the first to ask may be told that it is not there yet; the producer asks again
            await client.topic(name)
    return name


def compare_runs(servers: str, title: str, candidates: dict[str, Run], topic_for: Callable[[str, int], str]) -> None:
    wall: dict[str, list[float]] = {name: [] for name in candidates}
    cpu: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for number in range(-1, ROUNDS):  # the first round warms up the broker and the caches, and is not counted
        for name in names[number % 2 :] + names[: number % 2]:
            seconds, cpu_seconds = asyncio.run(_one(candidates[name], servers, topic_for(name, number)))
            if number >= 0:
                wall[name].append(seconds / COUNT)
                cpu[name].append(cpu_seconds / COUNT)
    print(tabulate(wall, cpu, title=title, unit="record"), "\n")


async def _one(run: Run, servers: str, topic: str) -> Timed:
    return await run(servers, topic)


def main() -> None:
    servers_here = Servers()
    name = "given" if wanted("default")[1] == "given" else NEWEST
    try:
        server, kind = servers_here.get(name)
    except Unavailable as problem:
        sys.exit(f"no Apache Kafka to measure on: {problem}")
    try:
        servers = server.bootstrap_servers
        print(f"Apache Kafka {name} ({kind}), {COUNT:,} records of {len(VALUE)} bytes, {ROUNDS} rounds\n")
        stamp = f"{time.time_ns():x}"

        def fresh(who: str, number: int) -> str:
            return asyncio.run(new_topic(servers, f"bench-{stamp}-{who}-{number + 1}"))

        compare_runs(servers, "produce", {"aiokafka_lite": ours_produces, "aiokafka": aiokafka_produces}, fresh)
        filled = fresh("filled", 0)
        asyncio.run(_one(ours_produces, servers, filled))
        for title, ours, theirs in (
            ("consume, many at a time", ours_polls, aiokafka_polls),
            ("consume, one by one", ours_iterates, aiokafka_iterates),
        ):
            compare_runs(servers, title, {"aiokafka_lite": ours, "aiokafka": theirs}, lambda *_: filled)
    finally:
        servers_here.stop()


if __name__ == "__main__":
    main()

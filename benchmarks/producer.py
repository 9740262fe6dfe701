"""Awaited and bulk sends on Apache Kafka, against other clients: ``python -m benchmarks producer``.

Kafka is found as the tests find it (KAFKA_BOOTSTRAP, a container, plain Java). All clients write records of 100 bytes
with keys to one topic of three partitions, acks=all, idempotent, batches of 64 KiB, no compression, no linger, and take
turns in each round. Connecting is not part of the time. CPU is this process's with all its threads, without the broker.

Each client has the settings that suit it best. ``AIOProducer`` of confluent-kafka collects records before it passes
them to its thread. Its limits are set to a tenth of the number of senders, and to 5 ms; with its defaults of 1,000
records and a second, a lone awaited send would take a second. A task polls for its callbacks all the time, because it
polls only ten times a second by itself. In bulk it has its defaults. The Producer of confluent-kafka has nothing to
await: a lone send polls until its callback was called. In bulk it has its default linger of 5 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from aiokafka_lite import BufferFull, Producer
from benchmarks.compare import in_turn
from benchmarks.kafka import KEYS, PARTITIONS, VALUE, Stopwatch, Timed, apache_kafka, in_rounds, new_topic

ROUNDS = 5
LONE_SENDS = 300
SENDS = {100: 10_000, 10_000: 30_000}
BULK = 50_000
BATCH = 65536


class Client:
    """A producer of some library, connected; what it cannot do, it does not have."""

    def __init__(self, servers: str, topic: str, senders: int) -> None:
        self.servers, self.topic, self.senders = servers, topic, senders
        self.producer: Any = None

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Ours(Client):
    async def start(self) -> None:
        self.producer = Producer(self.servers, acks="all", batch_size=BATCH)
        await self.producer.start()
        await self.producer.partitions_for(self.topic)

    async def send(self, number: int) -> None:
        await self.producer.send(self.topic, VALUE, key=KEYS[number % 1000])

    async def bulk(self, count: int) -> None:
        producer, topic = self.producer, self.topic
        for number in range(count):
            while True:
                try:
                    producer.send_nowait(topic, VALUE, key=KEYS[number % 1000])
                    break
                except BufferFull:
                    await producer.drain()
        await producer.flush()

    async def stop(self) -> None:
        await self.producer.close()


class OursMany(Ours):
    async def bulk(self, count: int) -> None:
        keys = [KEYS[number % 1000] for number in range(count)]
        await self.producer.send_many(self.topic, [VALUE] * count, keys=keys)


class AiokafkaClient(Client):
    async def start(self) -> None:
        import aiokafka

        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers, acks="all", enable_idempotence=True, max_batch_size=BATCH
        )
        await self.producer.start()
        await self.producer.partitions_for(self.topic)

    async def send(self, number: int) -> None:
        await self.producer.send_and_wait(self.topic, VALUE, key=KEYS[number % 1000])

    async def bulk(self, count: int) -> None:
        for number in range(count):
            await self.producer.send(self.topic, VALUE, key=KEYS[number % 1000])
        await self.producer.flush()

    async def stop(self) -> None:
        await self.producer.stop()


def _librdkafka(servers: str, linger: int) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": BATCH,
        "linger.ms": linger,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 1_000_000,
    }


class ConfluentSync(Client):
    async def start(self) -> None:
        from confluent_kafka import Producer as ConfluentProducer

        self.producer = ConfluentProducer(_librdkafka(self.servers, 0 if self.senders else 5))
        self.producer.list_topics(self.topic, 10)
        self.left = 0

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            raise RuntimeError(error)
        self.left -= 1

    async def send(self, number: int) -> None:
        self.left = 1
        self.producer.produce(self.topic, VALUE, KEYS[number % 1000], on_delivery=self._delivered)
        while self.left:
            self.producer.poll(1.0)

    async def bulk(self, count: int) -> None:
        producer, topic, delivered = self.producer, self.topic, self._delivered
        self.left = count
        for number in range(count):
            producer.produce(topic, VALUE, KEYS[number % 1000], on_delivery=delivered)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()
        assert self.left == 0

    async def stop(self) -> None:
        self.producer.flush()


class ConfluentAsync(Client):
    async def start(self) -> None:
        from confluent_kafka.aio import AIOProducer

        if self.senders:
            options = {"batch_size": max(1, self.senders // 10), "buffer_timeout": 0.005}
            self.producer = AIOProducer(_librdkafka(self.servers, 0), **options)
        else:
            self.producer = AIOProducer(_librdkafka(self.servers, 5))
        await self.producer.list_topics(self.topic, 10)
        self.poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await self.producer.poll(0.1)

    async def send(self, number: int) -> None:
        await (await self.producer.produce(self.topic, VALUE, KEYS[number % 1000]))

    async def bulk(self, count: int) -> None:
        futures = [await self.producer.produce(self.topic, VALUE, KEYS[number % 1000]) for number in range(count)]
        await self.producer.flush()
        await asyncio.gather(*futures)

    async def stop(self) -> None:
        self.poller.cancel()
        await asyncio.wait([self.poller])
        await self.producer.close()


async def one_by_one(client: Any) -> list[float]:
    """Seconds that each of some lone sends took."""
    times = []
    for number in range(LONE_SENDS):
        before = time.perf_counter()
        await client.send(number)
        times.append(time.perf_counter() - before)
    return times


async def concurrently(client: Any, senders: int, count: int) -> None:
    """So many tasks that each send one record after the other."""

    async def sender(first: int) -> None:
        for number in range(first, count, senders):
            await client.send(number)

    await asyncio.gather(*(sender(first) for first in range(senders)))


Makers = dict[str, Callable[[str, str, int], Client]]

LONE: Makers = {
    "aiokafka_lite": Ours,
    "aiokafka": AiokafkaClient,
    "confluent AIOProducer": ConfluentAsync,
    "confluent Producer": ConfluentSync,
}
AWAITED: Makers = {name: LONE[name] for name in ("aiokafka_lite", "aiokafka", "confluent AIOProducer")}
IN_BULK: Makers = {
    "aiokafka_lite send_nowait": Ours,
    "aiokafka_lite send_many": OursMany,
    "aiokafka": AiokafkaClient,
    "confluent AIOProducer": ConfluentAsync,
    "confluent Producer": ConfluentSync,
}


async def with_client(client: Client, work: Callable[[Any], Any]) -> Any:
    await client.start()
    try:
        await client.send(0) if hasattr(client, "send") else None  # the first one gets a producer id
        return await work(client)
    finally:
        await client.stop()


def compare_latency(servers: str, topic: str) -> None:
    p50: dict[str, list[float]] = {name: [] for name in LONE}
    p99: dict[str, list[float]] = {name: [] for name in LONE}
    for number in range(-1, ROUNDS):
        for name in in_turn(LONE, number):
            times = sorted(asyncio.run(with_client(LONE[name](servers, topic, 1), one_by_one)))
            if number >= 0:
                p50[name].append(times[len(times) // 2])
                p99[name].append(times[int(len(times) * 0.99)])
    print(f"{'one awaited send':<24} {'p50':>9} {'p99':>9}  p50 ratio")
    for name in LONE:
        ratio = median(own / base for own, base in zip(p50[name], p50["aiokafka_lite"]))
        print(f"{name:<24} {median(p50[name]) * 1e3:6.2f} ms {median(p99[name]) * 1e3:6.2f} ms  {ratio:6.2f}")
    print()


def compare_work(title: str, makers: Makers, servers: str, topic: str, senders: int, count: int) -> None:
    async def timed(client: Any) -> Timed:
        watch = Stopwatch()
        if senders:
            await concurrently(client, senders, count)
        else:
            await client.bulk(count)
        return watch.read()

    def run(maker: Callable[[str, str, int], Client]) -> Timed:
        return asyncio.run(with_client(maker(servers, topic, senders), timed))

    print(in_rounds(title, makers, run, rounds=ROUNDS, count=count), "\n")


def main() -> None:
    with apache_kafka() as (servers, name):
        print(f"{name}, {len(VALUE)} bytes, {PARTITIONS} partitions, {ROUNDS} rounds\n")
        topic = asyncio.run(new_topic(servers))
        compare_latency(servers, topic)
        for senders, count in SENDS.items():
            compare_work(f"{senders:,} senders", AWAITED, servers, topic, senders, count)
        compare_work("in bulk", IN_BULK, servers, topic, 0, BULK)


if __name__ == "__main__":
    main()

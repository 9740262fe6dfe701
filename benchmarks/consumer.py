"""Read records of 100 bytes from Apache Kafka, against other clients: ``python -m benchmarks.consumer``.

Kafka is found as the tests find it (KAFKA_BOOTSTRAP, a container, plain Java). A topic of three partitions is filled
once; then each way of reading reads all of it in each round, in turn. Checksums are checked where a client can
(confluent-kafka needs ``check.crcs`` for this). All clients use read_uncommitted, because kafka-python supports nothing
else. Connections that are made after the assignment are part of the time. CPU is the time of all threads of this
process.

Then the cost of waiting: memory, CPU and requests of a consumer of 1,000 empty partitions, on an embedded cluster whose
requests are counted.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.messages import FetchRequest
from benchmarks.kafka import KEYS, PARTITIONS, VALUE, Stopwatch, Timed, apache_kafka, in_rounds, new_topic

ROUNDS = 5
COUNT = 200_000

Read = Callable[[str, str], Timed]


def partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def in_a_loop(read: Callable[[Consumer], Awaitable[object]], **settings: int) -> Read:
    async def run(servers: str, topic: str) -> Timed:
        async with Consumer(servers, isolation_level="read_uncommitted", **settings) as consumer:  # type: ignore[arg-type]
            watch = Stopwatch()
            consumer.assign(partitions_of(topic))
            await read(consumer)
            return watch.read()

    return lambda servers, topic: asyncio.run(run(servers, topic))


async def iterates(consumer: Consumer) -> None:
    left = COUNT
    async for _ in consumer:
        left -= 1
        if left == 0:
            return


async def polls(consumer: Consumer) -> None:
    left = COUNT
    while left:
        left -= len(await consumer.poll(500, timeout=10.0))


async def takes_batches(consumer: Consumer) -> None:
    left = COUNT
    async for batch in consumer.batches():
        left -= len(batch)
        if left == 0:
            return


async def takes_arrow(consumer: Consumer) -> None:
    left = COUNT
    async for batch in consumer.batches():
        left -= batch.to_arrow().num_rows
        if left == 0:
            return


def confluent(servers: str, topic: str, *, many: bool) -> Timed:
    from confluent_kafka import Consumer as Theirs
    from confluent_kafka import TopicPartition as Place

    settings = {
        "bootstrap.servers": servers,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "check.crcs": True,
    }
    consumer = Theirs(settings)
    try:
        watch = Stopwatch()
        consumer.assign([Place(topic, number, 0) for number in range(PARTITIONS)])
        left = COUNT
        while left > 0:
            if many:
                for message in consumer.consume(5000, timeout=10.0):
                    message.value()
                    left -= 1
            elif (message := consumer.poll(10.0)) is not None:
                message.value()
                left -= 1
        return watch.read()
    finally:
        consumer.close()


def confluent_consumes(servers: str, topic: str) -> Timed:
    return confluent(servers, topic, many=True)


def confluent_polls(servers: str, topic: str) -> Timed:
    return confluent(servers, topic, many=False)


def aiokafka_reads(servers: str, topic: str, *, many: bool) -> Timed:
    import aiokafka

    async def run() -> Timed:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            watch = Stopwatch()
            consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
            left = COUNT
            if many:
                while left > 0:
                    batches = await consumer.getmany(timeout_ms=10_000, max_records=500)
                    left -= sum(map(len, batches.values()))
            else:
                async for _ in consumer:
                    left -= 1
                    if left == 0:
                        break
            return watch.read()
        finally:
            await consumer.stop()

    return asyncio.run(run())


def aiokafka_gets_many(servers: str, topic: str) -> Timed:
    return aiokafka_reads(servers, topic, many=True)


def aiokafka_iterates(servers: str, topic: str) -> Timed:
    return aiokafka_reads(servers, topic, many=False)


def kafka_python_polls(servers: str, topic: str) -> Timed:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None
    )
    try:
        watch = Stopwatch()
        consumer.assign([kafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
        left = COUNT
        while left > 0:
            left -= sum(map(len, consumer.poll(timeout_ms=10_000, max_records=500).values()))
        return watch.read()
    finally:
        consumer.close()


READERS: dict[str, Read] = {
    "poll(500)": in_a_loop(polls),
    "async for": in_a_loop(iterates),
    "batches()": in_a_loop(takes_batches),
    "batches().to_arrow()": in_a_loop(takes_arrow),
    "confluent-kafka consume(5000)": confluent_consumes,
    "confluent-kafka poll": confluent_polls,
    "aiokafka getmany(500)": aiokafka_gets_many,
    "aiokafka async for": aiokafka_iterates,
    "kafka-python poll(500)": kafka_python_polls,
}


def compare_readers(servers: str, topic: str) -> None:
    def run(read: Read) -> Timed:
        gc.collect()
        return read(servers, topic)

    table = in_rounds("read", READERS, run, rounds=ROUNDS, count=COUNT)
    print(table)
    for result in table.results:
        print(f"{result.name:<32} {1 / result.wall:>12,.0f} records/s {result.cpu * 1e6:8.2f} µs of CPU each")
    print()


async def cost_of_waiting(partitions: int = 1000, seconds: float = 20.0) -> None:
    """What a consumer of many empty partitions takes, and what it asks for."""
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        await cluster.create_topic("wide", partitions=partitions)
        tracemalloc.start()
        async with Consumer(cluster.bootstrap_servers, connector=cluster.connector, topics=["wide"]) as consumer:
            await consumer.lag()
            await consumer.poll(timeout=2.0)
            cluster.history.clear()
            gc.collect()
            used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        print(f"memory of {partitions:,} partitions: {used / 1024 / partitions:.1f} KiB each, the brokers' included")
        watch = Stopwatch()
        async with Consumer(cluster.bootstrap_servers, connector=cluster.connector, topics=["wide"]) as consumer:
            await consumer.lag()
            await consumer.poll(timeout=2.0)
            print(f"until all positions are known: {watch.read()[1]:.2f} s of CPU, the brokers' included")
            cluster.history.clear()
            watch = Stopwatch()
            await consumer.poll(timeout=seconds)
            wall, cpu = watch.read()
            requests = len(cluster.history.of(FetchRequest))
            print(f"idle: {cpu / wall:.2%} of a core, the brokers' included; {requests / wall:.1f} requests/s")


async def fill(servers: str, topic: str) -> None:
    """Write the records to read, in batches of 64 KiB."""
    async with Producer(servers) as producer:
        for number in range(COUNT):
            await producer.put(topic, VALUE, key=KEYS[number % 1000])


def main() -> None:
    with apache_kafka() as (servers, name):
        topic = asyncio.run(new_topic(servers))
        asyncio.run(fill(servers, topic))
        print(f"{name}, {COUNT:,} records of 100 bytes, {ROUNDS} rounds\n")
        compare_readers(servers, topic)
    asyncio.run(cost_of_waiting())


if __name__ == "__main__":
    main()

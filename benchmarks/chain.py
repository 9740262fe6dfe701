"""Three consumer groups in a chain move records from topic to topic: ``python -m benchmarks.chain``.

aiokafka and confluent-kafka take turns on the embedded broker, and on Apache Kafka if ``KAFKA_BOOTSTRAP`` names one.
Every stage is a process with a group of its own: it reads the available records, writes them to the next topic, waits
until they are acknowledged, and commits. The time counts from the first record of the first topic to the last record of
the last topic. The CPU is that of the embedded broker.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.kafka import embedded_broker

COUNT = 500_000
STAGES = 3
PARTITIONS = 3
VALUE = b"x" * 50


async def fill_aiokafka(servers: str, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for _ in range(count):
            await producer.send(topic, VALUE)
        await producer.flush()


async def move_aiokafka(servers: str, source: str, target: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=servers, group_id=source, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        while count > 0:
            by_partition = await consumer.getmany(timeout_ms=1000, max_records=500)
            for records in by_partition.values():
                for record in records:
                    await producer.send(target, record.value)
                count -= len(records)
            await producer.flush()
            await consumer.commit()


def fill_confluent(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, VALUE)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def move_confluent(servers: str, source: str, target: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": source,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": servers})
    consumer.subscribe([source])
    while count > 0:
        records = consumer.consume(500, 0.05)
        for record in records:
            producer.produce(target, record.value())
        producer.flush()
        if records:
            consumer.commit(asynchronous=False)
        count -= len(records)
    consumer.close()


def run_stage(client: str, servers: str, source: str | None, target: str, count: int) -> None:
    """Run one process. If ``source`` is None, it writes the first topic."""
    if client == "aiokafka":
        work = move_aiokafka(servers, source, target, count) if source else fill_aiokafka(servers, target, count)
        asyncio.run(work)
    elif source:
        move_confluent(servers, source, target, count)
    else:
        fill_confluent(servers, target, count)


def seconds_of(client: str, servers: str, count: int) -> float:
    """Return the seconds until the last topic has all records."""
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [f"chain-{time.time_ns():x}-{number}" for number in range(STAGES + 1)]
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        created.result(30)
    pairs = list(zip([None, *topics], topics, strict=False))
    spawn = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    stages = [spawn.Process(target=run_stage, args=(client, servers, *pair, count)) for pair in pairs]
    for stage in stages:
        stage.start()
    for stage in stages:
        stage.join()
        assert stage.exitcode == 0
    return time.perf_counter() - began


def main() -> None:
    count = int(os.environ.get("CHAIN_RECORDS", COUNT))
    servers = os.environ.get("KAFKA_BOOTSTRAP")
    print(f"{count:,} records of {len(VALUE)} bytes through {STAGES} groups\n")
    print("| client | embedded broker | its CPU | Apache Kafka | ratio |\n|---|---:|---:|---:|---:|")
    for client in ("aiokafka", "confluent-kafka"):
        with embedded_broker() as (address, pid):
            on_embedded = seconds_of(client, address, count)
            cpu = sum(psutil.Process(pid).cpu_times()[:2])
        on_kafka = seconds_of(client, servers, count) if servers else float("nan")
        ratio = on_embedded / on_kafka
        print(f"| {client} | {on_embedded:.1f} s | {cpu:.1f} s | {on_kafka:.1f} s | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

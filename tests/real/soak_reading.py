"""Reads a topic of ``make soak-real`` at the end, as a reader of committed records: this client and confluent-kafka."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import TypeAlias

import confluent_kafka

from aiokafka_lite import Consumer, TopicPartition
from tests.end_to_end.send_history import Found

READ_TIMEOUT = 180.0
"""Seconds in which a topic can be read to its end, and all transactions have ended."""

Logs: TypeAlias = dict[TopicPartition, list[Found]]


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


async def read_all(servers: str, partitions: Sequence[TopicPartition]) -> Logs:
    """Return all committed records. Waits until no transaction is open."""
    logs: Logs = {partition: [] for partition in partitions}
    async with Consumer(servers, isolation_level="read_uncommitted") as uncommitted, Consumer(servers) as consumer:
        ends = await uncommitted.end_offsets(partitions, timeout=READ_TIMEOUT)
        consumer.assign(partitions)
        async with asyncio.timeout(READ_TIMEOUT):
            while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
                for record in await consumer.poll(5000, timeout=1.0):
                    place = TopicPartition(record.topic, record.partition)
                    logs[place].append(Found(place, record.offset, bytes(record.value or b"")))
    return logs


def read_by_confluent_kafka(servers: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[bytes]]:
    """Return the values of all committed records, when no transaction is open."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": uuid.uuid4().hex,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign(
        [confluent_kafka.TopicPartition(partition.topic, partition.partition, 0) for partition in partitions]
    )
    values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
    open_partitions = set(partitions)
    deadline = time.monotonic() + READ_TIMEOUT
    try:
        while open_partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"confluent-kafka did not read {open_partitions} to the end")
            message = consumer.poll(1.0)
            if message is None:
                continue
            place = TopicPartition(message.topic(), message.partition())
            if message.error() is None:
                values[place].append(message.value())
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                open_partitions.discard(place)
    finally:
        consumer.close()
    return values


def values_of(logs: Logs) -> dict[TopicPartition, list[bytes]]:
    return {partition: [record.value for record in log] for partition, log in logs.items()}

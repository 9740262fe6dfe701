"""``aiokafka-lite bench``: what this client and a cluster do together."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice

from aiokafka_lite.admin import Admin, NewTopic
from aiokafka_lite.errors import BufferFull, KafkaError, UnknownTopic

from .connection import Connection
from .output import Output, Table
from .progress import progress

CHUNK = 500
DIFFERENT = 1000
SINGLE_SENDS = 200
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: how many values of how many bytes, to a topic of what kind, with which settings."""

    records: int
    size: int
    partitions: int
    replicas: int
    settings: dict[str, object]


async def bench(connection: Connection, output: Output, load: Load) -> int:
    """Write, read, and send one at a time; show how quick that was."""
    topic = f"aiokafka-lite-bench-{secrets.token_hex(4)}"
    async with connection.admin() as admin:
        (await admin.topics.create(NewTopic(topic, load.partitions, load.replicas))).raise_for_errors()
        try:
            await _until_known(admin, topic)
            produced = await _produce(connection, topic, load)
            consumed = await _consume(connection, topic, load)
            latencies = await _send_singly(connection, topic, load)
        finally:
            await admin.topics.delete(topic)
    size = load.records * load.size / 1e6
    rows = [
        (what, load.records, round(seconds, 3), round(load.records / seconds), round(size / seconds, 1))
        for what, seconds in (("produce", produced), ("consume", consumed))
    ]
    hundredths = statistics.quantiles(latencies, n=100)
    output.show_all(
        {
            "throughput": Table(("WHAT", "RECORDS", "SECONDS", "RECORDS-PER-SECOND", "MB-PER-SECOND"), rows),
            "latency": Table(
                ("WHAT", "SENDS", "P50-MS", "P95-MS", "P99-MS"),
                [("send", len(latencies), *(round(hundredths[which] * 1000, 3) for which in (49, 94, 98)))],
            ),
        }
    )
    return 0


async def _until_known(admin: Admin, topic: str) -> None:
    """A new topic is known to the controller first, and a moment later to all."""
    began = time.perf_counter()
    while True:
        try:
            described = (await admin.topics.describe(topic))[topic]
            if all(each.leader is not None for each in described.partitions):
                return
        except UnknownTopic:
            if time.perf_counter() - began > PATIENCE:
                raise


def _values(load: Load) -> Iterable[bytes]:
    different = [secrets.token_bytes(load.size) for _ in range(min(DIFFERENT, load.records))]
    return islice(cycle(different), load.records)


async def _produce(connection: Connection, topic: str, load: Load) -> float:
    """Seconds until all is acknowledged, without the time to connect."""
    async with connection.producer({}, load.settings) as producer:
        await producer.partitions_for(topic)
        values = list(_values(load))
        with progress("produced", load.records, in_bytes=False) as bar:
            began = time.perf_counter()
            for number, value in enumerate(values, 1):
                while True:
                    try:
                        producer.send_nowait(topic, value)
                        break
                    except BufferFull:
                        await producer.drain()
                if number % CHUNK == 0:
                    await producer.drain()
                    bar.advance(CHUNK, number)
            await producer.flush()
            seconds = time.perf_counter() - began
        lost = producer.metrics().records_failed
        if lost:
            raise KafkaError(f"{lost} of {load.records} records were not delivered")
    return seconds


async def _consume(connection: Connection, topic: str, load: Load) -> float:
    """Seconds until all has been read, without the time to connect."""
    async with connection.consumer(None, topics=[topic], auto_offset_reset="earliest") as consumer:
        with progress("consumed", load.records, in_bytes=False) as bar:
            began = time.perf_counter()
            read = 0
            async for batch in consumer.batches():
                read += len(batch)
                bar.advance(len(batch), read)
                if read >= load.records:
                    break
            return time.perf_counter() - began


async def _send_singly(connection: Connection, topic: str, load: Load) -> list[float]:
    """Seconds that each awaited send took, one after the other."""
    latencies = []
    async with connection.producer({}, load.settings) as producer:
        await producer.partitions_for(topic)
        for value in islice(cycle(_values(load)), SINGLE_SENDS):
            began = time.perf_counter()
            await producer.send(topic, value)
            latencies.append(time.perf_counter() - began)
    return latencies

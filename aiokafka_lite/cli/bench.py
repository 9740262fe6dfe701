"""``aiokafka-lite bench``: the throughput and the latency of this client with a cluster."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice

from ..errors import KafkaError
from .terminal.connection import ConnectionOptions
from .terminal.output import Cell, Output, Table
from .terminal.progress import progress
from .terminal.temporary import temporary_topic

CHUNK = 500
DIFFERENT_VALUES = 1000
SINGLE_SENDS = 200


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """Number and size of the values, the partitions and replicas of the topic, and the producer's settings."""

    records: int
    size: int
    partitions: int
    replicas: int
    settings: dict[str, object]

    def values(self) -> Iterable[bytes]:
        """Return random values, which repeat after ``DIFFERENT_VALUES``."""
        different = [secrets.token_bytes(self.size) for _ in range(min(DIFFERENT_VALUES, self.records))]
        return islice(cycle(different), self.records)


async def bench(connection: ConnectionOptions, output: Output, load: BenchLoad) -> int:
    """Write, read, and send one by one, in a temporary topic; show the throughput and the latency."""
    async with (
        connection.admin() as admin,
        temporary_topic(admin, "bench", load.partitions, load.replicas) as topic,
    ):
        durations = {
            "produce": await _produce(connection, topic, load),
            "consume": await _consume(connection, topic, load),
        }
        latencies = await _send_singly(connection, topic, load)
    megabytes = load.records * load.size / 1e6
    rows = [
        (what, load.records, round(seconds, 3), round(load.records / seconds), round(megabytes / seconds, 1))
        for what, seconds in durations.items()
    ]
    percentiles = statistics.quantiles(latencies, n=100)
    latency: list[Cell] = [round(percentiles[which - 1] * 1000, 3) for which in (50, 95, 99)]
    output.show_all(
        {
            "throughput": Table(("WHAT", "RECORDS", "SECONDS", "RECORDS-PER-SECOND", "MB-PER-SECOND"), rows),
            "latency": Table(("WHAT", "SENDS", "P50-MS", "P95-MS", "P99-MS"), [("send", len(latencies), *latency)]),
        }
    )
    return 0


async def _produce(connection: ConnectionOptions, topic: str, load: BenchLoad) -> float:
    """Write all records. Return the seconds until all are acknowledged, without the time to connect."""
    async with connection.producer({}, load.settings) as producer:
        await producer.partitions_for(topic)
        values = list(load.values())
        with progress("produced", load.records, in_bytes=False) as bar:
            began = time.perf_counter()
            for start in range(0, len(values), CHUNK):
                chunk = values[start : start + CHUNK]
                for value in chunk:
                    await producer.put(topic, value)
                await producer.drain()
                bar.advance(len(chunk), start + len(chunk))
            await producer.flush()
            seconds = time.perf_counter() - began
        if lost := producer.metrics().records_failed:
            raise KafkaError(f"{lost} of {load.records} records were not delivered")
    return seconds


async def _consume(connection: ConnectionOptions, topic: str, load: BenchLoad) -> float:
    """Read all records. Return the seconds that it took, without the time to connect."""
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


async def _send_singly(connection: ConnectionOptions, topic: str, load: BenchLoad) -> list[float]:
    """Send records one after the other. Return the seconds that each awaited send took."""
    latencies = []
    async with connection.producer({}, load.settings) as producer:
        await producer.partitions_for(topic)
        for value in islice(cycle(load.values()), SINGLE_SENDS):
            began = time.perf_counter()
            await producer.send(topic, value)
            latencies.append(time.perf_counter() - began)
    return latencies

"""The memory of a producer with many partitions, and with a broker that has stopped answering."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BufferFull, KafkaTimeout
from aiokafka_lite.producer import Producer
from tests.embedded.producer.producers_and_logs import producer_of

MIB = 1024 * 1024


class Meter:
    """Bytes allocated since it was made, by everything in the process."""

    def __init__(self) -> None:
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]

    @property
    def now(self) -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - self._before

    @property
    def peak(self) -> int:
        return tracemalloc.get_traced_memory()[1] - self._before


@pytest.fixture(autouse=True)
def _traced_no_longer_than_needed() -> Iterator[None]:
    yield
    tracemalloc.stop()


async def fill(producer: Producer, size: int, partitions: int) -> int:
    """Send until there is no more room. Returns the number of records."""
    count, value = 0, bytes(size)
    while True:
        try:
            producer.send_nowait("t", value, partition=count % partitions)
        except BufferFull:
            return count
        count += 1
        if count % 500 == 0:
            await asyncio.sleep(0.001)


FULL_SIZE = [(1_000, 3, {}), (900_000, 3, {}), (10_000, 2_000, {})]
SMALL = [
    (100, 3, {}),
    (100, 3, {"compression": "zstd"}),
    (5, 3, {"batch_size": 200}),
    (100, 1_000, {"batch_size": 1}),
    (300, 3, {"batch_size": 1_000, "acks": 0}),
]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "buffer_memory, size, partitions, settings",
    [(32 * MIB, *case) for case in FULL_SIZE] + [(4 * MIB, *case) for case in SMALL],
)
async def test_memory_is_bounded_when_the_broker_stops_answering(
    buffer_memory: int, size: int, partitions: int, settings: dict[str, Any]
) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("t", partitions)
        async with producer_of(cluster, buffer_memory=buffer_memory, **settings) as producer:
            await producer.send("t", b"v", partition=0)
            await cluster.freeze(1)
            meter = Meter()
            assert await fill(producer, size, partitions) > 20
            await asyncio.sleep(2.0)
            # Data in flight exists twice, as batches and as requests. Small buffers may take 1 MiB more.
            slack = 32 * MIB if buffer_memory == 32 * MIB else buffer_memory + MIB
            assert meter.peak < buffer_memory + slack
            await producer.close(0.1)
            assert producer.metrics().buffered_bytes == 0


@pytest.mark.thorough
async def test_ten_thousand_idle_partitions_need_little_memory() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("t", 10_000)
        async with producer_of(cluster) as producer:
            await producer.partitions_for("t")
            meter = Meter()
            await producer.send("t", b"v", partition=0)
            assert meter.now < 10_000 * 700


async def test_expired_batches_leave_no_memory_in_use() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("t", 1_000)
        async with producer_of(cluster, delivery_timeout=5.0, request_timeout=3.0) as producer:
            await producer.send("t", b"v")
            await cluster.freeze(1)

            async def send_in_vain() -> None:
                deliveries = [producer.send_nowait("t", bytes(2_000), partition=number) for number in range(1_000)]
                await asyncio.sleep(20.0)
                assert all(isinstance(delivery.exception(), KafkaTimeout) for delivery in deliveries)

            await send_in_vain()
            meter = Meter()
            await send_in_vain()
            assert meter.now < MIB / 2
            assert meter.peak > MIB
            await cluster.thaw(1)
            await producer.send("t", b"v", partition=7)

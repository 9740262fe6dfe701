"""``aiokafka-lite broker --data-dir``, killed while clients write: each acknowledged record is there once.

BROKER_KILLS sets another number of kills; 20 take two to three minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, KafkaError, Producer, TopicPartition
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.terminal import broker

KILLS = int(os.environ.get("BROKER_KILLS", "8"))
PARTITIONS = 3


async def write(producer: Producer, numbers: count[int], acknowledged: list[list[int]]) -> None:
    """Send numbers until cancelled."""
    while True:
        number = next(numbers)
        with suppress(KafkaError):
            metadata = await producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
            acknowledged[metadata.partition].append(number)


@pytest.mark.long
async def test_no_acknowledged_record_is_lost_by_kills_of_the_broker(tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path), "--topic", f"orders:{PARTITIONS}", "--port"]
    acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
    random_wait = random.Random(1)
    port = str(free_port())  # no other process gets it while the broker is down
    async with broker(*options, port) as (process, servers):
        producer = Producer(servers)
        await producer.start()
        numbers = count()
        writers = [asyncio.create_task(write(producer, numbers, acknowledged)) for _ in range(20)]
        await asyncio.sleep(random_wait.random())  # a moment to kill it, not a wait
        process.send_signal(signal.SIGKILL)
        await process.wait()
    for _ in range(KILLS - 1):
        async with broker(*options, port) as (process, _):
            written = sum(map(len, acknowledged))
            while sum(map(len, acknowledged)) < written + 50:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with broker(*options, port) as (_, servers):
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await producer.close()
        values: list[list[int]] = [[] for _ in range(PARTITIONS)]
        async with Consumer(servers, topics=["orders"]) as consumer:
            end = sum((await consumer.end_offsets([TopicPartition("orders", n) for n in range(PARTITIONS)])).values())
            while sum(map(len, values)) < end:
                for record in await consumer.poll(1000, 10.0):
                    values[record.partition].append(int(record.value or b""))
    for read, sent in zip(values, acknowledged, strict=True):
        assert len(set(read)) == len(read)
        assert set(sent) <= set(read)

"""A broker in a process that is really stopped: over TCP, in real time, and with the memory that the system counts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiokafka_lite.errors import BufferFull, KafkaTimeout
from aiokafka_lite.producer import Producer

MIB = 1024 * 1024
BUFFER = 32 * MIB
SLACK = 32 * MIB
STATUS = Path("/proc/self/status")

BROKER = """
import asyncio
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster

async def main():
    async with EmbeddedCluster(brokers=1, config=ClusterConfig(history_limit=0)) as cluster:
        await cluster.create_topic("t", 3)
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def broker_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", BROKER, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def fill(producer: Producer, size: int) -> int:
    """Send until there is no more room. Returns the number of records."""
    count, value = 0, os.urandom(size)
    while True:
        try:
            producer.send_nowait("t", value, partition=count % 3)
        except BufferFull:
            return count
        count += 1
        if count % 500 == 0:
            await asyncio.sleep(0)  # queued data is written, as far as the system accepts it


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not report the memory of a process")
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_memory_stays_bounded_while_the_broker_process_is_stopped(size: int) -> None:
    async def main() -> None:
        async with broker_process() as (process, servers), Producer(servers, buffer_memory=BUFFER) as producer:
            await producer.send("t", b"v", partition=0)
            os.kill(process.pid, signal.SIGSTOP)
            before = resident()
            count = await fill(producer, size)
            assert count * size > BUFFER * 0.9
            with pytest.raises(KafkaTimeout):
                await producer.send("t", bytes(size), timeout=0.5)
            assert resident() - before < BUFFER + SLACK
            os.kill(process.pid, signal.SIGCONT)
            async with asyncio.timeout(10.0):
                await producer.flush()
                await producer.send("t", b"v", partition=0)
            metrics = producer.metrics()
            assert (metrics.records_delivered, metrics.records_failed, metrics.buffered_bytes) == (count + 2, 0, 0)

    asyncio.run(main())

"""The cost of waiting: a consumer of 1,000 empty partitions: ``python -m benchmarks.waiting``.

Memory, CPU and requests, on an embedded cluster in the same process, whose requests are counted.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from aiokafka_lite import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.messages import FetchRequest
from benchmarks.stopwatch import Stopwatch


async def cost_of_waiting(partitions: int = 1000, seconds: float = 20.0) -> None:
    """Print the memory, CPU and requests of a consumer of many empty partitions."""
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


def main() -> None:
    asyncio.run(cost_of_waiting())


if __name__ == "__main__":
    main()

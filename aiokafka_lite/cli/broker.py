"""``aiokafka-lite broker``: the embedded cluster as a process of its own."""

from __future__ import annotations

import asyncio
import signal

from aiokafka_lite.embedded import EmbeddedCluster


def run_broker(port: int, brokers: int, partitions: int) -> int:
    """Serve until SIGINT or SIGTERM, then stop cleanly; the exit status."""
    asyncio.run(_serve(port, brokers, partitions))
    return 0


async def _serve(port: int, brokers: int, partitions: int) -> None:
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop.set)
    async with EmbeddedCluster(brokers=brokers, ports=port or None, default_partitions=partitions) as cluster:
        print(f"bootstrap servers: {cluster.bootstrap_servers}", flush=True)
        await asked_to_stop.wait()
    print("stopped", flush=True)

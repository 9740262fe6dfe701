"""``aiokafka-lite broker``: the embedded cluster as a process of its own."""

from __future__ import annotations

import asyncio
import signal

from aiokafka_lite.embedded import EmbeddedCluster, Refused
from aiokafka_lite.errors import ConfigurationError


async def broker(port: int, brokers: int, partitions: int, topics: list[str], as_kafka: str | None) -> int:
    """Serve until SIGINT or SIGTERM, then stop cleanly: that is how it ends well. Raises ConfigurationError."""
    wanted = [_parse(topic, partitions) for topic in topics]
    cluster = EmbeddedCluster(
        brokers=brokers,
        ports=port or None,
        default_partitions=partitions,
        as_kafka=as_kafka,
        history_limit=0,  # nobody asks a process for it, and it would hold on to requests
    )
    await _serve(cluster, wanted)
    return 0


def _parse(topic: str, partitions: int) -> tuple[str, int, int]:
    """Read ``NAME[:PARTITIONS[:REPLICAS]]``; raises ConfigurationError."""
    name, *numbers = topic.split(":")
    if not name or len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise ConfigurationError(f"topic={topic!r}: use NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS")
    counts = [int(number) for number in numbers]
    return name, counts[0] if counts else partitions, counts[1] if len(counts) > 1 else 1


async def _serve(started: EmbeddedCluster, topics: list[tuple[str, int, int]]) -> None:
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop.set)
    async with started as cluster:
        for name, partitions, replicas in topics:
            try:
                await cluster.create_topic(name, partitions, replicas)
            except Refused as refusal:
                raise ConfigurationError(f"topic={name!r}: {refusal}") from refusal
        print(f"bootstrap servers: {cluster.bootstrap_servers}", flush=True)
        await asked_to_stop.wait()
    print("stopped", flush=True)

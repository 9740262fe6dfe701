"""``aiokafka-lite broker``: the embedded cluster as a process."""

from __future__ import annotations

import asyncio
import signal

from ..arguments import must_be
from ..embedded import ClusterConfig, EmbeddedCluster, Refused
from ..errors import ConfigurationError


async def broker(port: int, brokers: int, partitions: int, topics: list[str], as_kafka: str | None) -> int:
    """Serve until SIGINT or SIGTERM, then stop; the exit status is 0. Raises ConfigurationError for a wrong topic."""
    wanted = [_parse(topic, partitions) for topic in topics]
    cluster = EmbeddedCluster(
        brokers=brokers,
        ports=port or None,
        default_partitions=partitions,
        as_kafka=as_kafka,
        config=ClusterConfig(history_limit=0),  # no test reads it here, and it would keep all requests in memory
    )
    await _serve(cluster, wanted)
    return 0


def _parse(topic: str, partitions: int) -> tuple[str, int, int]:
    """Parse ``NAME[:PARTITIONS[:REPLICAS]]``. Raises ConfigurationError for any other form."""
    name, *numbers = topic.split(":")
    if not name or len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise ConfigurationError(must_be("topic", "NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS", topic))
    counts = [int(number) for number in numbers]
    return name, counts[0] if counts else partitions, counts[1] if len(counts) > 1 else 1


async def _serve(started: EmbeddedCluster, topics: list[tuple[str, int, int]]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with started as cluster:
        for name, partitions, replicas in topics:
            try:
                await cluster.create_topic(name, partitions, replicas)
            except Refused as refusal:
                raise ConfigurationError(f"topic {name!r} cannot be created: {refusal}") from refusal
        print(f"bootstrap servers: {cluster.bootstrap_servers}", flush=True)
        await stopped.wait()
    print("stopped", flush=True)

"""Memory and CPU of 5,000 connections to one embedded broker: ``python -m benchmarks.connections``.

The broker runs in a process of its own. Another process opens all connections, at most 200 at a time, and asks each for
the broker's versions. Memory is what the broker's process has more than before. It needs ``ulimit -n 6000``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import ssl
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster

CONNECTIONS = 5000
AT_ONCE = 200
OPEN_FILES = 6000
API_VERSIONS = bytes.fromhex("00120000000000010001" + b"x".hex())
"""A request in version 0."""


def main() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < OPEN_FILES:
        sys.exit(f"{CONNECTIONS} connections need more open files than {limit}: run ulimit -n {OPEN_FILES}")
    for protocol in ("PLAINTEXT", "SSL"):
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_broker, args=(theirs, protocol), daemon=True)
        process.start()
        asyncio.run(_measure(ours, protocol))
        process.join()


async def _measure(broker: Connection, protocol: str) -> None:
    port, cafile = broker.recv()
    context = None if cafile is None else ssl.create_default_context(cafile=cafile)
    bound = asyncio.Semaphore(AT_ONCE)

    async def connect() -> asyncio.StreamWriter:
        async with bound:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            return writer

    broker.send("figures")
    memory, busy = broker.recv()
    connections = await asyncio.gather(*(connect() for _ in range(CONNECTIONS)))
    broker.send("figures")
    memory_after, busy_after = broker.recv()
    kib = (memory_after - memory) / CONNECTIONS / 1024
    print(f"| {protocol} | {memory_after >> 20} MiB | {kib:.0f} KiB | {busy_after - busy:.1f} s |")
    for writer in connections:
        writer.transport.abort()
    broker.send(None)


def _broker(client: Connection, protocol: str) -> None:
    asyncio.run(_serve(client, protocol))


async def _serve(client: Connection, protocol: str) -> None:
    configs = {"max.connections": str(CONNECTIONS)}
    async with EmbeddedCluster(1, security=protocol, configs=configs, config=ClusterConfig(history_limit=0)) as cluster:
        client.send((cluster.nodes[1].port, cluster.client_settings().get("ssl_cafile")))
        while await asyncio.to_thread(client.recv) is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            client.send((pages * os.sysconf("SC_PAGE_SIZE"), time.process_time()))


if __name__ == "__main__":
    main()

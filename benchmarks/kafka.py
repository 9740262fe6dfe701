"""The shared parts of the benchmarks on Apache Kafka: the server, records of 100 bytes, a stopwatch, and rounds.

Kafka is found as the tests find it: KAFKA_BOOTSTRAP, a container, or plain Java.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from aiokafka_lite.admin import create_topic
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.settings.client import ClientConfig
from benchmarks.compare import Table, in_turn, tabulate
from benchmarks.stopwatch import Stopwatch as Stopwatch
from tests.real.jvm import jars
from tests.real.kafka_servers import Servers, Unavailable
from tests.real.releases import NEWEST, wanted

PARTITIONS = 3
VALUE = b"v" * 100
KEYS = [b"key-%05d" % number for number in range(1000)]

C = TypeVar("C")
Timed = tuple[float, float]
"""Wall and CPU seconds."""


@contextmanager
def apache_kafka(settings: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the bootstrap servers, and a name for titles. Ends the program if there is no Kafka.

    A broker that is started here has ``settings``.
    """
    servers = Servers(settings)
    name = "given" if wanted("default")[1] == "given" else NEWEST
    try:
        server, kind = servers.get(name)
    except Unavailable as problem:
        sys.exit(f"no Apache Kafka to measure on: {problem}")
    try:
        yield server.bootstrap_servers, f"Apache Kafka {name} ({kind})"
    finally:
        servers.stop()


@contextmanager
def embedded_broker(*options: str) -> Iterator[tuple[str, int]]:
    """Yield the address of an embedded broker with options of the command, and the number of its process."""
    command = [sys.executable, "-m", "aiokafka_lite", "broker", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "127.0.0.1:" in line)
        yield "127.0.0.1:" + line.split("127.0.0.1:")[1].split()[0].strip(".,;'\""), process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def java(class_path: str, program: str) -> list[str]:
    """Return the command that runs a class, or compiles and runs a file."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx512m", quiet, "-cp", class_path, program]


def java_program(name: str) -> list[str]:
    """Return the command that compiles and runs a program of ``benchmarks/java`` with the clients of the newest
    release.
    """
    return java(f"{jars(NEWEST)}/*", str(Path(__file__).parent / "java" / f"{name}.java"))


async def new_topic(servers: str, name: str = "", partitions: int = PARTITIONS) -> str:
    """Create a topic and wait until all its partitions have leaders. Returns its name."""
    name = name or f"bench-{time.time_ns():x}"
    async with Client(ClientConfig(bootstrap_servers=servers)) as client:
        await create_topic(client, name, partitions=partitions)
        async with asyncio.timeout(60):
            while (topic := client.view.topics.get(name)) is None or any(p.leader is None for p in topic.partitions):
                await client.refresh([name])
    return name


def in_rounds(
    title: str,
    candidates: Mapping[str, C],
    run: Callable[[C], Timed],
    *,
    rounds: int,
    count: int = 1,
    unit: str = "record",
) -> Table:
    """Run all candidates in turn in each round. Returns the times of one of ``count`` units.

    The first round warms up the broker and the caches, and is not counted.
    """
    wall: dict[str, list[float]] = {name: [] for name in candidates}
    cpu: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(-1, rounds):
        for name in in_turn(candidates, number):
            seconds, cpu_seconds = run(candidates[name])
            if number >= 0:
                wall[name].append(seconds / count)
                cpu[name].append(cpu_seconds / count)
    return tabulate(wall, cpu, title=title, unit=unit)

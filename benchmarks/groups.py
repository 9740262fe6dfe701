"""The time and CPU of members of a group, compared with other clients: ``python -m benchmarks.groups``.

The members of each candidate are in a process of its own (``group_members``), and read a topic of 50 partitions of
Apache Kafka. All send a heartbeat every second and have a session of 3 seconds. Groups form without an initial delay
(group.initial.rebalance.delay.ms=0). The figures are medians of some rounds:

- join: one more member joins a group that is stable, from its constructor to its first record. With 1 member, the
  group is empty before. The process has started and closed one member, so its code is loaded.
- leave: one of the members closes, until the others own all partitions;
- death: one of 50 members is killed, until the others own all partitions. Its session is part of this time;
- idle: heartbeats a second of a group of 50 without records, and the CPU of its process. The CPU of confluent-kafka
  includes its statistics, because only they count its heartbeats;
- empty partitions: the memory of 1,000 assigned, empty partitions, and the CPU of a consumer that waits for records.

``--embedded`` measures on an embedded cluster of three brokers, which runs in the process of this program.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from aiokafka_lite import Consumer, EmbeddedCluster, Producer
from aiokafka_lite.net.connection import Connection
from benchmarks.group_members import HEARTBEAT, SESSION
from benchmarks.kafka import VALUE, apache_kafka, java_program, new_topic
from tests.real.jvm import JavaMissing

SIZES = (1, 10, 50)
PARTITIONS = 50
CALM = 0.7
"""Seconds without a change after which a group counts as stable."""
TIMEOUT = 90.0
MANY = 1_000
IDLE = 6.0
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT * 1000)),
    "group.initial.rebalance.delay.ms": "0",
}


PROTOCOLS = {"classic": "classic", "KIP-848": "consumer"}


def candidates(only: str) -> dict[str, list[str]]:
    """Return the commands of the clients whose name contains ``only``, without the arguments of servers, topic and
    group.

    Without Java and Maven, prints why Java's client is left out.
    """
    chosen: dict[str, list[str]] = {}
    for client in ("aiokafka_lite", "confluent-kafka", "Java"):
        for title, protocol in PROTOCOLS.items():
            if only not in (name := f"{client}, {title}"):
                continue
            program = [sys.executable, "-m", "benchmarks.group_members", client]
            if client == "Java":
                try:
                    program = java_program("GroupMembers")
                except JavaMissing as problem:
                    print(f"{name} is left out: {problem}\n")
                    continue
            chosen[name] = [*program, protocol]
    return chosen


class Members:
    """A process with members of a group."""

    def __init__(self, process: asyncio.subprocess.Process, changed: asyncio.Event) -> None:
        self._process = process
        self._changed = changed
        self.changed_at = time.perf_counter()
        self.owned = 0
        self.firsts: list[float] = []
        self.leaving_at: list[float] = []
        self.counts: list[tuple[float, float, float]] = []
        """The time, heartbeats and CPU seconds until then."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str], changed: asyncio.Event) -> Members:
        """Start a process of members. ``changed`` is set at each report; processes of one group share it."""
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe), changed)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            now, facts = time.perf_counter(), json.loads(line)
            if "owned" in facts:
                self.owned, self.changed_at = facts["owned"], now
            if "first" in facts:
                self.firsts.append(facts["first"])
            if "leaving" in facts:
                self.leaving_at.append(now)
            if "cpu" in facts:
                self.counts.append((now, facts["heartbeats"], facts["cpu"]))
            self._changed.set()

    def command(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait for reports until the condition is true. Returns the time."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
        return time.perf_counter()

    async def join(self, count: int, owned: int = PARTITIONS) -> None:
        """Start members. Wait until they have records, and until this process owns ``owned`` partitions for a while."""
        target = len(self.firsts) + count
        self.command(f"join {count}")
        await self.has_joined(target)
        await self.calm(owned)

    async def has_joined(self, count: int) -> None:
        """Wait until ``count`` members have had a record."""
        await self.until(lambda: len(self.firsts) >= count)

    async def calm(self, owned: int = PARTITIONS, others: Sequence[Members] = ()) -> None:
        """Wait until this process and the others own ``owned`` partitions, and nothing has changed for a while."""
        processes = [self, *others]
        async with asyncio.timeout(TIMEOUT):
            while (
                owned_by(processes) != owned
                or time.perf_counter() - max(process.changed_at for process in processes) < CALM
            ):
                await asyncio.sleep(0.05)

    async def leave(self, count: int, owned: int = PARTITIONS) -> float:
        """Close members. Returns the seconds until the others own so many partitions."""
        target = len(self.leaving_at) + count
        self.command(f"leave {count}")
        await self.until(lambda: len(self.leaving_at) >= target)
        await self.until(lambda: self.owned < PARTITIONS)
        return await self.until(lambda: self.owned == owned) - self.leaving_at[-1]

    async def idle(self) -> tuple[float, float]:
        """Return heartbeats a second, and CPU seconds a second."""
        for number in (1, 2):
            self.command("counts")
            await self.until(lambda number=number: len(self.counts) == number)
            await asyncio.sleep(IDLE * (2 - number))
        (began, before, cpu_before), (ended, after, cpu_after) = self.counts
        return (after - before) / (ended - began), (cpu_after - cpu_before) / (ended - began)

    async def kill(self) -> float:
        """Returns the time of the kill."""
        self._process.kill()
        killed = time.perf_counter()
        await self._process.wait()
        return killed

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
        await self._reading


def owned_by(processes: Sequence[Members]) -> int:
    return sum(process.owned for process in processes)


@dataclass
class Figures:
    """The figures of one candidate, in seconds and per second."""

    joins: dict[int, list[float]] = field(default_factory=dict)
    leaves: dict[int, list[float]] = field(default_factory=dict)
    deaths: list[float] = field(default_factory=list)
    heartbeats: float = 0.0
    cpu: float = 0.0

    def cells(self) -> list[str]:
        """Return the figures as a row of the table."""
        times = [*self.joins.values(), *self.leaves.values()]
        cells = [f"{median(time_):.2f}" for time_ in times]
        if self.deaths:
            cells += [f"{median(self.deaths):.2f}", f"{self.heartbeats:.1f}", f"{self.cpu:.1%}"]
        return cells


async def measure_group(command: list[str], servers: str, topic: str, size: int, rounds: int, result: Figures) -> None:
    """Measure joins and leaves of a member in a group of this size, and for the largest size all ``Figures``."""
    command = [*command, servers, topic, f"{topic}-{time.time_ns():x}"]
    rest = 0 if size == 1 else PARTITIONS  # the partitions that the others own when one has left
    result.joins[size] = []
    async with AsyncExitStack() as stack:
        changed = asyncio.Event()
        members = await Members.start(command, changed)
        stack.push_async_callback(members.close)
        await members.join(max(1, size - 1))
        if size == 1:
            await members.leave(1, rest)
        for _ in range(rounds):
            await members.join(1)
            result.joins[size].append(members.firsts[-1])
            left_at = await members.leave(1, rest)
            if size > 1:
                result.leaves.setdefault(size, []).append(left_at)
            await members.calm(rest)
        if size < max(SIZES):
            return
        await members.join(1)
        result.heartbeats, result.cpu = await members.idle()
        await members.leave(rounds)
        victims = [await Members.start(command, changed) for _ in range(rounds)]
        for victim in victims:
            stack.push_async_callback(victim.close)
            victim.command("join 1")
        for victim in victims:
            await victim.has_joined(1)
        while victims:
            await members.calm(others=victims)
            killed = await victims.pop().kill()
            result.deaths.append(await members.until(lambda: owned_by([members, *victims]) == PARTITIONS) - killed)


async def fill(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        for number in range(PARTITIONS):
            producer.send_nowait(topic, VALUE, partition=number)
        await producer.flush()


async def measure_all(servers: str, sizes: tuple[int, ...], rounds: int, only: str) -> None:
    topic = await new_topic(servers, f"groups-{time.time_ns():x}", PARTITIONS)
    await fill(servers, topic)
    chosen = candidates(only)
    figures = {name: Figures() for name in chosen}
    for size in sizes:
        for name, command in chosen.items():
            await measure_group(command, servers, topic, size, rounds, figures[name])
            print(f"{size} members, {name}: {figures[name]}", file=sys.stderr)
    titles = [f"join, {size}" for size in sizes] + [f"leave, {size}" for size in sizes if size > 1]
    titles += ["death of one of 50", "heartbeats/s", "CPU (confluent: with statistics)"] if max(SIZES) in sizes else []
    print(f"| members | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for name, result in figures.items():
        print(f"| {name} | {' | '.join(result.cells())} |", flush=True)
    print()


@contextmanager
def requests_counted() -> Iterator[list[str]]:
    """Yield the requests that connections of this process send during the block."""
    sent: list[str] = []
    original = Connection.send_nowait

    def counting(self: Connection, request: object, **settings: object) -> object:
        sent.append(type(request).__name__)
        return original(self, request, **settings)  # type: ignore[arg-type]

    Connection.send_nowait = counting  # type: ignore[method-assign,assignment]
    try:
        yield sent
    finally:
        Connection.send_nowait = original  # type: ignore[method-assign]


async def many_partitions(servers: str) -> str:
    """Return the memory for each of ``MANY`` partitions, and the cost of waiting for records of them."""
    topic = await new_topic(servers, f"many-{time.time_ns():x}", MANY)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    async with Consumer(servers, topics=[topic], group_id=topic, auto_commit=False) as consumer:
        reading = asyncio.create_task(read_on(consumer))
        async with asyncio.timeout(TIMEOUT):
            while len(consumer.assignment) < MANY:
                await asyncio.sleep(0.05)
            for partition in consumer.assignment:
                await consumer.position(partition)
        await asyncio.sleep(2.0)
        gc.collect()
        memory = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        with requests_counted() as sent:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(IDLE)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        kinds = {name: sent.count(name) for name in sorted(set(sent))}
    await reading
    return (
        f"{MANY:,} partitions: {memory / MANY / 1024:.1f} KiB each; idle {cpu / wall:.2%} of a core, "
        f"{len(sent) / wall:.1f} requests/s {kinds}"
    )


async def read_on(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


async def on_embedded(*what: Any) -> None:
    async with EmbeddedCluster(brokers=3, configs=SETTINGS) as cluster:
        await measure_all(cluster.bootstrap_servers, *what)
        print(await many_partitions(cluster.bootstrap_servers))


def main(*options: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the candidates' names")
    chosen = parser.parse_args(options)
    what = (chosen.sizes, chosen.rounds, chosen.only)
    if chosen.embedded:
        print("Embedded cluster of three brokers over TCP\n")
        asyncio.run(on_embedded(*what))
        return
    with apache_kafka(SETTINGS) as (servers, name):
        print(f"{name}\n")
        asyncio.run(measure_all(servers, *what))
        print(asyncio.run(many_partitions(servers)), "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

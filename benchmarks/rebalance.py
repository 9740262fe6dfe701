"""CPU of the members of a group of 50 beside aiokafka's: ``python -m benchmarks.rebalance``.

The embedded broker runs in a process of its own, and the 50 members in another one, each client in turns. A row has the
CPU of the members' process: until all 50 own partitions, until a member that joins later owns some, and for a second in
which nothing happens. Each member reads in a task, since aiokafka joins only then, and has a heartbeat every three
seconds.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from aiokafka_lite import Consumer
from aiokafka_lite.embedded import EmbeddedCluster

MEMBERS, PARTITIONS, ROUNDS, IDLE = 50, 100, 3, 5.0


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    broker = context.Process(target=_broker, args=(theirs,), daemon=True)
    broker.start()
    servers = ours.recv()
    print(f"CPU of {MEMBERS} members: all join, one more joins, a second of waiting")
    for number in range(ROUNDS):
        for client in ("aiokafka_lite", "aiokafka"):
            here, there = context.Pipe()
            process = context.Process(target=_members, args=(there, client, servers, f"{client}-{number}"))
            process.start()
            there.close()
            joined, one_more, idle = here.recv()
            print(f"| {client} | {joined * 1e3:.0f} ms | {one_more * 1e3:.0f} ms | {idle * 1e3:.1f} ms |", flush=True)
            process.join()
    broker.terminate()
    broker.join()


def _broker(client: Connection) -> None:
    asyncio.run(_serve(client))


async def _serve(client: Connection) -> None:
    configs = {"group.initial.rebalance.delay.ms": "1000"}
    async with EmbeddedCluster(1, configs=configs) as cluster:
        await cluster.create_topic("t", partitions=PARTITIONS)
        client.send(cluster.bootstrap_servers)
        await asyncio.Event().wait()


def _members(report: Connection, client: str, servers: str, group: str) -> None:
    logging.disable(logging.WARNING)  # aiokafka's members log each rebalance
    report.send(asyncio.run(_measure(_our_member if client == "aiokafka_lite" else _their_member, servers, group)))


def _our_member(servers: str, group: str) -> tuple[Any, Callable[[], int]]:
    consumer = Consumer(servers, topics=["t"], group_id=group, strategies=["roundrobin"])
    return consumer, lambda: len(consumer.assignment)


def _their_member(servers: str, group: str) -> tuple[Any, Callable[[], int]]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer("t", bootstrap_servers=servers, group_id=group)
    return consumer, lambda: len(consumer.assignment())


async def _measure(
    make: Callable[[str, str], tuple[Any, Callable[[], int]]], servers: str, group: str
) -> tuple[float, float, float]:
    members = []
    reading: list[asyncio.Task[Any]] = []

    async def join() -> None:
        member, count = make(servers, group)
        members.append((member, count))
        await member.start()
        reading.append(asyncio.create_task(anext(aiter(member))))

    async def settled() -> float:
        """Wait until the members own each partition once, and each member has some. Returns the CPU seconds."""
        while not (all(count() for _, count in members) and sum(count() for _, count in members) == PARTITIONS):
            await asyncio.sleep(0.05)
        return time.process_time()

    began = time.process_time()
    await asyncio.gather(*(join() for _ in range(MEMBERS)))
    joined = await settled()
    await join()
    one_more = await settled()
    await asyncio.sleep(IDLE)
    idle = time.process_time()
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await asyncio.gather(*((member.close if isinstance(member, Consumer) else member.stop)() for member, _ in members))
    return joined - began, one_more - joined, (idle - one_more) / IDLE


if __name__ == "__main__":
    main()

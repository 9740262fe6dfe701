"""Members of a group by one client: ``python -m benchmarks.group_members CLIENT PROTOCOL SERVERS TOPIC GROUP``.

``benchmarks.groups`` starts this process and commands it by lines: ``join 10`` (start so many members), ``leave 3``
(close the newest ones) and ``counts``. The process reports lines of JSON: ``owned``, the partitions that its members
own now; ``first``, the seconds from the constructor of a member to its first record; ``leaving``, a member begins to
close; ``heartbeats`` and ``cpu``, the heartbeats of the members and the CPU seconds of the process until now.
confluent-kafka counts heartbeats only in the statistics that it writes every second: its CPU includes them.
``java/GroupMembers.java`` does the same with Java's client.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

HEARTBEAT = 1.0
SESSION = 3.0
"""Seconds. Under the consumer protocol the brokers have the same."""


def say(**facts: float) -> None:
    os.write(sys.stdout.fileno(), json.dumps(facts).encode() + b"\n")


class Owned:
    """The partitions that all members of this process own."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count
            say(owned=self._count)


def our_member(owned: Owned, protocol: str, servers: str, topic: str, group: str) -> Any:
    from aiokafka_lite import Consumer, TopicPartition
    from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener

    class Member(RebalanceListener):
        async def run(self) -> None:
            began = time.perf_counter()
            settings: dict[str, Any] = {"group_protocol": "consumer"}
            if protocol != "consumer":
                settings = {"session_timeout": SESSION, "heartbeat_interval": HEARTBEAT}
            self._consumer = Consumer(
                servers, topics=[topic], group_id=group, auto_offset_reset="earliest", auto_commit=False,
                listener=self, **settings,
            )  # fmt: skip
            async with self._consumer:
                records = aiter(self._consumer)  # one iteration: a record of another one would stay in hand
                await anext(records)
                say(first=time.perf_counter() - began)
                async for _ in records:
                    pass

        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            owned.add(len(partitions))

        async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            owned.add(-len(partitions))

        async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            owned.add(-len(partitions))

        async def leave(self) -> None:
            say(leaving=1)
            await self._consumer.close()

        def heartbeats(self) -> int:
            group = self._consumer.metrics().group
            assert group is not None
            assert group.member is not None
            return group.member.heartbeats.latency.count

    return Member()


class ConfluentMember:
    """confluent-kafka reads in a thread of its own."""

    def __init__(self, owned: Owned, protocol: str, servers: str, topic: str, group: str) -> None:
        self._owned = owned
        self._topic = topic
        self._is_leaving = threading.Event()
        self._heartbeats = 0
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "stats_cb": self._on_statistics,  # only the statistics have the number of heartbeats
            "statistics.interval.ms": 1000,
            **({"group.protocol": "consumer"} if protocol == "consumer" else {
                "session.timeout.ms": int(SESSION * 1000), "heartbeat.interval.ms": int(HEARTBEAT * 1000)
            }),
        }  # fmt: skip

    async def run(self) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def read() -> None:
            self._read()
            loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=read, daemon=True).start()
        await ended.wait()

    def _read(self) -> None:
        from confluent_kafka import Consumer

        began: float | None = time.perf_counter()
        consumer = Consumer(self._settings)
        consumer.subscribe(
            [self._topic],
            on_assign=lambda _, partitions: self._owned.add(len(partitions)),
            on_revoke=lambda _, partitions: self._owned.add(-len(partitions)),
        )
        while not self._is_leaving.is_set():
            message = consumer.poll(1.0)
            if began is not None and message is not None and message.error() is None:
                say(first=time.perf_counter() - began)
                began = None
        say(leaving=1)
        consumer.close()

    def _on_statistics(self, text: str) -> None:
        # A group that is idle sends its coordinator nothing else, and KIP-848 heartbeats are not counted by name.
        self._heartbeats = json.loads(text)["brokers"].get("GroupCoordinator", {"tx": 0})["tx"]

    async def leave(self) -> None:
        self._is_leaving.set()

    def heartbeats(self) -> int:
        return self._heartbeats


async def main(client: str, *where: str) -> None:
    owned = Owned()
    make = our_member if client == "aiokafka_lite" else ConfluentMember
    members: list[Any] = []
    tasks: set[asyncio.Task[None]] = set()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        match line.decode().split():
            case ["join", count]:
                for _ in range(int(count)):
                    members.append(make(owned, *where))
                    tasks.add(asyncio.create_task(members[-1].run()))
            case ["leave", count]:
                await asyncio.gather(*(members.pop().leave() for _ in range(int(count))))
            case ["counts"]:
                say(heartbeats=sum(member.heartbeats() for member in members), cpu=time.process_time())
    await asyncio.gather(*(member.leave() for member in members))
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

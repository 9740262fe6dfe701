"""The path of a record through the producer, counted: ``python -m benchmarks.record_path``.

A *call* is a Python call inside the package. A *stay* is a run of calls in one file, and a *return* is a stay in a file
that the path has left before: a reader of the code must open this file again. Three paths are walked: a
record that is appended to an open batch, a record that begins a batch, and a lone awaited ``send``, which is counted
until it has its result. The last lines are the time of records in bulk, without and with two headers, of awaited sends,
and of batches of one record, each for another one of 1,000 partitions.

The embedded broker runs in a thread of its own, over TCP. So its calls are not counted, but it takes a part of the CPU
time: compare only times of one machine, measured one after the other.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import aiokafka_lite
from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BufferFull

PACKAGE = os.path.dirname(aiokafka_lite.__file__) + os.sep
PRODUCER = f"producer{os.sep}"
BULK, SENDS, TASKS = 50_000, 3_000, 1_000
PARTITIONS, ROUNDS, LINGER = 1_000, 15, 0.005
HEADERS = [("source", b"checkout"), ("trace", bytes(16))]
VALUE, KEYS = bytes(100), [b"key-%d" % number for number in range(1_000)]


class Walk:
    """The files of the package in which calls were made, in order, and the names of the functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            self.calls.append((path.removeprefix(PACKAGE), frame.f_code.co_name))

    def stays(self, under: str = "") -> list[str]:
        """Return the files, with consecutive calls in one file as one entry."""
        files = [path for path, _ in self.calls if path.startswith(under)]
        return [path for number, path in enumerate(files) if number == 0 or files[number - 1] != path]

    def report(self, name: str) -> None:
        for label, under in (("all files", ""), ("producer/", PRODUCER)):
            stays = self.stays(under)
            returns = len(stays) - len(set(stays))
            calls = sum(path.startswith(under) for path, _ in self.calls)
            print(f"{name:24} {label:10} {calls:4} calls {len(stays):4} stays {returns:4} returns")


@contextmanager
def broker_in_a_thread() -> Iterator[str]:
    """Run an embedded cluster in its own thread and loop: topic "t" of three partitions, and "wide" of 1,000."""
    started, stop = threading.Event(), threading.Event()
    servers: list[str] = []

    async def serve() -> None:
        async with EmbeddedCluster(brokers=1) as cluster:
            await cluster.create_topic("t", 3)
            await cluster.create_topic("wide", PARTITIONS)
            servers.append(cluster.bootstrap_servers)
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield servers[0]
    finally:
        stop.set()
        thread.join()


async def paths(producer: Producer) -> None:
    # Together: after lone sends, the next record would leave at once, and no batch would stay open for another record.
    await asyncio.gather(*(producer.send("t", VALUE, key=key) for key in KEYS[:3]))
    for name in ("record begins a batch", "record is appended"):
        with Walk() as walk:
            producer.send_nowait("t", VALUE, key=KEYS[0])
        walk.report(name)
        print("    " + " > ".join(dict.fromkeys(path for path, _ in walk.calls)))
    await producer.flush()
    for _ in range(3):
        await producer.send("t", VALUE, key=KEYS[0])
        await asyncio.sleep(0.01)
    with Walk() as walk:
        await producer.send("t", VALUE, key=KEYS[0])
    walk.report("lone awaited send")


async def bulk(producer: Producer, headers: Sequence[tuple[str, bytes]] = ()) -> None:
    for number in range(BULK):
        while True:
            try:
                producer.send_nowait("t", VALUE, key=KEYS[number % 1_000], headers=headers)
                break
            except BufferFull:
                await producer.drain()
    await producer.flush()


async def one_after_the_other(producer: Producer) -> None:
    for number in range(SENDS):
        await producer.send("t", VALUE, key=KEYS[number % 1_000])


async def in_tasks(producer: Producer) -> None:
    async def send() -> None:
        for number in range(BULK // TASKS):
            await producer.send("t", VALUE, key=KEYS[number % 1_000])

    await asyncio.gather(*(send() for _ in range(TASKS)))


async def two_headers(producer: Producer) -> None:
    await bulk(producer, HEADERS)


async def in_small_batches(producer: Producer) -> None:
    for _ in range(ROUNDS):
        deliveries = [producer.send_nowait("wide", VALUE, partition=number) for number in range(PARTITIONS)]
        for delivery in deliveries:
            await delivery


async def times(producer: Producer, lingering: Producer) -> None:
    cases: list[tuple[str, Callable[[Producer], Awaitable[None]], Producer, int]] = [
        ("bulk", bulk, producer, BULK),
        ("bulk, two headers", two_headers, producer, BULK),
        ("one after the other", one_after_the_other, producer, SENDS),
        (f"{TASKS} tasks", in_tasks, producer, BULK),
        (f"{PARTITIONS} partitions", in_small_batches, lingering, PARTITIONS * ROUNDS),
    ]
    for name, call, sender, count in cases:
        best = min([await _timed(call, sender) for _ in range(5)])
        print(f"{name:24} {best[0] / count * 1e6:8.2f} µs CPU of this thread {best[1] / count * 1e6:8.2f} µs a record")


async def _timed(call: Callable[[Producer], Awaitable[None]], producer: Producer) -> tuple[float, float]:
    cpu, wall = time.thread_time(), time.perf_counter()
    await call(producer)
    return time.thread_time() - cpu, time.perf_counter() - wall


async def measure(servers: str) -> None:
    async with (
        Producer(servers, batch_size=65_536) as producer,
        Producer(servers, linger=LINGER) as lingering,
    ):
        await paths(producer)
        await times(producer, lingering)


def main() -> None:
    with broker_in_a_thread() as servers:
        asyncio.run(measure(servers))


if __name__ == "__main__":
    main()

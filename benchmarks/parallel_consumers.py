"""``Workers`` beside pyrallel-consumer on Apache Kafka: ``python -m benchmarks.parallel_consumers --other PYTHON``.

Both process the same records, in order by key, with up to CONCURRENCY at a time, by a coroutine that waits for 5 ms and
checks the order. Each candidate runs in a process of its own, in turn with the other, and its time runs from its first
record to its last. PYTHON is an interpreter that has pyrallel-consumer, which needs Python 3.12, and the dependencies
of this package: both candidates run in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CONCURRENCY = 500
KEYS = 500
PAUSE = 0.005

Timed = tuple[float, float]
"""Wall and CPU seconds."""


class Work:
    """The handler of both candidates."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._began: Timed | None = None
        self._offsets: dict[object, int] = {}
        self.ended: asyncio.Future[Timed] = asyncio.get_running_loop().create_future()

    async def __call__(self, record: Any) -> None:
        """Process a record, or an item of pyrallel-consumer: both have a key and an offset."""
        if self._began is None:
            self._began = time.perf_counter(), time.process_time()
        await asyncio.sleep(PAUSE)
        if self._offsets.get(record.key, -1) >= record.offset:
            raise RuntimeError(f"offset {record.offset} of key {record.key!r} comes too late, or again")
        self._offsets[record.key] = record.offset
        self._left -= 1
        if self._left == 0:
            wall, cpu = self._began
            self.ended.set_result((time.perf_counter() - wall, time.process_time() - cpu))


async def workers(servers: str, topic: str, work: Work) -> Timed:
    from aiokafka_lite import ConsumerGroup, Record, Workers

    async def handle(record: Record[bytes, bytes]) -> None:
        await work(record)

    group = ConsumerGroup(servers, group_id=f"workers-{time.time_ns()}")
    task = asyncio.create_task(group.consume([topic], Workers(handle, concurrency=CONCURRENCY)))
    timed = await work.ended
    await group.close()
    await task
    return timed


async def pyrallel_consumer(servers: str, topic: str, work: Work) -> Timed:
    from pyrallel_consumer import PyrallelConsumer
    from pyrallel_consumer.config import KafkaConfig

    async def handle(item: Any) -> None:
        await work(item)

    config = KafkaConfig(BOOTSTRAP_SERVERS=[servers], CONSUMER_GROUP=f"pyrallel-{time.time_ns()}")
    config.dlq_enabled = False
    config.parallel_consumer.worker_pool_size = CONCURRENCY  # the number of groups of keys
    config.parallel_consumer.execution.max_in_flight = CONCURRENCY
    consumer = PyrallelConsumer(config=config, worker=handle, topic=topic)
    task = asyncio.create_task(consumer.start())
    timed = await work.ended
    await consumer.stop()
    task.cancel()
    return timed


CANDIDATES: dict[str, Callable[[str, str, Work], Awaitable[Timed]]] = {
    "Workers": workers,
    "pyrallel-consumer": pyrallel_consumer,
}


async def fill(servers: str, topic: str, count: int) -> None:
    """Write the records."""
    from aiokafka_lite import Producer

    async with Producer(servers) as producer:
        for number in range(count):
            await producer.put(topic, b"v" * 100, key=b"key-%d" % (number % KEYS))


async def run(candidate: str, servers: str, topic: str, count: int) -> Timed:
    """Run a candidate in this process."""
    return await CANDIDATES[candidate](servers, topic, Work(count))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare Workers with pyrallel-consumer.")
    parser.add_argument("--other", default=sys.executable, metavar="PYTHON", help="an interpreter with both packages")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=3, metavar=("CANDIDATE", "SERVERS", "TOPIC"))
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(asyncio.run(run(*options.worker, options.count))))
        return
    from benchmarks.compare import in_turn, tabulate
    from benchmarks.kafka import apache_kafka, new_topic

    walls: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    cpus: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    with apache_kafka() as (servers, name):
        topic = asyncio.run(new_topic(servers))
        asyncio.run(fill(servers, topic, options.count))
        for number in range(options.rounds):
            for candidate in in_turn(CANDIDATES, number):
                command = [options.other, "-m", "benchmarks.parallel_consumers", "--count", str(options.count)]
                command += ["--worker", candidate, servers, topic]
                output = subprocess.check_output(command, cwd=ROOT, text=True, timeout=600)
                wall, cpu = json.loads(output.splitlines()[-1])
                walls[candidate].append(wall / options.count)
                cpus[candidate].append(cpu / options.count)
        print(tabulate(walls, cpus, title=f"{options.count:,} records of {KEYS} keys, {name}", unit="record"))


if __name__ == "__main__":
    main()

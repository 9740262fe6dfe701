"""Records a second of a share consumer, beside Java's: ``python -m benchmarks.share_groups``.

The clients take turns. Each reads the same records of 100 bytes from one partition of Apache Kafka, as a new share
group in implicit mode, and in a process of its own that has read a tenth of them before. The program prints medians:
the time from the first record to the last commit, the time from the constructor to the first record, and the CPU of the
process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from aiokafka_lite import Admin, Producer, ShareConsumer
from aiokafka_lite.admin import ConfigResource
from benchmarks.compare import in_turn
from benchmarks.kafka import VALUE, apache_kafka, java_program, new_topic

TIMEOUT = 300.0


async def read(servers: str, topic: str, group: str, count: int) -> dict[str, float]:
    """Return the seconds from the constructor to the first record and to the last commit, and CPU seconds."""
    began, cpu, number, first = time.perf_counter(), time.process_time(), 0, 0.0
    async with ShareConsumer(servers, topics=[topic], group_id=group) as consumer:
        while number < count:
            records = await consumer.poll(timeout=1.0)
            if records and not number:
                first = time.perf_counter()
            number += len(records)
        (await consumer.commit()).raise_for_refused()
        return {"first": first - began, "all": time.perf_counter() - began, "cpu": time.process_time() - cpu}


async def worker(servers: str, topic: str, group: str, count: int) -> None:
    await read(servers, topic, f"{group}-warm-up", count // 10)
    print(json.dumps(await read(servers, topic, group, count)))


async def prepare(servers: str, topic: str, count: int, groups: Sequence[str]) -> None:
    await new_topic(servers, topic, 1)
    async with Producer(servers) as producer, Admin(servers) as admin:
        await producer.send_many(topic, [VALUE] * count)
        from_the_beginning = {"share.auto.offset.reset": "earliest"}
        names = [*groups, *(f"{group}-warm-up" for group in groups)]
        resources = {ConfigResource.group(name): from_the_beginning for name in names}
        (await admin.configs.alter(resources)).raise_for_errors()


def measure(servers: str, count: int, rounds: int) -> None:
    candidates = {
        "aiokafka_lite": [sys.executable, "-m", "benchmarks.share_groups", "--worker"],
        "Java": java_program("ReadShareGroup"),
    }
    topic = f"share-{time.time_ns():x}"
    turns = [(number, name) for number in range(rounds) for name in in_turn(candidates, number)]
    asyncio.run(prepare(servers, topic, count, [f"{topic}-{name}-{number}" for number, name in turns]))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in candidates}
    for number, name in turns:
        command = [*candidates[name], servers, topic, f"{topic}-{name}-{number}", str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT)
        results[name].append(json.loads(done.stdout.splitlines()[-1]))
    print("| share consumer | records/s | first record | CPU a record |\n|---|---:|---:|---:|")
    for name, runs in results.items():
        rate = median(count / (run["all"] - run["first"]) for run in runs)
        first, cpu = (median(run[key] for run in runs) for key in ("first", "cpu"))
        print(f"| {name} | {rate:,.0f} | {first:.2f} s | {cpu / count * 1e6:.1f} µs |")


def main(*options: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(options)
    with apache_kafka() as (servers, name):
        print(f"{name}, {chosen.records:,} records, {chosen.rounds} rounds\n")
        measure(servers, chosen.records, chosen.rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        asyncio.run(worker(*sys.argv[2:5], int(sys.argv[5])))
    else:
        main(*sys.argv[1:])

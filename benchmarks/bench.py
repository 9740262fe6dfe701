"""The comparison with other clients on Apache Kafka: ``make bench``, or ``python -m benchmarks.bench --quick``.

Rules of this benchmark:

1. Each candidate runs in a process of its own (``worker``), which imports only its client. CPU is the CPU time of this
   process, with all its threads, without the broker.
2. The candidates of a cell run in turn in each round, and each round begins with another candidate. So a change of the
   machine's load affects all of them. Ratios are medians of the ratios within a round.
3. Tables show medians, and the smallest and the largest value. A candidate that fails is named with its error.
4. A topic belongs to one cell, and is deleted after it.

The program finds Kafka as the tests do: KAFKA_BOOTSTRAP, a container, or plain Java. ``--quick`` takes 8 minutes on two
cores, and a whole run takes a quarter of an hour. ``--only produce`` runs the cells whose title contains that word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path

import aiokafka_lite
from aiokafka_lite.admin import Admin
from aiokafka_lite.compiled import COMPILED
from benchmarks import charts
from benchmarks.compare import in_turn
from benchmarks.kafka import apache_kafka, new_topic
from benchmarks.report import write_report
from benchmarks.worker import KEYS, Job

ROOT = Path(__file__).parent.parent
PARTITIONS = 4
RUN_TIMEOUT = 180.0

OURS = "aiokafka_lite"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client in one of its forms. ``label`` names it in tables; ``client`` is its function in ``worker``."""

    label: str
    client: str
    plain: bool = False
    uvloop: bool = False


@dataclass(slots=True)
class Cell:
    """One comparison. All candidates are compared with the first one."""

    title: str
    kind: str
    candidates: list[Candidate]
    count: int
    size: int
    keyed: bool = False
    compression: str = "none"
    senders: int = 0
    results: dict[str, list[dict[str, float] | None]] = field(default_factory=dict)
    """A result for each round; None for a candidate that failed."""
    problems: dict[str, str] = field(default_factory=dict)


def ours(label: str, client: str, *, plain: bool = False, uvloop: bool = False) -> list[Candidate]:
    """Return the candidate as built. With ``plain`` also as plain Python, if the two differ."""
    name = f"{OURS} {label}".strip()
    candidates = [Candidate(name, client)]
    if plain and COMPILED:
        candidates.append(Candidate(f"{name}, plain Python", client, plain=True))
    if uvloop:
        candidates.append(Candidate(f"{name}, uvloop", client, uvloop=True))
    return candidates


SIZES = (("1 kB", 1_000, 60_000), ("10 kB", 10_000, 10_000), ("1 MB", 1_000_000, 100))
"""Names of sizes, bytes of a value, and records."""

CODECS = ("none", "lz4", "zstd")
CONFLUENT = Candidate("confluent-kafka, delivery callback", "confluent callback")
AIOKAFKA = Candidate("aiokafka", "aiokafka")


def produce_cells() -> Iterator[Cell]:
    for keyed in (False, True):
        yield Cell(
            f"produce 100 B{' with keys' if keyed else ''}, each record acknowledged",
            "produce",
            [
                *ours("send_nowait, deliveries awaited", "deliveries", plain=True, uvloop=not keyed),
                CONFLUENT,
                AIOKAFKA,
                Candidate("confluent-kafka AIOProducer", "AIOProducer"),
            ],
            150_000,
            100,
            keyed=keyed,
        )
    yield Cell(
        "produce 100 B in bulk",
        "produce",
        [
            *ours("send_many", "send_many"),
            *ours("send_nowait, flush", "send_nowait"),
            *ours("send_arrow", "send_arrow"),
            Candidate("confluent-kafka, no callback", "confluent no callback"),
            Candidate("confluent-kafka produce_batch", "confluent produce_batch"),
        ],
        150_000,
        100,
    )
    for (name, size, count), codec in product(SIZES, CODECS):
        candidates = [*ours("send_nowait, deliveries awaited", "deliveries"), CONFLUENT, AIOKAFKA]
        yield Cell(f"produce {name}, {codec}", "produce", candidates, count, size, compression=codec)


def consume_cells() -> Iterator[Cell]:
    yield Cell(
        "consume 100 B",
        "consume",
        [
            *ours("async for", "async for", plain=True),
            *ours("poll(500)", "poll"),
            *ours("batches(5000), all values", "batches", plain=True),
            *ours("batches(50000).to_arrow()", "to_arrow", plain=True),
            Candidate("confluent-kafka consume(5000)", "confluent consume"),
            Candidate("confluent-kafka poll", "confluent poll"),
            Candidate("aiokafka getmany", "aiokafka getmany"),
            Candidate("aiokafka async for", "aiokafka async for"),
        ],
        1_000_000,
        100,
    )
    for (name, size, count), codec in product(SIZES, CODECS):
        candidates = [
            *ours("batches(5000), all values", "batches"),
            Candidate("confluent-kafka consume(5000)", "confluent consume"),
            Candidate("aiokafka getmany", "aiokafka getmany"),
        ]
        yield Cell(f"consume {name}, {codec}", "consume", candidates, count, size, compression=codec)


def sender_cells() -> Iterator[Cell]:
    for senders, count in ((1, 1_000), (10, 5_000), (100, 15_000), (1000, 30_000)):
        yield Cell(
            f"awaited sends by {senders:,} task{'s' * (senders > 1)}, 100 B",
            "senders",
            [
                *ours("", "send", plain=True, uvloop=True),
                Candidate("confluent-kafka, a thread polls", "confluent senders"),
                Candidate("confluent-kafka AIOProducer", "AIOProducer senders"),
                Candidate("aiokafka", "aiokafka senders"),
            ],
            count,
            100,
            senders=senders,
        )


def run(cell: Cell, candidate: Candidate, servers: str, topic: str) -> dict[str, float]:
    """Measure one candidate once, in a process of its own. Raises RuntimeError with the end of its output."""
    job = Job(
        candidate.client,
        servers,
        topic,
        PARTITIONS,
        cell.count,
        cell.size,
        cell.keyed,
        cell.compression,
        cell.senders,
        candidate.uvloop,
    )
    environment = dict(os.environ, AIOKAFKA_LITE_PURE="0" if COMPILED and not candidate.plain else "1")
    command = [sys.executable, "-m", "benchmarks.worker", json.dumps(asdict(job))]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not finished after {RUN_TIMEOUT:g} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


async def fill(servers: str, topic: str, cell: Cell) -> None:
    """Write what the candidates of the cell read."""
    values = Job("", servers, topic, PARTITIONS, cell.count, cell.size).values()
    async with aiokafka_lite.Producer(
        servers,
        compression=cell.compression,
        batch_size=1 << 18,
        linger=0.02,  # type: ignore[arg-type]
    ) as producer:
        for index in range(cell.count):
            await producer.put(topic, values[index % len(values)], key=KEYS[index % 1000])


async def delete(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        await admin.topics.delete(topic)


def measure(cell: Cell, servers: str, rounds: int) -> None:
    topic = asyncio.run(new_topic(servers, partitions=PARTITIONS))
    if cell.kind == "consume":
        asyncio.run(fill(servers, topic, cell))
    by_label = {candidate.label: candidate for candidate in cell.candidates}
    cell.results = {label: [] for label in by_label}
    run(replace(cell, count=max(20, cell.count // 10)), cell.candidates[0], servers, topic)  # warms up the broker
    for number in range(rounds):
        for label in in_turn(by_label, number):
            try:
                result: dict[str, float] | None = run(cell, by_label[label], servers, topic)
            except RuntimeError as problem:
                result, cell.problems[label] = None, str(problem)
            cell.results[label].append(result)
    asyncio.run(delete(servers, topic))


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def setup(kafka: str, rounds: int, scale: float) -> dict[str, str]:
    """Return the software, the machine and the settings that the figures depend on, for the head of the report."""
    peers = ", ".join(f"{name} {installed(name)}" for name in ("confluent-kafka", "aiokafka", "uvloop"))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "build": "compiled" if COMPILED else "plain Python",
        "kafka": kafka,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, shared with the broker",
        "peers": peers,
        "partitions": str(PARTITIONS),
        "rounds": str(rounds),
        "scale": f"{scale:g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare aiokafka_lite with other clients on Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="3 rounds of fewer records: about 8 minutes")
    parser.add_argument("--rounds", type=int, help="rounds (7, or 3 with --quick)")
    parser.add_argument("--scale", type=float, help="factor of the numbers of records (1, or 0.25 with --quick)")
    parser.add_argument("--only", default="", help="run only the cells whose title contains this text")
    parser.add_argument("--output", type=Path, default=ROOT, help="directory to write benchmarks/ and docs/ below")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 7)
    scale = options.scale or (0.25 if options.quick else 1.0)
    began = time.monotonic()
    with apache_kafka() as (servers, kafka):
        facts = setup(kafka, rounds, scale)
        print(f"{facts['build']}, {kafka}, {facts['peers']}; {rounds} rounds", flush=True)
        cells = [*produce_cells(), *consume_cells(), *sender_cells()]
        measured = [
            replace(cell, count=max(20, int(cell.count * scale))) for cell in cells if options.only in cell.title
        ]
        for cell in measured:
            measure(cell, servers, rounds)
            print(f"{time.monotonic() - began:6.0f} s  {cell.title}", flush=True)
            for label, problem in cell.problems.items():
                print(f"          {label}: {problem}", flush=True)
    results = {"setup": facts, "cells": [asdict(cell) for cell in measured]}
    whole = not options.only
    write_report(results, options.output / "benchmarks", whole=whole)
    if whole:
        charts.write(options.output)


if __name__ == "__main__":
    main()

"""The comparison with other clients on Apache Kafka: ``make bench``, or ``python -m benchmarks.bench --quick``.

Rules of this benchmark:

1. Each candidate runs in a process of its own (``worker``), which imports only its client. CPU is the CPU time of this
   process, with all its threads, without the broker.
2. The candidates of a cell run in turn in each round, and each round begins with another candidate. So a change of the
   machine's load affects all of them. Ratios are medians of the ratios within a round.
3. Tables show medians, and the smallest and the largest value. A candidate that fails is named with its error.
4. A topic belongs to one cell, and is deleted after it.

The program finds Kafka as the tests do: KAFKA_BOOTSTRAP, a container, or plain Java. ``--only produce`` runs the cells
whose title contains that word; ``--only`` may be repeated. ``benchmarks.peers`` builds franz-go and Java's client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import aiokafka_lite
from aiokafka_lite.admin import Admin
from aiokafka_lite.compiled import COMPILED
from benchmarks import charts
from benchmarks.cells import PARTITIONS, Candidate, Cell, all_cells
from benchmarks.compare import in_turn
from benchmarks.job import KEYS, Job
from benchmarks.kafka import apache_kafka, new_topic
from benchmarks.peers import Peers
from benchmarks.report import write_report

ROOT = Path(__file__).parent.parent
RUN_TIMEOUT = 180.0


def run(peers: Peers, cell: Cell, candidate: Candidate, servers: str, topic: str) -> dict[str, float]:
    """Measure one candidate once, in a process of its own. Raises RuntimeError with the end of its output."""
    job = Job(
        candidate.client,
        servers,
        topic,
        cell.partitions,
        cell.count,
        cell.size,
        cell.keyed,
        cell.compression,
        cell.senders,
        candidate.uvloop,
        cell.records,
        time.time(),
    )
    environment = dict(os.environ, AIOKAFKA_LITE_PURE="0" if COMPILED and not candidate.plain else "1")
    command = peers.command(candidate.program, job)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not finished after {RUN_TIMEOUT:g} s") from None
    if done.returncode:
        raise RuntimeError(((done.stderr or done.stdout).strip() or f"exit code {done.returncode}").splitlines()[-1])
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


async def fill(servers: str, topic: str, cell: Cell) -> None:
    """Write what the candidates of the cell read."""
    values = Job("", servers, topic, cell.partitions, cell.count, cell.size).values()
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


def measure(peers: Peers, cell: Cell, servers: str, rounds: int) -> None:
    topic = asyncio.run(new_topic(servers, partitions=cell.partitions))
    if cell.is_filled:
        asyncio.run(fill(servers, topic, cell))
    by_label = {candidate.label: candidate for candidate in cell.candidates}
    cell.results = {label: [] for label in by_label}
    if cell.warms_up:
        run(peers, replace(cell, count=max(1, cell.count // 10)), cell.candidates[0], servers, topic)
    for number in range(min(rounds, cell.most_rounds)):
        for label in in_turn(by_label, number):
            try:
                result: dict[str, float] | None = run(peers, cell, by_label[label], servers, topic)
            except RuntimeError as problem:
                result, cell.problems[label] = None, str(problem)
            cell.results[label].append(result)
    asyncio.run(delete(servers, topic))


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def setup(peers: Peers, kafka: str, rounds: int, scale: float) -> dict[str, Any]:
    """Return the software, the machine and the settings that the figures depend on, for the head of the report."""
    names = [f"{name} {installed(name)}" for name in ("confluent-kafka", "aiokafka", "uvloop")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "build": "compiled" if COMPILED else "plain Python",
        "kafka": kafka,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, shared with the broker",
        "peers": ", ".join([*names, *peers.names()]),
        "missing": peers.problems,
        "partitions": str(PARTITIONS),
        "rounds": str(rounds),
        "scale": f"{scale:g}",
        "load": f"{os.getloadavg()[0]:.0f}",
    }


def scaled(cell: Cell, scale: float, peers: Peers) -> Cell:
    """Return the cell with fewer operations, and without the candidates whose programs are missing."""
    candidates = [candidate for candidate in cell.candidates if candidate.program not in peers.problems]
    count = cell.count if cell.kind in ("idle", "start") else max(min(20, cell.count), int(cell.count * scale))
    return replace(cell, candidates=candidates, count=count)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare aiokafka_lite with other clients on Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="3 rounds of fewer records")
    parser.add_argument("--rounds", type=int, help="rounds (7, or 3 with --quick)")
    parser.add_argument("--scale", type=float, help="factor of the numbers of records (1, or 0.25 with --quick)")
    parser.add_argument("--only", action="append", help="only cells whose title contains this; may be repeated")
    parser.add_argument("--output", type=Path, default=ROOT, help="directory to write benchmarks/ and docs/ below")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 7)
    scale = options.scale or (0.25 if options.quick else 1.0)
    began = time.monotonic()
    peers = Peers()
    peers.build()
    for program, problem in peers.problems.items():
        print(f"without {program}: {problem}", flush=True)
    with apache_kafka() as (servers, kafka):
        facts = setup(peers, kafka, rounds, scale)
        print(f"{facts['build']}, {kafka}, {facts['peers']}; {rounds} rounds", flush=True)
        chosen = [cell for cell in all_cells() if any(text in cell.title for text in options.only or [""])]
        measured = [cell for cell in (scaled(cell, scale, peers) for cell in chosen) if cell.candidates]
        for cell in measured:
            measure(peers, cell, servers, rounds)
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

"""Transactions of 1, 100 and 10,000 records, compared with other clients: ``python -m benchmarks.transactions``.

Each candidate writes one transaction after the other, in a process of its own. The program prints the time of a
transaction, from its begin to the return of its commit, and the CPU of the process for each record. A factor compares
with confluent-kafka in the same round; it is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from statistics import median

from benchmarks.compare import in_turn
from benchmarks.kafka import VALUE, apache_kafka, new_topic
from benchmarks.stopwatch import Stopwatch
from benchmarks.worker import BATCH, LINGER

SIZES = {1: 300, 100: 100, 10_000: 15}
"""Records of a transaction, and the number of transactions."""

WARM_UP = 5
"""Transactions that are not measured."""

PEER = "confluent-kafka"
ROUND_TIMEOUT = 300.0


def linger(records: int) -> float:
    """Return the linger in seconds. A single record has nothing to wait for."""
    return LINGER if records > 1 else 0.0


async def measure(records: int, write: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Return the median time of a transaction, and the CPU of a record, in seconds."""
    for _ in range(WARM_UP):
        await write()
    count = SIZES[records]
    times: list[float] = []
    watch = Stopwatch()
    for _ in range(count):
        began = time.perf_counter()
        await write()
        times.append(time.perf_counter() - began)
    return median(times), watch.read()[1] / count / records


async def ours(servers: str, topic: str, records: int) -> tuple[float, float]:
    from aiokafka_lite import Producer

    async with Producer(
        servers, transactional_id=uuid.uuid4().hex, batch_size=BATCH, linger=linger(records)
    ) as producer:

        async def write() -> None:
            async with producer.transaction() as transaction:
                for _ in range(records):
                    transaction.send_nowait(topic, VALUE)

        return await measure(records, write)


async def ours_send_many(servers: str, topic: str, records: int) -> tuple[float, float]:
    """Return all records in one call, so there is nothing to linger for."""
    from aiokafka_lite import Producer

    values = [VALUE] * records
    async with Producer(servers, transactional_id=uuid.uuid4().hex, batch_size=BATCH, linger=0.0) as producer:

        async def write() -> None:
            async with producer.transaction() as transaction:
                await transaction.send_many(topic, values)

        return await measure(records, write)


async def confluent_kafka(servers: str, topic: str, records: int) -> tuple[float, float]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": uuid.uuid4().hex,
            "batch.size": BATCH,
            "batch.num.messages": 1_000_000,
            "linger.ms": linger(records) * 1000,
        }
    )
    producer.init_transactions()

    async def write() -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, VALUE)
        producer.commit_transaction()

    return await measure(records, write)


async def aiokafka(servers: str, topic: str, records: int) -> tuple[float, float]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        transactional_id=uuid.uuid4().hex,
        max_batch_size=BATCH,
        linger_ms=int(linger(records) * 1000),
    )
    await producer.start()

    async def write() -> None:
        async with producer.transaction():
            for _ in range(records):
                await producer.send(topic, VALUE)

    try:
        return await measure(records, write)
    finally:
        await producer.stop()


CANDIDATES = {
    "aiokafka_lite": ours,
    "aiokafka_lite send_many": ours_send_many,
    PEER: confluent_kafka,
    "aiokafka": aiokafka,
}


def run(name: str, servers: str, topic: str, records: int) -> tuple[float, float]:
    """Measure a candidate once, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.transactions", "--candidate", name, servers, topic, str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_TIMEOUT, check=True)
    latency, cpu = map(float, done.stdout.split())
    return latency, cpu


def compare(servers: str, topic: str, records: int, rounds: int) -> None:
    """Print a table of all candidates."""
    durations: dict[str, list[tuple[float, float]]] = {name: [] for name in CANDIDATES}
    for number in range(rounds):
        for name in in_turn(CANDIDATES, number):
            durations[name].append(run(name, servers, topic, records))
    print(f"\n**{records:,} record{'s' * (records > 1)} in a transaction**\n")
    print("| client | ms of a transaction | factor | CPU µs of a record | factor |\n|---|---|---|---|---|")
    for name, results in durations.items():
        columns: list[str] = []
        for index, unit in ((0, 1e3), (1, 1e6)):
            factor = median(one[index] / other[index] for one, other in zip(results, durations[PEER]))
            columns += [f"{median(result[index] for result in results) * unit:.2f}", f"{factor:.2f}"]
        print(f"| {name} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--candidate", nargs=4, metavar=("NAME", "SERVERS", "TOPIC", "RECORDS"), help="measure one")
    options = parser.parse_args()
    if options.candidate:
        name, servers, topic, records = options.candidate
        print(*asyncio.run(CANDIDATES[name](servers, topic, int(records))))
        return
    with apache_kafka() as (servers, kafka):
        print(f"{kafka}, {options.rounds} rounds", flush=True)
        topic = asyncio.run(new_topic(servers))
        for records in SIZES:
            compare(servers, topic, records, options.rounds)


if __name__ == "__main__":
    main()

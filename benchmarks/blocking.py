"""The blocking clients beside confluent-kafka and kafka-python on Apache Kafka, and beside our asyncio clients.

    python -m benchmarks.blocking [--rounds 5] [--scale 1] [--only send] [--embedded]

Each candidate runs in a process of its own, in turn with the others, as in ``benchmarks.bench``; CPU is that of the
process with all its threads. Ratios are to the first candidate, medians of the ratios within a round.
``--embedded`` measures on an embedded broker in a process of its own, where no Apache Kafka can run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from aiokafka_lite.compiled import COMPILED
from benchmarks import worker
from benchmarks.compare import in_turn
from benchmarks.job import BATCH, LINGER, Job, Result, librdkafka, our_settings
from benchmarks.kafka import apache_kafka, embedded_broker, new_topic
from benchmarks.stopwatch import Stopwatch

ROOT = Path(__file__).parent.parent
PARTITIONS = 4


@dataclass(frozen=True)
class Comparison:
    """Candidates for the same work. ``measure`` is the figure that counts: ``cpu``, ``wall`` or ``p50``."""

    title: str
    candidates: tuple[str, ...]
    count: int
    measure: str = "cpu"
    senders: int = 0


COMPARISONS = (
    Comparison(
        "send_nowait with a callback for each record, 100 B",
        ("confluent callback", "blocking callbacks", "blocking deliveries", "deliveries", "kafka-python futures"),
        150_000,
    ),
    Comparison("send_many, 100 B", ("send_many", "blocking send_many"), 150_000),
    Comparison("batches(5000), 100 B", ("batches", "blocking batches"), 600_000),
    Comparison("poll(5000), 100 B", ("poll 5000", "blocking poll 5000", "confluent consume"), 600_000),
    Comparison(
        "one record after the other by iteration, 100 B",
        ("confluent poll", "blocking iteration", "async for", "kafka-python iteration"),
        300_000,
    ),
    Comparison(
        "a lone send after the other, 100 B",
        ("confluent produce and flush", "blocking send", "kafka-python send"),
        1_000,
        "p50",
        senders=1,
    ),
)


# The candidates.


def _producer(job: Job) -> Any:
    from aiokafka_lite.blocking import Producer

    return Producer(job.servers, **our_settings(job))


@contextmanager
def _started(job: Job) -> Iterator[Any]:
    with _producer(job) as producer:
        producer.send(job.topic, b"first")
        yield producer


def callbacks(job: Job) -> Result:
    from aiokafka_lite.errors import BufferFull

    records_left = job.count

    def delivered(metadata: object, error: object) -> None:
        nonlocal records_left
        if error is not None:
            raise RuntimeError(error)
        records_left -= 1

    values = job.values()
    with _started(job) as producer:
        watch = Stopwatch()
        send, topic, number = producer.send_nowait, job.topic, len(values)
        for index in range(job.count):
            while True:
                try:
                    send(topic, values[index % number]).report(delivered)
                    break
                except BufferFull:
                    producer.drain()
        producer.flush()
        result = watch.result()
    if records_left:
        raise RuntimeError(f"{records_left} records were not delivered")
    return result


def deliveries(job: Job) -> Result:
    from aiokafka_lite.errors import BufferFull

    values, promises = job.values(), []
    with _started(job) as producer:
        watch = Stopwatch()
        send, add, topic, number = producer.send_nowait, promises.append, job.topic, len(values)
        for index in range(job.count):
            while True:
                try:
                    add(send(topic, values[index % number]))
                    break
                except BufferFull:
                    producer.drain()
        producer.flush()
        for promise in promises:
            promise.wait()
        return watch.result()


def send_many(job: Job) -> Result:
    values = job.values()
    every = [values[index % len(values)] for index in range(job.count)]
    with _producer(job) as producer:
        producer.send(job.topic, b"first")
        watch = Stopwatch()
        producer.send_many(job.topic, every)
        return watch.result()


def lone_sends(job: Job) -> Result:
    with _producer(job) as producer:
        return _one_by_one(job, lambda value: producer.send(job.topic, value))


def confluent_lone_sends(job: Job) -> Result:
    from confluent_kafka import Producer

    producer = Producer(librdkafka(job))

    def send(value: bytes) -> None:
        producer.produce(job.topic, value)
        producer.flush()

    return _one_by_one(job, send)


def kafka_python_lone_sends(job: Job) -> Result:
    producer = _kafka_python_producer(job)
    result = _one_by_one(job, lambda value: producer.send(job.topic, value).get(timeout=30))
    producer.close()
    return result


def _one_by_one(job: Job, send: Callable[[bytes], object]) -> Result:
    values = job.values()
    for index in range(min(50, job.count)):
        send(values[index % len(values)])
    times = []
    watch = Stopwatch()
    for index in range(job.count):
        began = time.perf_counter()
        send(values[index % len(values)])
        times.append(time.perf_counter() - began)
    return {**watch.result(), "p50": median(times)}


def _kafka_python_producer(job: Job) -> Any:
    from kafka import KafkaProducer

    return KafkaProducer(
        bootstrap_servers=job.servers,
        acks="all",
        batch_size=BATCH,
        linger_ms=0 if job.senders else int(LINGER * 1000),
    )


def kafka_python_futures(job: Job) -> Result:
    values = job.values()
    producer = _kafka_python_producer(job)
    producer.send(job.topic, b"first").get(timeout=30)
    records_left = job.count

    def delivered(metadata: object) -> None:
        nonlocal records_left
        records_left -= 1

    watch = Stopwatch()
    for index in range(job.count):
        producer.send(job.topic, values[index % len(values)]).add_callback(delivered)
    producer.flush()
    result = watch.result()
    producer.close()
    if records_left:
        raise RuntimeError(f"{records_left} records were not delivered")
    return result


def _reads(read: Callable[[Any, int], None]) -> Callable[[Job], Result]:
    def run(job: Job) -> Result:
        from aiokafka_lite import TopicPartition
        from aiokafka_lite.blocking import Consumer

        with Consumer(job.servers, isolation_level="read_uncommitted", auto_offset_reset="earliest") as consumer:
            watch = Stopwatch()
            consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
            read(consumer, job.count)
            return watch.result()

    return run


def _takes_batches(consumer: Any, records_left: int) -> None:
    for batch in consumer.batches(5000):
        for _value in batch.values:
            records_left -= 1
        if records_left <= 0:
            return


def _polls(consumer: Any, records_left: int) -> None:
    while records_left > 0:
        records_left -= len(consumer.poll(5000, timeout=10.0))


def _iterates(consumer: Any, records_left: int) -> None:
    for _ in consumer:
        records_left -= 1
        if records_left == 0:
            return


def kafka_python_iteration(job: Job) -> Result:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place

    consumer = KafkaConsumer(bootstrap_servers=job.servers, auto_offset_reset="earliest")
    watch = Stopwatch()
    consumer.assign([Place(job.topic, number) for number in range(job.partitions)])
    _iterates(consumer, job.count)
    result = watch.result()
    consumer.close()
    return result


CANDIDATES: dict[str, Callable[[Job], Any]] = {
    **worker.WRITERS,
    **worker.READERS,
    "blocking callbacks": callbacks,
    "blocking deliveries": deliveries,
    "blocking send_many": send_many,
    "blocking send": lone_sends,
    "blocking batches": _reads(_takes_batches),
    "blocking poll 5000": _reads(_polls),
    "blocking iteration": _reads(_iterates),
    "confluent produce and flush": confluent_lone_sends,
    "kafka-python futures": kafka_python_futures,
    "kafka-python iteration": kafka_python_iteration,
    "kafka-python send": kafka_python_lone_sends,
}


def run(candidate: str, job: Job) -> Result:
    """Run a candidate in this process. A consumer runs twice: the first one warms it up."""
    measure = CANDIDATES[candidate]

    def once() -> Result:
        result = measure(job)
        return asyncio.run(result) if asyncio.iscoroutine(result) else result

    if not job.senders and any(word in candidate for word in ("batches", "poll", "consume", "iteration", "async for")):
        once()
    return once()


# The comparison.


def in_process(candidate: str, job: Job) -> Result | None:
    """Run a candidate in a process of its own. Returns None if it fails, and prints why."""
    command = [sys.executable, "-m", "benchmarks.blocking", "--worker", candidate, json.dumps(asdict(job))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        print(f"          {candidate}: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return None
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(comparison: Comparison, servers: str, rounds: int, scale: float) -> None:
    """Print the figures of a comparison."""
    topic = asyncio.run(new_topic(servers, partitions=PARTITIONS))
    count = max(20, int(comparison.count * scale))
    job = Job("", servers, topic, PARTITIONS, count, 100, senders=comparison.senders)
    if "send" not in comparison.title:
        in_process("blocking send_many", job)
    results: dict[str, list[Result | None]] = {name: [] for name in comparison.candidates}
    for number in range(rounds):
        for name in in_turn(comparison.candidates, number):
            results[name].append(in_process(name, job))
    print(f"\n{comparison.title} ({count:,} records)\n")
    base = results[comparison.candidates[0]]
    for name, of in results.items():
        figures = [result[comparison.measure] for result in of if result is not None]
        ratios = [
            result[comparison.measure] / first[comparison.measure]
            for result, first in zip(of, base, strict=True)
            if result is not None and first is not None
        ]
        if not figures or not ratios:
            continue
        unit = median(figures) * 1e6 if comparison.measure == "p50" else median(figures) / count * 1e6
        walls = [count / result["wall"] for result in of if result is not None]
        print(
            f"  {name:32} {unit:9.2f} µs {comparison.measure:4}  × {median(ratios):.2f}"
            f"  ({min(ratios):.2f} to {max(ratios):.2f})  {median(walls):12,.0f} records/s",
            flush=True,
        )


@contextmanager
def broker(is_embedded: bool) -> Iterator[tuple[str, str]]:
    """Yield the bootstrap servers of a broker and its name."""
    if not is_embedded:
        with apache_kafka() as kafka:
            yield kafka
        return
    with embedded_broker() as (servers, _):
        yield servers, "the embedded broker"


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(run(sys.argv[2], Job(**json.loads(sys.argv[3])))))
        return
    parser = argparse.ArgumentParser(description="Compare the blocking clients with others.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a factor of the numbers of records")
    parser.add_argument("--only", default="", help="comparisons whose title contains this")
    parser.add_argument("--embedded", action="store_true", help="on an embedded broker in a process of its own")
    options = parser.parse_args(sys.argv[1:] if __name__ == "__main__" else [])
    with broker(options.embedded) as (servers, name):
        print(f"{name}, aiokafka_lite {'compiled' if COMPILED else 'as plain Python'}")
        for comparison in COMPARISONS:
            if options.only in comparison.title:
                compare(comparison, servers, options.rounds, options.scale)


if __name__ == "__main__":
    main()

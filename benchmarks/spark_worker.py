"""One side of the Spark rows of ``make bench``, in a process of its own: this package, or Spark's own connector.

``python -m benchmarks.spark_worker [--jars PATHS] '{"client": "read: ours", ...}'``; the job is a ``Job``, and the
result is the last line of the output. ``client`` is the work and the side: ``ours``, ``connector``, ``tuned``. CPU is
that of the JVM and of all Python workers. The work is done twice before it is measured, because Java compiles its code
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.job import Job, Result
from benchmarks.spark import Progress, Spent, noop, phase_medians, read_stream, session
from benchmarks.spark_write import rows_of

OURS = "ours"
TUNED: Mapping[str, Mapping[str, object]] = {
    "read": {
        "kafka.max.partition.fetch.bytes": 8 << 20,
        "kafka.max.poll.records": 20_000,
        "kafka.receive.buffer.bytes": 1 << 20,
    },
    "write": {"kafka.batch.size": 1_000_000, "kafka.linger.ms": 20, "kafka.buffer.memory": 64 << 20},
}
"""Larger fetches and batches for Java's clients. The batches are as large as those of this package."""

WARM_UPS, RUNS = 2, 3
ROWS_OF_BATCH = 40


class Side:
    """A session, and the options of the side that is measured."""

    def __init__(self, spark: SparkSession, job: Job, name: str) -> None:
        self.spark = spark
        self.job = job
        self._format = "kafka-lite" if name == OURS else "kafka"
        self._is_tuned = name == "tuned"

    def options(self, kind: str) -> dict[str, object]:
        tuned = TUNED[kind] if self._is_tuned else {}
        return {"kafka.bootstrap.servers": self.job.servers, **tuned}

    def read(self) -> None:
        reader = self.spark.read.format(self._format).options(**self.options("read"))
        noop(reader.option("subscribe", self.job.topic).option("startingOffsets", "earliest").load())

    def write(self) -> None:
        rows = rows_of(self.spark, self.job.count, self.job.compression)
        writer = rows.write.format(self._format).options(**self.options("write"), topic=self.job.topic)
        writer.mode("append").save()

    def stream(self, **options: object) -> list[Progress]:
        return read_stream(self.spark, self.job.topic, self._format, **self.options("read"), **options)


def whole(side: Side, work: Callable[[], object]) -> Result:
    """Measure work on all rows of the job: the median of some runs."""
    for _ in range(WARM_UPS):
        work()
    spent = []
    for _ in range(RUNS):
        watch = Spent(side.spark)
        work()
        spent.append(watch.read())
    return {"wall": median(wall for wall, _ in spent), "cpu": median(cpu for _, cpu in spent)}


def plans(side: Side) -> Result:
    """Measure queries one by one: load, plan, and find nothing to read."""
    for _ in range(WARM_UPS):
        side.read()
    watch, times = Spent(side.spark), []
    for _ in range(side.job.count):
        began = time.perf_counter()
        side.read()
        times.append(time.perf_counter() - began)
    wall, cpu = watch.read()
    return {"wall": wall, "cpu": cpu / side.job.count, "p50": median(times)}


def batches(side: Side) -> Result:
    """Measure the batches of a stream, one directly after the other."""
    side.stream(maxOffsetsPerTrigger=ROWS_OF_BATCH)
    watch = Spent(side.spark)
    times = side.stream(maxOffsetsPerTrigger=ROWS_OF_BATCH)
    wall, cpu = watch.read()
    phases = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
    seconds = {phase: time_ / 1000 for phase, time_ in phase_medians(times, phases).items()}
    logs = seconds["walCommit"] + seconds["commitOffsets"]
    return {"wall": wall, "cpu": cpu / len(times), "p50": seconds["triggerExecution"], "logs": logs, **seconds}


WORKS: Mapping[str, Callable[[Side], Result]] = {
    "read": lambda side: whole(side, side.read),
    "write": lambda side: whole(side, side.write),
    "stream": lambda side: whole(side, side.stream),
    "batches": batches,
    "plan": plans,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jars", default="")
    parser.add_argument("job")
    arguments = parser.parse_args()
    job = Job(**json.loads(arguments.job))
    work, _, side = job.client.partition(": ")
    spark = session(arguments.jars)
    result = WORKS[work](Side(spark, job, side))
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()

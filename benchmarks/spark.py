"""Read a topic with Spark: ``python -m benchmarks.spark``, with a number for as many thousand records.

Kafka is found as the tests find it (KAFKA_BOOTSTRAP, a container, plain Java). A topic of four partitions is filled
with records of 100 bytes and keys of 9. In each round each way of reading reads all of it, in turn; medians are
reported. This package's source is compared with a source that makes rows of nothing, which shows the time of Spark
itself, and with a Python source on confluent-kafka. CPU is that of the JVM and of all Python workers, without the
broker.

Then the program measures a micro-batch, a task and a query with nearly no records, and the import of the package.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import DataFrame, SparkSession

from aiokafka_lite import Producer
from aiokafka_lite.admin import create_topic
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.spark import register
from aiokafka_lite.spark.interpreter import worker_python
from aiokafka_lite.spark.jvm import use_java
from benchmarks.kafka import KEYS, VALUE, apache_kafka
from benchmarks.spark_peers import Confluent, Synthetic

ROUNDS = 3
PARTITIONS = 4
AT_ONCE = 50_000

Read = Callable[[], object]


class Spent:
    """Wall and CPU seconds, of the JVM and everything that it started."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
        self._began = self._now()

    def _now(self) -> tuple[float, float]:
        cpu = 0.0
        for process in (self._jvm, *self._jvm.children(recursive=True)):
            try:
                cpu += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return time.perf_counter(), cpu

    def read(self) -> tuple[float, float]:
        wall, cpu = self._now()
        return wall - self._began[0], cpu - self._began[1]


def session(jars: str = "") -> SparkSession:
    """Return a session on two cores. ``jars`` are paths, separated by commas."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    warnings.simplefilter("ignore")
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if jars:
        local["spark.jars"] = jars
    spark = SparkSession.builder.master("local[2]").config(map=local).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    spark.dataSource.register(Synthetic)
    spark.dataSource.register(Confluent)
    return spark


async def fill(servers: str, topic: str, partitions: int, count: int) -> None:
    async with Client(ClientConfig(bootstrap_servers=servers)) as client:
        await create_topic(client, topic, partitions=partitions)
    async with Producer(servers, batch_size=65536, linger=0.01) as producer:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(count, first + AT_ONCE))
            keys = [KEYS[number % 1000] for number in numbers]
            await producer.send_many(topic, [VALUE] * len(numbers), keys=keys)


def noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def sums(rows: DataFrame) -> tuple[int, ...]:
    (row,) = rows.selectExpr(
        "count(*)", "sum(octet_length(value))", "sum(octet_length(key))", "sum(offset)", "sum(partition)"
    ).collect()
    return tuple(row)


def timed(spark: SparkSession, reads: Mapping[str, Read], count: int, title: str, rounds: int = ROUNDS) -> None:
    """Print a table of rows per second and CPU per row; the ways take turns."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in reads}
    for read in reads.values():
        read()
    for turn in range(rounds):
        names = list(reads)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            watch = Spent(spark)
            reads[name]()
            spent[name].append(watch.read())
    print(f"{title:<44}  {'M rows/s':>9}  {'µs CPU':>7}")
    for name, figures in spent.items():
        wall, cpu = median(wall for wall, _ in figures), median(cpu for _, cpu in figures)
        print(f"{name:<44}  {count / wall / 1e6:>9.2f}  {cpu / count * 1e6:>7.2f}")
    print()


def compare_reads(spark: SparkSession, servers: str, topic: str, count: int, directory: str) -> None:
    ours = spark.read.format("kafka-lite").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    whole = ours.load()
    narrow = ours.schema("value binary").load()
    theirs = spark.read.format("confluent").option("servers", servers).option("topic", topic).load()
    ceiling = spark.read.format("synthetic").option("tasks", PARTITIONS).option("rows", count).load()
    assert sums(whole) == sums(theirs), "the two clients do not see the same"

    def parquet(rows: DataFrame) -> None:
        rows.write.mode("overwrite").parquet(f"{directory}/parquet")

    ways = {"this package": whole, "on confluent-kafka": theirs, "rows of nothing": ceiling}
    timed(
        spark,
        {name: lambda rows=rows: noop(rows) for name, rows in ways.items()}  # type: ignore[misc]
        | {"this package, only the value": lambda: noop(narrow)},
        count,
        "batch, to nowhere",
    )
    timed(spark, {name: lambda rows=rows: sums(rows) for name, rows in ways.items()}, count, "batch, sums")  # type: ignore[misc]
    timed(spark, {name: lambda rows=rows: parquet(rows) for name, rows in ways.items()}, count, "batch, to Parquet")  # type: ignore[misc]


Progress = dict[str, float]
"""The milliseconds of the phases of a batch."""


def run_stream(rows: DataFrame, sink: str = "noop", **options: object) -> list[Progress]:
    """Run a query with availableNow; the times of its batches that had rows."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.format(sink).options(**options, checkpointLocation=checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]


def read_stream(spark: SparkSession, topic: str, source: str = "kafka-lite", **options: object) -> list[Progress]:
    """Read a whole topic with availableNow, to nowhere; the times of its batches."""
    rows = spark.readStream.format(source).options(**options, subscribe=topic, startingOffsets="earliest")
    return run_stream(rows.load())


def phase_medians(times: Sequence[Progress], phases: Iterable[str]) -> dict[str, float]:
    """Return the median of each phase, without the first three batches, which start processes."""
    if len(times) < 4:
        raise SystemExit(f"a stream had {len(times)} batches, too few for medians: take more rows")
    return {phase: median(time_.get(phase, 0.0) for time_ in times[3:]) for phase in phases}


def fixed_costs(spark: SparkSession, servers: str, topic: str) -> None:
    ours = spark.read.format("kafka-lite").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    few = ours.option("endingOffsets", f'{{"{topic}": {{"0": 64, "1": 0, "2": 0, "3": 0}}}}')
    one, many = few.load(), few.option("maxRecordsPerPartition", 1).load()
    seconds: dict[str, list[float]] = {"one": [], "many": []}
    for _ in range(6):
        for name, rows in (("one", one), ("many", many)):
            began = time.perf_counter()
            noop(rows)
            seconds[name].append(time.perf_counter() - began)
    per_query = median(seconds["one"][1:])
    per_task = (median(seconds["many"][1:]) - per_query) / 63
    print(f"a query of one task of 64 rows       {per_query * 1000:7.0f} ms")
    print(f"a task more, on two cores            {per_task * 1000:7.1f} ms")


def micro_batches(spark: SparkSession, servers: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": 4}
    times = read_stream(spark, topic, **options)
    phases = ("triggerExecution", "addBatch", "walCommit", "commitOffsets", "latestOffset", "queryPlanning")
    phase_times = ", ".join(f"{name} {time_:.0f}" for name, time_ in phase_medians(times, phases).items())
    print(f"a micro-batch of 4 rows, in ms: {phase_times} ({len(times) - 3} batches)")


def imports() -> None:
    """Measure the import of this package: once in Spark's daemon, and then in each worker that it forks."""
    code = (
        "import pyspark.daemon, time; from aiokafka_lite.spark import daemon; t = time.process_time();"
        "daemon.preload(daemon.TASKS); once = time.process_time() - t;"
        "import pyspark.worker, pyarrow, pyspark.sql.datasource, pyspark.sql.streaming.datasource;"
        "t = time.process_time(); import aiokafka_lite.spark.source, aiokafka_lite.spark.decoding;"
        "print(once, time.process_time() - t)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(7)
    ]
    once, per_worker = (median(float(run[part]) for run in runs) * 1000 for part in (0, 1))
    print(f"import in the daemon, once; in a worker  {once:.0f}, {per_worker:.0f} ms of CPU")


def main() -> None:
    numbers = [argument for argument in sys.argv[1:] if argument.isdecimal()]
    count = int(numbers[0]) * 1000 if numbers else 1_000_000
    with apache_kafka() as (address, name):
        print(f"{name}; {count:,} records\n")
        topic, small = "spark", "few"
        asyncio.run(fill(address, topic, PARTITIONS, count))
        asyncio.run(fill(address, small, 1, 80))
        spark = session()
        with tempfile.TemporaryDirectory() as directory:
            compare_reads(spark, address, topic, count, directory)
        source = {"kafka.bootstrap.servers": address}
        timed(spark, {"this package": lambda: read_stream(spark, topic, **source)}, count, "availableNow, to nowhere")
        fixed_costs(spark, address, topic)
        micro_batches(spark, address, small)
        imports()
        spark.stop()


if __name__ == "__main__":
    main()

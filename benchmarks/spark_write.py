"""Write topics with Spark: ``python -m benchmarks.spark_write``, with a number for as many thousand rows.

Rows of 100 bytes with keys of 9 bytes go to a topic of four partitions on the Kafka that the tests find. This package's
sink is compared with a sink on confluent-kafka, which produces row by row from Arrow, and with a sink that drops the
rows, which shows the time of the rows themselves. In each round each sink writes all rows, in turn; medians are
reported.

Then from topic to topic, as a stream: at least once and exactly once, in one batch and in batches of 100,000 and 20,000
rows. The time of a trigger does not include the first batch, which starts Spark's Python processes.

The last part is a batch of two tasks in this process, without Spark, with either delivery.

``python -m benchmarks.spark_write tasks`` does only the last part, ``stream`` the second, and ``batch`` the first.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from statistics import median

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aiokafka_lite.spark import exactly_once, writing
from aiokafka_lite.spark.exactly_once import Place
from aiokafka_lite.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, Properties
from aiokafka_lite.spark.writing import Target
from benchmarks.kafka import KEYS, VALUE, Timed, apache_kafka, in_rounds
from benchmarks.spark import PARTITIONS, fill, noop, run_stream, session, timed
from benchmarks.stopwatch import Stopwatch

ROUNDS = 5
TASKS = 2


class ConfluentSink(DataSource):
    """A topic by librdkafka, idempotent as ours."""

    @classmethod
    def name(cls) -> str:
        return "confluent-sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return ConfluentWriter(self.options)


class ConfluentWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._servers, self._topic = options["servers"], options["topic"]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 262_144,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for batch in iterator:
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist()):
                while True:
                    try:
                        producer.produce(self._topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
        producer.flush()
        return WriterCommitMessage()


def rows_of(spark: SparkSession, count: int, compression: str) -> DataFrame:
    """Return rows that take little time to make. With a compression, their values differ."""
    value = "repeat('v', 100)" if compression == "none" else "concat(CAST(id AS STRING), repeat('v', 90))"
    return spark.range(0, count, 1, 2).selectExpr("printf('key-%05d', id % 1000) AS key", f"{value} AS value")


def compare_writes(spark: SparkSession, servers: str, count: int, compression: str) -> None:
    rows = rows_of(spark, count, compression)
    ours = rows.write.format("kafka-lite").option("kafka.bootstrap.servers", servers).option("topic", "spark-ours")
    ours = ours.option("kafka.compression.type", compression).mode("append")
    theirs = rows.write.format("confluent-sink").option("servers", servers).option("topic", "spark-theirs")
    ways = {"this package": ours.save, "to nowhere": lambda: noop(rows)}
    if compression == "none":
        ways["on confluent-kafka"] = theirs.mode("append").save
    timed(spark, ways, count, f"batch, to a topic, compression {compression}")


def copy(spark: SparkSession, servers: str, delivery: str, limit: int | None) -> list[float]:
    """Copy from topic to topic with availableNow. Returns the milliseconds of all batches after the first."""
    rows = spark.readStream.format("kafka-lite").schema("key binary, value binary")
    if limit is not None:
        rows = rows.option("maxOffsetsPerTrigger", limit)
    source = {"kafka.bootstrap.servers": servers, "subscribe": "spark-source", "startingOffsets": "earliest"}
    sink = {"kafka.bootstrap.servers": servers, "topic": "spark-copy", "delivery": delivery}
    times = run_stream(rows.options(**source).load(), "kafka-lite", **sink)
    return [time_["triggerExecution"] for time_ in times[1:]]


def compare_deliveries(spark: SparkSession, servers: str, count: int, limit: int | None) -> None:
    triggers: dict[str, list[float]] = {AT_LEAST_ONCE: [], EXACTLY_ONCE: []}

    def run(delivery: str) -> None:
        triggers[delivery] += copy(spark, servers, delivery, limit)

    ways = {delivery: partial(run, delivery) for delivery in triggers}
    batches = "one batch" if limit is None else f"batches of {limit:,} rows"
    timed(spark, ways, count, f"availableNow, topic to topic, {batches}", rounds=ROUNDS)
    for delivery, times in triggers.items():
        if times:
            print(f"a trigger, {delivery:<44} {median(times):6.0f} ms")
    print()


def batch_of_tasks(target: Target, rows: Sequence[pyarrow.RecordBatch], batches: Iterator[int], delivery: str) -> Timed:
    """Return the work of two tasks and the driver for a batch, one after the other, without Spark."""
    watch, batch = Stopwatch(), next(batches)
    if delivery == AT_LEAST_ONCE:
        for _ in range(TASKS):
            writing.write_rows(target, iter(rows))
    else:
        places = [Place(f"query-{os.getpid()}", task, batch) for task in range(TASKS)]
        exactly_once.commit(target, batch, [exactly_once.write_rows(target, place, iter(rows)) for place in places])
    return watch.read()


def compare_tasks(servers: str) -> None:
    target = Target(properties=Properties({"bootstrap.servers": servers}), topic="spark-tasks", freeze_gc=False)
    deliveries = {delivery: delivery for delivery in (AT_LEAST_ONCE, EXACTLY_ONCE)}
    batches = count()
    for size in (10, 10_000, 50_000, 250_000):
        at_once = min(size, 10_000)
        keys = [KEYS[number % 1000] for number in range(at_once)]
        rows = [pyarrow.record_batch({"key": keys, "value": [VALUE] * at_once})] * (size // at_once)
        run = partial(batch_of_tasks, target, rows, batches)
        print(in_rounds(f"a batch of {TASKS} tasks of {size:,} rows", deliveries, run, rounds=ROUNDS, unit="batch"))


def main() -> None:
    numbers = [argument for argument in sys.argv[1:] if argument.isdecimal()]
    parts = {argument for argument in sys.argv[1:] if not argument.isdecimal()} or {"batch", "stream", "tasks"}
    records = int(numbers[0]) * 1000 if numbers else 1_000_000
    with apache_kafka() as (address, name):
        print(f"{name}; {records:,} rows\n")
        if "tasks" in parts:
            asyncio.run(fill(address, "spark-tasks", PARTITIONS, 0))
            compare_tasks(address)
        if not parts & {"batch", "stream"}:
            return
        spark = session()
        if "batch" in parts:
            for topic in ("spark-ours", "spark-theirs"):
                asyncio.run(fill(address, topic, PARTITIONS, 0))
            spark.dataSource.register(ConfluentSink)
            for compression in ("none", "lz4"):
                compare_writes(spark, address, records, compression)
        if "stream" in parts:
            asyncio.run(fill(address, "spark-copy", PARTITIONS, 0))
            asyncio.run(fill(address, "spark-source", PARTITIONS, records))
            for limit in (None, 100_000, 20_000):
                compare_deliveries(spark, address, records, limit)
        spark.stop()


if __name__ == "__main__":
    main()

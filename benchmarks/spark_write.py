"""Write topics with Spark: ``python -m benchmarks.spark_write``, with a number for as many thousand rows.

Rows of 100 bytes with keys of 9 go to a topic of four partitions on the Kafka that the tests find: by this package's
sink, by one on confluent-kafka that produces row by row from Arrow, and to nowhere, which is what the rows themselves
take. In each round each of them writes all rows, in turn; medians are reported. Then from topic to topic, as a stream.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.kafka import apache_kafka
from benchmarks.spark import PARTITIONS, fill, noop, session, timed


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
    """Rows that cost little to make; those that are compressed are not all alike."""
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


def copy(spark: SparkSession, servers: str) -> None:
    """From topic to topic with availableNow, in one batch."""
    reader = spark.readStream.format("kafka-lite").option("kafka.bootstrap.servers", servers)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            reader.schema("key binary, value binary")
            .option("subscribe", "spark-source")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("kafka-lite")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", "spark-copy")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def main() -> None:
    numbers = [argument for argument in sys.argv[1:] if argument.isdecimal()]
    count = int(numbers[0]) * 1000 if numbers else 1_000_000
    with apache_kafka() as (address, name):
        print(f"{name}; {count:,} rows\n")
        for topic in ("spark-ours", "spark-theirs", "spark-copy"):
            asyncio.run(fill(address, topic, PARTITIONS, 0))
        asyncio.run(fill(address, "spark-source", PARTITIONS, count))
        spark = session()
        spark.dataSource.register(ConfluentSink)
        for compression in ("none", "lz4"):
            compare_writes(spark, address, count, compression)
        timed(spark, {"this package": lambda: copy(spark, address)}, count, "availableNow, topic to topic")
        spark.stop()


if __name__ == "__main__":
    main()

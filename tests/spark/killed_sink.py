"""The driver of a query that a test kills: it copies a topic to its end, then exits with 0.

Of five rows, one is marked as a dead letter, and another one names a partition that the copy does not have.
In every third batch, the first attempt of a task fails after all its rows, and leaves a file as evidence.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from aiokafka_lite.spark import register

ROWS = (
    "concat_ws(':', partition, offset) AS value",
    "struct(topic, partition, offset, timestamp) AS origin",
    "IF(offset % 5 = 1, 99, NULL) AS partition",
    "IF(offset % 5 = 0, 'marked', NULL) AS _error",
)


def fail_now_and_then(directory: str, batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    if int(batch or 0) % 3 == 1 and context.partitionId() == 0 and context.attemptNumber() == 0:
        Path(directory, f"failed-in-batch-{batch}").touch()
        raise RuntimeError("this task fails at its first attempt")


def main(servers: str, topic: str, directory: str, per_batch: str, delivery: str, master: str) -> None:
    warnings.simplefilter("ignore")
    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    rows = (
        spark.readStream.format("kafka-lite")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .option("minPartitions", "2")
        .load()
        .selectExpr(*ROWS)
    )
    rows = rows.mapInArrow(partial(fail_now_and_then, directory), rows.schema)
    query = (
        rows.writeStream.format("kafka-lite")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{topic}-copied")
        .option("deadLetterTopic", f"{topic}-dead")
        .option("delivery", delivery)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

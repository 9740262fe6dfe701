"""The driver of a query that a test kills: it reads a topic into Parquet to its end, then exits with 0."""

from __future__ import annotations

import sys
import warnings

from pyspark.sql import SparkSession

from aiokafka_lite.spark import register


def main(servers: str, topic: str, directory: str, per_batch: str) -> None:
    warnings.simplefilter("ignore")
    # Spark retries tasks, so that the query survives the death of a worker.
    spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
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
        .select("partition", "offset", "value")
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", f"{directory}/out")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""``df.write`` and ``df.writeStream`` to topics: the written records, read by another client, and refused writes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow
import pyarrow.compute as compute
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.errors import UnknownTopic
from aiokafka_lite.protocol.records import partition_for_key
from aiokafka_lite.spark.options import Properties
from aiokafka_lite.spark.writing import Target, check_topic, write_rows
from tests.embedded.producer.producers_and_logs import batches_of
from tests.end_to_end.conftest import Kafka
from tests.spark.conftest import batch_of, on_spark, run_to_end, stream_of
from tests.waiting import DEADLINE

Messages = dict[int, list[confluent_kafka.Message]]


def found_here(spark: SparkSession) -> None:
    """Make Spark find the registered formats: for a write it uses the active session of this thread."""
    spark.createDataFrame([], "nothing INT")


def write(rows: DataFrame, servers: str | None, mode: str = "append", **options: Any) -> None:
    """Write rows as a batch; ``__`` in an option stands for a dot."""
    found_here(rows.sparkSession)
    settings = {name.replace("__", "."): value for name, value in options.items()}
    if servers is not None:
        settings["kafka.bootstrap.servers"] = servers
    rows.write.format("kafka-lite").options(**settings).mode(mode).save()


async def messages_in(kafka: Kafka, topic: str, partitions: int) -> Messages:
    """Return all records of a topic by partition, read by librdkafka."""
    return await asyncio.to_thread(_messages_in, kafka, topic, partitions)


def _messages_in(kafka: Kafka, topic: str, partitions: int) -> Messages:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "all"})
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
    records_left = sum(consumer.get_watermark_offsets(place, timeout=DEADLINE)[1] for place in places)
    consumer.assign(places)
    by_partition: Messages = defaultdict(list)
    while records_left > 0:
        messages = consumer.consume(records_left, timeout=DEADLINE)
        assert messages, f"{records_left} messages never came"
        records_left -= len(messages)
        for message in messages:
            assert message.error() is None
            by_partition[message.partition()].append(message)
    consumer.close()
    return by_partition


async def values_in(kafka: Kafka, topic: str, partitions: int) -> list[bytes | None]:
    by_partition = await messages_in(kafka, topic, partitions)
    return [message.value() for messages in by_partition.values() for message in messages]


ALL_SORTS = """
    SELECT CAST(NULL AS STRING) AS key, X'00FF' AS value, 0 AS partition,
           array(named_struct('key', 'a', 'value', X'01'), named_struct('key', 'a', 'value', CAST(NULL AS BINARY)))
               AS headers
    UNION ALL SELECT '', X'', 1, array()
    UNION ALL SELECT 'né', CAST(NULL AS BINARY), 1, NULL
"""


async def test_nulls_headers_and_partitions_are_written_unchanged(kafka: Kafka, spark: SparkSession) -> None:
    topic = await kafka.create_topic(partitions=2)
    await on_spark(lambda: write(spark.sql(ALL_SORTS).coalesce(1), kafka.bootstrap_servers, topic=topic))
    messages = await messages_in(kafka, topic, 2)
    assert [(message.key(), message.value(), message.headers()) for message in messages[0]] == [
        (None, b"\x00\xff", [("a", b"\x01"), ("a", None)])
    ]
    assert [(message.key(), message.value(), message.headers()) for message in messages[1]] == [
        (b"", b"", None),
        ("né".encode(), None, None),
    ]


def target_of(cluster: EmbeddedCluster, topic: str | None) -> Target:
    properties = Properties({"bootstrap.servers": cluster.bootstrap_servers})
    return Target(properties=properties, topic=topic, freeze_gc=False)


@pytest.mark.usefixtures("driver")
async def test_columns_that_are_not_written_are_not_copied(cluster: EmbeddedCluster) -> None:
    for topic in ("a", "b"):
        await cluster.create_topic(topic, 1)
    target = target_of(cluster, None)
    # Arrow cannot copy a part of this column.
    other = compute.run_end_encode(pyarrow.array(["x", "x"]))
    rows = pyarrow.record_batch({"topic": ["a", "b"], "value": ["1", "2"], "other": other})
    output = await on_spark(lambda: write_rows(target, [rows]))
    assert output.records == {("a", 0): 1, ("b", 0): 1}


@pytest.mark.usefixtures("driver")
async def test_small_parts_of_a_task_become_one_batch_of_each_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    target = target_of(cluster, "t")
    parts = [
        pyarrow.record_batch({"value": [b"%d" % number], "partition": pyarrow.array([number % 2], pyarrow.int32())})
        for number in range(40)
    ]
    output = await on_spark(lambda: write_rows(target, iter(parts)))
    assert output.records == {("t", 0): 20, ("t", 1): 20}
    for partition in (0, 1):
        (batch,) = batches_of(cluster, "t", partition)
        assert batch.columns().values == [b"%d" % number for number in range(partition, 40, 2)]


@pytest.mark.usefixtures("driver")
async def test_a_task_sends_its_first_rows_before_it_has_all(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    target = target_of(cluster, "t")
    loop = asyncio.get_running_loop()

    def parts() -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.record_batch({"value": [bytes(500_000)] * 3})
        asyncio.run_coroutine_threadsafe(cluster.wait_for_records("t", 3), loop).result()
        yield pyarrow.record_batch({"value": [b"last"]})

    output = await on_spark(lambda: write_rows(target, parts()))
    assert output.records == {("t", 0): 4}


@pytest.mark.usefixtures("driver")
async def test_batches_above_the_limit_of_a_topic_arrive_in_parts(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, configs={"max.message.bytes": "300000"})
    target = target_of(cluster, "t")
    values = [b"%06d" % number + bytes(94) for number in range(10_000)]
    output = await on_spark(lambda: write_rows(target, iter([pyarrow.record_batch({"value": values})])))
    assert output.records == {("t", 0): 10_000}
    written = batches_of(cluster, "t", 0)
    assert len(written) > 1
    assert [value for batch in written for value in batch.columns().values] == values


async def test_every_row_arrives_once_on_its_keys_partition_and_in_the_order_of_its_task(
    kafka: Kafka, spark: SparkSession
) -> None:
    topic = await kafka.create_topic(partitions=3)
    count = 60_000
    rows = spark.range(0, count, 1, 2).selectExpr("CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value")
    await on_spark(lambda: write(rows, kafka.bootstrap_servers, topic=topic, kafka__compression__type="lz4"))
    by_partition = await messages_in(kafka, topic, 3)
    numbers: list[int] = []
    for partition, messages in by_partition.items():
        of_task: dict[bool, list[int]] = {False: [], True: []}
        for message in messages:
            number = int(message.value())
            assert message.key() == b"%d" % (number % 100)
            assert partition_for_key(message.key(), 3) == partition
            of_task[number < count // 2].append(number)
        for of_one in of_task.values():
            assert of_one == sorted(of_one)
            numbers += of_one
    assert sorted(numbers) == list(range(count))


async def test_the_column_topic_names_the_topic_of_each_row_and_the_option_overrides_it(
    kafka: Kafka, spark: SparkSession
) -> None:
    first, second, third = [await kafka.create_topic(partitions=1) for _ in range(3)]
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value", f"IF(id % 4 = 0, '{first}', '{second}') AS topic")
    await on_spark(lambda: write(rows, kafka.bootstrap_servers))
    assert sorted(map(int, await values_in(kafka, first, 1))) == list(range(0, 100, 4))
    assert len(await values_in(kafka, second, 1)) == 75
    await on_spark(lambda: write(rows, kafka.bootstrap_servers, topic=third))
    assert len(await values_in(kafka, third, 1)) == 100


async def test_other_columns_are_ignored_as_by_sparks_connector(kafka: Kafka, spark: SparkSession) -> None:
    source, target = await kafka.create_topic(partitions=1), await kafka.create_topic(partitions=1)
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value", "id AS offset", "now() AS timestamp", "0 AS a")
    await on_spark(lambda: write(rows, kafka.bootstrap_servers, topic=source))
    assert len(await values_in(kafka, source, 1)) == 10

    def copy() -> None:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=source, includeHeaders="true")
        write(rows, kafka.bootstrap_servers, topic=target)

    await on_spark(copy)
    assert await values_in(kafka, target, 1) == await values_in(kafka, source, 1)


async def test_no_rows_write_no_records(kafka: Kafka, spark: SparkSession) -> None:
    topic = await kafka.create_topic(partitions=1)
    await on_spark(lambda: write(spark.range(0).selectExpr("'v' AS value"), kafka.bootstrap_servers, topic=topic))
    assert await values_in(kafka, topic, 1) == []


@pytest.mark.parametrize("mode", ["append", pytest.param("complete", marks=pytest.mark.long)])
async def test_streams_are_written_in_both_output_modes(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    source, target = await kafka.create_topic(partitions=2), await kafka.create_topic(partitions=1)
    rows = spark.range(0, 1_000, 1, 2).selectExpr("CAST(id % 5 AS STRING) AS value")
    await on_spark(lambda: write(rows, kafka.bootstrap_servers, topic=source))

    def run() -> None:
        found_here(spark)
        stream = stream_of(spark, kafka.bootstrap_servers, subscribe=source, startingOffsets="earliest").select("value")
        if mode == "complete":
            counted = stream.groupBy(F.col("value").alias("key")).count()
            stream = counted.selectExpr("key", "CAST(count AS STRING) AS value")
        writer = stream.writeStream.format("kafka-lite").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path)).outputMode(mode)
        run_to_end(writer.trigger(availableNow=True).start)

    await on_spark(run)
    values = await values_in(kafka, target, 1)
    assert values == [b"200"] * 5 if mode == "complete" else len(values) == 1_000


REFUSED = {
    "the columns are key; select": ("'k' AS key", {}),
    "column value must be string or binary, got int": ("1 AS value", {}),
    "column key must be string or binary, got double; select CAST(key AS STRING)": (
        "'v' AS value, CAST(1 AS DOUBLE) AS key",
        {},
    ),
    "column partition must be integer, got string": ("'v' AS value, '0' AS partition", {}),
    "column headers must be array<struct<key:string,value:binary>>, got array<string>": (
        "'v' AS value, array('h') AS headers",
        {},
    ),
    "did you mean value": ("'v' AS Value", {}),
    "a topic is required": ("'v' AS value", {"topic": None}),
    "column topic must be string, got int": ("'v' AS value, 1 AS topic", {"topic": None}),
    "column topic must not be null in any row": ("'v' AS value, CAST(NULL AS STRING) AS topic", {"topic": None}),
    "topic 't' has partitions 0 to 1, got partition=7": (
        "'v' AS value, 7 AS partition",
        {"kafka.max.block.ms": "2000"},
    ),
    "option topic is not for a read; write subscribe": ("'v' AS value", {"subscribe": "t"}),
    "option delivery=exactly-once is for streams": ("'v' AS value", {"delivery": "exactly-once"}),
    "option kafka.acks": ("'v' AS value", {"kafka.acks": "most"}),
    "option kafka.linger": ("'v' AS value", {"kafka.linger": "5"}),
    "option kafka.bootstrap.servers is required": ("'v' AS value", {"servers": None}),
    "above kafka.max.request.size=1048576": ("repeat('x', 2000000) AS value", {}),
}


@pytest.mark.parametrize("complaint", REFUSED)
async def test_rows_that_cannot_be_written_are_refused_with_what_to_do(
    cluster: EmbeddedCluster, spark: SparkSession, complaint: str
) -> None:
    await cluster.create_topic("t", 2)
    columns, changed = REFUSED[complaint]
    options = {"servers": cluster.bootstrap_servers, "topic": "t", **changed}
    settings = {name: value for name, value in options.items() if value is not None or name == "servers"}
    rows = spark.sql(f"SELECT {columns}")
    with pytest.raises(PySparkException) as refusal:
        await on_spark(lambda: write(rows, **settings))
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
async def test_only_appending_is_possible(cluster: EmbeddedCluster, spark: SparkSession, mode: str) -> None:
    await cluster.create_topic("t", 1)
    rows = spark.sql("SELECT 'v' AS value")
    with pytest.raises(PySparkException, match=r"append|Append"):
        await on_spark(lambda: write(rows, cluster.bootstrap_servers, mode, topic="t"))


async def test_a_missing_topic_is_an_error_on_the_driver(spark: SparkSession) -> None:
    async with EmbeddedCluster(auto_create_topics=False) as cluster:
        rows = spark.sql("SELECT 'v' AS value")
        with pytest.raises(PySparkException, match=r"nowhere.*does not exist|UnknownTopic") as refusal:
            await on_spark(
                lambda: write(rows, cluster.bootstrap_servers, topic="nowhere", kafka__max__block__ms="1000")
            )
        text = str(refusal.value)
        assert "Failed to initialize Python data source writer" in text  # no task has started
        assert len(text.splitlines()) <= 6  # the text does not stand behind a page of this package's own frames


@pytest.mark.usefixtures("driver")
async def test_a_misspelled_topic_is_created_by_the_broker_unless_the_query_forbids_it() -> None:
    async with EmbeddedCluster(auto_create_topics=True) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "max.block.ms": "1000"}

        def check(topic: str, **properties: str) -> None:
            given_now = Properties(settings | {name.replace("__", "."): value for name, value in properties.items()})
            check_topic(Target(properties=given_now, topic=topic, freeze_gc=False))

        with pytest.raises(UnknownTopic, match="ordres"):
            await on_spark(lambda: check("ordres", allow__auto__create__topics="false"))
        assert "ordres" not in cluster.controller.topics
        await on_spark(lambda: check("ordres"))
        assert "ordres" in cluster.controller.topics

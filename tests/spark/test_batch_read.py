"""``spark.read``: another client sees the same rows, and every option has its documented effect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 — as everybody names it

from aiokafka_lite import Admin, EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark.options import batch_read
from aiokafka_lite.spark.source import BatchReader
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.test_reading_transactions import librdkafka_writes
from tests.spark.conftest import batch_of, on_spark
from tests.spark.test_stream_read import VALUE

DAY = 1_700_000_000_000
"""Milliseconds; the time of the first record."""


async def filled(kafka: Kafka, *, partitions: int = 3, count: int = 3_000, compression: str = "none") -> str:
    """Return a topic with records of all sorts: null and empty keys and values, headers, gaps in time; the same each
    time.
    """
    topic = await kafka.create_topic(partitions=partitions, retention_ms=-1)  # the records are years old
    async with Producer(kafka.bootstrap_servers, compression=compression) as producer:
        for number in range(count):
            producer.send_nowait(
                topic,
                None if number % 11 == 0 else b"" if number % 13 == 0 else b"value %d" % number,
                key=None if number % 3 == 0 else b"" if number % 7 == 0 else b"key %d" % (number % 50),
                headers=[("first", b"%d" % number), ("null", None), ("first", b"")] if number % 5 == 0 else (),
                partition=number % partitions,
                timestamp=DAY + number * 1000,
            )
        await producer.drain()
        await producer.flush()
    return topic


def seen_by_librdkafka(kafka: Kafka, topic: str, partitions: int, count: int) -> dict[str, Any]:
    """Return sums over all records, by a client that shares no code with this one."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "sums", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    sums = dict.fromkeys(
        ("rows", "keys", "key_bytes", "values", "value_bytes", "offsets", "partitions", "times", "headers"), 0
    )
    while sums["rows"] < count:
        for message in consumer.consume(1000, timeout=10):
            assert message.error() is None
            sums["rows"] += 1
            for name, blob in (("key", message.key()), ("value", message.value())):
                sums[f"{name}s"] += blob is not None
                sums[f"{name}_bytes"] += len(blob or b"")
            sums["offsets"] += message.offset()
            sums["partitions"] += message.partition()
            sums["times"] += message.timestamp()[1]
            sums["headers"] += len(message.headers() or ())
    consumer.close()
    return sums


def sums_of(rows: DataFrame) -> dict[str, Any]:
    (row,) = rows.select(
        F.count(F.lit(1)).alias("rows"),
        F.count("key").alias("keys"),
        F.sum(F.octet_length("key")).alias("key_bytes"),
        F.count("value").alias("values"),
        F.sum(F.octet_length("value")).alias("value_bytes"),
        F.sum("offset").alias("offsets"),
        F.sum("partition").alias("partitions"),
        F.sum(F.unix_millis("timestamp")).alias("times"),
        F.sum(F.coalesce(F.size("headers"), F.lit(0))).alias("headers"),
    ).collect()
    return dict(row.asDict())


@pytest.mark.parametrize("compression", [pytest.param("none", marks=pytest.mark.long), "lz4"])
async def test_sums_over_all_rows_are_those_of_another_client(
    spark: SparkSession, kafka: Kafka, compression: str
) -> None:
    topic = await filled(kafka, compression=compression)
    rows = await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic, includeHeaders=True))
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    expected = await asyncio.to_thread(seen_by_librdkafka, kafka, topic, 3, 3_000)
    assert await on_spark(lambda: sums_of(rows)) == expected


async def test_each_column_has_the_value_that_was_sent(spark: SparkSession, kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1, retention_ms=-1)
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(topic, b"v", key=b"k", timestamp=DAY, headers=[("h", b"1"), ("h", None)])
        await producer.send(topic, None, key=None, timestamp=DAY + 1)
        await producer.send(topic, b"", key=b"", timestamp=DAY + 2)
    rows = await on_spark(
        lambda: (
            batch_of(spark, kafka.bootstrap_servers, subscribe=topic, includeHeaders=True).orderBy("offset").collect()
        )
    )
    assert [(row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows] == [
        (b"k", b"v", topic, 0, 0, 0),
        (None, None, topic, 0, 1, 0),
        (b"", b"", topic, 0, 2, 0),
    ]
    times = [row.timestamp.astimezone(UTC) for row in rows]
    assert times[0] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [time.microsecond for time in times] == [0, 1000, 2000]
    assert [row.headers and [tuple(header) for header in row.headers] for row in rows] == [
        [("h", b"1"), ("h", None)],
        None,
        None,
    ]


async def test_log_append_time_has_its_timestamp_type(spark: SparkSession, kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1, message_timestamp_type="LogAppendTime")
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(topic, b"v", timestamp=DAY)
    (row,) = await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic).collect())
    assert row.timestampType == 1
    assert row.timestamp.year > 2023


async def test_options_choose_partitions_and_offsets(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, count=300)
    other = await kafka.create_topic(f"{topic}-other", partitions=2, retention_ms=-1)
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(other, b"x", partition=1, timestamp=DAY)

    def offsets(**by_partition: int) -> str:
        numbers = ", ".join(f'"{name[1:]}": {offset}' for name, offset in by_partition.items())
        return f'{{"{topic}": {{{numbers}}}}}'

    async def read(**options: Any) -> dict[tuple[str, int], tuple[int, int, int]]:
        """Return (count, first offset, last offset) of each partition."""

        def collect() -> Sequence[Any]:
            rows = batch_of(spark, kafka.bootstrap_servers, **options)
            return rows.groupBy("topic", "partition").agg(F.count("*"), F.min("offset"), F.max("offset")).collect()

        return {(row[0], row[1]): (row[2], row[3], row[4]) for row in await on_spark(collect)}

    whole = (100, 0, 99)
    assert await read(subscribe=topic) == {(topic, 0): whole, (topic, 1): whole, (topic, 2): whole}
    assert await read(subscribe=f"{topic},{other}") == {
        **{(topic, number): whole for number in range(3)},
        (other, 1): (1, 0, 0),
    }
    assert (await read(subscribePattern=topic)).keys() == (await read(subscribe=f"{topic},{other}")).keys()
    assert await read(subscribePattern="no-such-topic-.*") == {}
    assert await read(assign=f'{{"{topic}": [1]}}') == {(topic, 1): whole}
    assert await read(
        subscribe=topic, startingOffsets=offsets(p0=10, p1=-2, p2=99), endingOffsets=offsets(p0=20, p1=-1, p2=99)
    ) == {(topic, 0): (10, 10, 19), (topic, 1): whole}
    # Record n has the time n seconds, and lies in partition n % 3.
    assert await read(subscribe=topic, startingTimestamp=DAY + 150_000, endingTimestamp=DAY + 270_000) == {
        (topic, number): (40, 50, 89) for number in range(3)
    }
    assert await read(
        assign=f'{{"{topic}": [0]}}',
        startingOffsetsByTimestamp=offsets(p0=DAY + 1),
        endingOffsetsByTimestamp=offsets(p0=DAY + 10**9),
    ) == {(topic, 0): (99, 1, 99)}
    late = {"subscribe": topic, "startingTimestamp": DAY + 10**9}
    assert await read(**late, startingOffsetsByTimestampStrategy="latest") == {}
    with pytest.raises(PySparkException, match=r"has no record at or after timestamp \d+; give an earlier time"):
        await read(**late)
    with pytest.raises(PySparkException, match=r"must have an offset for every partition, .*-2 is missing"):
        await read(subscribe=topic, startingOffsets=offsets(p0=1, p1=1))
    with pytest.raises(PySparkException, match=r"names .*-7, which does not exist"):
        await read(subscribe=topic, startingOffsets=offsets(p0=1, p1=1, p2=1, p7=1))
    with pytest.raises(PySparkException, match="ends at offset 100, before 101; give -1 for its end"):
        await read(subscribe=topic, endingOffsets=offsets(p0=101, p1=-1, p2=-1))


@pytest.mark.long
async def test_tasks_are_split_and_combined_by_the_options(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, count=300)

    async def tasks(**options: Any) -> tuple[int, int]:
        def count() -> tuple[int, int]:
            rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic, **options)
            return rows.rdd.getNumPartitions(), rows.count()

        return await on_spark(count)

    assert await tasks() == (1, 300)
    assert await tasks(recordsPerTask=100) == (3, 300)
    assert await tasks(minPartitions=3) == (3, 300)
    assert await tasks(minPartitions=6) == (6, 300)
    assert await tasks(maxRecordsPerPartition=30) == (12, 300)


@pytest.mark.long
async def test_a_schema_with_some_columns_is_enough_and_a_wrong_one_is_refused(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = await filled(kafka, count=30)

    def read(schema: str) -> DataFrame:
        return (
            spark.read.format("kafka-lite")
            .schema(schema)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )

    rows = await on_spark(lambda: read("offset bigint, value binary").orderBy("offset").collect())
    assert len(rows) == 30
    assert set(rows[0].asDict()) == {"offset", "value"}
    for schema, complaint in (
        ("value string", "column value must be binary, got string; cast it in the query"),
        ("body binary", "column 'body' does not exist; there are key, value"),
        ("headers array<struct<key:string,value:binary>>", "requires the option includeHeaders=true"),
        ("offset bigint not null", "column offset must not be NOT NULL: write offset bigint"),
        ("headers array<struct<key:string not null,value:binary>>", "column headers must not be NOT NULL"),
        ("value binary, value binary", "column value is repeated"),
    ):
        with pytest.raises(PySparkException, match=complaint):
            await on_spark(lambda schema=schema: read(schema).collect())  # type: ignore[misc]


@pytest.mark.long
async def test_offsets_beyond_the_log_are_an_error_unless_losses_are_allowed(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, partitions=2, count=30)

    async def count(first: int, second: int, **options: Any) -> int:
        starting = f'{{"{topic}": {{"0": {first}, "1": {second}}}}}'
        settings = {"subscribe": topic, "startingOffsets": starting, **options}
        return await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, **settings).count())

    assert await count(15, 5) == 10
    assert await count(16, 5, failOnDataLoss="false") == 10
    for options in ({}, {"endingTimestamp": DAY + 3_600_000}):
        with pytest.raises(PySparkException, match=f"startingOffsets: {topic}-0 ends at offset 15, before 16; give an"):
            await count(16, 5, **options)


@pytest.mark.usefixtures("driver")
async def test_an_ending_offset_before_the_start_of_its_partition_is_an_error(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with Producer(cluster.bootstrap_servers) as producer, Admin(cluster.bootstrap_servers) as admin:
        for number in range(20):
            producer.send_nowait("t", b"v", timestamp=DAY + number * 1000)
        await producer.flush()
        await admin.records.delete({TopicPartition("t", 0): 5})

    def tasks(end: int, **starting: Any) -> int:
        settings = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", **starting}
        read = batch_read({**settings, "endingOffsets": f'{{"t": {{"0": {end}}}}}'})
        return len(BatchReader(read, VALUE).partitions())

    for starting, start in ({}, 5), ({"startingTimestamp": str(DAY + 8000)}, 8):
        assert await on_spark(lambda starting=starting, start=start: tasks(start, **starting)) == 0
        with pytest.raises(ConfigurationError, match=f"t-0 must not end at {start - 1}, before its start {start}"):
            await on_spark(lambda starting=starting, start=start: tasks(start - 1, **starting))


@pytest.mark.long
async def test_mistakes_are_errors_at_load(spark: SparkSession, kafka: Kafka) -> None:
    async def complaint(**options: Any) -> str:
        with pytest.raises(AnalysisException) as raised:
            await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, **options))
        return str(raised.value)

    missing = await complaint(subscribe="no-such-topic")
    assert "the cluster has no topic 'no-such-topic'; create it, or correct the name" in missing
    lenient = await on_spark(
        lambda: batch_of(spark, kafka.bootstrap_servers, subscribe="no-such-topic", failOnDataLoss=False)
    )
    with pytest.raises(PySparkException, match="the cluster has no topic 'no-such-topic'"):
        await on_spark(lenient.collect)
    assert "did you mean failOnDataLoss?" in await complaint(subscribe="t", failOnDatalos=True)
    assert "exactly one of the options subscribe" in await complaint()
    assert "kafka.sasl.mechanizm" in await complaint(subscribe="t", kafka__sasl__mechanizm="PLAIN")
    assert "rows were missing where a loaded frame" in await complaint(subscribe="t", pushdown=True)
    topic = await kafka.create_topic(partitions=1)
    negative = await complaint(subscribe=topic, kafka__fetch__max__wait__ms="-1")
    assert "fetch_max_wait must be a number of seconds >= 0, got -0.001" in negative
    assert f"option assign names {topic}-5, which does not exist" in await complaint(assign=f'{{"{topic}": [0, 5]}}')
    secret = await complaint(subscribe="t", kafka__sasl__password="hunter2", kafka__security__protocol="SSSL")
    assert "hunter2" not in secret


async def test_one_frame_under_two_filters_has_the_rows_of_each(spark: SparkSession, kafka: Kafka) -> None:
    """Spark keeps one plan per loaded frame, so a source that applies filters itself would give the rows of one."""
    topic = await filled(kafka, count=300)

    def counts() -> tuple[int, int, int]:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic)
        first, second = rows.where("partition = 1 and offset >= 95"), rows.where("partition = 2 and offset < 3")
        both = first.union(second)
        return first.count(), second.count(), both.count()

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert await on_spark(counts) == (5, 3, 8)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


async def test_a_batch_that_is_refused_fails_the_query_with_its_place(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, partitions=1, count=300, compression="lz4")
    with pytest.raises(PySparkException, match=f"CorruptRecord: {topic}-0 cannot be read at offset 0: lz4 data .*new"):
        await on_spark(
            lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic, maxDecompressedSize=100).collect()
        )


async def test_rows_of_a_partition_have_the_order_of_the_log(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, partitions=3, count=3_000)
    rows = await on_spark(
        lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic).select("partition", "offset").collect()
    )
    for partition in range(3):
        assert [row.offset for row in rows if row.partition == partition] == list(range(1_000))


async def test_a_loaded_frame_reads_the_same_offsets_each_time(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, partitions=1, count=30)
    rows = await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic))
    assert await on_spark(rows.count) == 30
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(topic, b"later")
    assert await on_spark(rows.count) == 30
    assert await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic).count()) == 31


async def test_a_topic_without_records_has_no_rows(spark: SparkSession, kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    assert await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic).collect()) == []


async def test_200_partitions_are_read_by_one_task(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, partitions=200, count=1_000)
    rows = await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic))
    counts = await on_spark(lambda: rows.groupBy("partition").count().collect())
    assert sorted(tuple(row) for row in counts) == [(number, 5) for number in range(200)]
    assert rows.rdd.getNumPartitions() == 1


@pytest.mark.long
async def test_gaps_of_compaction_are_skipped(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("gaps", partitions=1, configs={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(100):
            await producer.send("gaps", bytes(30_000), key=b"%d" % (number % 10))
    cluster.clean_up()
    expected = await asyncio.to_thread(_offsets_left, cluster.bootstrap_servers)
    assert len(expected) < 100
    rows = await on_spark(
        lambda: batch_of(spark, cluster.bootstrap_servers, subscribe="gaps", maxRecordsPerPartition=7).collect()
    )
    assert sorted(row.offset for row in rows) == expected


def _offsets_left(servers: str) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "gaps", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("gaps", 0, 0)])
    rows_read: list[int] = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        rows_read.append(message.offset())
    consumer.close()
    return rows_read


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_the_isolation_level_selects_transactions(spark: SparkSession, kafka: Kafka, isolation: str) -> None:
    topic = await kafka.create_topic(partitions=1)
    still_open = await asyncio.to_thread(librdkafka_writes, kafka, topic)
    rows = await on_spark(
        lambda: batch_of(
            spark, kafka.bootstrap_servers, subscribe=topic, kafka__isolation__level=isolation, recordsPerTask=10
        ).collect()
    )
    values = [bytes(row.value).decode() for row in rows]
    assert len(values) == (2 * 10 + 2 * 5 if isolation == "read_committed" else 4 * 15 + 5)
    assert any("aborted" in value or "open" in value for value in values) == (isolation == "read_uncommitted")
    await asyncio.to_thread(still_open.abort_transaction, 30)


@pytest.mark.long
async def test_deleted_records_are_an_error_or_a_warning(spark: SparkSession, kafka: Kafka) -> None:
    topic = await filled(kafka, partitions=1, count=100)
    async with Admin(kafka.bootstrap_servers) as admin:
        assert (await admin.records.delete({TopicPartition(topic, 0): 40})).done

    async def read(start: int, **options: Any) -> list[int]:
        where = f'{{"{topic}": {{"0": {start}}}}}'
        rows = await on_spark(
            lambda: batch_of(
                spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets=where, **options
            ).collect()
        )
        return sorted(row.offset for row in rows)

    with pytest.raises(PySparkException, match=rf"{topic}-0: offsets 10 to 100.* the log has 40 to 100; "):
        await read(10)
    assert await read(10, failOnDataLoss="false") == list(range(40, 100))
    assert await read(10, failOnDataLoss="false", maxRecordsPerPartition=20) == list(range(40, 100))


async def test_a_query_survives_moved_leaders_and_restarted_brokers(
    spark: SparkSession, cluster: EmbeddedCluster
) -> None:
    await cluster.create_topic("moving", partitions=6, replication_factor=3)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("moving", [b"%0100d" % number for number in range(30_000)])
    query = asyncio.create_task(
        on_spark(
            lambda: (
                batch_of(
                    spark,
                    cluster.bootstrap_servers,
                    subscribe="moving",
                    recordsPerTask=1_000,
                    kafka__fetch__max__bytes=65536,
                    kafka__max__partition__fetch__bytes=16384,
                )
                .select("partition", "offset")
                .collect()
            )
        )
    )
    nodes = sorted(cluster.nodes)
    disturbed = 0
    while not query.done() and disturbed < 40:  # on a busy machine the faults would outpace the query
        await cluster.move_leader("moving", disturbed % 6)
        if disturbed % 4 == 2:
            await cluster.restart(nodes[disturbed % 3])
            await cluster.until_in_sync("moving")
        disturbed += 1
        await asyncio.wait([query], timeout=0.15)
    rows = await query
    assert disturbed >= 2
    assert len(rows) == len({(row.partition, row.offset) for row in rows}) == 30_000


@pytest.mark.long
async def test_the_format_is_found_by_spark_itself(spark: SparkSession, kafka: Kafka) -> None:
    """Spark looks up modules ``pyspark_*`` once per session; a second session does it again."""
    topic = await filled(kafka, count=30)
    fresh = spark.newSession()
    assert await on_spark(lambda: batch_of(fresh, kafka.bootstrap_servers, subscribe=topic).count()) == 30

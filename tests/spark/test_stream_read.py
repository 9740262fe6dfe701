"""``spark.readStream``: each offset is read once, after any event between two batches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructField, StructType

from aiokafka_lite import Admin, EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.errors import BrokerError, ErrorCode, OffsetOutOfRange
from aiokafka_lite.protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest, MetadataResponse
from aiokafka_lite.protocol.schema import ZERO_UUID
from aiokafka_lite.spark import LagListener, options
from aiokafka_lite.spark.listener import Lag, lags_of
from aiokafka_lite.spark.offsets import START, TOPIC_ID, start_of, with_start
from aiokafka_lite.spark.planning import NAMES_AGE
from aiokafka_lite.spark.source import StreamReader, TaskPartition
from tests.end_to_end.conftest import Kafka
from tests.spark.conftest import on_spark, run_available, run_to_end, stream_of
from tests.waiting import DEADLINE, until

VALUE = StructType([StructField("value", BinaryType())])


async def produce(kafka: Kafka | EmbeddedCluster, topic: str, count: int, *, partition: int | None = None) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(count):
            producer.send_nowait(topic, b"%d" % number, partition=number % 2 if partition is None else partition)
        await producer.flush()


def written(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    """Return (partition, offset) of every row in the Parquet files, repeated ones included."""
    rows = spark.read.parquet(str(directory / "out")).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def logged(directory: Path, batch: int) -> dict[str, Any]:
    """Return the offset that Spark logged before a batch."""
    text = (directory / "checkpoint" / "offsets" / str(batch)).read_text()
    parsed: dict[str, Any] = json.loads(text.splitlines()[-1])
    return parsed


def offsets_of(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as Spark's own connector reads it, without the ids of topics and the start."""
    return {key: value for key, value in offset.items() if not key.startswith((START, f"{TOPIC_ID}:"))}


def all_of(*counts: int) -> list[tuple[int, int]]:
    return [(number, offset) for number, count in enumerate(counts) for offset in range(count)]


# Whole queries.


async def test_limited_triggers_read_everything_in_batches_and_a_restart_continues(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 1_000)

    def run() -> list[dict[str, Any]]:
        rows = stream_of(
            spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=400
        )
        return run_available(rows, tmp_path)

    progress = await on_spark(run)
    assert [trigger["numInputRows"] for trigger in progress if trigger["numInputRows"]] == [400, 400, 200]
    assert await on_spark(lambda: written(spark, tmp_path)) == all_of(500, 500)
    assert offsets_of(logged(tmp_path, 0)) == {topic: {"0": 200, "1": 200}}
    assert start_of(logged(tmp_path, 0)) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    assert offsets_of(logged(tmp_path, 2)) == {topic: {"0": 500, "1": 500}}
    lags = [lag for trigger in progress for lag in lags_of(trigger)]
    assert [lag.total for lag in lags][:3] == [600, 200, 0]

    await on_spark(run)
    assert not (tmp_path / "checkpoint" / "offsets" / "3").exists()  # nothing new, no batch
    await produce(kafka, topic, 10)
    await on_spark(run)
    assert await on_spark(lambda: written(spark, tmp_path)) == all_of(505, 505)


async def test_triggers_with_a_limit_of_bytes_read_everything_in_batches_of_about_that_size(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    for topic, size in (("large", 1_000), ("small", 100)):
        await cluster.create_topic(topic, 1)
        async with Producer(cluster.bootstrap_servers, batch_size=10_000) as producer:
            await producer.send_many(topic, [b"x" * size] * 300)

    def run() -> list[dict[str, Any]]:
        options = {"subscribe": "large,small", "startingOffsets": "earliest", "maxBytesPerTrigger": "110k"}
        return run_available(stream_of(spark, cluster.bootstrap_servers, **options), tmp_path)

    progress = await on_spark(run)
    sizes = [trigger["numInputRows"] for trigger in progress if trigger["numInputRows"]]
    assert sum(sizes) == 600
    assert len(sizes) == 4
    assert 160 < sizes[0] < 220  # a third of the 340 kB


@pytest.mark.usefixtures("driver")
async def test_a_limit_of_bytes_hides_no_error_of_a_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", partitions=1)
    await produce(cluster, "t", 20, partition=0)
    limited = reader(cluster.bootstrap_servers, "t", startingOffsets="earliest", maxBytesPerTrigger="1k")
    limit = limited.getDefaultReadLimit()
    start = await on_spark(limited.initialOffset)
    moved = cluster.on(FetchRequest, topic="t", times=None).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with moved, pytest.raises(BrokerError, match="sizes of records of t-0: NOT_LEADER"):
        await on_spark(lambda: limited.latestOffset(start, limit))
    cluster.on(FetchRequest, topic="t", times=1).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert offsets_of(await on_spark(lambda: limited.latestOffset(start, limit)))["t"] == {"0": 20}
    async with Admin(cluster.bootstrap_servers) as admin:
        assert (await admin.records.delete({TopicPartition("t", 0): 5})).done
    end = await on_spark(lambda: limited.latestOffset(start, limit))
    (task,) = await on_spark(lambda: limited.partitions(start, end))
    with pytest.raises(OffsetOutOfRange, match=r"t-0: offsets 0 to .* Set failOnDataLoss=false"):
        await on_spark(lambda: list(limited.read(task)))


async def test_available_now_ends_at_the_ends_of_the_logs_at_its_start(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 200)
    over = asyncio.Event()

    async def keep_producing() -> None:
        async with Producer(kafka.bootstrap_servers) as producer:
            while not over.is_set():
                await producer.send(topic, b"later")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.02)

    producing = asyncio.create_task(keep_producing())
    rows = await on_spark(
        lambda: stream_of(
            spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100
        )
    )
    progress = await on_spark(lambda: run_available(rows, tmp_path))
    over.set()
    await producing
    targets = {trigger["sources"][0]["latestOffset"] for trigger in progress}
    assert len(targets) == 1
    end = json.loads(targets.pop())[topic]
    assert await on_spark(lambda: written(spark, tmp_path)) == all_of(end["0"], end["1"])


@pytest.mark.long
async def test_a_killed_first_batch_is_read_again_from_its_start(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """With "latest", a restart would look up another start, after the logged end."""
    await cluster.create_topic("t", partitions=1)
    await produce(cluster, "t", 10, partition=0)

    def begin() -> DataFrame:
        return stream_of(spark, cluster.bootstrap_servers, subscribe="t", startingOffsets="latest")

    def fail_first_batch() -> None:
        def die(_rows: DataFrame, _batch: int) -> None:
            raise RuntimeError("killed")

        writer = begin().writeStream.foreachBatch(die).option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(StreamingQueryException, match="killed"):
            run_to_end(writer.start)

    # The query looks up its start, and then the end of its first batch. The records are written between the two.
    second_lookup = cluster.on(ListOffsetsRequest, nth=2, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE)
    failing = asyncio.create_task(on_spark(fail_first_batch))
    await until(lambda: second_lookup.hits > 0 or failing.done(), "the second lookup")
    await produce(cluster, "t", 6, partition=0)
    second_lookup.remove()
    await failing
    assert offsets_of(logged(tmp_path, 0)) == {"t": {"0": 16}}
    assert start_of(logged(tmp_path, 0)) == {TopicPartition("t", 0): 10}
    await produce(cluster, "t", 20, partition=0)
    await on_spark(lambda: run_available(begin(), tmp_path))
    assert await on_spark(lambda: written(spark, tmp_path)) == [(0, offset) for offset in range(10, 36)]


@pytest.mark.long
async def test_a_killed_first_batch_without_records_is_resumed_at_its_end(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Spark runs and logs an empty first batch if the first trigger finds no records."""
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 10)

    def fail_first_batch() -> None:
        def die(_rows: DataFrame, _batch: int) -> None:
            raise RuntimeError("killed")

        rows = stream_of(spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets="latest")
        writer = rows.writeStream.foreachBatch(die).option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(StreamingQueryException, match="killed"):
            run_to_end(writer.start)

    await on_spark(fail_first_batch)
    await produce(kafka, topic, 6)
    rows = await on_spark(lambda: stream_of(spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets="latest"))
    await on_spark(lambda: run_available(rows, tmp_path))
    assert await on_spark(lambda: written(spark, tmp_path)) == [
        (number, offset) for number in (0, 1) for offset in range(5, 8)
    ]


@pytest.mark.parametrize("fail", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_records_deleted_while_a_query_is_stopped_are_never_lost_silently(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, fail: bool
) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 20)

    def run() -> None:
        rows = stream_of(
            spark,
            kafka.bootstrap_servers,
            subscribe=topic,
            startingOffsets="earliest",
            failOnDataLoss=fail,
            maxOffsetsPerTrigger=30,
        )
        run_available(rows, tmp_path)

    await on_spark(run)
    await produce(kafka, topic, 80)
    async with Admin(kafka.bootstrap_servers) as admin:
        assert (await admin.records.delete({TopicPartition(topic, 0): 45})).done
    if fail:
        with pytest.raises(StreamingQueryException, match=f"{topic}-0: offsets 10 to .* Set failOnDataLoss=false"):
            await on_spark(run)
        return
    await on_spark(run)
    rows = await on_spark(lambda: written(spark, tmp_path))
    lost = {(0, offset) for offset in range(10, 45)}
    assert rows == [row for row in all_of(50, 50) if row not in lost]


@pytest.mark.long
async def test_partitions_that_are_added_are_read_from_their_beginning(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = await kafka.create_topic(partitions=1)
    await produce(kafka, topic, 5, partition=0)
    rows = await on_spark(
        lambda: stream_of(spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest")
    )
    await on_spark(lambda: run_available(rows, tmp_path))
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.topics.add_partitions({topic: 3})
    await produce(kafka, topic, 4, partition=2)
    await on_spark(lambda: run_available(rows, tmp_path))
    assert await on_spark(lambda: written(spark, tmp_path)) == [*all_of(5), *((2, offset) for offset in range(4))]


async def test_a_listener_gets_the_lag_of_a_query(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 300)
    lags: list[Lag] = []
    listener = LagListener(lags.append)
    spark.streams.addListener(listener)
    try:
        rows = await on_spark(
            lambda: stream_of(
                spark, kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=200
            )
        )
        await on_spark(lambda: run_available(rows, tmp_path))
        async with asyncio.timeout(DEADLINE):
            while len([lag for lag in lags if lag.rows]) < 2:
                await asyncio.sleep(0.01)  # Spark calls listeners from a thread of its own
    finally:
        spark.streams.removeListener(listener)
    first, second = [lag for lag in lags if lag.rows][:2]
    assert (first.rows, first.total, first.largest, first.average) == (200, 100, 50, 50.0)
    assert (second.rows, second.total) == (100, 0)
    assert f"100 behind (most: {topic}-0 50, {topic}-1 50)" in str(first)
    assert "no lag in 2 partitions" in str(second)
    assert listener.latest[second.query].total == 0


async def test_no_secret_is_stored(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """A value from a file represents any secret: no checkpoint, plan or error may contain it."""
    topic = await kafka.create_topic(partitions=1)
    await produce(kafka, topic, 5, partition=0)
    hidden = tmp_path / "hidden"
    hidden.write_text("hunter2-client\n")
    settings = {"subscribe": topic, "startingOffsets": "earliest", "kafka__client__id": f"file:{hidden}"}
    rows = await on_spark(lambda: stream_of(spark, kafka.bootstrap_servers, **settings))
    await on_spark(lambda: run_available(rows, tmp_path))
    assert await on_spark(lambda: written(spark, tmp_path)) == all_of(5)
    plan = rows._jdf.queryExecution().toString()
    files = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files
    for text in (plan.encode(), *files):
        assert b"hunter2" not in text


async def test_a_wrong_option_is_the_only_error_of_a_stream(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """PySpark follows an error of ``streamReader`` by an UnboundLocalError, which is then what users see last."""
    topic = await kafka.create_topic(partitions=1)

    def run() -> None:
        rows = stream_of(spark, kafka.bootstrap_servers, subscribe=topic, endingTimestamp=1)
        run_available(rows, tmp_path)

    with pytest.raises(StreamingQueryException) as raised:
        await on_spark(run)
    assert "option endingTimestamp is not for a stream read; it is for a batch read" in str(raised.value)
    assert "UnboundLocalError" not in str(raised.value)


# The reader alone, as Spark calls it on the driver.


def reader(
    servers: str, topic: str | None, *, clock: Callable[[], float] = time.monotonic, **settings: Any
) -> StreamReader:
    """Return the reader of a query. Without ``topic``, the options select what it reads."""
    texts = {name.replace("__", "."): str(value) for name, value in settings.items()}
    selection = {} if topic is None else {"subscribe": topic}
    read = options.stream_read({"kafka.bootstrap.servers": servers} | selection | texts)
    return StreamReader(read, VALUE, clock=clock)


@pytest.mark.usefixtures("driver")
async def test_limits_of_a_trigger(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 100)
    now = 1000.0

    def call() -> None:
        nonlocal now
        unlimited = reader(kafka.bootstrap_servers, topic)
        assert unlimited.getDefaultReadLimit() == ReadAllAvailable()
        assert reader(kafka.bootstrap_servers, topic, minOffsetsPerTrigger=5).getDefaultReadLimit() == ReadMinRows(5)
        both = reader(
            kafka.bootstrap_servers,
            topic,
            startingOffsets="earliest",
            minOffsetsPerTrigger=30,
            maxOffsetsPerTrigger=80,
            maxTriggerDelay="60s",
            clock=lambda: now,
        )
        limit = both.getDefaultReadLimit()
        assert limit == ReadMaxRows(80)
        start = both.initialOffset()
        assert start == both.initialOffset() == {topic: {"0": 0, "1": 0}}
        first = both.latestOffset(start, limit)
        assert first[topic] == {"0": 40, "1": 40}
        assert both.latestOffset(first, limit) is first  # there are 20, and 30 are required
        now += 59
        assert both.latestOffset(first, limit) is first
        now += 1
        second = both.latestOffset(first, limit)
        assert offsets_of(second) == {topic: {"0": 50, "1": 50}}
        assert both.latestOffset(second, limit) is second
        assert both.latestOffset(first, ReadAllAvailable()) == second
        assert both.reportLatestOffset() == offsets_of(second)
        # A query that is about to end gets no further records, so it does not wait.
        both.prepareForTriggerAvailableNow()
        assert both.latestOffset(first, limit) == second

    await on_spark(call)


@pytest.mark.usefixtures("driver")
async def test_close_triggers_do_not_wait_for_the_pace_of_failed_requests(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 40)

    def call() -> None:
        often = reader(
            kafka.bootstrap_servers,
            topic,
            startingOffsets="earliest",
            **{"kafka.retry.backoff.ms": 600_000, "kafka.retry.backoff.max.ms": 600_000},
        )
        start = often.initialOffset()
        end = often.latestOffset(start, ReadAllAvailable())
        for _ in range(5):
            assert often.latestOffset(end, ReadAllAvailable()) == end

    await on_spark(call)


@pytest.mark.usefixtures("driver")
async def test_partitions_that_are_added_while_a_query_runs_begin_at_0(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", partitions=1)
    await produce(cluster, "t", 5, partition=0)
    running = reader(cluster.bootstrap_servers, "t", startingOffsets="latest")
    start = await on_spark(running.initialOffset)
    assert start == {"t": {"0": 5}}
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.topics.add_partitions({"t": 2})
    await produce(cluster, "t", 3, partition=1)
    end = await on_spark(lambda: running.latestOffset(start, ReadAllAvailable()))
    assert end["t"] == {"0": 5, "1": 3}
    (task,) = [partition.task for partition in running.partitions(start, end) if isinstance(partition, TaskPartition)]
    assert [(range_.partition, range_.start, range_.end) for range_ in task] == [(TopicPartition("t", 1), 0, 3)]


@pytest.mark.usefixtures("driver")
async def test_a_pattern_asks_for_all_topics_once_in_some_seconds(cluster: EmbeddedCluster) -> None:
    now = 0.0
    await cluster.create_topic("t1", partitions=1)
    running = reader(
        cluster.bootstrap_servers, None, subscribePattern="^t", startingOffsets="earliest", clock=lambda: now
    )
    start = await on_spark(running.initialOffset)
    await cluster.create_topic("t2", partitions=1)
    await produce(cluster, "t2", 3, partition=0)
    await produce(cluster, "t1", 2, partition=0)
    first = await on_spark(lambda: running.latestOffset(start, ReadAllAvailable()))
    assert (first["t1"], "t2" in first) == ({"0": 2}, False)
    now += NAMES_AGE
    second = await on_spark(lambda: running.latestOffset(first, ReadAllAvailable()))
    assert second["t2"] == {"0": 3}


Metadata = Callable[[MetadataResponse], MetadataResponse]


def without_topics(response: MetadataResponse) -> MetadataResponse:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return replace(
        response,
        topics=[replace(topic, error_code=unknown, partitions=[], topic_id=ZERO_UUID) for topic in response.topics],
    )


def with_fewer_partitions(response: MetadataResponse) -> MetadataResponse:
    return replace(response, topics=[replace(topic, partitions=topic.partitions[:1]) for topic in response.topics])


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "selection", [{"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": '{"t": [0, 1]}'}], ids=str
)
@pytest.mark.parametrize("stale", [without_topics, with_fewer_partitions])
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("available_now", [False, True])
async def test_one_answer_of_a_broker_that_does_not_know_the_topic_yet_changes_nothing(
    cluster: EmbeddedCluster, selection: dict[str, str], stale: Metadata, fail_on_data_loss: str, available_now: bool
) -> None:
    await cluster.create_topic("t", partitions=2)
    await produce(cluster, "t", 10)
    running = reader(
        cluster.bootstrap_servers, None, **selection, startingOffsets="earliest", failOnDataLoss=fail_on_data_loss
    )
    start = await on_spark(running.initialOffset)
    first = await on_spark(lambda: running.latestOffset(start, ReadAllAvailable()))
    assert first["t"] == {"0": 5, "1": 5}
    await produce(cluster, "t", 4)
    cluster.on(MetadataRequest, times=1).alter(stale)
    if available_now:
        await on_spark(running.prepareForTriggerAvailableNow)
    second = await on_spark(lambda: running.latestOffset(first, ReadAllAvailable()))
    assert second["t"] == {"0": 7, "1": 7}


@pytest.mark.usefixtures("driver")
async def test_a_topic_that_is_missing_for_longer_keeps_its_offsets(cluster: EmbeddedCluster) -> None:
    """It must not be read again when it comes back; its id says whether it is the same topic."""
    await cluster.create_topic("t", partitions=2)
    await produce(cluster, "t", 10)
    settings = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    running = reader(cluster.bootstrap_servers, "t", **settings)
    start = await on_spark(running.initialOffset)
    first = await on_spark(lambda: running.latestOffset(start, ReadAllAvailable()))
    with cluster.on(MetadataRequest).alter(without_topics):
        assert await on_spark(lambda: running.latestOffset(first, ReadAllAvailable())) == first
        restarted = reader(cluster.bootstrap_servers, "t", **settings)
        assert await on_spark(lambda: restarted.latestOffset(first, ReadAllAvailable())) == first
    await produce(cluster, "t", 2)
    end = await on_spark(lambda: running.latestOffset(first, ReadAllAvailable()))
    assert end["t"] == {"0": 6, "1": 6}
    await cluster.delete_topic("t")
    gone = await on_spark(lambda: running.latestOffset(end, ReadAllAvailable()))
    assert gone["t"] == end["t"]
    await cluster.create_topic("t", partitions=1)
    await produce(cluster, "t", 3, partition=0)
    other = await on_spark(lambda: running.latestOffset(gone, ReadAllAvailable()))
    assert other["t"] == {"0": 3}


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("available_now", [False, True])
async def test_limited_triggers_continue_without_a_deleted_topic(cluster: EmbeddedCluster, available_now: bool) -> None:
    for topic in ("t", "u"):
        await cluster.create_topic(topic, partitions=2)
        await produce(cluster, topic, 20)
    running = reader(
        cluster.bootstrap_servers,
        "t,u",
        startingOffsets="earliest",
        failOnDataLoss="false",
        kafka__default__api__timeout__ms=1000,  # if a request waits for the topic
    )
    start = await on_spark(running.initialOffset)
    if available_now:
        await on_spark(running.prepareForTriggerAvailableNow)
    first = await on_spark(lambda: running.latestOffset(start, ReadMaxRows(8)))
    assert offsets_of(first) == {"t": {"0": 2, "1": 2}, "u": {"0": 2, "1": 2}}
    await cluster.delete_topic("u")
    second = await on_spark(lambda: running.latestOffset(first, ReadMaxRows(8)))
    # With availableNow, the target has the records of the topic, and a task reports their loss.
    rest = {"0": 10, "1": 10} if available_now else {"0": 2, "1": 2}
    assert offsets_of(second) == {"t": {"0": 6, "1": 6}, "u": rest}
    everything = {"t": {"0": 10, "1": 10}, "u": {"0": 2, "1": 2}}
    last = await on_spark(lambda: running.latestOffset(everything, ReadMaxBytes(100)))
    assert offsets_of(last) == {"t": {"0": 10, "1": 10}, "u": rest}


@pytest.mark.usefixtures("driver")
async def test_a_partition_that_is_new_after_a_killed_empty_first_batch_is_no_loss(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t-1", partitions=1)

    def pattern() -> StreamReader:
        return reader(cluster.bootstrap_servers, None, subscribePattern="t-", startingOffsets="latest")

    killed = pattern()
    empty = await on_spark(killed.initialOffset)
    assert await on_spark(lambda: killed.latestOffset(empty, ReadAllAvailable())) == empty
    await cluster.create_topic("t-2", partitions=1)
    await produce(cluster, "t-2", 3, partition=0)
    restarted = pattern()
    looked_up_again = await on_spark(restarted.initialOffset)
    assert looked_up_again == {"t-1": {"0": 0}, "t-2": {"0": 3}}
    assert await on_spark(lambda: restarted.partitions(looked_up_again, empty)) == []
    end = await on_spark(lambda: restarted.latestOffset(empty, ReadAllAvailable()))
    (task,) = await on_spark(lambda: restarted.partitions(empty, end))
    assert isinstance(task, TaskPartition)
    assert [(range_.partition, range_.start, range_.end) for range_ in task.task] == [(TopicPartition("t-2", 0), 0, 3)]


@pytest.mark.usefixtures("driver")
async def test_a_start_after_the_end_of_one_log_does_not_skip_the_others(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    await produce(cluster, "t", 10)
    starts = json.dumps({"t": {"0": 9, "1": 0}})

    def call() -> list[tuple[TopicPartition, int, int]]:
        new = reader(cluster.bootstrap_servers, "t", startingOffsets=starts, failOnDataLoss="false")
        start = new.initialOffset()
        end = new.latestOffset(start, ReadAllAvailable())
        tasks = [partition.task for partition in new.partitions(start, end) if isinstance(partition, TaskPartition)]
        return [(range_.partition, range_.start, range_.end) for task in tasks for range_ in task]

    assert await on_spark(call) == [(TopicPartition("t", 1), 0, 5)]


@pytest.mark.usefixtures("driver")
async def test_the_plan_of_a_batch_is_the_same_each_time(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    await produce(kafka, topic, 100)

    def call() -> None:
        def plan(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[object]:
            fresh = reader(kafka.bootstrap_servers, topic, startingOffsets="latest", minPartitions=7)
            return [
                partition.task for partition in fresh.partitions(start, end) if isinstance(partition, TaskPartition)
            ]

        start_of_query = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0}
        first = with_start({topic: {"0": 40, "1": 9}}, start_of_query)
        looked_up_again = {topic: {"0": 50, "1": 50}}
        assert plan(looked_up_again, first) == plan({topic: {"0": 3, "1": 0}}, first)
        assert plan(first, {topic: {"0": 50, "1": 50}}) == plan({topic: {"0": 40, "1": 9}}, {topic: {"0": 50, "1": 50}})
        assert plan(first, first) == []

    await on_spark(call)


@pytest.mark.usefixtures("driver")
async def test_lost_records_are_an_error_or_a_warning(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic, other = await kafka.create_topic(partitions=1), await kafka.create_topic(partitions=1)
    await produce(kafka, topic, 5, partition=0)
    missing = "does not exist any more, or the options no longer select it"

    def call() -> None:
        strict = reader(kafka.bootstrap_servers, topic)
        lenient = reader(kafka.bootstrap_servers, topic, failOnDataLoss="false")
        for start, complaint in (
            ({topic: {"0": 5, "7": 1}}, f"{topic}-7, which was read up to offset 1, {missing}"),
            ({"gone": {"0": 3}, topic: {"0": 5}}, f"gone-0, which was read up to offset 3, {missing}"),
            ({other: {"0": 0}, topic: {"0": 5}}, f"{other}-0, which was read up to offset 0, {missing}"),
            ({topic: {"0": 9}}, f"{topic}-0 was read up to offset 9, and now ends at offset 5"),
        ):
            with pytest.raises(OffsetOutOfRange, match=f"{complaint}.*; records may be lost. Set failOnDataLoss=false"):
                strict.latestOffset(start, ReadAllAvailable())
            with caplog.at_level(logging.WARNING):
                assert offsets_of(lenient.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 5}}
            assert complaint in caplog.text
            with pytest.raises(OffsetOutOfRange, match="records may be lost"):
                strict.partitions(start, {topic: {"0": 5}})
            assert lenient.partitions(start, {topic: {"0": 5}}) == []

    await on_spark(call)

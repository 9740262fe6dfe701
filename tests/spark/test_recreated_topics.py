"""A topic that is deleted and created again: every range that the log holds is read, and a loss is never silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from aiokafka_lite import EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.aio import virtual_time
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.errors import ErrorCode, OffsetOutOfRange, UnknownTopic
from aiokafka_lite.protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest
from aiokafka_lite.protocol.schema import ZERO_UUID
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.consumer import ConsumerConfig
from aiokafka_lite.spark import reading
from aiokafka_lite.spark.offsets import Range, topic_ids_of
from aiokafka_lite.spark.reading import RangeReader
from tests.spark.conftest import batch_of, on_spark, run_to_end, stream_of
from tests.spark.test_stream_read import reader

CONFIG = ConsumerConfig(auto_offset_reset="none", fetch_max_wait=0.1)
T0 = TopicPartition("t", 0)
SOON = 20.0


async def create(cluster: EmbeddedCluster, records: int) -> None:
    """Create the topic, for the first time or again."""
    if "t" in cluster.controller.topics:
        await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=1)
    await produce(cluster, records)


async def produce(cluster: EmbeddedCluster, records: int) -> None:
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        for number in range(records):
            producer.send_nowait("t", b"%d" % number, partition=0)
        await producer.flush()


async def topic_id(cluster: EmbeddedCluster) -> bytes:
    async with client_of(cluster) as fresh:
        return (await fresh.topic("t")).topic_id


def client_of(cluster: EmbeddedCluster, **settings: Any) -> Client:
    options = {"allow_auto_create_topics": False, **settings}
    return Client(ClientConfig(bootstrap_servers=cluster.bootstrap_servers, **options), connector=cluster.connector)


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    """The client of a worker that has read the first topic, of 50 records."""
    await create(cluster, 50)
    async with client_of(cluster) as client:
        await client.topic("t")
        yield client


async def offsets(client: Client, range_: Range, *, fail_on_data_loss: bool) -> list[int]:
    """Return the offsets that a task reads. It fails if it reads another record than the driver has chosen."""
    result: list[int] = []
    options = {"fail_on_data_loss": fail_on_data_loss, "poll_timeout": SOON}
    async with RangeReader(client, CONFIG, (range_,), **options) as reader:
        while fetched := await reader.take():
            for piece in fetched:
                for batch, _ in piece.batches:
                    numbers = range(batch.base_offset, batch.next_offset)
                    result += (offset for offset in numbers if piece.range.start <= offset < piece.range.end)
    return result


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("aiokafka_lite.spark")]


# One task.


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
async def test_a_worker_that_knows_the_deleted_topic_reads_the_planned_one_without_a_loss(
    cluster: EmbeddedCluster, client: Client, caplog: pytest.LogCaptureFixture, fail_on_data_loss: bool
) -> None:
    await create(cluster, 80)
    planned = Range(T0, 20, 80, await topic_id(cluster))
    async with asyncio.timeout(SOON):
        assert await offsets(client, planned, fail_on_data_loss=fail_on_data_loss) == list(range(20, 80))
    assert losses(caplog) == []


async def test_a_broker_that_does_not_know_the_planned_topic_yet_is_asked_again(
    cluster: EmbeddedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STALE_METADATA", SOON)
    await create(cluster, 80)
    planned = Range(T0, 20, 80, await topic_id(cluster))
    late = cluster.on(MetadataRequest, times=3).fail(ErrorCode.LEADER_NOT_AVAILABLE)
    async with asyncio.timeout(SOON):
        assert await offsets(client, planned, fail_on_data_loss=True) == list(range(20, 80))
    assert late.hits == 3


async def test_a_topic_created_again_after_planning_is_an_error_that_says_so(
    cluster: EmbeddedCluster, client: Client
) -> None:
    planned = Range(T0, 20, 50, await topic_id(cluster))
    await create(cluster, 80)
    async with asyncio.timeout(SOON), client_of(cluster) as fresh:
        for worker in (client, fresh):  # the age of the worker changes nothing
            with pytest.raises(
                OffsetOutOfRange, match=r"topic 't' was deleted and created again .*Set failOnDataLoss=false to read"
            ):
                await offsets(worker, planned, fail_on_data_loss=True)


@pytest.mark.parametrize("start, end, readable", [(20, 50, (20, 30)), (0, 50, (0, 30)), (30, 50, (0, 0))])
async def test_of_a_topic_created_again_after_planning_everything_in_the_range_is_read_with_one_warning(
    cluster: EmbeddedCluster,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    start: int,
    end: int,
    readable: tuple[int, int],
) -> None:
    planned = Range(T0, start, end, await topic_id(cluster))
    await create(cluster, 30)
    async with asyncio.timeout(SOON), client_of(cluster) as fresh:
        for worker in (client, fresh):
            caplog.clear()
            assert await offsets(worker, planned, fail_on_data_loss=False) == list(range(*readable))
            (warning,) = losses(caplog)
            assert "topic 't' was deleted and created again" in warning


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
async def test_a_topic_created_again_while_it_is_read(
    cluster: EmbeddedCluster, client: Client, caplog: pytest.LogCaptureFixture, fail_on_data_loss: bool
) -> None:
    planned = Range(T0, 0, 60, await topic_id(cluster))  # ten records more than exist
    options = {"fail_on_data_loss": fail_on_data_loss, "poll_timeout": SOON}
    async with asyncio.timeout(SOON), RangeReader(client, CONFIG, (planned,), **options) as reader:
        while not (fetched := await reader.take()) or fetched[-1].batches[-1][0].next_offset < 50:
            pass
        rest = asyncio.create_task(reader.take())
        with cluster.on(ListOffsetsRequest, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE):
            await create(cluster, 55)
        if fail_on_data_loss:
            with pytest.raises(OffsetOutOfRange, match="'t' was deleted and created again while it was read"):
                await rest
            return
        (piece,) = await rest
        assert (piece.range.start, piece.range.end) == (50, 55)
        assert await reader.take() == []
    (warning,) = losses(caplog)
    assert "'t' was deleted and created again while it was read" in warning


async def test_without_topic_ids_a_range_is_read_as_it_is(cluster: EmbeddedCluster, client: Client) -> None:
    """Brokers before Kafka 2.8 have none, and neither have checkpoints of Spark's own connector."""
    await create(cluster, 80)
    async with asyncio.timeout(SOON), client_of(cluster) as fresh:
        assert await offsets(fresh, Range(T0, 20, 80, ZERO_UUID), fail_on_data_loss=True) == list(range(20, 80))


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
async def test_an_offset_that_one_broker_refuses_and_the_log_has_is_read(
    cluster: EmbeddedCluster, client: Client, caplog: pytest.LogCaptureFixture, fail_on_data_loss: bool
) -> None:
    refusal = cluster.on(FetchRequest, times=2).fail(ErrorCode.OFFSET_OUT_OF_RANGE)
    async with asyncio.timeout(SOON):
        assert await offsets(client, Range(T0, 20, 50), fail_on_data_loss=fail_on_data_loss) == list(range(20, 50))
    assert refusal.hits == 2
    assert losses(caplog) == []


def test_a_topic_that_is_deleted_after_planning_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def read() -> None:
        async with EmbeddedCluster(tcp=False) as cluster:
            await create(cluster, 50)
            planned = Range(T0, 0, 50, await topic_id(cluster))
            await cluster.delete_topic("t")
            async with client_of(cluster) as client:
                with pytest.raises(UnknownTopic):
                    await offsets(client, planned, fail_on_data_loss=True)
                assert await offsets(client, planned, fail_on_data_loss=False) == []

    virtual_time.run(read())
    assert len(losses(caplog)) == 1


async def test_a_log_that_ends_before_the_range_is_read_to_its_end_if_losses_are_allowed(
    cluster: EmbeddedCluster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"fail_on_data_loss": False, "poll_timeout": 0.3}
    async with asyncio.timeout(SOON), RangeReader(client, CONFIG, (Range(T0, 20, 60),), **options) as reader:
        while await reader.take():
            pass
    (warning,) = losses(caplog)
    assert "t-0: offsets 50 to 60 must be read, and the log has 0 to 50" in warning


# The driver.


@pytest.mark.usefixtures("driver")
async def test_the_checkpoint_has_the_topic_id_in_a_form_that_sparks_connector_ignores(
    cluster: EmbeddedCluster,
) -> None:
    await create(cluster, 5)
    expected = await topic_id(cluster)

    def call() -> None:
        stream = reader(cluster.bootstrap_servers, "t")
        end = stream.latestOffset({"t": {"0": 2}}, ReadAllAvailable())
        (key,) = end.keys() - {"t"}
        assert key.startswith("$id:t:")
        assert end == {"t": {"0": 5}, key: {}}
        assert topic_ids_of(end) == {"t": expected}
        (task,) = stream.partitions({"t": {"0": 2}}, end)
        assert task.value == (Range(T0, 2, 5, expected),)
        assert stream.latestOffset(end, ReadAllAvailable()) is end

    await on_spark(call)


@pytest.mark.usefixtures("driver")
async def test_the_driver_reports_a_topic_created_again_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await create(cluster, 30)
    before = await on_spark(
        lambda: reader(cluster.bootstrap_servers, "t").latestOffset({"t": {"0": 0}}, ReadAllAvailable())
    )
    await create(cluster, 50)

    def call() -> None:
        strict = reader(cluster.bootstrap_servers, "t")
        lenient = reader(cluster.bootstrap_servers, "t", failOnDataLoss="false", minOffsetsPerTrigger=100)
        for _ in range(2):  # as after a restart
            with pytest.raises(OffsetOutOfRange, match=r"topic 't' was deleted and created again \(its id was"):
                strict.latestOffset(before, ReadAllAvailable())
        end = lenient.latestOffset(before, ReadAllAvailable())
        assert end["t"] == {"0": 50}
        assert lenient.latestOffset(before, ReadMinRows(100)) is before  # the next trigger finds the same
        with pytest.raises(OffsetOutOfRange, match="was deleted and created again"):
            strict.partitions(before, end)
        (task,) = lenient.partitions(before, end)
        assert [(range_.start, range_.end) for range_ in task.value] == [(30, 50)]
        assert lenient.latestOffset(end, ReadAllAvailable()) is end

    await on_spark(call)
    (warning,) = losses(caplog)
    assert "topic 't' was deleted and created again" in warning


# Whole queries, on workers that are used again.


@pytest.mark.long
async def test_every_action_of_a_batch_reads_the_topic_that_was_created_again(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    counts: list[tuple[int, int]] = []

    def run(fail: str = "false") -> None:
        def count(rows: DataFrame, _batch: int) -> None:
            counts.append((rows.count(), rows.count()))

        rows = stream_of(
            spark, cluster.bootstrap_servers, subscribe="t", startingOffsets="earliest", failOnDataLoss=fail
        )
        checkpoint = str(tmp_path / "checkpoint")
        query = rows.writeStream.foreachBatch(count).option("checkpointLocation", checkpoint)
        run_to_end(query.trigger(availableNow=True).start)

    await create(cluster, 50)
    await on_spark(run)
    await create(cluster, 20)
    await on_spark(run)
    await produce(cluster, 60)
    await on_spark(run)
    await create(cluster, 120)
    with pytest.raises(StreamingQueryException, match="topic 't' was deleted and created again"):
        await on_spark(lambda: run(fail="true"))
    await on_spark(run)
    assert counts == [(50, 50), (0, 0), (60, 60), (40, 40)]


async def test_a_batch_query_that_was_planned_before_says_that_the_topic_was_created_again(
    spark: SparkSession, cluster: EmbeddedCluster
) -> None:
    await create(cluster, 50)
    rows = await on_spark(lambda: batch_of(spark, cluster.bootstrap_servers, subscribe="t"))
    assert await on_spark(rows.count) == 50
    await create(cluster, 50)
    with pytest.raises(PySparkException, match="topic 't' was deleted and created again"):
        await on_spark(rows.count)

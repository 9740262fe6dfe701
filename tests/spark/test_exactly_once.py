"""``.option("delivery", "exactly-once")``: rows of a stream that a reader with ``read_committed`` gets once."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.embedded.error_responses import error_response
from aiokafka_lite.errors import ErrorCode, IllegalStateError, KafkaError
from aiokafka_lite.protocol.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request, Response
from aiokafka_lite.spark import exactly_once
from aiokafka_lite.spark.exactly_once import Place, Prepared
from aiokafka_lite.spark.options import Properties
from aiokafka_lite.spark.writing import Target
from tests.spark.conftest import on_spark, run_to_end, stream_of
from tests.spark.test_sink import found_here
from tests.waiting import DEADLINE

PARTITIONS = 3
ROWS = 600


async def values_in(
    servers: str, topic: str, isolation: Any = "read_committed", *, partitions: int = PARTITIONS
) -> list[str]:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    values: list[str] = []
    async with Consumer(servers, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        async with asyncio.timeout(60):
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                values += [(record.value or b"").decode() for record in await consumer.poll(timeout=0.5)]
    return values


async def fill(cluster: EmbeddedCluster, rows: int = ROWS) -> None:
    for topic in ("source", "target"):
        if topic not in cluster.controller.topics:
            await cluster.create_topic(topic, PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("source", [b"%d" % number for number in range(rows)])


def copy(spark: SparkSession, servers: str, checkpoint: Path, **options: str) -> None:
    """Copy the source to the target, in batches of 200 rows and two tasks."""
    found_here(spark)
    tasks = options.pop("tasks", "2")
    stream = stream_of(
        spark, servers, subscribe="source", startingOffsets="earliest", maxOffsetsPerTrigger="200", minPartitions=tasks
    )
    rows = stream.selectExpr("concat_ws(':', partition, offset) AS value")
    writer = rows.writeStream.format("kafka-lite").option("kafka.bootstrap.servers", servers).option("topic", "target")
    writer = writer.option("checkpointLocation", str(checkpoint)).option("delivery", "exactly-once").options(**options)
    run_to_end(writer.trigger(availableNow=True).start)


def forget_the_last_commit(checkpoint: Path) -> None:
    """Make Spark repeat its last batch, as after a kill before it has written its commit log."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


async def test_a_repeated_batch_is_not_written_again(
    cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    await fill(cluster)
    await on_spark(lambda: copy(spark, servers, tmp_path))
    once = sorted(await values_in(servers, "target"))
    assert len(once) == len(set(once)) == ROWS
    forget_the_last_commit(tmp_path)
    await on_spark(lambda: copy(spark, servers, tmp_path))
    assert sorted(await values_in(servers, "target")) == once
    await fill(cluster, 100)
    await on_spark(lambda: copy(spark, servers, tmp_path))
    values = await values_in(servers, "target")
    assert len(values) == len(set(values)) == ROWS + 100
    assert len(await values_in(servers, "target", "read_uncommitted")) == ROWS + 100


# The tasks and the driver, without Spark.


class Query:
    """A query that writes to the topic ``target``: its tasks and its driver."""

    def __init__(self, cluster: EmbeddedCluster, **properties: str) -> None:
        settings = {name.replace("__", "."): value for name, value in properties.items()}
        kafka = Properties({"bootstrap.servers": cluster.bootstrap_servers, **settings})
        self.target = Target(properties=kafka, topic="target", freeze_gc=False)

    async def write(self, task: int, batch: int, *values: str) -> Prepared:
        rows = [pyarrow.record_batch({"value": [value]}) for value in values]
        return await on_spark(lambda: exactly_once.write_rows(self.target, Place("query", task, batch), iter(rows)))

    async def commit(self, batch: int, *tasks: Prepared) -> None:
        await on_spark(lambda: exactly_once.commit(self.target, batch, tasks))

    async def abort(self, *tasks: Prepared) -> None:
        await on_spark(lambda: exactly_once.abort(self.target, tasks))


@pytest.fixture
async def query(cluster: EmbeddedCluster, driver: None) -> Query:
    await cluster.create_topic("target", PARTITIONS)
    return Query(cluster)


async def committed(cluster: EmbeddedCluster) -> list[str]:
    return sorted(await values_in(cluster.bootstrap_servers, "target"))


async def test_rows_are_visible_when_the_driver_has_committed_them(cluster: EmbeddedCluster, query: Query) -> None:
    tasks = [await query.write(0, 0, "a", "b"), await query.write(1, 0, "c"), await query.write(2, 0)]
    assert await committed(cluster) == []
    await query.commit(0, *tasks)
    assert await committed(cluster) == ["a", "b", "c"]


async def test_a_batch_of_which_one_task_was_committed_is_completed(cluster: EmbeddedCluster, query: Query) -> None:
    tasks = [await query.write(0, 0, "a"), await query.write(1, 0, "b")]
    cluster.on(EndTxnRequest, nth=3).fail(ErrorCode.INVALID_TXN_STATE)  # after the decision and another task
    with pytest.raises(KafkaError, match=r"task [01] of batch 0 was not committed"):
        await query.commit(0, *tasks)
    await query.abort(*tasks)
    assert await committed(cluster) == ["a"]
    again = [await query.write(0, 0, "a"), await query.write(1, 0, "b")]
    assert [task.transaction is None for task in again] == [True, False]
    await query.commit(0, *again)
    assert await committed(cluster) == ["a", "b"]


async def test_a_repeated_task_replaces_the_transaction_of_the_first_attempt(
    cluster: EmbeddedCluster, query: Query
) -> None:
    first, second = await query.write(0, 0, "a"), await query.write(0, 0, "a")
    with pytest.raises(KafkaError, match="not committed"):
        await query.commit(0, first)  # the zombie
    await query.commit(0, second)
    assert await committed(cluster) == ["a"]


async def test_a_repeated_batch_with_another_number_of_tasks_is_refused(cluster: EmbeddedCluster, query: Query) -> None:
    tasks = [await query.write(0, 0), await query.write(1, 0), await query.write(2, 0, "c")]
    await query.commit(0, *tasks)
    fewer = await query.write(0, 0, "c")
    with pytest.raises(IllegalStateError, match="begun with 3 tasks, and is repeated with 1"):
        await query.commit(0, fewer)
    await query.abort(fewer)
    assert await committed(cluster) == ["c"]
    await query.commit(1, await query.write(0, 1, "d"))  # the next batch may have another number
    assert await committed(cluster) == ["c", "d"]


@pytest.mark.parametrize(
    ("before", "killed", "restarted"),
    [
        pytest.param(3, 3, ["bbb"], id="fewer tasks"),
        pytest.param(0, 3, ["bbb"], id="fewer tasks in the first batch"),
        pytest.param(1, 3, ["bbb"], id="as many tasks as in the batch before"),
        pytest.param(3, 3, ["bb", "b", ""], id="a task without rows"),
    ],
)
async def test_transactions_that_a_killed_run_left_open_do_not_delay_readers(
    cluster: EmbeddedCluster, query: Query, before: int, killed: int, restarted: list[str]
) -> None:
    if before:
        await query.commit(0, *[await query.write(task, 0, "a") for task in range(before)])
    for task in range(killed):
        await query.write(task, 1, "b")  # the query is killed here
    await query.commit(1, *[await query.write(task, 1, *rows) for task, rows in enumerate(restarted)])
    assert await committed(cluster) == ["a"] * before + ["b"] * killed
    assert await ended(cluster)


@pytest.mark.parametrize("brokers", [1, 3])
async def test_before_kafka_3_the_tasks_of_the_batch_before_are_fenced(driver: None, brokers: int) -> None:
    async with EmbeddedCluster(brokers=brokers, as_kafka="2.8") as cluster:
        await cluster.create_topic("target", PARTITIONS)
        query = Query(cluster)
        await query.commit(0, *[await query.write(task, 0, "a") for task in range(3)])
        for task in range(3):
            await query.write(task, 1, "b")  # the query is killed here
        await query.commit(1, await query.write(0, 1, "b", "b", "b"))
        async with asyncio.timeout(DEADLINE):
            assert await committed(cluster) == ["a", "a", "a", "b", "b", "b"]


class Freeze:
    """An answer that comes when the frozen driver is ``woken``: the request has to be sent again."""

    def __init__(self) -> None:
        self.reached, self.woken = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Request[Any]) -> Response | None:
        self.reached.set()
        await self.woken.wait()
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1)


@pytest.mark.parametrize(
    ("release", "request_type", "nth", "taken_over", "first", "second"),
    [
        pytest.param("4.3", TxnOffsetCommitRequest, 1, 0, ["a", "b", "c"], ["abc"], id="before the marker of a task"),
        pytest.param("4.3", EndTxnRequest, 1, 0, ["abc", ""], ["", "abc"], id="in its decision"),
        pytest.param("2.8", TxnOffsetCommitRequest, 2, 0, ["abc", ""], ["", "abc"], id="before its decision"),
        pytest.param("4.3", EndTxnRequest, 2, 1, ["abc", ""], ["ab", "c"], id="before the commit of a task"),
        pytest.param("2.8", EndTxnRequest, 2, 1, ["abc", ""], ["ab", "c"], id="before the commit, generation 1"),
    ],
)
async def test_a_driver_that_was_frozen_in_its_commit_cannot_repeat_rows(
    driver: None,
    release: str,
    request_type: type[Request[Any]],
    nth: int,
    taken_over: int,
    first: list[str],
    second: list[str],
) -> None:
    """It is frozen before its ``nth`` request of a type, and its tasks took over some tasks of the run after it."""
    freeze = Freeze()
    async with EmbeddedCluster(brokers=1, as_kafka=release) as cluster:
        await cluster.create_topic("target", PARTITIONS)
        frozen, restarted = Query(cluster), Query(cluster, client__id="restarted")  # with connections of its own
        early = [await restarted.write(task, 0, *second[task]) for task in range(taken_over)]
        tasks = [await frozen.write(task, 0, *rows) for task, rows in enumerate(first)]
        cluster.on(request_type, nth=nth).answer(freeze)
        committing = asyncio.create_task(frozen.commit(0, *tasks))
        await freeze.reached.wait()
        late = [await restarted.write(task, 0, *second[task]) for task in range(taken_over, len(second))]
        outcomes: list[BaseException | None] = []
        for wait in (restarted.commit(0, *early, *late), committing):
            outcomes += await asyncio.gather(wait, return_exceptions=True)
            freeze.woken.set()
        for run, its_tasks, outcome in zip((restarted, frozen), ([*early, *late], tasks), outcomes, strict=True):
            if outcome is not None:
                await run.abort(*its_tasks)  # as the sink does
        assert sum(isinstance(outcome, KafkaError) for outcome in outcomes) >= 1
        assert await committed(cluster) == (["a", "b", "c"] if None in outcomes else [])


async def test_a_frozen_driver_of_an_older_batch_does_not_abort_a_newer_one(
    cluster: EmbeddedCluster, query: Query
) -> None:
    frozen = [await query.write(0, 0, "a")]
    await query.commit(0, await query.write(0, 0, "a"))
    await query.commit(1, await query.write(0, 1, "b"))
    newest = [await query.write(task, 2, "c") for task in range(3)]
    with pytest.raises(IllegalStateError, match="batch 0 is older than batch 1"):
        await query.commit(0, *frozen)
    await query.commit(2, *newest)
    assert await committed(cluster) == ["a", "b", "c", "c", "c"]


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_a_frozen_driver_of_the_last_batch_does_not_abort_the_next_one(
    driver: None, release: str, has_begun: bool
) -> None:
    freeze = Freeze()
    async with EmbeddedCluster(brokers=1, as_kafka=release) as cluster:
        await cluster.create_topic("target", PARTITIONS)
        frozen, restarted = Query(cluster), Query(cluster, client__id="restarted")  # with connections of its own
        tasks = [await frozen.write(0, 0, "a"), await frozen.write(1, 0)]
        if has_begun:
            cluster.on(InitProducerIdRequest, nth=1).answer(freeze)
            committing = asyncio.create_task(frozen.commit(0, *tasks))
            await freeze.reached.wait()
        await restarted.commit(0, await restarted.write(0, 0, "a"), await restarted.write(1, 0))
        newest = [await restarted.write(task, 1, "b") for task in range(3)]
        freeze.woken.set()
        with pytest.raises(KafkaError, match="task 0 of batch 0 was not committed"):
            await (committing if has_begun else frozen.commit(0, *tasks))
        await frozen.abort(*tasks)
        await restarted.commit(1, *newest)
        assert await committed(cluster) == ["a", "b", "b", "b"]


async def test_a_frozen_driver_whose_tasks_were_taken_over_decides_nothing(
    cluster: EmbeddedCluster, query: Query
) -> None:
    frozen = [await query.write(0, 0, "a"), await query.write(1, 0)]
    restarted = await query.write(0, 0, "a")
    with pytest.raises(KafkaError, match="task 0 of batch 0 was not committed"):
        await query.commit(0, *frozen)
    await query.commit(0, restarted)  # with another number of tasks
    assert await committed(cluster) == ["a"]


async def test_a_batch_that_is_committed_begins_no_transaction_when_it_is_repeated(
    cluster: EmbeddedCluster, query: Query
) -> None:
    await query.commit(0, await query.write(0, 0, "a"), await query.write(1, 0))
    again = [await query.write(0, 0, "a"), await query.write(1, 0)]
    cluster.history.clear()
    await query.commit(0, *again)
    assert not cluster.history.of(InitProducerIdRequest)


async def test_a_repeated_batch_that_has_no_rows_now_is_refused(cluster: EmbeddedCluster, query: Query) -> None:
    await query.commit(0, await query.write(0, 0, "a"), await query.write(1, 0))
    with pytest.raises(IllegalStateError, match="task 0 of batch 0 has 0 rows with 0 bytes, but an earlier run has"):
        await query.commit(0, await query.write(0, 0), await query.write(1, 0))
    await query.commit(1, await query.write(0, 1), await query.write(1, 1))


async def test_a_batch_with_fewer_tasks_fences_nothing_if_nothing_is_open(
    cluster: EmbeddedCluster, query: Query
) -> None:
    await query.commit(0, *[await query.write(task, 0, "a") for task in range(3)])
    second = await query.write(0, 1, "b")
    cluster.history.clear()
    await query.commit(1, second)
    assert len(cluster.history.of(InitProducerIdRequest)) == 1  # of the decision


async def test_transactions_of_other_queries_stay_open(cluster: EmbeddedCluster, query: Query) -> None:
    others = ["query-1-0", "query-x", "other-query-1"]
    async with AsyncExitStack() as producers:
        for name in others:
            producer = await producers.enter_async_context(Producer(cluster.bootstrap_servers, transactional_id=name))
            await producer.begin_transaction()
            await producer.send("target", b"other")
        await query.commit(0, await query.write(0, 0, "a"))
        async with Admin(cluster.bootstrap_servers) as admin:
            transactions = await admin.transactions.list(states=["Ongoing"])
        assert sorted(transaction.transactional_id for transaction in transactions) == sorted(others)


async def test_a_decision_that_cannot_begin_is_an_error_that_names_the_batch(
    cluster: EmbeddedCluster, query: Query
) -> None:
    task = await query.write(0, 0, "a")
    cluster.on(InitProducerIdRequest, nth=1).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match=r"batch 0 was not committed: .* Restart the query"):
        await query.commit(0, task)


async def test_a_transaction_that_cannot_be_aborted_fails_the_batch(cluster: EmbeddedCluster, query: Query) -> None:
    await query.write(1, 0, "b")
    restarted = await query.write(0, 0, "b")
    cluster.on(InitProducerIdRequest, nth=2).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match=r"may have left open under 'query-1' was not aborted: .* Restart the query"):
        await query.commit(0, restarted)
    await query.commit(0, await query.write(0, 0, "b"))
    assert await committed(cluster) == ["b"]


async def test_a_repeated_task_with_other_rows_is_refused(cluster: EmbeddedCluster, query: Query) -> None:
    await query.commit(0, await query.write(0, 0, "a"))
    with pytest.raises(IllegalStateError, match="has 2 rows with 2 bytes, but an earlier run has committed 1 rows"):
        await query.write(0, 0, "a", "b")
    assert await committed(cluster) == ["a"]


async def test_a_repeated_batch_with_its_rows_in_another_task_is_refused(
    cluster: EmbeddedCluster, query: Query
) -> None:
    await query.commit(0, await query.write(0, 0, "a"), await query.write(1, 0))
    moved = [await query.write(0, 0), await query.write(1, 0, "a")]
    with pytest.raises(IllegalStateError, match="task 0 of batch 0 has 0 rows with 0 bytes, but an earlier run has"):
        await query.commit(0, *moved)
    await query.abort(*moved)
    assert await committed(cluster) == ["a"]


async def test_a_repeated_batch_requests_the_markers_of_all_its_tasks_at_once(
    cluster: EmbeddedCluster, query: Query
) -> None:
    without_rows = [Prepared(Place("query", task, 0)) for task in range(1, 40)]
    await query.commit(0, await query.write(0, 0, "a"), *without_rows)
    repeated = await query.write(0, 0, "a")
    cluster.history.clear()
    await query.commit(0, repeated, *without_rows)
    of_query, most = 1, len(cluster.nodes)  # one request for each coordinator
    assert len(cluster.history.of(OffsetFetchRequest)) <= 2 * (of_query + most)  # about a topic, and about all


async def test_an_older_batch_is_refused(cluster: EmbeddedCluster, query: Query) -> None:
    await query.commit(4, await query.write(0, 4, "a"))
    with pytest.raises(IllegalStateError, match="batch 3 is older than batch 4"):
        await query.write(0, 3, "b")
    assert await committed(cluster) == ["a"]


async def test_a_failed_task_and_an_aborted_batch_leave_no_open_transaction(
    cluster: EmbeddedCluster, query: Query
) -> None:
    def rows() -> Any:
        yield pyarrow.record_batch({"value": ["a"]})
        raise RuntimeError("the computation fails")

    with pytest.raises(RuntimeError, match="the computation fails"):
        await on_spark(lambda: exactly_once.write_rows(query.target, Place("query", 0, 0), rows()))
    await query.abort(await query.write(1, 0, "b"))
    async with asyncio.timeout(DEADLINE):
        assert await committed(cluster) == []


async def test_a_transaction_that_the_coordinator_has_aborted_is_an_error_that_names_the_property(
    cluster: EmbeddedCluster, driver: None
) -> None:
    await cluster.create_topic("target", PARTITIONS)
    query = Query(cluster, transaction__timeout__ms="2000")
    late = await query.write(0, 0, "a")
    async with asyncio.timeout(DEADLINE):
        while await values_in(cluster.bootstrap_servers, "target", "read_uncommitted") and not await ended(cluster):
            await asyncio.sleep(0.05)
    with pytest.raises(KafkaError, match=r"increase that.*Restart the query"):
        await query.commit(0, late)
    restarted = Query(cluster)
    await restarted.commit(0, await restarted.write(0, 0, "a"))
    assert await committed(cluster) == ["a"]


async def test_brokers_may_allow_only_a_short_timeout(driver: None) -> None:
    async with EmbeddedCluster(brokers=1, configs={"transaction.max.timeout.ms": "30000"}) as cluster:
        await cluster.create_topic("target", PARTITIONS)
        query = Query(cluster, transaction__timeout__ms="30000")
        for task in range(2):
            await query.write(task, 0, "a")  # the query is killed here
        for _ in range(2):
            await query.commit(0, await query.write(0, 0, "a", "a"))
        assert await committed(cluster) == ["a", "a"]


async def test_a_batch_that_takes_more_than_half_of_the_timeout_is_a_warning(
    cluster: EmbeddedCluster, driver: None, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("target", PARTITIONS)
    query = Query(cluster, transaction__timeout__ms="60000")
    await query.commit(0, await query.write(0, 0, "a"))
    assert not caplog.records
    slow = await query.write(3, 1, "b")
    await query.commit(1, replace(slow, begun_at=slow.begun_at - 40))
    (warning,) = caplog.messages
    expected = r"batch 1: the transaction of task 3 was open for \d+ s, more than half of kafka\.transaction\.timeout"
    assert re.match(expected, warning)
    assert await committed(cluster) == ["a", "b"]


async def test_a_timeout_above_that_of_the_brokers_is_an_error_before_any_row_is_written(
    cluster: EmbeddedCluster, driver: None
) -> None:
    await cluster.create_topic("target", PARTITIONS)
    query = Query(cluster, transaction__timeout__ms="900001")
    with pytest.raises(KafkaError, match=r"transaction_timeout=900\.001 s is above transaction\.max\.timeout\.ms"):
        await query.write(0, 0, "a")
    assert await values_in(cluster.bootstrap_servers, "target", "read_uncommitted") == []


async def ended(cluster: EmbeddedCluster) -> bool:
    """Return whether no transaction is open."""
    async with Admin(cluster.bootstrap_servers) as admin:
        return not any(transaction.state.is_open for transaction in await admin.transactions.list())

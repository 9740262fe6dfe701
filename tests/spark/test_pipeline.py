"""The pipeline: right sums in Parquet and in a topic, across restarts, and a stop between two batches."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiokafka_lite import Consumer, EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.types import Header
from pipeline_queries import AVAILABLE_NOW, Plan, QueryPipeline
from tests.end_to_end.conftest import Kafka
from tests.spark.conftest import begun, on_spark
from tests.spark.test_exactly_once import forget_the_last_commit, values_in
from tests.spark.test_sink import found_here

Row = tuple[str, str | None, int, int]
"""Window, city, orders and cents."""

HOUR = "2026-01-01T09:%02d:00Z"
TIMEOUT = 120.0


def order(city: str | None, cents: int, minute: int) -> bytes:
    return json.dumps({"city": city, "cents": cents, "at": HOUR % minute}).encode()


CLOSING = json.dumps({"city": "end", "cents": 0, "at": "2026-01-02T00:00:00Z"}).encode()
"""An order of the next day, which completes all windows of the hour."""


def plan_for(servers: str, source: str, directory: Path, **changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "options": {
            "kafka.bootstrap.servers": servers,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "100",
        },
        "schema": "city STRING, cents BIGINT, at TIMESTAMP",
        "event_time": "at",
        "window": "30 minutes",
        "group_by": ("city",),
        "aggregates": ("count(*) AS orders", "sum(cents) AS cents"),
        "to_files": str(directory / "windows"),
        "checkpoint": str(directory / "checkpoint"),
        "trigger": AVAILABLE_NOW,
    }
    return Plan(**{**settings, **changes})


async def run(
    spark: SparkSession, plan: Plan, directory: Path, report: Callable[[str], None], stop: threading.Event
) -> None:
    def call() -> None:
        found_here(spark)
        begun(lambda: QueryPipeline(spark, plan, directory / "pause", report).run(stop, TIMEOUT))

    await on_spark(call)
    (directory / "pause").unlink(missing_ok=True)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], row[1] or ""))


async def rows_in_parquet(spark: SparkSession, plan: Plan) -> list[Row]:
    rows = await on_spark(lambda: spark.read.parquet(plan.to_files or "").collect())
    return in_order((f"{row.window_start:%H:%M}", row.city, row.orders, row.cents) for row in rows)


async def test_windows_are_right_in_parquet_and_topic_and_continue_after_a_restart(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    source, target = await kafka.create_topic(partitions=1), await kafka.create_topic(partitions=1)
    dead = await kafka.create_topic(partitions=1)
    changes = {"to_topic": target, "dead_letter_topic": dead, "exactly_once": True}
    plan = plan_for(kafka.bootstrap_servers, source, tmp_path, **changes)
    lines: list[str] = []
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send_many(source, [order("Rome", 5, 1), b"no json", order("Oslo", 7, 2), order("Rome", 6, 3)])
        await producer.send_many(source, [b'{"city": "Rome"}', b"[1]", None, order(None, 1, 4), order("Rome", 1, 40)])
        await run(spark, plan, tmp_path, lines.append, threading.Event())
        first_half = [("09:00", "Oslo", 1, 7), ("09:00", "Rome", 2, 11)]
        await producer.send_many(source, [order("Rome", 2, 41), CLOSING])
    await run(spark, plan, tmp_path, lines.append, threading.Event())
    second_half = [("09:00", None, 1, 1), *first_half, ("09:30", "Rome", 2, 3)]
    assert await rows_in_parquet(spark, plan) == second_half
    values = map(json.loads, await values_in(kafka.bootstrap_servers, target, partitions=1))
    windows = in_order(
        (value["window_start"][11:16], value.get("city"), value["orders"], value["cents"]) for value in values
    )
    assert windows == second_half
    unusable = [line for line in lines if f"to {dead}" in line]
    assert unusable
    assert all(line.endswith(f"4 to {dead}: not JSON of the schema, or without event time") for line in unusable)
    letters = await values_in(kafka.bootstrap_servers, dead, partitions=1)
    assert sorted(letters) == ["", "[1]", "no json", '{"city": "Rome"}']
    assert any(line.startswith("topic batch 0: 9 rows in ") for line in lines)
    assert any(line.startswith("parquet batch 0: 9 rows in ") for line in lines)


async def test_without_a_window_files_and_topic_get_the_records_as_they_are(
    cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    servers, columns = cluster.bootstrap_servers, ("key", "value", "topic", "partition", "offset")
    for topic in ("orders", "orders-copied"):
        await cluster.create_topic(topic, 1)
    async with Producer(servers) as producer:
        await producer.send("orders", b"not json", key=b"first", headers=[("city", b"Rome")])
        await producer.send("orders", None, key=b"second")
    changes = {"schema": None, "window": None, "event_time": None, "group_by": (), "form": "json"}
    plan = plan_for(servers, "orders", tmp_path, to_topic="orders-copied", **changes)
    await run(spark, plan, tmp_path, print, threading.Event())
    rows = await on_spark(lambda: spark.read.json(plan.to_files or "").orderBy("offset").select(*columns).collect())
    assert [tuple(row) for row in rows] == [
        ("first", "not json", "orders", 0, 0),
        ("second", None, "orders", 0, 1),
    ]
    async with Consumer(servers) as consumer:
        consumer.assign([TopicPartition("orders-copied", 0)])
        await consumer.seek_to_beginning()
        copied = await consumer.poll(timeout=TIMEOUT)
    assert [(record.key, record.value, record.headers) for record in copied] == [
        (b"first", b"not json", (Header("city", b"Rome"),)),
        (b"second", None, ()),
    ]


@pytest.mark.long
async def test_without_a_window_a_schema_makes_columns_of_the_json_and_a_slow_start_is_repeated(
    cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    await cluster.create_topic("orders", 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("orders", [order("Rome", 5, 1), b"no json", order(None, 7, 2)])
    plan = plan_for(cluster.bootstrap_servers, "orders", tmp_path, window=None, event_time=None, group_by=())
    slow = tmp_path / "python"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *streaming*) mkdir {tmp_path}/slept 2>/dev/null && sleep 15;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    lines: list[str] = []
    usual, spark.sparkContext.pythonExec = spark.sparkContext.pythonExec, str(slow)
    try:
        assert [line.partition(": ")[2] for line in await on_spark(lambda: described(spark, plan, tmp_path))] == [
            f"once to {plan.to_files}, checkpoint {plan.checkpoint}/parquet: city string, cents bigint, at timestamp"
        ]
        await run(spark, plan, tmp_path, lines.append, threading.Event())
    finally:
        spark.sparkContext.pythonExec = usual
    rows = await on_spark(lambda: spark.read.parquet(plan.to_files or "").select("city", "cents").collect())
    assert {tuple(row) for row in rows} == {("Rome", 5), (None, 7)}
    assert "which could not begin the query; it starts again" in lines[0]
    # On a busy machine, the repeated start may be slow as well.
    assert lines[-1].endswith("1 dropped: not JSON of the schema")


def described(spark: SparkSession, plan: Plan, directory: Path) -> list[str]:
    found_here(spark)
    return list(QueryPipeline(spark, plan, directory / "pause", print).describe())


@pytest.mark.long
async def test_a_repeated_batch_does_not_repeat_its_windows_with_exactly_once_delivery(
    cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    for topic in ("orders", "windows"):
        await cluster.create_topic(topic, 1)
    async with Producer(servers) as producer:
        await producer.send_many("orders", [order("Rome", 5, 1), order("Oslo", 7, 2), order("Rome", 1, 40), CLOSING])
    plan = plan_for(servers, "orders", tmp_path, to_files=None, to_topic="windows", exactly_once=True)
    for _ in range(2):
        await run(spark, plan, tmp_path, print, threading.Event())
        values = await values_in(servers, "windows", partitions=1)
        assert sorted(json.loads(value)["cents"] for value in values) == [1, 5, 7]
        forget_the_last_commit(tmp_path / "checkpoint" / "topic")


@pytest.mark.long
async def test_a_stopped_pipeline_ends_between_two_batches_and_continues_there(
    cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    source, servers = "orders", cluster.bootstrap_servers
    await cluster.create_topic(source, 1)
    plan = plan_for(servers, source, tmp_path, trigger="0 seconds")
    stop = threading.Event()
    batches: list[str] = []

    def note(line: str) -> None:
        batches.append(line)
        stop.set()

    async with Producer(servers) as producer:
        await producer.send_many(source, [order("Rome", 1, number // 100) for number in range(2_999)] + [CLOSING])
    await run(spark, plan, tmp_path, note, stop)
    begun, done = (
        {path.name for path in (tmp_path / "checkpoint" / "parquet" / log).glob("[0-9]*")}
        for log in ("offsets", "commits")
    )
    assert begun == done
    assert len(done) < 30
    rest = plan_for(servers, source, tmp_path, options={**plan.options, "maxOffsetsPerTrigger": "5000"})
    await run(spark, rest, tmp_path, batches.append, threading.Event())
    assert await rows_in_parquet(spark, plan) == [("09:00", "Rome", 2_999, 2_999)]

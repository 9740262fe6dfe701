"""The page of recipes: its programs run as printed, one after another, and give the right rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiokafka_lite import EmbeddedCluster, Producer, blocking
from tests.end_to_end.conftest import missing
from tests.pure.documents import ROOT, blocks
from tests.real.jvm import JavaMissing, connector_jars
from tests.spark.conftest import begun, on_spark
from tests.spark.test_dead_letters import headers_of, records_in
from tests.spark.test_sink import found_here

PAGE = ROOT / "docs" / "spark-recipes.md"
CONNECTOR = "with Spark's connector"


def order(number: int, city: str, time: str) -> bytes:
    return json.dumps({"id": number, "city": city, "cents": 100 + number, "at": f"2026-01-01T{time}:00Z"}).encode()


def programs_of(cluster: EmbeddedCluster, directory: Path, *, with_connector: bool) -> list[str]:
    """Return the programs of the page, for this cluster and directory."""
    return [
        block.text.replace("localhost:9092", cluster.bootstrap_servers).replace('"out/', f'"{directory}/')
        for block in blocks(PAGE)
        if block.title.endswith(CONNECTOR) == with_connector
    ]


@pytest.mark.long
async def test_the_recipes_run_as_printed(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for topic in ("orders", "payments", "orders-dead", "totals"):
        await cluster.create_topic(topic, partitions=1)
    late = order(9, "Oslo", "23:00")  # completes the windows of the morning
    async with Producer(cluster.bootstrap_servers) as producer:
        values = [order(1, "Rome", "09:00"), b"no json", order(2, "Rome", "09:30"), order(3, "Oslo", "09:40"), late]
        await producer.send_many("orders", values)
        paid = {"order_id": 2, "paid_at": "2026-01-01T10:00:00Z"}
        await producer.send_many("payments", [json.dumps(paid).encode(), json.dumps(paid | {"order_id": 7}).encode()])
    programs = programs_of(cluster, tmp_path, with_connector=False)
    names: dict[str, Any] = {}

    def run() -> list[Any]:
        found_here(spark)
        for program in programs:
            begun(lambda program=program: exec(program, names))  # type: ignore[misc]
        spark.streams.removeListener(names["listener"])
        return [
            sorted(row.id for row in spark.read.parquet(f"{tmp_path}/orders").collect()),
            [(row.id, row.order_id) for row in spark.read.parquet(f"{tmp_path}/paid").collect()],
        ]

    files, joined = await on_spark(run)
    assert files == [1, 2, 3, 9]
    assert joined == [(2, 2)]
    (letter,) = await records_in(cluster, "orders-dead")
    assert (letter.value, headers_of(letter)["origin.offset"]) == (b"no json", "1")
    totals = [json.loads(record.value or b"") for record in await records_in(cluster, "totals")]
    assert sorted((total["city"], total["cents"]) for total in totals) == [("Oslo", 103), ("Rome", 203)]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("SELECT count(*), sum(cents) FROM orders").fetchone() == (4, 415)
    printed = capfd.readouterr().out
    for query in ("orders-to-files", "dead-letters", "totals", "paid-orders", "orders-to-database"):
        assert f"{query} batch 0" in printed


@pytest.mark.long
async def test_a_query_goes_on_with_sparks_connector_and_back(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    try:
        jars = connector_jars()
    except (JavaMissing, RuntimeError) as problem:
        missing(f"Spark's connector cannot be had here: {problem}")
    await cluster.create_topic("orders", partitions=2)
    setup, *_ = programs_of(cluster, tmp_path, with_connector=False)
    programs = programs_of(cluster, tmp_path, with_connector=True)
    names: dict[str, Any] = {}

    def produce(count: int) -> None:
        with blocking.Producer(cluster.bootstrap_servers) as producer:
            for number in range(count):
                producer.send("orders", b"%d" % number, partition=number % 2)

    def run() -> tuple[list[int], list[tuple[int, int]]]:
        for jar in jars:
            spark.sql(f"ADD JAR '{jar}'")  # for this thread, which plans, and for the executors
        found_here(spark)
        exec(setup, names)
        spark.streams.removeListener(names["listener"])
        produce(20)
        for program in programs:  # the first one ends with a query of this source
            begun(lambda program=program: exec(program, names))  # type: ignore[misc]
        read_on, rest, unread = names["read_on"], names["rest"], []
        for connector in ("kafka", "kafka-lite"):
            produce(6)
            unread.append(rest(connector).count())
            begun(lambda connector=connector: read_on(connector))  # type: ignore[misc]
        rows = spark.read.parquet(f"{tmp_path}/moved").select("partition", "offset").collect()
        return unread, sorted((row.partition, row.offset) for row in rows)

    unread, rows = await on_spark(run)
    assert unread == [6, 6]
    assert rows == [(partition, offset) for partition in (0, 1) for offset in range(16)]

"""The page on Spark: its programs run as printed, and its tables list the options of the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiokafka_lite import EmbeddedCluster, Producer
from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.schemas import Schema, SchemaRegistryClient
from aiokafka_lite.spark import options
from tests.pure.documents import ROOT, blocks
from tests.spark.conftest import begun, on_spark
from tests.spark.test_sink import found_here

PAGE = ROOT / "docs" / "spark.md"
REFERENCE = ROOT / "docs" / "spark-reference.md"


@pytest.fixture
async def registry_server() -> AsyncIterator[EmbeddedSchemaRegistry]:
    """A registry without the time limit of the plugin's fixture: a page of queries takes long on a busy machine."""
    async with EmbeddedSchemaRegistry() as server:
        yield server


@pytest.mark.long
async def test_the_programs_run_as_printed(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    registry_server: EmbeddedSchemaRegistry,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for topic in ("orders", "totals"):
        await cluster.create_topic(topic, partitions=1)
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
    }
    async with SchemaRegistryClient(registry_server.url) as registry:
        for subject in ("orders-value", "copies-value"):
            await registry.register(subject, Schema(json.dumps(order)))
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("orders", b'{"city": "Rome"}', key=b"first")
    first, *others = [
        block.text.replace("localhost:9092", cluster.bootstrap_servers)
        .replace("http://localhost:8081", registry_server.url)
        .replace('"out/', f'"{tmp_path}/')
        .replace('processingTime="10 seconds"', "availableNow=True")  # so that the query ends
        for block in blocks(PAGE)
    ]
    assert "availableNow=True" in first
    names: dict[str, Any] = {}

    def run() -> None:
        found_here(spark)  # the programs run in a thread, and a reader's run in the main thread
        begun(lambda: exec(first, names))
        spark.sql("SELECT 'Rome' AS city, 5 AS orders").createOrReplaceTempView("totals")
        for program in others:
            exec(program, names)
        assert names["values"].count() == 1
        assert "do not begin with the id of a schema" in names["unusable"].collect()[0].order["_error"]
        assert names["copies"].columns == ["value"]
        (row,) = spark.read.parquet(f"{tmp_path}/orders").collect()
        assert row.value == '{"city": "Rome"}'

    await on_spark(run)
    assert re.search(r"\|\s*0\|\s*first\|\{\"city\": \"Rome\"\}\|", capfd.readouterr().out)
    for query in spark.streams.active:
        await on_spark(query.stop)
    for listener in [name for name in names.values() if type(name).__name__ == "LagListener"]:
        spark.streams.removeListener(listener)


async def test_the_notebook_runs_as_printed(
    spark: SparkSession, cluster: EmbeddedCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    await cluster.create_topic("orders", partitions=1)
    notebook = json.loads((PAGE.parent / "examples" / "spark_notebook.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        text = "".join(cell["source"]).replace("localhost:9092", cluster.bootstrap_servers)
        code = compile(text, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, names)
        else:
            await on_spark(lambda code=code: (found_here(spark), begun(lambda: exec(code, names))))
    printed = capfd.readouterr().out
    for city in ("Lima", "Oslo"):
        assert re.search(rf"\|{city}\| +599500\|", printed)
        assert f"|{city}|  1000|" in printed


def test_the_tables_have_every_option_and_no_other() -> None:
    cells = re.findall(r"^\| (`[^|]*) \|", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    columns = {"value", "key", "headers", "partition", "_error", "origin"}
    assert {name for name in named if not name.startswith(options.KAFKA_PREFIX)} - columns == set(options.OPTIONS)


def test_the_defaults_in_the_tables_are_the_defaults() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    read = options.stream_read({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    for name, default in (
        ("recordsPerTask", read.records_per_task),
        ("prefetchBytes", read.prefetch_bytes),
        ("maxDecompressedSize", read.max_decompressed_size),
        ("kafkaConsumer.pollTimeoutMs", round(read.poll_timeout * 1000)),
        ("freezeGc", str(read.freeze_gc).lower()),
        ("failOnDataLoss", str(read.fail_on_data_loss).lower()),
        ("includeHeaders", str(read.include_headers).lower()),
    ):
        assert re.search(rf"^\| `{name}` \| `?{default}`? \|", text, flags=re.MULTILINE), name
    retries = f"{read.offset_retries}, {round(read.offset_retry_interval * 1000)}"
    assert f"| `fetchOffset.numRetries`, `fetchOffset.retryIntervalMs` | {retries} |" in text
    assert f"| `minOffsetsPerTrigger`, `maxTriggerDelay` | none, `{round(read.max_trigger_delay / 60)}m` |" in text

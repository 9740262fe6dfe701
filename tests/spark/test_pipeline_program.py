"""The pipeline as a process: stopped by a signal, and on a Spark Connect server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from aiokafka_lite import EmbeddedCluster, Producer
from aiokafka_lite.spark.jvm import use_java
from tests.spark.conftest import ENVIRONMENT, PIPELINE
from tests.spark.test_pipeline import order

pytestmark = pytest.mark.long

TIMEOUT = 240.0


async def program(cluster: EmbeddedCluster, directory: Path, *arguments: str) -> asyncio.subprocess.Process:
    """Return the pipeline, reading ten orders into Parquet."""
    await cluster.create_topic("orders", 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("orders", [order("Rome", 1, number) for number in range(10)])
    use_java()
    environment = os.environ | ENVIRONMENT | {"PYTHONWARNINGS": "ignore"}
    with (directory / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, str(PIPELINE)),
            *("-b", cluster.bootstrap_servers, "--topic", "orders"),
            *("--schema", "cents INT, at TIMESTAMP", "--event-time", "at", "--window", "1 minute"),
            *("--to-files", f"{directory}/out", "--checkpoint", f"{directory}/checkpoint"),
            *("--conf", "spark.sql.shuffle.partitions=1", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
        )


async def ended(process: asyncio.subprocess.Process) -> int:
    """Return the exit status of the process, which is killed if it does not end."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT):
        return (await process.stdout.readline()).decode()


async def test_a_signal_ends_the_pipeline_between_two_batches(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = await program(cluster, tmp_path, "--trigger", "1 second", "--master", "local[1]")
    try:
        assert (await first_line(process)).startswith("parquet batch 0: 10 rows in ")
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        rest = (await process.stdout.read()).decode()
    finally:
        status = await ended(process)
    assert (status, rest.splitlines()[-1]) == (0, "stopped between two batches"), (tmp_path / "log").read_text()
    begun, done = (
        {path.name for path in (tmp_path / "checkpoint" / "parquet" / log).glob("[0-9]*")}
        for log in ("offsets", "commits")
    )
    assert begun == done


async def test_the_pipeline_runs_on_spark_connect(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    for needed in ("pandas", "grpc", "grpc_status", "zstandard"):
        pytest.importorskip(needed)
    process = await program(cluster, tmp_path, "--trigger", "available-now", "--remote", "local[1]")
    try:
        assert (await first_line(process)).startswith("parquet batch 0: 10 rows in ")
    finally:
        status = await ended(process)
    assert status == 0, (tmp_path / "log").read_text()


async def test_a_misspelled_topic_is_one_line_before_java_starts(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = await program(cluster, tmp_path, "--topic", "ordres", "--conf", "spark.driver.memory=not-read-yet")
    assert await ended(process) == 2
    assert (tmp_path / "log").read_text() == (
        "aiokafka-lite: option subscribe: the cluster has no topic 'ordres'; did you mean 'orders'?\n"
    )


async def test_a_wrong_schema_is_one_line(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = await program(cluster, tmp_path, "--schema", "cents INTT", "--master", "local[1]", "--dry-run")
    assert await ended(process) == 1
    lines = (tmp_path / "log").read_text().splitlines()
    about = [line for line in lines if "INTT" in line or "Logger" in line]
    assert about == [lines[-1]]
    assert lines[-1].startswith("aiokafka-lite: [PARSE_SYNTAX_ERROR] Syntax error at or near 'INTT'")

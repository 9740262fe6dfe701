"""The pipeline of examples/ on a standalone cluster, with two workers that do not have this package."""

from __future__ import annotations

import asyncio
import json
import os
import re
import site
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pyspark
import pytest

from aiokafka_lite import EmbeddedCluster, Producer
from aiokafka_lite.spark.jvm import use_java
from tests.spark.conftest import EVERY_SPARK, PIPELINE, ROOT
from tests.spark.test_exactly_once import values_in
from tests.spark.test_pipeline import CLOSING, order

pytestmark = pytest.mark.long

TIMEOUT = 240.0
SECRET = "an-option-that-no-file-contains"
"""A client id as the secret: the embedded cluster requires no password, and both are passed in the same way."""


@asynccontextmanager
async def running(*arguments: str, log: Path, environment: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process with its output in a file; terminated at the end."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*arguments, stdout=output, stderr=output, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until_logged(log: Path, what: str) -> None:
    async with asyncio.timeout(TIMEOUT):
        while what not in log.read_text():
            await asyncio.sleep(0.05)


def python_without_this_package(directory: Path) -> Path:
    """Return an interpreter with all installed packages, except links to a working copy."""
    wrapper = directory / "python"
    packages = os.pathsep.join(site.getsitepackages())
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


async def test_the_pipeline_ships_itself_to_two_workers_and_keeps_its_secrets(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    for topic in ("orders", "by-city"):
        await cluster.create_topic(topic, 2)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("orders", [order("Rome", 2, number % 60) for number in range(1_000)] + [CLOSING])
    use_java()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore",
        **EVERY_SPARK,
    }
    launcher = str(Path(pyspark.__path__[0], "bin", "spark-class"))
    host = "127.0.0.1"
    (tmp_path / "events").mkdir()
    async with AsyncExitStack() as processes:

        async def deploy(number: int, name: str, *arguments: str) -> None:
            work = tmp_path / str(number)
            work.mkdir()
            await processes.enter_async_context(
                running(
                    *(launcher, f"org.apache.spark.deploy.{name}", "--host", host, *arguments),
                    log=work / "log",
                    environment={**environment, "SPARK_WORKER_DIR": str(work), "SPARK_WORKER_WEBUI_PORT": "0"},
                )
            )

        await deploy(0, "master.Master", "--port", "0", "--webui-port", "0")
        await until_logged(tmp_path / "0" / "log", "I have been elected leader")
        started = re.search(r"Starting Spark master at (spark://\S+)", (tmp_path / "0" / "log").read_text())
        assert started is not None
        master = started.group(1)
        for number in (1, 2):
            await deploy(number, "worker.Worker", "--cores", "1", "--memory", "1g", master)
        for number in (1, 2):
            await until_logged(tmp_path / str(number) / "log", "Successfully registered with master")
        program = await processes.enter_async_context(
            running(
                *(sys.executable, str(PIPELINE), "--master", master),
                *("-b", cluster.bootstrap_servers, "--topic", "orders", "--event-time", "at", "--window", "1 hour"),
                *("--schema", "city STRING, cents BIGINT, at TIMESTAMP", "--group-by", "city"),
                *("--aggregate", "sum(cents) AS cents", "--to-topic", "by-city", "--to-files", f"{tmp_path}/out"),
                *("--checkpoint", f"{tmp_path}/checkpoint", "--trigger", "available-now"),
                *("-X", f"client.id={SECRET}", "--option", "minPartitions=2"),
                *("--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2"),
                *("--conf", f"spark.driver.host={host}", "--conf", f"spark.driver.bindAddress={host}"),
                *("--conf", "spark.ui.enabled=false", "--conf", "spark.eventLog.enabled=true"),
                *("--conf", f"spark.eventLog.dir={tmp_path}/events"),
                log=tmp_path / "program",
                environment={
                    **environment,
                    "PYSPARK_PYTHON": str(python_without_this_package(tmp_path)),
                    "PYTHONPATH": str(ROOT),
                },
            )
        )
        async with asyncio.timeout(TIMEOUT):
            status = await program.wait()
    output = (tmp_path / "program").read_text()
    assert status == 0, output
    assert "read all records" in output
    values = map(json.loads, await values_in(cluster.bootstrap_servers, "by-city", partitions=2))
    assert [(value["city"], value["cents"]) for value in values] == [("Rome", 2_000)]
    executors = {path.name for number in (1, 2) for path in (tmp_path / str(number)).glob("app-*/*")}
    assert len(executors) >= 2
    assert json.loads(next((tmp_path / "checkpoint" / "topic").glob("metadata")).read_text())
    assert leaks_in(tmp_path) == []


def leaks_in(directory: Path) -> list[str]:
    """Return the files that contain the secret, of checkpoints, event logs, and the output of driver and workers."""
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    assert any("events" in path.parts for path in files)
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]

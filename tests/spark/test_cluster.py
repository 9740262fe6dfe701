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
from aiokafka_lite.spark.nodes import NEEDED
from tests.spark.conftest import EVERY_SPARK, PIPELINE, ROOT
from tests.spark.test_exactly_once import values_in
from tests.spark.test_pipeline import CLOSING, order

pytestmark = pytest.mark.long

HOST = "127.0.0.1"
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


@asynccontextmanager
async def standalone(directory: Path, environment: dict[str, str]) -> AsyncIterator[str]:
    """Run a master and two workers, each with one core. Yields the address of the master."""
    launcher = str(Path(pyspark.__path__[0], "bin", "spark-class"))
    async with AsyncExitStack() as processes:

        async def deploy(number: int, name: str, *arguments: str) -> Path:
            work = directory / str(number)
            work.mkdir()
            await processes.enter_async_context(
                running(
                    *(launcher, f"org.apache.spark.deploy.{name}", "--host", HOST, *arguments),
                    log=work / "log",
                    environment={**environment, "SPARK_WORKER_DIR": str(work), "SPARK_WORKER_WEBUI_PORT": "0"},
                )
            )
            return work / "log"

        log = await deploy(0, "master.Master", "--port", "0", "--webui-port", "0")
        await until_logged(log, "I have been elected leader")
        started = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        assert started is not None
        logs = [
            await deploy(number, "worker.Worker", "--cores", "1", "--memory", "1g", started.group(1))
            for number in (1, 2)
        ]
        for log in logs:
            await until_logged(log, "Successfully registered with master")
        yield started.group(1)


def environment_of_spark() -> dict[str, str]:
    use_java()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    return kept | {
        "SPARK_LOCAL_IP": HOST,
        "PYTHONWARNINGS": "ignore",
        **EVERY_SPARK,
    }


async def test_the_pipeline_ships_itself_to_two_workers_and_keeps_its_secrets(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    for topic in ("orders", "by-city"):
        await cluster.create_topic(topic, 2)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("orders", [order("Rome", 2, number % 60) for number in range(1_000)] + [CLOSING])
    environment = environment_of_spark()
    (tmp_path / "events").mkdir()
    async with (
        standalone(tmp_path, environment) as master,
        running(
            *(sys.executable, str(PIPELINE), "--master", master),
            *("-b", cluster.bootstrap_servers, "--topic", "orders", "--event-time", "at", "--window", "1 hour"),
            *("--schema", "city STRING, cents BIGINT, at TIMESTAMP", "--group-by", "city"),
            *("--aggregate", "sum(cents) AS cents", "--to-topic", "by-city", "--to-files", f"{tmp_path}/out"),
            *("--checkpoint", f"{tmp_path}/checkpoint", "--trigger", "available-now"),
            *("-X", f"client.id={SECRET}", "--option", "minPartitions=2"),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2"),
            *("--conf", f"spark.driver.host={HOST}", "--conf", f"spark.driver.bindAddress={HOST}"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.eventLog.enabled=true"),
            *("--conf", f"spark.eventLog.dir={tmp_path}/events"),
            log=tmp_path / "program",
            environment={
                **environment,
                "PYSPARK_PYTHON": str(python_without_this_package(tmp_path)),
                "PYTHONPATH": str(ROOT),
            },
        ) as program,
    ):
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


PROGRAM = """
import sys
from pyspark.sql import SparkSession
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark import register

builder = SparkSession.builder.master(sys.argv[1])
for setting in sys.argv[3:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    register(spark)
    rows = spark.read.format("kafka-lite").option("kafka.bootstrap.servers", sys.argv[2])
    rows = rows.option("subscribe", "orders").option("minPartitions", 2).load()
    print("rows:", rows.count())
except ConfigurationError as error:
    print("refused:", error)
finally:
    spark.stop()
"""


def python_with(directory: Path, *modules: str) -> Path:
    """Return an interpreter in an environment of its own, which has only these modules."""
    packages = directory / "packages"
    packages.mkdir(parents=True)
    for module in modules:
        for installed in Path(site.getsitepackages()[0]).glob(f"{module}*"):
            (packages / installed.name).symlink_to(installed)
    python = directory / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


async def test_a_program_of_ones_own_on_nodes_with_and_without_what_they_need(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await cluster.create_topic("orders", 2)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("orders", [b"%d" % number for number in range(1_000)])
    environment = environment_of_spark()
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    needed = (*NEEDED, "cffi", "_cffi", "idna", "sniffio", "typing_extensions", "pandas", "dateutil", "six", "pytz")
    bare = python_with(tmp_path / "bare", "numpy", "pyarrow")
    whole = python_with(tmp_path / "environment", *needed)
    async with standalone(tmp_path, environment) as master:

        async def run(*settings: str) -> str:
            log = tmp_path / "log-of-job"
            async with running(
                *(sys.executable, str(program), master, cluster.bootstrap_servers, "spark.executor.memory=512m"),
                *settings,
                log=log,
                environment={**environment, "PYTHONPATH": str(ROOT)},
            ) as job:
                async with asyncio.timeout(TIMEOUT):
                    await job.wait()
            return log.read_text()

        output = await run(f"spark.pyspark.python={bare}")
        assert "has no anyio, crc32c, lz4, zstandard; install" in output
        assert "Traceback" not in output
        output = await run("spark.pyspark.python=./environment/bin/python")
        assert "refused: spark.pyspark.python is ./environment/bin/python, and the driver has no such file" in output
        output = await run(f"spark.pyspark.python={whole}")
        assert "so the executors get it from this program, as plain Python" in output
        assert "rows: 1000" in output

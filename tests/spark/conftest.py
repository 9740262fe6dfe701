"""A Spark session for all tests here, and brokers as in the end-to-end suite.

Spark's calls block, and the embedded cluster lives in the test's own loop: so a test calls Spark by ``on_spark``, in a
thread.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.spark import register
from aiokafka_lite.spark.interpreter import worker_python
from aiokafka_lite.spark.jvm import use_java
from aiokafka_lite.spark.worker_loop import worker_loop
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import kafka, servers
from tests.real.releases import NEWEST, marks_of, wanted

__all__ = ["kafka", "servers"]

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "examples" / "pipeline.py"
"""The program whose queries are tested as a user runs them."""

EVERY_SPARK = {
    # Tests are short: the best code of Java's compiler costs more than it saves, two thirds more CPU time in all.
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "SPARK_AUTH_SOCKET_TIMEOUT": "120",  # seconds; a worker's start takes more than the usual 15 on a busy machine
}
"""The environment of every Spark in the tests."""

ENVIRONMENT = {
    **EVERY_SPARK,
    "PYSPARK_PYTHON": worker_python(),
    "PYTHONPATH": str(ROOT),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYTHONDONTWRITEBYTECODE": "",  # else each of Spark's Python processes compiles the whole package
}
"""The environment of Spark's processes, and of programs that start them."""

ATTEMPTS = 10
"""The number of times that a query is started on a machine that is too busy for Spark."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make `kafka` only the newest Apache Kafka by default, because a query takes long with every broker."""
    if "kafka" in metafunc.fixturenames:
        option = metafunc.config.getoption("--kafka")
        names = ["given" if "KAFKA_BOOTSTRAP" in os.environ else NEWEST] if option == "default" else wanted(option)
        metafunc.parametrize("kafka", [pytest.param(name, marks=marks_of(name)) for name in names], indirect=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores, with the format registered."""
    use_java()
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pyspark about the versions of pandas
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A cluster whose brokers can be moved, stopped and started."""
    ports = [free_port() for _ in range(3)]  # no other process gets one while its broker is down
    async with EmbeddedCluster(brokers=3, ports=ports) as cluster:
        yield cluster


@pytest.fixture
def driver() -> Iterator[None]:
    """End the loop that readers keep in this process, for tests that call readers directly."""
    yield
    worker_loop().close()


async def on_spark(call: Callable[[], T]) -> T:
    """Let Spark work in a thread, while the cluster runs in this one."""
    return await asyncio.to_thread(_quietly, call)


def _quietly(call: Callable[[], T]) -> T:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def batch_of(spark: SparkSession, servers: str, **options: Any) -> DataFrame:
    """Return ``spark.read`` with these options; ``__`` stands for a dot."""
    reader = spark.read.format("kafka-lite").option("kafka.bootstrap.servers", servers)
    return reader.options(**{name.replace("__", "."): value for name, value in options.items()}).load()


def stream_of(spark: SparkSession, servers: str, **options: Any) -> DataFrame:
    """Return ``spark.readStream`` with these options; ``__`` stands for a dot."""
    reader = spark.readStream.format("kafka-lite").option("kafka.bootstrap.servers", servers)
    return reader.options(**{name.replace("__", "."): value for name, value in options.items()}).load()


def begun(call: Callable[[], T]) -> T:
    """Run a query to its end; again if it could not begin.

    Spark waits 10 seconds for the Python process of a source, which no setting changes. On a busy machine that is too
    short.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    return call()


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait until it ends."""

    def run() -> StreamingQuery:
        query = start()
        query.awaitTermination()
        return query

    return begun(run)


def run_available(rows: DataFrame, directory: Path) -> list[dict[str, Any]]:
    """Write all present records of a stream to Parquet. Returns the progress of its batches."""
    writer = (
        rows.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
    )
    return list(run_to_end(writer.start).recentProgress)

"""A query that is killed at random moments, whole or in part, writes every row exactly once to Parquet.

``SPARK_KILLS`` is the number of kills of each query, else each has one or two. Moments are counted in batches, so that
kills happen while offsets are logged, while tasks run, and between two batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiokafka_lite import EmbeddedCluster, Producer, RecordMetadata
from aiokafka_lite.spark.jvm import use_java
from tests.spark.conftest import ENVIRONMENT, on_spark

pytestmark = pytest.mark.long

PARTITIONS = 3
PER_BATCH = 600
TIMEOUT = 240.0
"""Seconds that a driver may take for a batch, with its own start and end. Start and first batch took 71 s on two cores
with a load of 6, and 174 s with a load of 16."""

VICTIMS = ("all", "driver", "jvm", *["worker"] * 5)
"""The kinds of processes to kill, in turn, when SPARK_KILLS says how many. Most are workers, whose death needs no new
JVM: its start is slow."""


def victims(*usual: str, kinds: Sequence[str] = VICTIMS) -> list[str]:
    """Return the kinds of processes that a test kills: the usual ones, or as many as SPARK_KILLS says."""
    count = os.environ.get("SPARK_KILLS")
    return list(usual) if count is None else [kinds[number % len(kinds)] for number in range(int(count))]


@dataclass
class Driver:
    """The processes of a query: the Python of the driver, its JVM, the JVMs of executors if they have their own, and
    the Python daemons and workers."""

    process: asyncio.subprocess.Process

    def members(self) -> dict[int, str]:
        """Return the process ids of its session, with the kind of each process."""
        return dict(_members(self.process.pid))

    def kill(self, victim: str) -> bool:
        """Kill one process of a kind, or all; False if there is none now."""
        chosen = [pid for pid, kind in self.members().items() if victim in ("all", kind)]
        for pid in chosen if victim == "all" else chosen[-1:]:
            _kill(pid)
        return bool(chosen)

    async def kill_all(self) -> None:
        """Kill all its processes, and wait until none exists: two JVMs must not write the same files."""
        async with asyncio.timeout(TIMEOUT):
            while members := self.members():
                for pid in members:
                    _kill(pid)
                await asyncio.sleep(0.02)
            await self.process.wait()


def _members(session: int) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # the process has just ended
        if int(of_session) == session and state != "Z":
            pid = int(entry.name)
            is_java = Path(os.fsdecode(command.split(b"\0")[0])).name == "java"
            of_java = "executor" if b"CoarseGrainedExecutorBackend" in command else "jvm"
            yield pid, "driver" if pid == session else of_java if is_java else "worker"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def start(directory: Path, script: str, *arguments: str) -> Driver:
    """Start a script of this folder as a driver that keeps its checkpoint in ``directory``."""
    environment = os.environ | ENVIRONMENT | {"PYTHONWARNINGS": "ignore"}
    with (directory / "stderr").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).with_name(script)), *arguments),
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    return Driver(process)


def count(directory: Path, log: str) -> int:
    """Return the number of batches in a log of the checkpoint."""
    folder = directory / "checkpoint" / log
    return sum(name.name.isdecimal() for name in folder.iterdir()) if folder.exists() else 0


async def until(driver: Driver, directory: Path, log: str, target: float) -> None:
    """Wait until a log has this number of batches, or until the query ends."""
    while (batches := count(directory, log)) < target and driver.process.returncode is None:
        async with asyncio.timeout(TIMEOUT):
            while count(directory, log) == batches and driver.process.returncode is None:
                await asyncio.sleep(0.005)


def time_of_a_batch(directory: Path) -> float:
    """Return the shortest time of recent batches from the log of offsets to the commit log, in seconds. At most 5."""
    logs = directory / "checkpoint"
    numbers = sorted(int(path.name) for path in (logs / "commits").glob("*") if path.name.isdecimal())[-10:]
    ends, begins = (
        [(logs / log / str(number)).stat().st_mtime for number in numbers] for log in ("commits", "offsets")
    )
    return min(5.0, *[end - begin for begin, end in zip(begins, ends, strict=True)]) if numbers else 0.4


async def until_the_moment(driver: Driver, directory: Path, moment: random.Random) -> None:
    """Wait until some batches are logged or committed, then up to the time of a batch; or until the query ends."""
    log = moment.choice(["offsets", "commits"])
    await until(driver, directory, log, count(directory, log) + moment.randint(1, 3))
    await asyncio.sleep(moment.choice([0.0, moment.uniform(0.0, time_of_a_batch(directory))]))  # any point of a batch


async def run_with_kills(victims: list[str], directory: Path, script: str, *arguments: str) -> list[str]:
    """Run a query to its end, and kill it at random moments. Returns the kinds of processes that were killed."""
    moment = random.Random(int(os.environ.get("SPARK_KILLS_SEED", "1")))
    killed: list[str] = []
    driver = await start(directory, script, *arguments)
    try:
        while len(killed) < len(victims) and driver.process.returncode != 0:
            victim = victims[len(killed)]
            await until_the_moment(driver, directory, moment)
            is_killed = driver.kill(victim)
            if is_killed:
                killed.append(victim)
            # The death of a worker may have ended the query, or Spark could not begin it on a busy machine.
            if driver.process.returncode or (is_killed and victim not in ("worker", "executor")):
                await driver.kill_all()
                driver = await start(directory, script, *arguments)
        await until(driver, directory, "commits", math.inf)
        while driver.process.returncode != 0:
            await driver.kill_all()
            driver = await start(directory, script, *arguments)
            await until(driver, directory, "commits", math.inf)
    finally:
        await driver.kill_all()
    return killed


async def test_a_query_killed_at_random_writes_every_row_exactly_once(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    use_java()
    chosen = victims("all", "worker")
    records = PER_BATCH * (4 + 4 * len(chosen))  # at most three batches come between two kills
    await cluster.create_topic("killed", partitions=PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        sent = await producer.send_many("killed", [b"%d" % number for number in range(records)])
    expected = sorted(
        (metadata.partition, metadata.offset) for metadata in sent if isinstance(metadata, RecordMetadata)
    )
    assert len(expected) == records
    arguments = ("killed_driver.py", cluster.bootstrap_servers, "killed", str(tmp_path), str(PER_BATCH))
    killed = await run_with_kills(chosen, tmp_path, *arguments)
    rows = await on_spark(lambda: spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").collect())
    assert sorted((row.partition, row.offset) for row in rows) == expected
    assert killed == chosen

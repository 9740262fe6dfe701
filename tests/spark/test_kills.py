"""A query that is killed at random moments, whole or in part, writes every row exactly once to Parquet.

``SPARK_KILLS`` is the number of kills (4 by default). Moments are counted in batches, so that kills happen while
offsets are logged, while tasks run, and between two batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiokafka_lite import EmbeddedCluster, Producer, RecordMetadata
from aiokafka_lite.spark.jvm import use_java
from tests.spark.conftest import ROOT, on_spark

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("SPARK_KILLS", "4"))
PARTITIONS = 3
PER_BATCH = 600
TIMEOUT = 120.0
"""Seconds that a step of a driver may take on a busy machine."""

VICTIMS = ("all", "driver", "jvm", "worker")


@dataclass
class Driver:
    """The processes of a query: the Python of the driver, its JVM, and the Python daemon and workers."""

    process: asyncio.subprocess.Process

    def members(self) -> dict[int, str]:
        """The process ids of its session, with the kind of each process."""
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
            yield pid, "driver" if pid == session else "jvm" if is_java else "worker"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def start(servers: str, topic: str, directory: Path) -> Driver:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore",
    }
    script = str(Path(__file__).with_name("killed_driver.py"))
    with (directory / "stderr").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, script, servers, topic, str(directory), str(PER_BATCH)),
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    return Driver(process)


def count(directory: Path, log: str) -> int:
    """The number of batches in a log of the checkpoint."""
    folder = directory / "checkpoint" / log
    return sum(name.name.isdecimal() for name in folder.iterdir()) if folder.exists() else 0


async def until_the_moment(driver: Driver, directory: Path, moment: random.Random) -> None:
    """Wait until some batches are logged or committed, then up to 0.4 s more; or until the query ends."""
    log = moment.choice(["offsets", "commits"])
    wanted = count(directory, log) + moment.randint(1, 3)
    async with asyncio.timeout(TIMEOUT):
        while count(directory, log) < wanted and driver.process.returncode is None:
            await asyncio.sleep(0.005)
    await asyncio.sleep(moment.choice([0.0, moment.uniform(0.0, 0.4)]))  # any point of a batch


async def test_a_query_killed_at_random_writes_every_row_exactly_once(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    use_java()
    records = PER_BATCH * (4 + 4 * KILLS)  # at most three batches come between two kills
    await cluster.create_topic("killed", partitions=PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        sent = await producer.send_many("killed", [b"%d" % number for number in range(records)])
    expected = sorted((each.partition, each.offset) for each in sent if isinstance(each, RecordMetadata))
    assert len(expected) == records
    moment = random.Random(int(os.environ.get("SPARK_KILLS_SEED", "1")))
    killed: list[str] = []
    driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
    try:
        while len(killed) < KILLS and driver.process.returncode is None:
            victim = VICTIMS[len(killed) % len(VICTIMS)]
            await until_the_moment(driver, tmp_path, moment)
            if not driver.kill(victim):
                continue
            killed.append(victim)
            if victim != "worker":
                await driver.kill_all()
                driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
        async with asyncio.timeout(TIMEOUT):
            while await driver.process.wait() != 0:  # the death of a worker may have ended the query
                await driver.kill_all()
                driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
    finally:
        await driver.kill_all()
    rows = await on_spark(lambda: spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").collect())
    assert sorted((row.partition, row.offset) for row in rows) == expected
    assert killed == [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]

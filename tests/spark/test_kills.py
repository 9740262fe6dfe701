"""A query that is killed at any moment, whole or in part, has every row exactly once in Parquet when it is over.

``SPARK_KILLS`` says how often (4 if it is not set). Moments are counted in batches, so that kills fall while offsets
are being logged, while tasks run, and between two batches.
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
PATIENCE = 120.0
"""Seconds in which a driver has to get on, on a machine that is busy with other things."""

VICTIMS = ("all", "driver", "jvm", "worker")


@dataclass
class Driver:
    """A query in processes of its own: the driver's Python, its JVM, and Python's daemon and workers."""

    process: asyncio.subprocess.Process

    def members(self) -> dict[int, str]:
        """Process ids of its session, with what each of them is."""
        return dict(_members(self.process.pid))

    def kill(self, victim: str) -> bool:
        """Kill one of a kind, or all; False if there is none at the moment."""
        chosen = [pid for pid, kind in self.members().items() if victim in ("all", kind)]
        for pid in chosen if victim == "all" else chosen[-1:]:
            _kill(pid)
        return bool(chosen)

    async def clear_away(self) -> None:
        """Kill what is left of it, and wait until nothing is: two JVMs must not write the same files."""
        async with asyncio.timeout(PATIENCE):
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
            continue  # it has just ended
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
    """How many batches have an entry in a log of the checkpoint."""
    folder = directory / "checkpoint" / log
    return sum(name.name.isdecimal() for name in folder.iterdir()) if folder.exists() else 0


async def until_it_is_time(driver: Driver, directory: Path, moment: random.Random) -> None:
    """Wait for some batches to be logged, or committed, and then a little more or not; or for the query's end."""
    log = moment.choice(["offsets", "commits"])
    wanted = count(directory, log) + moment.randint(1, 3)
    async with asyncio.timeout(PATIENCE):
        while count(directory, log) < wanted and driver.process.returncode is None:
            await asyncio.sleep(0.005)
    await asyncio.sleep(moment.choice([0.0, moment.uniform(0.0, 0.4)]))  # not to wait: to fall anywhere in a batch


async def test_killed_at_random_every_row_is_there_exactly_once(
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
            await until_it_is_time(driver, tmp_path, moment)
            if not driver.kill(victim):
                continue
            killed.append(victim)
            if victim != "worker":
                await driver.clear_away()
                driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
        async with asyncio.timeout(PATIENCE):
            while await driver.process.wait() != 0:  # a worker's death may have ended the query after all
                await driver.clear_away()
                driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
    finally:
        await driver.clear_away()
    rows = await on_spark(lambda: spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").collect())
    assert sorted((row.partition, row.offset) for row in rows) == expected
    assert killed == [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]

"""A query into a topic that is killed at random moments, and whose tasks fail, loses no row.

``SPARK_KILLS`` is the number of kills (1 by default).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, EmbeddedCluster, Producer, RecordMetadata, TopicPartition
from aiokafka_lite.spark.jvm import use_java
from tests.spark.conftest import ROOT
from tests.spark.test_kills import TIMEOUT, VICTIMS, Driver, until_the_moment

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("SPARK_KILLS", "1"))
PARTITIONS = 3
PER_BATCH = 600


async def start(servers: str, topic: str, directory: Path) -> Driver:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore",
    }
    with (directory / "stderr").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("killed_sink.py")),
            *(servers, topic, str(directory), str(PER_BATCH)),
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    return Driver(process)


async def values_in(servers: str, topic: str) -> list[str]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    values: list[str] = []
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        left = sum((await consumer.end_offsets(partitions)).values())
        async with asyncio.timeout(TIMEOUT):
            while len(values) < left:
                values += [(record.value or b"").decode() for record in await consumer.poll(timeout=1.0)]
    return values


async def test_a_query_killed_at_random_loses_no_row(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    use_java()
    records = PER_BATCH * (2 + 4 * KILLS)  # at most three batches come between two kills
    for topic in ("killed", "killed-copied"):
        await cluster.create_topic(topic, partitions=PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        sent = await producer.send_many("killed", [b"%d" % number for number in range(records)])
    expected = {f"{each.partition}:{each.offset}" for each in sent if isinstance(each, RecordMetadata)}
    assert len(expected) == records
    moment = random.Random(int(os.environ.get("SPARK_KILLS_SEED", "1")))
    killed = 0
    driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
    try:
        while killed < KILLS and driver.process.returncode is None:
            victim = VICTIMS[killed % len(VICTIMS)]
            await until_the_moment(driver, tmp_path, moment)
            if not driver.kill(victim):
                continue
            killed += 1
            if victim != "worker":
                await driver.kill_all()
                driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
        async with asyncio.timeout(TIMEOUT):
            while await driver.process.wait() != 0:  # the death of a worker may have ended the query
                await driver.kill_all()
                driver = await start(cluster.bootstrap_servers, "killed", tmp_path)
    finally:
        await driver.kill_all()
    values = await values_in(cluster.bootstrap_servers, "killed-copied")
    assert set(values) == expected
    assert killed == KILLS
    assert list(tmp_path.glob("failed-in-batch-*")), "no task has failed by itself"

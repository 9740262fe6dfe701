"""The exactly-once sink, killed at random moments between the first row of a batch and the commit log of the query.

``EXACTLY_ONCE_KILLS`` is the number of kills (20 by default).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

from aiokafka_lite import EmbeddedCluster
from tests.spark import killed_transactions
from tests.spark.conftest import ENVIRONMENT
from tests.spark.killed_transactions import ROWS, TASKS
from tests.spark.test_exactly_once import PARTITIONS, values_in

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("EXACTLY_ONCE_KILLS", "20"))
BATCHES = 5 * KILLS
TIMEOUT = 120.0


async def test_each_row_is_there_once_after_many_kills(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await cluster.create_topic("target", PARTITIONS)
    commits = tmp_path / "commits"
    commits.touch()
    moment = random.Random(int(os.environ.get("EXACTLY_ONCE_SEED", "1")))

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", killed_transactions.__name__, cluster.bootstrap_servers, str(commits), str(BATCHES)),
            env=os.environ | ENVIRONMENT,
        )

    def done() -> int:
        return len(commits.read_text().split())

    killed = 0
    process = await start()
    try:
        while killed < KILLS:
            after = done() + moment.randint(1, 3)
            async with asyncio.timeout(TIMEOUT):
                while done() < after and process.returncode is None:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(moment.random() * 0.1)  # a moment inside of a batch
            if process.returncode is not None:
                break
            process.kill()
            await process.wait()
            killed += 1
            process = await start()
        async with asyncio.timeout(TIMEOUT):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    expected = [f"{batch}:{task}:{row}" for batch in range(BATCHES) for task in range(TASKS) for row in range(ROWS)]
    assert sorted(await values_in(cluster.bootstrap_servers, "target")) == sorted(expected)
    assert killed == KILLS

"""Workers are killed at random steps, and each record is once in the output. The workers are processes.

A chain of three groups (eager, cooperative, static) carries records from topic to topic. Workers are killed with
SIGKILL and started again, half of them with a transactional id that was used before. This takes half a minute on the
newest Kafka, and less elsewhere. EXACTLY_ONCE_SECONDS sets another time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, Producer
from tests.end_to_end.conftest import Kafka
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE

pytestmark = [
    pytest.mark.long,
    since("2.5", "coordinators of groups fence former members since Kafka 2.5 (KIP-447)"),
]

SECONDS = os.environ.get("EXACTLY_ONCE_SECONDS")
HALF_A_MINUTE, SHORT = 30.0, 12.0
WORKERS = 2
RATE = 150
"""Records that are written per second."""

PAUSE = 0.3, 2.5
"""Seconds between two kills, at least and at most."""

STAGES = ("eager", "cooperative", "static")
ROOT = Path(__file__).parents[2]


class Stage:
    """A group of workers between two topics."""

    def __init__(self, kafka: Kafka, kind: str, source: str, target: str) -> None:
        self.kills = 0
        self._strategy = "cooperative" if kind == "cooperative" else "eager"
        self._is_static = kind == "static"
        self._group = f"{kind}-{uuid.uuid4().hex[:8]}"
        self._arguments = (kafka.bootstrap_servers, source, target, self._group)
        self._workers: dict[int, asyncio.subprocess.Process] = {}
        self._names = [f"{self._group}-{number}" for number in range(WORKERS)]

    async def start(self, number: int) -> None:
        instance = f"instance-{number}" if self._is_static else ""
        self._workers[number] = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.end_to_end.transform_process", *self._arguments, self._names[number]),
            *(self._strategy, instance),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )

    async def kill_until(self, until: float, chance: random.Random) -> None:
        """Kill a worker at random moments, until that time of the loop."""
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(chance.uniform(*PAUSE))
            await self.kill_one(chance)

    async def kill_one(self, chance: random.Random) -> None:
        """Kill a worker some time after it has processed a batch, and start another one."""
        number = chance.randrange(WORKERS)
        worker = self._workers[number]
        assert worker.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await worker.stdout.read(1 << 16)
                await worker.stdout.readline()
        await asyncio.sleep(chance.uniform(0.0, 0.03))
        worker.kill()
        assert await worker.wait() < 0, "the worker ended by itself"
        self.kills += 1
        if chance.random() < 0.5:
            self._names[number] = f"{self._group}-{uuid.uuid4().hex[:8]}"
        await self.start(number)

    async def stop(self) -> None:
        """Let the workers finish their batches. Returns when they have ended."""
        for worker in self._workers.values():
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in self._workers.values():
            async with asyncio.timeout(DEADLINE):
                await worker.communicate()
            assert worker.returncode == 0

    def end(self) -> None:
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.kill()


async def write(kafka: Kafka, topic: str, written: list[str], least: int, ended: asyncio.Event) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        while not ended.is_set() or len(written) < least:  # a busy machine writes fewer while workers are killed
            values = [str(len(written) + number) for number in range(RATE // 10)]
            await producer.send_many(topic, values, keys=values)
            written += values
            await asyncio.sleep(0.1)


async def test_a_chain_of_groups_keeps_each_record_once_while_workers_are_killed(
    kafka: Kafka, record_property: Callable[[str, object], None]
) -> None:
    if SECONDS is None and kafka.kind == "embedded":
        pytest.skip("the simulation has this chain on the embedded cluster; EXACTLY_ONCE_SECONDS runs it here too")
    seconds = float(SECONDS or (HALF_A_MINUTE if kafka.version == NEWEST else SHORT))
    topics = [await kafka.create_topic(partitions=4) for _ in range(len(STAGES) + 1)]
    stages = [Stage(kafka, kind, *topics[number : number + 2]) for number, kind in enumerate(STAGES)]
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    written: list[str] = []
    ended = asyncio.Event()
    output: Counter[str] = Counter()
    try:
        for stage in stages:
            for number in range(WORKERS):
                await stage.start(number)
        async with Consumer(kafka.bootstrap_servers, topics=[topics[-1]]) as consumer:
            writing = asyncio.create_task(write(kafka, topics[0], written, int(seconds * RATE / 10), ended))
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            killing = [asyncio.create_task(stage.kill_until(until, chance)) for stage in stages]
            await asyncio.gather(*killing)
            ended.set()
            await writing
            async with asyncio.timeout(DEADLINE):
                while len(output) < len(written):
                    output.update((record.value or b"").decode() for record in await consumer.poll(timeout=1.0))
            for stage in stages:
                await stage.stop()
            output.update((record.value or b"").decode() for record in await consumer.poll(timeout=2.0))
    finally:
        ended.set()
        for stage in stages:
            stage.end()
    kills = [stage.kills for stage in stages]
    record_property("records and kills", f"{len(written)}, {kills}")
    assert output == Counter(written), f"seed {seed}, kills {kills}"

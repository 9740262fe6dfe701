"""Processes with ``Workers`` are killed: each record is processed in the order of its key, or is a dead letter."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.group.finished_offsets import decode
from aiokafka_lite.types import TopicPartition
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.workers_process import is_refused
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
KEYS = 40
RECORDS = 4_000
KILLS = 8


async def start(
    *arguments: str, module: str = "workers_process", stdout: int | None = None
) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", f"tests.end_to_end.{module}", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=stdout, cwd=ROOT)


async def read_dead_letters(servers: str, source: str, dead: str) -> None:
    """Read until all refused records were seen, each with its origin and its error."""
    missing = {f"{key}:{number}" for key in range(KEYS) for number in range(RECORDS // KEYS) if is_refused(number)}
    async with Consumer(servers, topics=[dead]) as consumer, asyncio.timeout(DEADLINE):
        while missing:
            record = await anext(consumer)
            headers = dict(record.headers)
            assert (headers["origin.topic"], headers["error.message"]) == (source.encode(), b"refused")
            missing.discard((record.value or b"").decode())


@pytest.mark.long
async def test_records_of_a_key_are_processed_in_order_and_none_is_lost(kafka: Kafka) -> None:
    if kafka.kind == "embedded" or (kafka.kind != "given" and kafka.version != NEWEST):
        pytest.skip("the group below Workers is tested on all brokers")
    source, target = [await kafka.create_topic(partitions=4) for _ in range(2)]
    retry, dead = [await kafka.create_topic() for _ in range(2)]  # with fewer partitions
    values = [f"{number % KEYS}:{number // KEYS}" for number in range(RECORDS)]
    arguments = (kafka.bootstrap_servers, source, target, retry, dead, f"group-of-{source}")
    chance = random.Random(1)
    last: dict[str, int] = defaultdict(lambda: -1)
    skipped: list[str] = []

    async def read_until(count: int) -> None:
        """Read the output until ``count`` different records were seen. Each key continues with its next record, or goes
        back."""
        async with asyncio.timeout(DEADLINE):
            while sum(last.values()) + len(last) < count:
                for record in await consumer.poll(timeout=1.0):
                    key, _, number = (record.value or b"").decode().partition(":")
                    if int(number) > last[key] + 1:
                        skipped.append(f"{key}:{number} after {last[key]}")
                    last[key] = max(last[key], int(number))
                    while is_refused(last[key] + 1) and last[key] + 1 < RECORDS // KEYS:
                        last[key] += 1

    processes = [await start(*arguments) for _ in range(2)]
    try:
        async with Consumer(kafka.bootstrap_servers, topics=[target]) as consumer:
            async with Producer(kafka.bootstrap_servers) as producer:
                await producer.send_many(source, values, keys=[value.partition(":")[0] for value in values])
            for kill in range(1, KILLS + 1):
                await read_until(RECORDS * kill // (KILLS + 1))
                victim = processes.pop(chance.randrange(2))
                victim.kill()
                await victim.wait()
                processes.append(await start(*arguments))
            await read_until(RECORDS)
        await read_dead_letters(kafka.bootstrap_servers, source, dead)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(DEADLINE):
                assert await process.wait() == 0
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert skipped == []
    assert last == dict.fromkeys(map(str, range(KEYS)), RECORDS // KEYS - 1)


@pytest.mark.parametrize("hanging", [0, 4, 99])
async def test_a_kill_with_one_hanging_record_repeats_no_finished_record(kafka: Kafka, hanging: int) -> None:
    topic = await kafka.create_topic(partitions=1)
    group, partition, count = f"group-of-{topic}", TopicPartition(topic, 0), 100
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.put(topic, str(number), key=str(number))
    arguments = (kafka.bootstrap_servers, topic, group)
    others = {str(number) for number in range(count)} - {str(hanging)}
    pipe = asyncio.subprocess.PIPE
    first = await start(*arguments, str(hanging), module="hanging_worker", stdout=pipe)
    processes = [first]
    try:
        async with asyncio.timeout(DEADLINE):
            processed = [await line_of(first) for _ in others]
            assert set(processed) == others
            async with Consumer(kafka.bootstrap_servers, group_id=group) as reader:
                while True:  # until a commit tells of all of them
                    stored = (await reader.committed([partition]))[partition]
                    if stored is not None:
                        ahead = sum(end - begin for begin, end in decode(stored.offset, stored.metadata))
                        if stored.offset + ahead == count - 1:
                            break
            assert stored.offset == hanging
            first.kill()
            await first.wait()
            second = await start(*arguments, module="hanging_worker", stdout=pipe)
            processes.append(second)
            repeated = [await line_of(second)]
            while stored.offset < count:
                async with Consumer(kafka.bootstrap_servers, group_id=group) as reader:
                    after = (await reader.committed([partition]))[partition]
                assert after is not None
                stored = after
            assert second.stdin is not None
            second.stdin.close()
            assert second.stdout is not None
            repeated += (await second.stdout.read()).decode().split()
            assert await second.wait() == 0
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert repeated == [str(hanging)], f"{len(repeated) - 1} finished records were processed again"


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()

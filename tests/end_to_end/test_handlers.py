"""``Workers`` on real brokers: lists of records, plain functions in threads and processes."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, Producer, Record, Workers
from aiokafka_lite.metrics import MemberMetrics
from aiokafka_lite.processing import BatchFailure, dead_letter, redrive, retry
from aiokafka_lite.types import TopicPartition
from tests.embedded.handlers import picklable
from tests.end_to_end.conftest import Kafka
from tests.waiting import DEADLINE, until

RECORDS = 600
KEYS = 20
PARTITIONS = 3


async def send(kafka: Kafka, topic: str, file: Path | None = None) -> None:
    headers = {} if file is None else {"file": str(file).encode()}
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(RECORDS):
            key = str(number % KEYS)
            producer.send_nowait(topic, f"{key}:{number // KEYS}", key=key, headers=headers)
        await producer.flush()


async def process(kafka: Kafka, topic: str, workers: Workers[bytes, bytes], done: Callable[[], bool]) -> None:
    """Process until ``done`` returns true. Then all records are committed."""
    group = ConsumerGroup(kafka.bootstrap_servers, group_id=group_of(topic))
    consuming = asyncio.create_task(group.consume([topic], workers))
    try:
        await until(lambda: consuming.done() or done())
        if not consuming.done():
            await workers.drain(timeout=DEADLINE)
    finally:
        await group.close()
    await consuming
    async with Consumer(kafka.bootstrap_servers, group_id=group_of(topic)) as reader:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        stored = await reader.committed(partitions)
        ends = await reader.end_offsets(partitions)
    assert {partition: offset and offset.offset for partition, offset in stored.items()} == ends


def group_of(topic: str) -> str:
    return f"group-of-{topic}"


def in_order(values: list[str]) -> bool:
    """Return whether the values are all those that were sent, each once, and those of a key in their order."""
    last: Counter[str] = Counter()
    for value in values:
        key, _, number = value.partition(":")
        if int(number) != last[key]:
            return False
        last[key] += 1
    return last == Counter(dict.fromkeys(map(str, range(KEYS)), RECORDS // KEYS))


async def test_lists_are_processed_in_order_and_a_named_failure_takes_no_other_record_with_it(kafka: Kafka) -> None:
    topic, dead = await kafka.create_topic(partitions=PARTITIONS), await kafka.create_topic()
    await send(kafka, topic)
    done: list[str] = []
    sizes: list[int] = []
    outages = Counter[str]()

    async def store(records: list[Record[bytes, bytes]]) -> None:
        values = [record.value.decode() for record in records]
        assert len({record.partition for record in records}) == 1
        if values[0].endswith(":7") and outages[values[0]] < 2:
            outages[values[0]] += 1
            raise ConnectionError("the database is away")
        sizes.append(len(values))
        for index, value in enumerate(values):
            if value.endswith(":13"):
                done.extend(values[:index])
                raise BatchFailure(index, ValueError("no such dish"))
        done.extend(values)

    async with Producer(kafka.bootstrap_servers) as producer:
        workers: Workers[bytes, bytes] = Workers(
            store,
            batch_size=50,
            batch_timeout=0.1,
            concurrency=4,
            rules=[retry(backoff=0.01), dead_letter(topic=dead)],
            producer=producer,
        )
        await process(kafka, topic, workers, lambda: len(done) >= RECORDS - KEYS)
    assert 1 < max(sizes) <= 50
    refused = [f"{key}:13" for key in range(KEYS)]
    by_key: dict[str, list[str]] = defaultdict(list)
    for value in done:
        by_key[value.partition(":")[0]].append(value)
    for key, values in by_key.items():
        assert values == [f"{key}:{number}" for number in range(RECORDS // KEYS) if number != 13]
    async with Consumer(kafka.bootstrap_servers, topics=[dead]) as consumer, asyncio.timeout(DEADLINE):
        assert sorted([(await anext(consumer)).value.decode() for _ in refused]) == sorted(refused)


async def test_plain_functions_are_processed_in_threads(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=PARTITIONS)
    await send(kafka, topic)
    done: list[str] = []
    threads: set[str] = set()
    failures: Counter[bytes] = Counter()

    def bill(record: Record[bytes, bytes]) -> None:
        threads.add(threading.current_thread().name)
        failures[record.value] += 1
        if record.value.endswith(b":3") and failures[record.value] < 3:
            raise ConnectionError("the next attempt succeeds")
        done.append(record.value.decode())

    workers: Workers[bytes, bytes] = Workers(bill, concurrency=8, rules=[retry(backoff=0.01)])
    await process(kafka, topic, workers, lambda: len(done) >= RECORDS)
    assert in_order(done)
    assert threading.main_thread().name not in threads
    assert workers.metrics().retries == 2 * KEYS


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 and 3.13
@pytest.mark.parametrize("kind", ["records", "lists"])
async def test_plain_functions_are_processed_in_processes(kafka: Kafka, tmp_path: Path, kind: str) -> None:
    topic, file = await kafka.create_topic(partitions=PARTITIONS), tmp_path / "notes"
    await send(kafka, topic, file)
    # The default way to start processes: on Linux before Python 3.14 they are forks of this one, with its connections.
    with ProcessPoolExecutor(2) as processes:
        workers: Workers[bytes, bytes]
        if kind == "lists":
            workers = Workers(picklable.handle_list, executor=processes, concurrency=2, batch_size=20)
        else:
            workers = Workers(picklable.handle, executor=processes, concurrency=2)
        await process(kafka, topic, workers, lambda: workers.metrics().processed >= RECORDS)
    assert in_order([line.split()[0] for line in file.read_text().splitlines()])


async def test_a_paused_group_stays_a_member_for_longer_than_its_session(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=PARTITIONS)
    await send(kafka, topic)
    done: list[str] = []

    async def bill(record: Record[bytes, bytes]) -> None:
        done.append(record.value.decode())
        if len(done) == 100:
            group.pause("the till is closed")

    workers: Workers[bytes, bytes] = Workers(bill, concurrency=1)
    group = ConsumerGroup(
        kafka.bootstrap_servers,
        group_id=group_of(topic),
        group_protocol="classic",
        session_timeout=6.0,
        heartbeat_interval=0.2,
    )
    consuming = asyncio.create_task(group.consume([topic], workers))

    def member() -> MemberMetrics:
        state = group.metrics().group
        assert state is not None
        assert state.member is not None
        return state.member

    await until(lambda: len(done) >= 100)
    before = member()
    await until(lambda: member().heartbeats.latency.count >= before.heartbeats.latency.count + 6.0 / 0.2 + 5)
    assert len(done) == 100
    assert (member().generation, member().assigned_partitions) == (before.generation, PARTITIONS)
    group.resume()
    await until(lambda: len(done) >= RECORDS)
    await group.close()
    await consuming
    assert in_order(done)


async def test_dead_letters_go_back_to_their_origin_once(kafka: Kafka) -> None:
    topic, dead = await kafka.create_topic(partitions=PARTITIONS), await kafka.create_topic()
    await send(kafka, topic)
    done: list[str] = []
    places: dict[str, int] = {}

    async def bill(record: Record[bytes, bytes]) -> None:
        value = record.value.decode()
        if value.endswith(":7") and value not in places:
            places[value] = record.partition
            raise ValueError("no such dish")
        if value in places:
            assert (record.partition, record.headers) == (places[value], ())
        done.append(value)

    async with Producer(kafka.bootstrap_servers) as producer:
        workers: Workers[bytes, bytes] = Workers(bill, rules=[dead_letter(topic=dead)], producer=producer)
        group = ConsumerGroup(kafka.bootstrap_servers, group_id=group_of(topic))
        consuming = asyncio.create_task(group.consume([topic], workers))
        await until(lambda: len(done) == RECORDS - KEYS and workers.metrics().failed == KEYS)
        for dry_run, total in ((True, KEYS), (False, KEYS), (False, 0)):
            result = await redrive(kafka.bootstrap_servers, dead, dry_run=dry_run)
            assert result.total == total
        await until(lambda: len(done) == RECORDS)
        await group.close()
        await consuming
    assert len(set(done)) == RECORDS

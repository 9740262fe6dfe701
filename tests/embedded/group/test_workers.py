"""``Workers``: records of a group processed many at once, and committed only up to the first unfinished one."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import JsonDeserializer, JsonSerializer, Producer, Workers
from aiokafka_lite.consumer import ConsumerGroupSession
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ConfigurationError,
    DeserializationError,
    IllegalStateError,
    KafkaTimeout,
    RecordTooLarge,
    UnknownTopic,
)
from aiokafka_lite.processing import Rule, dead_letter, retry, retry_topic, skip
from aiokafka_lite.types import OffsetAndMetadata, Record, TopicPartition
from tests.embedded.group.recording_members import ORDERS
from tests.embedded.group.test_sessions import Running, committed, group_of, until
from tests.embedded.handlers import picklable

ONE = TopicPartition("orders", 0)
DEAD = dead_letter(topic="dead")


async def keyed(cluster: EmbeddedCluster, count: int, keys: int, *, start: int = 0) -> None:
    """Write records ``start``, ``start + 1``, … to partition 0, with keys in turn."""
    for number in range(start, start + count):
        await cluster.produce("orders", b"%d" % number, key=b"%d" % (number % keys), partition=0)


class Handling:
    """The user's function. It takes ``work`` seconds for a record, and fails the given number of times for each
    value."""

    def __init__(self, *, work: float = 0.0, failing: dict[bytes, int] | None = None) -> None:
        self.work = work
        self.failing = dict(failing or {})
        self.active = 0
        self.most_active = 0
        self.seen: list[Record[bytes, bytes]] = []
        self.held: dict[bytes, asyncio.Event] = defaultdict(asyncio.Event)
        self.hold: set[bytes] = set()

    async def __call__(self, record: Record[bytes, bytes]) -> None:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            value = record.value
            assert value is not None
            if value in self.hold:
                await self.held[value].wait()
            await asyncio.sleep(self.work)
            if self.failing.get(value, 0) > 0:
                self.failing[value] -= 1
                raise ValueError(f"no {value.decode()}")
            self.seen.append(record)
        finally:
            self.active -= 1

    @property
    def values(self) -> list[int]:
        return [int(record.value or b"") for record in self.seen]


def through_retry(seconds: float) -> list[Rule]:
    """Return the rule that sends records through the retry topic."""
    return [retry_topic(ValueError, topics={"retry": seconds})]


async def finish(running: Running) -> None:
    await running.group.close()
    await running.task


async def test_records_are_processed_at_once_up_to_the_concurrency(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 40, keys=40)
    handling = Handling(work=1.0)
    began = asyncio.get_running_loop().time()
    workers = Workers(handling, concurrency=10)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 40)
    assert handling.most_active == 10
    assert asyncio.get_running_loop().time() - began < 10.0
    await finish(running)
    assert (await committed(cluster))[ONE] == 40


async def test_records_of_a_key_are_processed_in_order(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 60, keys=3)
    handling = Handling(work=0.1, failing={b"0": 1, b"4": 2})
    running = Running(cluster, Workers(handling, rules=[retry(ValueError)]))
    await until(lambda: len(handling.seen) == 60)
    await finish(running)
    for key in range(3):
        assert [value for value in handling.values if value % 3 == key] == list(range(key, 60, 3))
    assert handling.values != sorted(handling.values)


async def test_records_of_a_partition_are_processed_in_order(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 20, keys=3)
    handling = Handling(work=0.1, failing={b"4": 1})
    running = Running(cluster, Workers(handling, order="partition", rules=[retry(ValueError)]))
    await until(lambda: len(handling.seen) == 20)
    await finish(running)
    assert handling.values == list(range(20))
    assert handling.most_active == 1


async def test_without_order_records_of_one_key_do_not_wait(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 20, keys=1)
    handling = Handling(work=1.0)
    running = Running(cluster, Workers(handling, order="none"))
    await until(lambda: len(handling.seen) == 20)
    assert handling.most_active == 20
    await finish(running)


async def test_offsets_are_committed_up_to_the_first_unfinished_record(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 10, keys=10)
    handling = Handling()
    handling.hold = {b"4"}
    workers = Workers(handling)
    running = Running(cluster, workers)
    await until(lambda: len(handling.seen) == 9)
    await until(lambda: workers.metrics().pending == 1)
    await finish(running)
    assert (await committed(cluster))[ONE] == 4


async def test_no_more_than_max_pending_records_are_read_ahead(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 30, keys=30)
    handling = Handling()
    handling.hold = {b"0"}
    running = Running(cluster, Workers(handling, max_pending=5))
    await until(lambda: len(handling.seen) == 4)
    await asyncio.sleep(30.0)  # virtual
    assert len(handling.seen) == 4
    handling.held[b"0"].set()
    await until(lambda: len(handling.seen) == 30)
    await finish(running)
    assert (await committed(cluster))[ONE] == 30


async def test_the_last_failure_ends_consume_and_is_not_committed(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 10, keys=10)
    handling = Handling(work=0.1, failing={b"4": 9})
    workers = Workers(handling, rules=[retry(ValueError)])
    with pytest.raises(ValueError, match="no 4"):
        await group_of(cluster).consume(["orders"], workers)
    assert (await committed(cluster))[ONE] == 4
    assert (workers.metrics().retries, workers.metrics().failed) == (2, 1)


async def test_attempts_have_a_growing_pause_in_which_others_run(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 4, keys=4)
    times: list[float] = []

    async def handle(record: Record[bytes, bytes]) -> None:
        if record.offset == 0:
            times.append(asyncio.get_running_loop().time())
            raise ValueError("no")

    workers = Workers(
        handle, concurrency=1, rules=[retry(ValueError, attempts=4, backoff=1.0, max_backoff=100.0), skip()]
    )
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 3)
    assert len(times) == 1
    await until(lambda: len(times) == 4)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [0.8 * delay <= pause <= delay + 0.1 for delay, pause in zip((1, 2, 4), pauses, strict=True)] == [True] * 3
    await finish(running)
    assert (await committed(cluster))[ONE] == 4


async def test_an_attempt_that_takes_too_long_is_cancelled_and_fails(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    handling = Handling()
    handling.hold = {b"0"}
    with pytest.raises(KafkaTimeout, match=r"handle\(\) of offset 0 of orders-0 took longer than 5 s"):
        await group_of(cluster).consume(["orders"], Workers(handling, timeout=5))
    assert handling.active == 0


async def test_in_virtual_time_a_plain_function_is_called_in_the_event_loop(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 10, keys=10)
    values: list[bytes | None] = []
    running = Running(cluster, Workers(lambda record: values.append(record.value)))
    await until(lambda: len(values) == 10)
    await finish(running)
    assert values == [b"%d" % number for number in range(10)]


async def test_in_virtual_time_an_executor_is_not_used(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    values = (b"1", b"wrong", b"2")
    for value in values:
        await cluster.produce("orders", value, headers={"file": str(file).encode()}, partition=0)
    executor = ProcessPoolExecutor(1)
    executor.shutdown()
    running = Running(cluster, workers := Workers(picklable.handle, executor=executor, rules=[skip()]))
    await until(lambda: workers.metrics().processed == 2)
    await finish(running)
    assert file.read_text().splitlines() == [f"{value} {os.getpid()}" for value in (1, 2)]
    assert workers.metrics().failed == 1


async def test_a_function_that_was_not_defined_in_python_is_called(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    records: list[Record[bytes, bytes]] = []
    running = Running(cluster, Workers(records.append))
    await until(lambda: len(records) == 1)
    await finish(running)
    assert (await committed(cluster))[ONE] == 1


async def test_keys_that_cannot_be_hashed_are_refused_with_the_way_out(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    group = group_of(cluster, key_deserializer=lambda key: [key])
    with pytest.raises(TypeError, match="order='key' needs keys that can be hashed, got list at offset 0"):
        await group.consume(["orders"], Workers(Handling()))


async def test_failed_records_go_through_the_retry_topic_to_the_dead_letter_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("retry")
    await cluster.create_topic("dead")
    await cluster.produce("orders", b"0", key=b"k", partition=0, headers={"trace": b"7"})
    await cluster.produce("orders", b"1", key=b"k", partition=0)
    handling = Handling(failing={b"0": 1, b"1": 2})
    began = asyncio.get_running_loop().time()
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers = Workers(handling, rules=[*through_retry(60.0), DEAD], producer=producer)
        group = group_of(cluster)
        task = asyncio.create_task(group.consume(["orders", *workers.retry_topics], workers))
        await until(lambda: bool(cluster.records("dead")), within=200.0)
        await group.close()
        await task
    assert asyncio.get_running_loop().time() - began >= 59.0
    assert [record.topic for record in handling.seen] == ["retry"]
    assert dict(handling.seen[0].headers)["trace"] == b"7"
    (dead,) = cluster.records("dead")
    assert (dead.key, dead.value) == (b"k", b"1")
    headers = dict(dead.headers)
    assert headers["origin.topic"] == b"orders"
    assert headers["origin.offset"] == b"1"
    assert (headers["error.class"], headers["error.message"]) == (b"ValueError", b"no 1")


async def test_a_function_may_see_each_failed_record_before_the_next_rule_decides(cluster: EmbeddedCluster) -> None:
    alerts = []

    async def alert(error: Exception, record: Record[Any, Any], attempt: int) -> Rule | None:
        await asyncio.sleep(0.1)
        alerts.append((str(error), record.value, attempt))
        return None

    async def fail(record: Record[Any, Any]) -> None:
        raise ValueError("no")

    await cluster.create_topic("dead")
    await cluster.produce("orders", b'{"a":  1}', key=b"k", partition=0)
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        group = group_of(cluster, value_deserializer=JsonDeserializer())
        workers = Workers(fail, rules=[alert, DEAD], producer=producer)
        task = asyncio.create_task(group.consume(["orders"], workers))
        await until(lambda: bool(cluster.records("dead")))
        await group.close()
        await task
    (dead,) = cluster.records("dead")
    assert dead.value == b'{"a":  1}'
    assert dict(dead.headers)["origin.group"] == b"workers"
    assert alerts == [("no", {"a": 1}, 1)]


async def test_a_failed_record_that_cannot_be_sent_on_is_not_committed(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    producer = Producer(cluster.bootstrap_servers, connector=cluster.connector, allow_auto_create_topics=False)
    async with producer:
        workers = Workers(
            Handling(failing={b"0": 1}), rules=[dead_letter(ValueError, topic="missing")], producer=producer
        )
        with pytest.raises(UnknownTopic, match="missing"):
            await group_of(cluster).consume(["orders"], workers)
    assert ONE not in await committed(cluster)


async def test_a_rebalance_waits_for_the_records_in_progress_and_none_is_processed_twice(
    cluster: EmbeddedCluster,
) -> None:
    for partition in ORDERS:
        for number in range(100):
            await cluster.produce("orders", b"%d" % number, key=b"%d" % number, partition=partition.partition)
    handlings = [Handling(work=0.5) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for handling in handlings:
            running = Running(cluster, Workers(handling, concurrency=8))
            stack.push_async_callback(finish, running)
            await asyncio.sleep(4.0)  # virtual: the next member joins while this one works
        await until(lambda: sum(len(handling.seen) for handling in handlings) >= 600)
    counts = Counter((record.partition, record.offset) for handling in handlings for record in handling.seen)
    assert len(counts) == 600
    assert set(counts.values()) == {1}
    assert all(handling.seen for handling in handlings)


async def test_drain_finishes_the_records_in_progress_and_begins_no_others(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 50, keys=50)
    handling = Handling(work=10.0)
    workers = Workers(handling, concurrency=8)
    running = Running(cluster, workers)
    await until(lambda: handling.active == 8)
    assert not await workers.drain(timeout=1.0)
    assert await workers.drain()
    await finish(running)
    assert sorted(handling.values) == list(range(8))
    assert (await committed(cluster))[ONE] == 8


@pytest.mark.thorough
async def test_a_drain_that_is_cancelled_at_any_turn_can_be_repeated(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 400, keys=400)
    finished = 0
    for turns in range(30):
        handling = Handling(work=0.0)
        workers = Workers(handling, concurrency=8)
        running = Running(cluster, workers)
        await until(lambda handling=handling: handling.seen)  # type: ignore[misc]
        draining = asyncio.ensure_future(workers.drain())
        for _ in range(turns):
            await asyncio.sleep(0)
        draining.cancel()
        await asyncio.wait([draining])
        assert await workers.drain()
        assert (handling.active, workers.metrics().pending) == (0, 0)
        await finish(running)
        finished += len(handling.seen)
        assert (await committed(cluster))[ONE] == finished
        await keyed(cluster, len(handling.seen), keys=400)


@pytest.mark.parametrize("order", ["key", "partition", "none"])
async def test_a_cancelled_consume_leaves_no_task_and_marks_nothing_unfinished(
    cluster: EmbeddedCluster, order: Any
) -> None:
    await keyed(cluster, 20, keys=2)
    handling = Handling()
    handling.hold = {b"%d" % number for number in range(20)}
    running = Running(cluster, Workers(handling, order=order))
    await until(lambda: handling.active > 0)
    await running.cancel()
    assert handling.active == 0
    assert ONE not in await committed(cluster)


async def test_no_record_is_committed_unprocessed_when_workers_are_cancelled_at_any_turn(
    cluster: EmbeddedCluster,
) -> None:
    await keyed(cluster, 200, keys=20)
    done: set[int] = set()
    for turns in range(12):
        handling = Handling(work=0.05)
        running = Running(cluster, Workers(handling, concurrency=4), auto_commit_interval=0.02)
        await until(lambda handling=handling: len(handling.seen) >= 5)  # type: ignore[misc]
        for _ in range(turns):
            await asyncio.sleep(0)
        await running.cancel()
        done.update(handling.values)
        assert (await committed(cluster)).get(ONE, 0) <= min(set(range(201)) - done)
    last = Handling()
    running = Running(cluster, Workers(last))
    await until(lambda: len(done.union(last.values)) == 200)
    await finish(running)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number >= 1, got 0"),
        ({"order": "keys"}, "order must be 'key', 'partition' or 'none', got 'keys'"),
        ({"timeout": "5"}, "timeout must be a number of seconds, or None, got '5'"),
        ({"max_pending": True}, "max_pending must be a whole number >= 1, got True"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((ConfigurationError, ValueError, TypeError)) as caught:
        Workers(Handling(), **arguments)
    assert str(caught.value) == text


async def test_a_log_that_was_made_again_is_committed_from_its_start(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 30, keys=30)
    handling = Handling()
    handling.hold = {b"20"}
    running = Running(cluster, Workers(handling, order="none"), auto_commit_interval=0.1)
    await until(lambda: len(handling.seen) == 29)
    await cluster.delete_topic("orders")
    await cluster.create_topic("orders", partitions=6)
    for number in range(5):
        await cluster.produce("orders", b"%d" % (100 + number), partition=0)
    await until(lambda: 104 in handling.values)
    handling.held[b"20"].set()
    await until(lambda: 20 in handling.values)
    await finish(running)
    assert (await committed(cluster))[ONE] == 5


async def test_drain_by_the_function_that_it_waits_for_is_refused(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)

    async def handle(record: Record[bytes, bytes]) -> None:
        await workers.drain()

    workers = Workers(handle)
    with pytest.raises(IllegalStateError, match=r"drain\(\) cannot be called by the function that it waits for"):
        await group_of(cluster).consume(["orders"], workers)


async def test_a_dead_letter_that_fails_again_does_not_circulate(cluster: EmbeddedCluster) -> None:
    await cluster.produce("orders", b"0", partition=0)
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers = Workers(Handling(failing={b"0": 9}), rules=[dead_letter(topic="orders")], producer=producer)
        with pytest.raises(IllegalStateError, match="must not read that topic"):
            await group_of(cluster).consume(["orders"], workers)


async def test_a_function_that_cancels_its_own_task_ends_consume(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 3, keys=3)

    async def handle(record: Record[bytes, bytes]) -> None:
        if record.offset == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    with pytest.raises(IllegalStateError, match=r"orders-0 .* was cancelled from outside"):
        async with asyncio.timeout(30.0):
            await group_of(cluster).consume(["orders"], Workers(handle))
    assert (await committed(cluster))[ONE] == 1


async def test_a_function_that_closes_the_group_finishes_its_record(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 2, keys=2)
    group = group_of(cluster)

    async def handle(record: Record[bytes, bytes]) -> None:
        if record.offset == 1:
            await group.close()
            await asyncio.sleep(0.1)

    await group.consume(["orders"], Workers(handle))
    assert (await committed(cluster))[ONE] == 2


async def test_a_record_between_two_attempts_goes_to_the_next_owner(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 3, keys=3)
    first = Handling(failing={b"1": 9})
    workers = Workers(first, rules=[retry(Exception, attempts=9, backoff=1000.0, max_backoff=1000.0)])
    running = Running(cluster, workers)
    await until(lambda: len(first.seen) == 2 and workers.metrics().retries == 1)
    began = asyncio.get_running_loop().time()
    await finish(running)
    assert asyncio.get_running_loop().time() - began < 1.0
    second = Handling()
    running = Running(cluster, Workers(second))
    await until(lambda: len(second.seen) == 1)
    await finish(running)
    assert second.values == [1]  # 2 is finished, although it is behind the committed offset
    assert (await committed(cluster))[ONE] == 3


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("é" * 2_000_000), "é" * 1000 + "…"),
        (ValueError("file \udc80"), "file \\udc80"),
        (Unprintable(), "RuntimeError in __str__"),
    ],
    ids=["long", "surrogate", "unprintable"],
)
async def test_each_failed_record_reaches_the_dead_letter_topic(
    cluster: EmbeddedCluster, error: Exception, message: str
) -> None:
    await cluster.create_topic("dead")
    await cluster.produce("orders", None, key=b"k", partition=0, headers={"empty": None, "full": b"x"})

    async def handle(record: Record[bytes, bytes]) -> None:
        raise error

    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        running = Running(cluster, Workers(handle, rules=[DEAD], producer=producer))
        await until(lambda: bool(cluster.records("dead")))
        await finish(running)
    (dead,) = cluster.records("dead")
    headers = dict(dead.headers)
    assert (dead.key, dead.value, headers["empty"], headers["full"]) == (b"k", None, None, b"x")
    assert (headers["error.message"] or b"").decode() == message


async def test_a_record_that_cannot_be_deserialized_goes_to_the_dead_letter_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("dead")
    for value in (b"1", b"poison", b"2"):
        await cluster.produce("orders", value, partition=0)
    values: list[object] = []

    async def handle(record: Record[bytes, object]) -> None:
        values.append(record.value)

    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        group = group_of(cluster, value_deserializer=JsonDeserializer())
        workers = Workers(handle, order="partition", rules=[retry(), DEAD], producer=producer)
        task = asyncio.create_task(group.consume(["orders"], workers))
        await until(lambda: len(values) == 2)
        await group.close()
        await task
    (dead,) = cluster.records("dead")
    assert (dead.value, dict(dead.headers)["origin.offset"]) == (b"poison", b"1")
    assert dict(dead.headers)["error.class"] == b"DeserializationError"
    assert (await committed(cluster))[ONE] == 3


async def test_a_record_that_cannot_be_deserialized_waits_in_the_retry_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("retry")
    await cluster.create_topic("dead")
    await cluster.produce("orders", b"poison", partition=0)
    began = asyncio.get_running_loop().time()
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        group = group_of(cluster, value_deserializer=JsonDeserializer())
        rules = [retry_topic(DeserializationError, topics={"retry": 60.0}), DEAD]
        workers = Workers(Handling(), rules=rules, producer=producer)
        task = asyncio.create_task(group.consume(["orders", "retry"], workers))
        await until(lambda: bool(cluster.records("dead")), within=200.0)
        await group.close()
        await task
    assert 59.0 <= asyncio.get_running_loop().time() - began <= 120.0
    assert dict(cluster.records("dead")[0].headers)["origin.topic"] == b"orders"


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_the_rules_for_a_record_that_cannot_be_deserialized_may_end(cluster: EmbeddedCluster, end: str) -> None:
    await cluster.produce("orders", b"poison", partition=0)
    began, ended = list[int](), list[int]()

    async def store(error: Exception, record: Record[Any, Any], attempt: int) -> Rule:
        began.append(record.offset)
        await asyncio.sleep(1.0)
        ended.append(record.offset)
        return skip()

    workers = Workers(Handling(), rules=[store])
    running = Running(cluster, workers, value_deserializer=JsonDeserializer())
    await until(lambda: began == [0])
    if end == "drain":
        assert await workers.drain(timeout=10.0)
    await finish(running)
    assert ended == [0]
    assert (await committed(cluster))[ONE] == 1


async def test_drain_by_a_rule_for_a_record_that_cannot_be_deserialized_is_refused(cluster: EmbeddedCluster) -> None:
    await cluster.produce("orders", b"poison", partition=0)

    async def decide(error: Exception, record: Record[Any, Any], attempt: int) -> Rule:
        await workers.drain()
        return skip()

    workers = Workers(Handling(), rules=[decide])
    with pytest.raises(IllegalStateError, match="cannot be called by the function that it waits for"):
        async with asyncio.timeout(30.0):
            await group_of(cluster, value_deserializer=JsonDeserializer()).consume(["orders"], workers)


async def test_records_that_cannot_be_deserialized_count_as_pending(cluster: EmbeddedCluster) -> None:
    await cluster.produce("orders", b"0", key=b"k", partition=0)
    for _ in range(20):
        await cluster.produce("orders", b"poison", partition=0)
    released = asyncio.Event()

    async def handle(record: Record[bytes, object]) -> None:
        await released.wait()

    workers: Workers[bytes, object] = Workers(handle, max_pending=5, rules=[skip()])
    running = Running(cluster, workers, value_deserializer=JsonDeserializer())
    await until(lambda: workers.metrics().failed == 4)
    await asyncio.sleep(30.0)  # virtual
    assert workers.metrics().failed == 4
    released.set()
    await until(lambda: workers.metrics().failed == 20)
    await finish(running)
    assert (await committed(cluster))[ONE] == 21


def test_workers_may_be_used_in_one_event_loop_after_another() -> None:
    workers = Workers(Handling(work=0.01), concurrency=2)

    async def process(count: int) -> None:
        async with EmbeddedCluster(tcp=False) as cluster:
            await cluster.create_topic("orders", partitions=6)
            for partition in ORDERS:
                await cluster.produce("orders", b"0", partition=partition.partition)
            running = Running(cluster, workers)
            await until(lambda: running.task.done() or workers.metrics().processed == count)
            await finish(running)

    for count in (6, 12):
        asyncio.run(process(count))


async def test_workers_that_serve_a_group_refuse_another_one(cluster: EmbeddedCluster) -> None:
    handling = Handling()
    workers = Workers(handling)
    running = Running(cluster, workers)
    await keyed(cluster, 1, keys=1)
    await until(lambda: handling.values == [0])
    other = group_of(cluster, group_id="another")
    with pytest.raises(IllegalStateError, match="serves another ConsumerGroup now: make one Workers for each group"):
        async with asyncio.timeout(60.0):
            await other.consume(["orders"], workers)
    await keyed(cluster, 1, keys=1, start=1)
    await until(lambda: handling.values == [0, 1])
    await finish(running)
    running = Running(cluster, workers)
    await keyed(cluster, 1, keys=1, start=2)
    await until(lambda: handling.values == [0, 1, 2])
    await finish(running)


async def test_a_record_of_a_retry_topic_does_not_wait_longer_if_the_clocks_differ(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("retry")
    await cluster.create_topic("dead")
    await keyed(cluster, 1, keys=1)
    handling = Handling(failing={b"0": 1})
    began = asyncio.get_running_loop().time()
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        group = group_of(cluster)
        workers = Workers(handling, rules=through_retry(60.0), producer=producer, clock=lambda: 0.0)
        task = asyncio.create_task(group.consume(["orders", "retry"], workers))
        await until(lambda: bool(handling.seen), within=300.0)
        await group.close()
        await task
    assert 59.0 <= asyncio.get_running_loop().time() - began <= 120.0


async def test_a_group_that_commits_nothing_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ConfigurationError, match="Workers need a ConsumerGroup with auto_commit=True"):
        async with asyncio.timeout(30.0):
            await group_of(cluster, auto_commit=False).consume(["orders"], Workers(Handling()))


async def test_a_subclass_may_commit_with_its_session(cluster: EmbeddedCluster) -> None:
    class Committing(Workers[bytes, bytes]):
        async def setup(self, session: ConsumerGroupSession) -> None:
            self.session = session

    await keyed(cluster, 10, keys=10)
    workers = Committing(Handling())
    running = Running(cluster, workers, auto_commit=False)
    await until(lambda: workers.metrics().processed == 10)
    await workers.session.commit()
    assert (await committed(cluster))[ONE] == 10
    await finish(running)


async def _json_async(data: bytes) -> object:
    await asyncio.sleep(0.0)
    return json.loads(data)


@pytest.mark.parametrize("deserializer", [JsonDeserializer(), _json_async], ids=["sync", "async"])
@pytest.mark.parametrize("serializer", [None, JsonSerializer()], ids=["default", "json"])
async def test_failed_records_are_sent_on_with_their_bytes(
    cluster: EmbeddedCluster, deserializer: Any, serializer: Any
) -> None:
    """The spaces show that the value was not written again."""
    for topic in ("retry", "dead"):
        await cluster.create_topic(topic)
    values: list[bytes] = [b'{"item":  %d}' % number for number in range(3)]
    for value in (*values, None):
        await cluster.produce("orders", value, key=b'"k"', partition=0)

    async def handle(record: Record[Any, Any]) -> None:
        assert record.value is None or record.value["item"] in range(3)
        raise ValueError("poison")

    servers, connector = cluster.bootstrap_servers, cluster.connector
    async with Producer(
        servers, connector=connector, key_serializer=serializer, value_serializer=serializer
    ) as producer:
        workers = Workers(handle, rules=[*through_retry(5.0), DEAD], producer=producer)
        group = group_of(cluster, key_deserializer=deserializer, value_deserializer=deserializer)
        task = asyncio.create_task(group.consume(["orders", "retry"], workers))
        await until(lambda: len(cluster.records("dead")) == 4, within=60.0)
        await group.close()
        await task
    assert sorted(record.value or b"" for record in cluster.records("dead")) == [b"", *values]
    assert {record.key for record in cluster.records("dead")} == {b'"k"'}
    assert {dict(record.headers)["origin.group"] for record in cluster.records("dead")} == {b"workers"}


async def test_a_poison_record_goes_to_the_dead_letter_topic_through_a_producer_with_serializers(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("dead")
    await cluster.produce("orders", b"poison", partition=0)
    servers, connector = cluster.bootstrap_servers, cluster.connector
    async with Producer(servers, connector=connector, value_serializer=JsonSerializer()) as producer:
        group = group_of(cluster, value_deserializer=JsonDeserializer())
        workers = Workers(Handling(), rules=[DEAD], producer=producer)
        task = asyncio.create_task(group.consume(["orders"], workers))
        await until(lambda: bool(cluster.records("dead")))
        await group.close()
        await task
    assert [record.value for record in cluster.records("dead")] == [b"poison"]


class Redacting:
    """An interceptor that hides headers from the handler, and moves records to another topic."""

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return [record._replace(topic="elsewhere", headers=()) for record in records]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


async def test_failed_records_are_sent_on_with_their_own_headers(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("dead")
    await cluster.produce("orders", b"0", key=b"k", partition=0, headers={"trace": b"7"})
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers = Workers(Handling(failing={b"0": 1}), rules=[DEAD], producer=producer)
        running = Running(cluster, workers, interceptors=[Redacting()])
        await until(lambda: bool(cluster.records("dead")))
        await finish(running)
    headers = dict(cluster.records("dead")[0].headers)
    assert (headers.get("trace"), headers["origin.topic"]) == (b"7", b"orders")


async def test_a_failed_record_that_is_too_large_for_the_dead_letter_topic_is_named(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("dead")
    await cluster.produce("orders", b"0", partition=0)
    await cluster.produce("orders", b"x" * 900, partition=0)
    servers, connector = cluster.bootstrap_servers, cluster.connector
    async with Producer(servers, connector=connector, max_request_size=1024) as producer:
        workers = Workers(Handling(failing={b"x" * 900: 1}), rules=[DEAD], producer=producer)
        with pytest.raises(RecordTooLarge, match=r"offset 1 of orders-0 cannot be sent to 'dead'; max_request_size"):
            await group_of(cluster).consume(["orders"], workers)
    assert (await committed(cluster))[ONE] == 1


async def test_a_retry_topic_that_two_groups_share_is_named(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("retry", "dead"):
        await cluster.create_topic(topic)
    headers: dict[str, bytes | None] = {"origin.topic": b"orders", "origin.group": b"shipping"}
    for _ in range(3):
        await cluster.produce("retry", b"1", headers=headers)
    handling = Handling()
    servers, connector = cluster.bootstrap_servers, cluster.connector
    async with Producer(servers, connector=connector) as producer:
        workers = Workers(handling, rules=through_retry(0.0), producer=producer)
        group = group_of(cluster)
        task = asyncio.create_task(group.consume(["retry"], workers))
        await until(lambda: len(handling.seen) == 3)
        await group.close()
        await task
    text = (
        "processes a failed record of group shipping, at offset 0 of retry-0: each group needs retry topics of its own"
    )
    assert caplog.text.count(text) == 1


async def _in_itself(closing: Coroutine[Any, Any, None]) -> None:
    await closing


async def _in_a_task(closing: Coroutine[Any, Any, None]) -> None:
    await asyncio.create_task(closing)


async def _in_a_task_group(closing: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(closing)


async def _with_a_timeout(closing: Coroutine[Any, Any, None]) -> None:
    await asyncio.wait_for(closing, 10.0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("how", [_in_itself, _in_a_task, _in_a_task_group, _with_a_timeout])
async def test_a_handler_that_closes_its_group_ends_promptly(cluster: EmbeddedCluster, how: Any, protocol: str) -> None:
    """Also in a task that the handler awaits: it would wait for the group, and the group for the handler."""
    await keyed(cluster, 1, keys=1)
    durations = []

    async def handle(record: Record[bytes, bytes]) -> None:
        began = asyncio.get_running_loop().time()
        await how(group.close())
        durations.append(asyncio.get_running_loop().time() - began)

    group = group_of(cluster, group_protocol=protocol)
    await group.consume(["orders"], Workers(handle))
    assert durations == [pytest.approx(0.0, abs=0.1)]
    assert (await committed(cluster))[ONE] == 1

"""``Workers`` with plain functions, which run in threads."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import anyio.from_thread
import pytest

from aiokafka_lite import Consumer, Producer, Record, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import IllegalStateError, KafkaTimeout
from aiokafka_lite.processing import BatchFailure, Rule, retry, skip
from tests.embedded.group.test_sessions import Running, committed
from tests.embedded.group.test_workers import ONE, finish, keyed
from tests.waiting import DEADLINE, until

order_id: ContextVar[str] = ContextVar("order_id", default="")


async def test_plain_functions_run_at_once_in_threads_and_in_the_order_of_their_keys(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 40, keys=4)
    all_four = threading.Barrier(4)
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    threads = set()

    def bill(record: Record[bytes, bytes]) -> None:
        all_four.wait(DEADLINE)  # passes only when four keys are processed at once
        threads.add(threading.current_thread())
        seen[record.key].append(int(record.value))

    running = Running(cluster, Workers(bill, concurrency=4))
    await until(lambda: sum(map(len, seen.values())) == 40)
    await finish(running)
    assert threading.main_thread() not in threads
    assert {key: values == sorted(values) for key, values in seen.items()} == dict.fromkeys(seen, True)
    assert (await committed(cluster))[ONE] == 40


async def test_a_thread_begins_with_a_copy_of_the_context_variables(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 5, keys=1)
    seen: list[str] = []
    at_failure: list[str] = []

    def bill(record: Record[bytes, bytes]) -> None:
        seen.append(order_id.get())
        order_id.set(record.value.decode())
        if record.value == b"3":
            raise ValueError("no such dish")

    def note(error: Exception, record: Record[Any, Any], attempt: int) -> Rule:
        at_failure.append(order_id.get())
        return skip()

    order_id.set("of consume")
    running = Running(cluster, Workers(bill, rules=[note]))
    await until(lambda: len(seen) == 5)
    await finish(running)
    assert seen == ["of consume"] * 5
    assert at_failure == ["3"]


async def test_rules_decide_about_the_errors_of_a_plain_function(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 4, keys=4)
    attempts: list[bytes] = []

    def bill(record: Record[bytes, bytes]) -> None:
        attempts.append(record.value)
        if record.value == b"1" and attempts.count(b"1") < 3:
            raise OSError("not yet")
        if record.value == b"2":
            raise StopIteration

    workers = Workers(bill, rules=[retry(OSError, backoff=0.01), skip()])
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 3 and workers.metrics().failed == 1)
    await finish(running)
    assert sorted(attempts) == [b"0", b"1", b"1", b"1", b"2", b"3"]
    assert (await committed(cluster))[ONE] == 4


async def test_lists_are_processed_in_threads_too(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 10, keys=1)
    lists: list[list[bytes]] = []

    def store(records: list[Record[bytes, bytes]]) -> None:
        values = [record.value for record in records]
        lists.append(values)
        if b"4" in values:
            raise BatchFailure(values.index(b"4"), ValueError("no such dish"))

    running = Running(cluster, Workers(store, batch_size=10, rules=[skip()]))
    await until(lambda: bool(lists) and b"9" in lists[-1])
    await finish(running)
    done = [value for values in lists for value in (values[: values.index(b"4")] if b"4" in values else values)]
    assert done == [b"%d" % number for number in range(10) if number != 4]
    assert (await committed(cluster))[ONE] == 10


def handler_of_each_kind(note: Callable[[Record[bytes, bytes]], None]) -> dict[str, Callable[..., object]]:
    async def note_later(record: Record[bytes, bytes]) -> None:
        await asyncio.sleep(0)
        note(record)

    class Plain:
        def __call__(self, record: Record[bytes, bytes]) -> None:
            note(record)

    class Async:
        async def __call__(self, record: Record[bytes, bytes]) -> None:
            await note_later(record)

        async def method(self, record: Record[bytes, bytes]) -> None:
            await note_later(record)

    @functools.wraps(note_later)
    def decorated(record: Record[bytes, bytes]) -> object:
        return note_later(record)

    return {
        "in a thread": note,
        "partial, in a thread": functools.partial(lambda dish, record: note(record), "coffee"),
        "object, in a thread": Plain(),
        "in the loop": note_later,
        "partial": functools.partial(note_later),
        "object": Async(),
        "method": Async().method,
        "decorated": decorated,
        "lambda with a coroutine": lambda record: note_later(record),
    }


@pytest.mark.parametrize("kind", handler_of_each_kind(lambda record: None))
async def test_the_kind_of_a_function_decides_where_it_runs(cluster: EmbeddedCluster, kind: str) -> None:
    await keyed(cluster, 2, keys=1)
    threads: list[threading.Thread] = []
    handler = handler_of_each_kind(lambda record: threads.append(threading.current_thread()))[kind]
    running = Running(cluster, Workers(handler))
    await until(lambda: len(threads) == 2)
    await finish(running)
    assert all((thread is threading.main_thread()) is ("in a thread" not in kind) for thread in threads)


async def test_a_function_that_asks_is_cancelled_at_the_timeout(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    never = threading.Event()
    failures: list[Exception] = []

    def bill(record: Record[bytes, bytes]) -> None:
        while not never.wait(0.01):
            anyio.from_thread.check_cancelled()

    def note(error: Exception, record: Record[Any, Any], attempt: int) -> Rule:
        failures.append(error)
        return skip()

    running = Running(cluster, Workers(bill, timeout=0.05, rules=[note]))
    await until(lambda: bool(failures))
    await finish(running)
    assert isinstance(failures[0], KafkaTimeout)
    assert str(failures[0]) == "handle() of offset 0 of orders-0 took longer than 0.05 s and was cancelled"
    assert (await committed(cluster))[ONE] == 1


async def test_a_function_that_does_not_ask_is_done_when_it_returns_after_the_timeout(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 2, keys=1)
    calls: list[bytes] = []
    pause = threading.Event()

    def bill(record: Record[bytes, bytes]) -> None:
        calls.append(record.value)
        if record.value == b"0":
            try:
                while True:  # until the timeout, after which it returns all the same
                    anyio.from_thread.check_cancelled()
                    pause.wait(0.01)
            except asyncio.CancelledError:
                pass

    workers = Workers(bill, timeout=0.05, rules=[retry(Exception), skip()])
    running = Running(cluster, workers)
    await until(lambda: len(calls) == 2)
    await finish(running)
    assert calls == [b"0", b"1"]
    assert (workers.metrics().failed, workers.metrics().retries) == (0, 0)
    assert (await committed(cluster))[ONE] == 2


async def test_a_cancelled_error_of_the_function_itself_is_a_failure(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)

    def bill(record: Record[bytes, bytes]) -> None:
        raise asyncio.CancelledError("of something else")

    with pytest.raises(IllegalStateError, match=r"handle\(\) of offset 0 .* although nothing cancelled it"):
        async with asyncio.timeout(DEADLINE):
            await Running(cluster, Workers(bill)).task


@pytest.mark.parametrize("end", ["close", "cancel"])
async def test_a_function_that_runs_at_the_end_is_left_alone_and_its_record_is_read_again(
    cluster: EmbeddedCluster, end: str
) -> None:
    await keyed(cluster, 2, keys=2)
    release, begun, was_asked = threading.Event(), threading.Event(), threading.Event()
    ended: list[bytes] = []

    def bill(record: Record[bytes, bytes]) -> None:
        if record.value == b"0":
            begun.set()
            try:
                while not release.wait(0.01):
                    anyio.from_thread.check_cancelled()
            except asyncio.CancelledError:
                was_asked.set()
                release.wait(DEADLINE)
        ended.append(record.value)

    try:
        running = Running(cluster, Workers(bill))
        await until(lambda: begun.is_set() and ended == [b"1"])
        await (finish(running) if end == "close" else running.cancel())
        assert (await committed(cluster)).get(ONE, 0) == 0
        await until(was_asked.is_set)
        assert ended == [b"1"]
    finally:
        release.set()
    again: list[bytes] = []
    running = Running(cluster, Workers(lambda record: again.append(record.value)))
    await until(lambda: again == [b"0"])
    await finish(running)
    assert (await committed(cluster))[ONE] == 2


async def test_a_thread_may_call_async_functions_in_the_loop(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 3, keys=1)
    await cluster.create_topic("bills", partitions=1)
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:

        def bill(record: Record[bytes, bytes]) -> None:
            anyio.from_thread.run(producer.send, "bills", record.value)

        running = Running(cluster, Workers(bill))
        async with Consumer(cluster.bootstrap_servers, topics=["bills"], connector=cluster.connector) as bills:
            assert [(await anext(bills)).value for _ in range(3)] == [b"0", b"1", b"2"]
        await finish(running)


async def test_a_thread_may_close_its_group_and_not_drain_its_workers(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    errors: list[str] = []

    def bill(record: Record[bytes, bytes]) -> None:
        try:
            anyio.from_thread.run(workers.drain)
        except IllegalStateError as error:
            errors.append(str(error))
        anyio.from_thread.run(running.group.close)

    workers = Workers(bill)
    running = Running(cluster, workers)
    async with asyncio.timeout(DEADLINE):
        await running.task
    assert "drain() cannot be called by the function that it waits for" in errors[0]
    assert (await committed(cluster))[ONE] == 1


async def test_a_decorator_that_hides_a_plain_function_behind_an_async_one_ends_consume(
    cluster: EmbeddedCluster,
) -> None:
    await keyed(cluster, 1, keys=1)

    async def bill(record: Record[bytes, bytes]) -> None: ...

    @functools.wraps(bill)
    def decorated(record: Record[bytes, bytes]) -> None: ...

    with pytest.raises(TypeError, match="handle wraps an async function, but it returned None"):
        async with asyncio.timeout(DEADLINE):
            await Running(cluster, Workers(decorated, rules=[skip()])).task


def generate(record: Record[bytes, bytes]) -> Iterator[None]:
    yield


async def generate_later(record: Record[bytes, bytes]) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("hidden", [generate, generate_later])
async def test_a_decorator_that_hides_a_generator_function_ends_consume(cluster: EmbeddedCluster, hidden: Any) -> None:
    await keyed(cluster, 1, keys=1)

    @functools.wraps(hidden)
    def decorated(record: Record[bytes, bytes]) -> object:
        return hidden(record)

    with pytest.raises(TypeError, match="handle returned a generator, whose code has not begun"):
        async with asyncio.timeout(DEADLINE):
            await Running(cluster, Workers(decorated, rules=[skip()])).task
    assert await committed(cluster) == {}

"""``Workers`` with functions that run in the processes of an executor."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.processing import dead_letter, skip
from tests.embedded.group.test_sessions import Running, committed
from tests.embedded.group.test_workers import ONE, finish
from tests.embedded.handlers import picklable
from tests.waiting import DEADLINE, until

KINDS = ["processes", *(["interpreters"] if sys.version_info >= (3, 14) else [])]


@pytest.fixture(params=KINDS)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with executor_of(request.param) as executor:
        yield executor


def executor_of(kind: str) -> Executor:
    if kind == "processes":
        return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    from concurrent import futures

    executor: Executor = futures.InterpreterPoolExecutor(2)  # type: ignore[attr-defined,unused-ignore]
    return executor


class Notes:
    """The file to which the functions of ``picklable`` write."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "notes"
        self.file.touch()

    async def send(self, cluster: EmbeddedCluster, *values: bytes) -> None:
        headers = {"file": str(self.file).encode()}
        for value in values:
            await cluster.produce("orders", value, key=value[:1], headers=headers, partition=0)

    def release(self) -> None:
        """Let ``picklable.hang`` return."""
        self.file.with_name("release").touch()

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.file.read_text().splitlines()]

    @property
    def values(self) -> list[str]:
        return [value for value, _ in self.lines]


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


async def test_records_are_processed_in_processes_in_the_order_of_their_keys(
    cluster: EmbeddedCluster, notes: Notes, executor: Executor
) -> None:
    await notes.send(cluster, *(f"{key}{number}".encode() for number in range(10) for key in "abc"))
    workers: Workers[bytes, bytes] = Workers(picklable.handle, executor=executor, concurrency=2)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 30)
    await finish(running)
    for key in "abc":
        assert [value for value in notes.values if value[0] == key] == [f"{key}{number}" for number in range(10)]
    in_this_process = str(os.getpid()) in {process for _, process in notes.lines}
    assert in_this_process is not isinstance(executor, ProcessPoolExecutor)
    assert (await committed(cluster))[ONE] == 30


async def test_rules_decide_about_the_errors_of_other_processes(
    cluster: EmbeddedCluster, notes: Notes, executor: Executor
) -> None:
    await cluster.create_topic("dead", partitions=1)
    await notes.send(cluster, b"first", b"wrong", b"fragile", b"stop", b"last")
    async with (
        Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer,
        Consumer(cluster.bootstrap_servers, topics=["dead"], connector=cluster.connector) as dead,
    ):
        rules = [dead_letter(topic="dead")]
        workers: Workers[bytes, bytes] = Workers(
            picklable.handle, executor=executor, order="partition", rules=rules, producer=producer
        )
        running = Running(cluster, workers)
        headers = [dict((await anext(dead)).headers) for _ in range(3)]
        await until(lambda: workers.metrics().processed == 2)
        await finish(running)
    assert [(of_record["error.class"], of_record["error.message"]) for of_record in headers] == [
        (b"ValueError", b"no such dish"),
        (b"RuntimeError", b"Fragile: 7: no coffee"),  # it would break the executor
        (b"RuntimeError", b"StopIteration: no more"),
    ]
    assert notes.values == ["first", "last"]


@pytest.mark.parametrize("value", [b"wrong", b"fragile"])
async def test_a_list_that_failed_in_another_process_names_its_record(
    cluster: EmbeddedCluster, notes: Notes, executor: Executor, value: bytes
) -> None:
    await notes.send(cluster, b"a", b"b", value, b"c")
    workers: Workers[bytes, bytes] = Workers(picklable.handle_list, executor=executor, batch_size=10, rules=[skip()])
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 3)
    await finish(running)
    assert sorted(notes.values) == ["a", "b", "c"]
    assert workers.metrics().failed == 1
    assert (await committed(cluster))[ONE] == 4


async def test_a_process_that_dies_ends_consume_and_its_record_is_not_skipped(
    cluster: EmbeddedCluster, notes: Notes
) -> None:
    await notes.send(cluster, b"a", b"b")
    with executor_of("processes") as executor:
        workers: Workers[bytes, bytes] = Workers(
            picklable.end_the_process, executor=executor, concurrency=1, rules=[skip()]
        )
        with pytest.raises(BrokenExecutor):
            async with asyncio.timeout(DEADLINE):
                await Running(cluster, workers).task
    assert await committed(cluster) == {}


async def test_an_executor_that_was_shut_down_ends_consume(cluster: EmbeddedCluster, notes: Notes) -> None:
    await notes.send(cluster, b"a")
    executor = executor_of("processes")
    workers: Workers[bytes, bytes] = Workers(picklable.handle, executor=executor, rules=[skip()])
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        async with asyncio.timeout(DEADLINE):
            await Running(cluster, workers).task
    assert await committed(cluster) == {}


async def test_records_whose_calls_the_executor_cancels_are_not_skipped(cluster: EmbeddedCluster, notes: Notes) -> None:
    await notes.send(cluster, *(b"%c" % letter for letter in range(97, 117)))
    executor = executor_of("processes")
    workers: Workers[bytes, bytes] = Workers(picklable.hang, executor=executor, concurrency=20, rules=[skip()])
    running = Running(cluster, workers)
    await until(lambda: len(notes.lines) == 2)
    executor.shutdown(wait=False, cancel_futures=True)
    notes.release()  # those that run may end
    with pytest.raises(IllegalStateError, match="was cancelled: the executor was shut down"):
        async with asyncio.timeout(DEADLINE):
            await running.task
    assert (await committed(cluster)).get(ONE, 0) < 20
    executor.shutdown()


async def test_a_function_that_runs_in_a_process_at_the_end_is_left_alone(
    cluster: EmbeddedCluster, notes: Notes
) -> None:
    await notes.send(cluster, b"a")
    with executor_of("processes") as executor:
        workers: Workers[bytes, bytes] = Workers(picklable.hang, executor=executor)
        running = Running(cluster, workers)
        await until(lambda: len(notes.lines) == 1)
        async with asyncio.timeout(DEADLINE):
            await finish(running)
        assert await committed(cluster) == {}
        notes.release()


PROCESSES = ProcessPoolExecutor(1)  # starts no process before its first call


@pytest.mark.parametrize(
    ("handle", "arguments", "text"),
    [
        (picklable.handle, {"executor": 4}, "executor must be a ProcessPoolExecutor, an InterpreterPoolExecutor or"),
        (picklable.handle, {"executor": ProcessPoolExecutor}, "executor must be a ProcessPoolExecutor, an Interpreter"),
        (picklable.handle, {"executor": ThreadPoolExecutor(1)}, "without executor, plain functions run in threads"),
        (picklable.handle, {"executor": PROCESSES, "timeout": 1}, "timeout cannot end a function in an executor"),
        (picklable.asynchronous, {"executor": PROCESSES}, "executor is for plain functions, and handle is an async"),
        (lambda record: None, {"executor": PROCESSES}, "handle must be a function of a module, so that it can be"),
    ],
)
def test_what_an_executor_cannot_run_is_refused(handle: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Workers(handle, **arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        (picklable.with_a_coroutine, "handle returned an awaitable; a function that runs in an executor"),
        (picklable.with_a_generator, "handle returned a generator, whose code has not begun"),
    ],
)
async def test_a_function_that_returns_its_work_ends_consume_whatever_the_rules_say(
    cluster: EmbeddedCluster, notes: Notes, executor: Executor, handle: Any, text: str
) -> None:
    await notes.send(cluster, b"a")
    with pytest.raises(TypeError, match=text):
        async with asyncio.timeout(DEADLINE):
            await Running(cluster, Workers(handle, executor=executor, rules=[skip()])).task
    assert await committed(cluster) == {}

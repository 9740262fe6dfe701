"""``Workers`` whose function gets lists of records: full lists, order, and failures that name a record or do not."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokafka_lite import Producer, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.processing import BatchFailure, dead_letter, retry, skip, stop
from aiokafka_lite.types import Record
from tests.embedded.group.test_sessions import Running, committed, group_of, until
from tests.embedded.group.test_workers import ONE, finish, keyed


class Handling:
    """The user's function. ``errors`` are raised by lists that have these records, as often as given."""

    def __init__(self, work: float = 0.0) -> None:
        self.work = work
        self.batches: list[list[int]] = []
        self.done: list[int] = []
        self.errors: dict[int, list[Exception]] = {}
        self.named = False
        self.overlaps = 0
        self._keys: Counter[bytes | None] = Counter()

    async def __call__(self, records: list[Record[bytes, bytes]]) -> None:
        keys = {record.key for record in records}
        self.overlaps += sum(self._keys[key] for key in keys)
        self._keys.update(keys)
        try:
            values = [int(record.value or b"") for record in records]
            self.batches.append(values)
            await asyncio.sleep(self.work)
            for index, value in enumerate(values):
                if errors := self.errors.get(value):
                    error = errors.pop()
                    if not self.named:
                        raise error
                    self.done.extend(values[:index])
                    raise BatchFailure(index, error)
            self.done.extend(values)
        finally:
            self._keys.subtract(keys)


@pytest.mark.parametrize("order", ["key", "partition", "none"])
async def test_lists_are_full_while_there_are_records(cluster: EmbeddedCluster, order: Any) -> None:
    await keyed(cluster, 100, keys=7)
    handling = Handling(work=1.0)
    workers: Workers[bytes, bytes] = Workers(handling, batch_size=10, concurrency=3, order=order)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 100)
    await finish(running)
    assert max(map(len, handling.batches)) == 10
    assert len(handling.batches) <= 16
    assert all(batch == sorted(batch) for batch in handling.batches)
    assert (await committed(cluster))[ONE] == 100
    if order == "partition":
        assert handling.done == list(range(100))
    if order == "key":
        assert handling.overlaps == 0
        for key in range(7):
            assert [value for value in handling.done if value % 7 == key] == list(range(key, 100, 7))


@pytest.mark.parametrize("order", ["key", "partition", "none"])
async def test_a_list_waits_to_be_full(cluster: EmbeddedCluster, order: Any) -> None:
    handling = Handling()
    workers: Workers[bytes, bytes] = Workers(handling, batch_size=4, batch_timeout=10.0, order=order)
    running = Running(cluster, workers)
    loop = asyncio.get_running_loop()
    for number in range(3):
        await keyed(cluster, 1, keys=2, start=number)
        await asyncio.sleep(1.0)
    assert handling.batches == []
    await keyed(cluster, 3, keys=2, start=3)
    await until(lambda: handling.batches == [[0, 1, 2, 3]], within=5.0)
    began = loop.time()
    await until(lambda: handling.batches == [[0, 1, 2, 3], [4, 5]], within=20.0)
    assert 9.0 <= loop.time() - began <= 11.0
    await finish(running)
    assert (await committed(cluster))[ONE] == 6


@pytest.mark.parametrize("order", ["key", "partition", "none"])
async def test_the_records_before_a_named_failure_are_done(cluster: EmbeddedCluster, order: Any) -> None:
    await keyed(cluster, 10, keys=2)
    handling = Handling()
    handling.named = True
    handling.errors = {4: [OSError("once")], 7: [ValueError("poison")]}
    workers: Workers[bytes, bytes] = Workers(
        handling, batch_size=10, order=order, rules=[retry(attempts=2, backoff=1.0), skip()]
    )
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().pending == 0 and len(handling.done) == 9)
    await finish(running)
    assert sorted(handling.done) == [0, 1, 2, 3, 4, 5, 6, 8, 9]  # each of them once
    assert (await committed(cluster))[ONE] == 10
    if order != "none":
        assert [value for value in handling.done if value % 2 == 0] == [0, 2, 4, 6, 8]
    if order == "partition":
        assert handling.done == sorted(handling.done)
    if order == "key":  # the other key does not wait for the pause
        assert handling.done.index(5) < handling.done.index(4)


async def test_a_failure_that_names_no_record_repeats_the_list_and_then_finds_the_record(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("dead")
    await keyed(cluster, 6, keys=3)
    handling = Handling()
    handling.errors = {2: [OSError("down")] * 9}
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        rules = [retry(attempts=3), dead_letter(topic="dead")]
        workers: Workers[bytes, bytes] = Workers(handling, batch_size=6, rules=rules, producer=producer)
        running = Running(cluster, workers)
        await until(lambda: bool(cluster.records("dead")) and len(handling.done) == 5)
        await finish(running)
    assert handling.batches[:3] == [[0, 1, 2, 3, 4, 5]] * 3
    assert handling.batches.count([2]) == 3  # the rules count its attempts anew
    assert sorted(handling.done) == [0, 1, 3, 4, 5]
    assert [record.value for record in cluster.records("dead")] == [b"2"]
    assert (await committed(cluster))[ONE] == 6


async def test_an_outage_repeats_lists_and_not_single_records(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 20, keys=20)
    handling = Handling()
    handling.errors = {3: [OSError("down")] * 5}
    workers: Workers[bytes, bytes] = Workers(handling, batch_size=20, rules=[retry(attempts=10)])
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().processed == 20)
    await finish(running)
    assert handling.batches == [list(range(20))] * 6
    assert workers.metrics().retries == 5 * 20


async def test_a_failed_list_that_stops_the_group_commits_what_is_done(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 10, keys=10)
    handling = Handling()
    handling.named = True
    handling.errors = {6: [OSError("fatal")]}
    with pytest.raises(OSError, match="fatal"):
        await group_of(cluster).consume(["orders"], Workers(handling, batch_size=10, rules=[stop(OSError)]))
    assert (await committed(cluster))[ONE] == 6


async def test_a_batch_failure_with_an_index_that_does_not_exist_ends_consume(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 2, keys=2)

    async def handle(records: list[Record[bytes, bytes]]) -> None:
        raise BatchFailure(len(records), OSError())

    with pytest.raises(IndexError, match=r"BatchFailure has index \d, but the batch has \d records?$"):
        await group_of(cluster).consume(["orders"], Workers(handle, batch_size=5, rules=[skip()]))

"""``Workers`` after a crash: records that were finished ahead of an unfinished one are not processed again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import JsonDeserializer, Producer, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.group.finished_offsets import encode
from aiokafka_lite.processing import skip
from aiokafka_lite.types import Record
from tests.embedded.group.recording_members import member_of
from tests.embedded.group.test_sessions import Running, committed, until
from tests.embedded.group.test_workers import DEAD, ONE, Handling, finish, keyed


def refuse_poison(data: bytes) -> bytes:
    if data == b"poison":
        raise ValueError("it is poison")
    return data


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("hung", [0, 4])
async def test_a_hanging_record_and_a_crash_repeat_only_that_record(
    cluster: EmbeddedCluster, protocol: Any, hung: int
) -> None:
    await keyed(cluster, 100, keys=100)
    first = Handling()
    first.hold = {b"%d" % hung}
    workers = Workers(first)
    running = Running(cluster, workers, group_protocol=protocol)
    await until(lambda: workers.metrics().pending == 1 and workers.metrics().processed == 99)
    await asyncio.sleep(10.0)  # virtual; an automatic commit
    async with member_of(cluster, topics=(), group_id="workers") as reader:
        stored = (await reader.committed([ONE]))[ONE]
    assert stored is not None, "it is committed before the end, so a crash would find it"
    assert (stored.offset, stored.metadata) == (hung, encode(hung, [(hung + 1, 100)]))
    await running.cancel()  # the hanging record is not finished
    assert (await committed(cluster))[ONE] == hung
    second = Handling()
    workers = Workers(second)
    running = Running(cluster, workers, group_protocol=protocol)
    await until(lambda: workers.metrics().finished_before == 99 - hung)
    await until(lambda: bool(second.seen))
    await finish(running)
    assert second.values == [hung]
    assert (await committed(cluster))[ONE] == 100


@pytest.mark.parametrize("hung", [0, 1])
async def test_a_crash_repeats_no_record_that_cannot_be_deserialized(cluster: EmbeddedCluster, hung: int) -> None:
    await cluster.create_topic("dead")
    values = [b"%d" % number for number in range(hung + 1)] + [b"poison", b"10", b"poison", b"11"]
    for value in values:
        await cluster.produce("orders", value, partition=0)
    released = asyncio.Event()
    seen: list[object] = []

    async def handle(record: Record[bytes, object]) -> None:
        if record.value == hung:
            await released.wait()
        seen.append(record.value)

    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers: Workers[bytes, object] = Workers(handle, rules=[DEAD], producer=producer)
        running = Running(cluster, workers, value_deserializer=JsonDeserializer())
        await until(lambda: 11 in seen and workers.metrics().pending == 1)
        await asyncio.sleep(10.0)  # virtual; an automatic commit
        async with member_of(cluster, topics=(), group_id="workers") as reader:
            stored = (await reader.committed([ONE]))[ONE]
        assert stored is not None
        assert (stored.offset, stored.metadata) == (hung, encode(hung, [(hung + 1, len(values))]))
        await running.cancel()
        seen.clear()
        released.set()
        workers = Workers(handle, rules=[DEAD], producer=producer)
        running = Running(cluster, workers, value_deserializer=JsonDeserializer())
        await until(lambda: workers.metrics().finished_before == 4)
        await finish(running)
    assert seen == [hung]
    assert len(cluster.records("dead")) == 2
    assert (await committed(cluster))[ONE] == len(values)


@pytest.mark.parametrize("hung", [0, 30])
async def test_a_session_that_ends_early_forgets_nothing_that_was_finished(cluster: EmbeddedCluster, hung: int) -> None:
    await keyed(cluster, 100, keys=100)
    first = Handling()
    first.hold = {b"0", b"%d" % hung}
    workers = Workers(first)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().active == len(first.hold) and len(first.seen) == 100 - len(first.hold))
    await running.cancel()
    second = Handling()
    second.hold = {b"%d" % hung}
    workers = Workers(second, max_pending=5)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().active == 1 and second.values == [0] * bool(hung))
    await finish(running)  # it has not read up to the end
    third = Handling()
    running = Running(cluster, Workers(third))
    await until(lambda: bool(third.seen))
    await finish(running)
    assert third.values == [hung]
    assert (await committed(cluster))[ONE] == 100


async def test_a_session_that_ends_among_finished_records_commits_all_of_them(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 1, keys=1)
    for _ in range(20):
        await cluster.produce("orders", b"poison", partition=0)
    first = Handling()
    first.hold = {b"0"}
    workers = Workers(first, rules=[skip()])
    running = Running(cluster, workers, value_deserializer=refuse_poison)
    await until(lambda: workers.metrics().failed == 20)
    await running.cancel()
    second = Handling()
    workers = Workers(second, rules=[skip()])
    running = Running(cluster, workers, value_deserializer=refuse_poison)
    await until(lambda: workers.metrics().finished_before == 5 and second.values == [0])
    await finish(running)
    assert workers.metrics().finished_before < 20, "it has not read all of them"
    assert (await committed(cluster))[ONE] == 21

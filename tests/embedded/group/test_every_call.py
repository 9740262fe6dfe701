"""Every public coroutine of consumers and groups, cancelled at every turn of the event loop that it takes.

A call is repeated, and cancelled after no turn, one turn, two and so on, until it ends before the cancellation. No
record is lost, no task stays behind, and the next call works. The last test checks that no call is missing here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow
import pytest

from aiokafka_lite.consumer import (
    ArrowBatches,
    Batches,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    RebalanceHandle,
    RebalanceListener,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.group.offsets import Offsets
from aiokafka_lite.protocol.messages import ConsumerGroupHeartbeatRequest, JoinGroupRequest
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import OffsetAndMetadata, Record, TopicPartition
from tests.cancelling import Covered, at_every_turn, cancel_after, public_coroutines, turns_to_try
from tests.embedded.consumer.direct_writes import fill, write
from tests.embedded.group.recording_members import CONSUMER, ORDERS, each_protocol, member_of, read_all
from tests.embedded.group.test_cancellation import (
    closed_connections,
    members_in,
    open_connections,
    until_stable_reading,
)
from tests.embedded.group.test_sessions import Recorder, Running, committed, group_of, until

FIRST = ORDERS[0]
covers = Covered()


# ---- reading


async def doubled(data: bytes) -> int:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return 2 * int(data)


def offsets_of(value: object) -> list[tuple[int, int]]:
    if isinstance(value, Record):
        return [(value.partition, value.offset)]
    if isinstance(value, list):
        return [(record.partition, record.offset) for record in value]
    if isinstance(value, pyarrow.RecordBatch):
        return list(zip(*(value.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
    assert value is not None
    return [(value.partition, offset) for offset in value.offsets]  # type: ignore[attr-defined]


READS: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "poll": lambda consumer: consumer.poll(3, timeout=1.0),
    "iterate": lambda consumer: anext(consumer),
    "iterate over it": lambda consumer: anext(aiter(consumer)),
    "batches": lambda consumer: anext(consumer.batches(max_records=3)),
    "Arrow": lambda consumer: anext(consumer.batches(max_records=3).to_arrow(["partition", "offset"])),
    "batches that wait": lambda consumer: anext(consumer.batches(max_records=3, timeout=0.5)),
}


@covers("Consumer.poll", "Consumer.__anext__", "Batches.__anext__", "ArrowBatches.__anext__")
@pytest.mark.parametrize(
    "settings",
    [{}, CONSUMER, {"value_deserializer": doubled}, {"group_id": None}],
    ids=["bytes", "consumer protocol", "deserialized", "alone"],
)
@pytest.mark.parametrize("read", READS)
async def test_a_read_that_is_cancelled_loses_and_repeats_nothing(
    cluster: EmbeddedCluster, read: str, settings: dict[str, Any]
) -> None:
    seen: list[tuple[int, int]] = []
    written = 0
    async with member_of(cluster, **settings) as consumer:
        assert await consumer.poll(timeout=5.0) == []
        tasks = len(asyncio.all_tasks())

        async def call() -> None:
            seen.extend(offsets_of(await READS[read](consumer)))

        async def before() -> None:
            nonlocal written
            while len(seen) < written:  # the leftovers of the previous call
                await call()
            write(cluster, ORDERS[written // 3 % 6], [b"1", b"2", b"3"])
            written += 3

        for _ in range(3):
            await at_every_turn(call, before)
        while len(seen) < written:
            await call()
        assert await consumer.poll(timeout=2.0) == []
        assert len(asyncio.all_tasks()) <= tasks
    for partition in ORDERS:
        offsets = [offset for number, offset in seen if number == partition.partition]
        assert offsets == list(range(len(offsets)))
    assert len(seen) == written


# ---- asking, seeking, committing

ASKS: dict[str, tuple[Callable[[Consumer], Awaitable[object]], object]] = {
    "position": (lambda consumer: consumer.position(FIRST), 10),
    "lag": (lambda consumer: consumer.lag([FIRST]), {FIRST: 0}),
    "beginning_offsets": (lambda consumer: consumer.beginning_offsets([FIRST]), {FIRST: 0}),
    "end_offsets": (lambda consumer: consumer.end_offsets([FIRST]), {FIRST: 10}),
    "offsets_for_times": (lambda consumer: consumer.offsets_for_times({FIRST: 9_999_999_999}), {FIRST: None}),
    "committed": (lambda consumer: consumer.committed([FIRST]), {FIRST: OffsetAndMetadata(10, "", 0)}),
    "commit": (lambda consumer: consumer.commit({FIRST: OffsetAndMetadata(10, "", 0)}), None),
    "offsets.commit": (lambda consumer: consumer.offsets.commit({FIRST: OffsetAndMetadata(10, "", 0)}), None),
    "offsets.commit_marked": (lambda consumer: consumer.offsets.commit_marked(), None),
    "offsets.fetch": (lambda consumer: consumer.offsets.fetch([FIRST]), {FIRST: OffsetAndMetadata(10, "", 0)}),
    "seek_to_committed": (lambda consumer: consumer.seek_to_committed([FIRST]), None),
    "topics": (lambda consumer: consumer.topics(), {"orders"}),
    "seek_to_beginning": (lambda consumer: consumer.seek_to_beginning([FIRST]), None),
    "seek_to_end": (lambda consumer: consumer.seek_to_end([FIRST]), None),
}


@covers("Consumer.position", "Consumer.lag", "Consumer.beginning_offsets", "Consumer.end_offsets")
@covers("Consumer.offsets_for_times", "Consumer.committed", "Consumer.commit", "Offsets.commit", "Offsets.fetch")
@covers("Consumer.seek_to_committed", "Consumer.topics")
@covers("Offsets.commit_marked", "Consumer.seek_to_beginning", "Consumer.seek_to_end")
@each_protocol
@pytest.mark.parametrize("ask", ASKS)
async def test_a_lookup_that_is_cancelled_can_be_repeated(
    cluster: EmbeddedCluster, ask: str, protocol: dict[str, Any]
) -> None:
    call, expected = ASKS[ask]
    fill(cluster, FIRST, 10)
    async with member_of(cluster, **protocol) as consumer:
        await read_all(consumer, 10)
        await consumer.poll()
        assert await consumer.commit()
        consumer.pause()  # so that the lag has to be asked for
        await asyncio.sleep(2.0)
        tasks, marked = len(asyncio.all_tasks()), 10

        async def before() -> None:
            nonlocal marked
            if ask == "position":
                subscription = consumer._core.subscription
                subscription.change([subscription[FIRST]], lambda assigned: assigned.reset_by(subscription.reset))
            elif ask == "offsets.commit_marked":
                marked += 1
                consumer.offsets.mark(FIRST, marked)

        for result in await at_every_turn(lambda: call(consumer), before):
            if ask == "position":
                assert result == 0  # the policy's, as it was forgotten
            elif expected is not None:
                assert result == expected
            elif "commit" in ask and not ask.startswith("seek"):
                assert result
        assert len(asyncio.all_tasks()) <= tasks
        if ask == "offsets.commit_marked":
            assert await consumer.commit()
            assert await committed(cluster) == {FIRST: marked}
        elif not ask.startswith("seek") and ask != "position":
            assert await committed(cluster) == {FIRST: 10}
            consumer.resume()
            fill(cluster, FIRST, 10)
            assert [record.offset for record in await read_all(consumer, 10)] == list(range(10, 20))


@covers("Consumer.wait_assigned")
@each_protocol
async def test_a_cancelled_wait_for_the_assignment_can_be_repeated(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    for turns in range(3):
        async with member_of(cluster, **protocol) as consumer:
            waiting = asyncio.ensure_future(consumer.wait_assigned())
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert set(await consumer.wait_assigned()) == set(ORDERS)


@covers("Consumer.partitions_for")
async def test_a_cancelled_lookup_of_partitions_can_be_repeated(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        topics = (f"new-{number}" for number in itertools.count())  # each is created by the question
        results = await at_every_turn(lambda: consumer.partitions_for(next(topics)))
        assert [partition.partition for partition in results[-1]] == [0]
        assert len(await consumer.partitions_for("orders")) == 6


@covers("Consumer.assign_gradually")
async def test_a_cancelled_assignment_can_be_completed(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("many", partitions=1_500)
    many = [TopicPartition("many", number) for number in range(1_500)]
    fill(cluster, many[-1], 1)
    async with member_of(cluster, group_id=None, topics=()) as consumer:

        async def before() -> None:
            consumer.assign(many[:1])

        await at_every_turn(lambda: consumer.assign_gradually(many), before)
        assert consumer.assignment == tuple(many)
        assert len(await read_all(consumer, 1)) == 1


# ---- coming and going


@covers("Consumer.start")
@pytest.mark.parametrize("settings", [{}, CONSUMER, {"group_id": None}, {"topics": ()}], ids=str)
async def test_a_start_that_is_cancelled_leaves_nothing(cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
    fill(cluster, FIRST, 1)
    before, connections = asyncio.all_tasks(), open_connections(cluster)

    async def start() -> None:
        consumer = member_of(cluster, **settings)
        try:
            await consumer.start()
        except asyncio.CancelledError:
            with suppress(IllegalStateError):
                await consumer.close()
            raise
        await consumer.close()

    await at_every_turn(start)
    assert asyncio.all_tasks() == before
    await closed_connections(cluster, connections)
    assert members_in(cluster) == 0


@covers("Consumer.close")
@pytest.mark.parametrize("settings", [{}, CONSUMER, {"group_id": None}], ids=str)
async def test_a_close_that_is_cancelled_still_closes(cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
    before, connections = asyncio.all_tasks(), open_connections(cluster)
    for turns in turns_to_try():
        consumer = member_of(cluster, **settings)
        await consumer.start()
        while len(consumer.assignment) < 6:  # the one before may not have had the time to say that it leaves
            await consumer.poll(timeout=1.0)
        is_over = await cancel_after(turns, consumer.close())
        with suppress(IllegalStateError):
            await consumer.close()
        assert asyncio.all_tasks() == before
        if is_over:
            break
    assert turns > 1
    await closed_connections(cluster, connections)


@pytest.mark.thorough
@covers("ConsumerGroup.consume", "ConsumerGroup.close", "ConsumerGroup.__aenter__", "ConsumerGroup.__aexit__")
@each_protocol
@pytest.mark.parametrize("what", ["consume", "close", "async with"])
async def test_a_cancelled_group_has_left_and_loses_nothing(
    cluster: EmbeddedCluster, what: str, protocol: dict[str, Any]
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 5)
    before, connections = asyncio.all_tasks(), open_connections(cluster)
    read: set[tuple[int, int]] = set()
    for turns in turns_to_try():
        handler = Recorder()
        group = group_of(cluster, **protocol)
        consuming = asyncio.ensure_future(group.consume(["orders"], handler))
        if what == "consume":
            task: asyncio.Task[Any] = consuming
        else:
            await until(partial(is_reading, handler))
            task = asyncio.ensure_future(group.close() if what == "close" else within(group))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = task.done() or (what == "consume" and is_reading(handler))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await group.close()
        with suppress(asyncio.CancelledError):
            await consuming
        assert asyncio.all_tasks() == before
        assert members_in(cluster) == 0
        read.update((record.partition, record.offset) for record in handler.read)
        done = await committed(cluster)
        assert all((partition.partition, offset) in read for partition, end in done.items() for offset in range(end))
        if is_over:
            break
    assert turns > 1
    await closed_connections(cluster, connections)


def is_reading(handler: Recorder) -> bool:
    return len(handler.reading) == 6


async def within(group: ConsumerGroup) -> None:
    async with group:
        await asyncio.sleep(0)


# ---- inside a session and a listener


@covers("ConsumerGroupSession.commit", "ConsumerGroupSession.wait_cancelled", "Claim.__anext__")
@each_protocol
async def test_calls_of_a_session_can_be_cancelled(cluster: EmbeddedCluster, protocol: dict[str, Any]) -> None:
    seen: list[int] = []

    class Impatient(ConsumerGroupHandler):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            if claim.partition != FIRST.partition:
                return
            written = 0

            async def call() -> None:
                seen.append((await anext(claim)).offset)

            async def before() -> None:
                nonlocal written
                while len(seen) < written:  # the leftovers of the previous call
                    await call()
                write(cluster, FIRST, [b"x"])
                written += 1

            await at_every_turn(call, before)
            while len(seen) < written:
                await call()
            marked = 0

            async def mark() -> None:
                nonlocal marked
                marked += 1
                session.offsets.mark(FIRST, marked)

            await at_every_turn(session.commit, mark)
            waiting = asyncio.ensure_future(session.wait_cancelled())
            await asyncio.sleep(0)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            session.offsets.reset(FIRST, written)
            assert await session.commit()
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await group_of(cluster, **protocol).consume(["orders"], Impatient())
    assert seen == list(range(len(seen)))
    assert await committed(cluster) == {FIRST: len(seen)}


@covers("GroupErrors.__anext__")
@pytest.mark.parametrize(
    "protocol,join",
    [({}, JoinGroupRequest), (CONSUMER, ConsumerGroupHeartbeatRequest)],
    ids=["classic", "consumer"],
)
async def test_a_cancelled_wait_for_an_error_loses_none(
    cluster: EmbeddedCluster, protocol: dict[str, Any], join: type[Request[Any]]
) -> None:
    handler = Recorder()
    cluster.on(join).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
    running = Running(cluster, handler, **protocol)
    errors = running.group.errors()
    values: list[str] = []
    turns = 0
    async with asyncio.timeout(60):
        while len(values) < 3:
            task = asyncio.ensure_future(anext(errors))
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            if turns % 4 == 3:
                await asyncio.sleep(0.05)
            turns += 1
            task.cancel()
            with suppress(asyncio.CancelledError):
                values.append(str(await task))
    assert all("COORDINATOR_LOAD_IN_PROGRESS" in error for error in values)
    await running.group.close()
    await running.task


@covers("RebalanceHandle.commit", "RebalanceHandle.position", "RebalanceHandle.committed")
@covers("RebalanceHandle.offsets_for_times", "RebalanceHandle.seek_to_beginning", "RebalanceHandle.seek_to_end")
@each_protocol
async def test_calls_of_a_listener_can_be_cancelled(cluster: EmbeddedCluster, protocol: dict[str, Any]) -> None:
    fill(cluster, FIRST, 10)
    results: list[Any] = []

    class Impatient(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            results.extend(await at_every_turn(lambda: handle.position(FIRST)))
            number = 0

            async def commit() -> None:
                nonlocal number
                number += 1
                results.append(await handle.commit({FIRST: OffsetAndMetadata(number % 10)}))

            await at_every_turn(commit)
            for call in (handle.committed, handle.seek_to_end, handle.seek_to_beginning):
                await at_every_turn(partial(call, [FIRST]))
            for offsets in await at_every_turn(lambda: handle.offsets_for_times({FIRST: 9_999_999_999})):
                assert offsets == {FIRST: None}
            assert await handle.commit({FIRST: OffsetAndMetadata(3)})

    async with member_of(cluster, listener=Impatient(), **protocol) as consumer:
        await until_stable_reading(consumer)
        assert (await consumer.committed([FIRST]))[FIRST] == OffsetAndMetadata(3)
    assert results


CLASSES = (Consumer, Batches, ArrowBatches, ConsumerGroup, ConsumerGroupSession, Claim, RebalanceHandle, Offsets)
ELSEWHERE = {"Offsets.run"}
"""Coroutines that only the package itself calls."""


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(*CLASSES) - ELSEWHERE <= covers

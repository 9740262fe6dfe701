"""Marks: a marked record does not delay a rebalance, and a mark that cannot be committed is named in ``refused``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer, RebalanceHandle, RebalanceListener
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import CommitFailed, ErrorCode, IllegalStateError
from aiokafka_lite.group import MemberState
from aiokafka_lite.protocol.messages import HeartbeatRequest, OffsetCommitRequest
from aiokafka_lite.types import OffsetAndMetadata, TopicPartition
from tests.embedded.consumer.direct_writes import fill, take
from tests.embedded.group.recording_members import ORDERS, each_way, member_of, read_all, until_stable
from tests.embedded.group.test_offsets import committed
from tests.waiting import until

FIRST = ORDERS[0]


READS: dict[str, Callable[[Consumer[Any, Any]], Coroutine[Any, Any, object]]] = {
    "next": lambda consumer: anext(consumer),
    "iterate": lambda consumer: take(consumer, 1),
    "poll": lambda consumer: consumer.poll(1, timeout=1000.0),
    "batch": lambda consumer: anext(consumer.batches()),
}


@pytest.fixture(autouse=True)
async def records(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 20)


# A marked record is not in progress.


@pytest.mark.thorough
@each_way
@pytest.mark.parametrize("how", ["mark(record)", "mark()", "commit(offsets)", "offsets.mark"])
@pytest.mark.parametrize("read", ["iterate", "poll"])
async def test_a_rebalance_does_not_wait_for_records_that_are_marked(
    cluster: EmbeddedCluster, settings: dict[str, object], how: str, read: str
) -> None:
    async with member_of(cluster, **settings) as first, member_of(cluster, **settings) as second:
        record = (await take(first, 1) if read == "iterate" else await first.poll(1, timeout=30.0))[0]
        if how == "mark(record)":
            first.mark(record)
        elif how == "mark()":
            first.mark()
        elif how == "commit(offsets)":
            await first.commit({FIRST: OffsetAndMetadata(1)})
        else:
            first.offsets.mark(FIRST, 1)
        began = asyncio.get_running_loop().time()
        await until_stable(first, second, within=60.0)
        assert asyncio.get_running_loop().time() - began < 15.0  # two heartbeats per rebalance, and not 294 s


@pytest.mark.parametrize("then", READS)
@pytest.mark.parametrize("before", READS)
async def test_a_rebalance_does_not_wait_for_a_read_that_waits_for_its_first_record(
    cluster: EmbeddedCluster, before: str, then: str
) -> None:
    """Also if the previous record was the last one of an iteration that is not used any more."""
    async with member_of(cluster) as first:

        async def read() -> None:
            await read_all(first, 19)
            await READS[before](first)
            await READS[then](first)

        waiting = asyncio.create_task(read())
        await until(lambda: first.metrics().records_consumed == 20)
        async with member_of(cluster) as second:
            began = asyncio.get_running_loop().time()
            await until_stable(first, second, within=400.0)
            assert asyncio.get_running_loop().time() - began < 15.0
        assert not waiting.done()
        waiting.cancel()


async def test_a_mark_during_a_rebalance_lets_it_continue(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as first:
        (record,) = await take(first, 1)
        async with member_of(cluster) as second:
            await until(lambda: first.membership is MemberState.REVOKING)
            await asyncio.sleep(10.0)
            assert first.membership is MemberState.REVOKING
            first.mark(record)
            await until(lambda: first.membership is not MemberState.REVOKING, within=0.5)
            await until_stable(first, second)
    assert await committed(cluster) == 1


async def test_a_rebalance_waits_for_the_records_behind_the_mark(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as first:
        one, two = await first.poll(2, timeout=30.0)
        first.mark(one)
        async with member_of(cluster) as second:
            await until(lambda: first.membership is MemberState.REVOKING)
            await asyncio.sleep(20.0)
            assert first.membership is MemberState.REVOKING
            first.mark(two)
            await until_stable(first, second)


async def test_a_record_after_the_mark_is_in_hand_again(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as first:
        async for record in first:
            if record.offset == 3:
                first.mark(record)
            if record.offset == 4:
                break
        async with member_of(cluster):
            await until(lambda: first.membership is MemberState.REVOKING)
            await asyncio.sleep(20.0)
            assert first.membership is MemberState.REVOKING


async def test_a_bare_mark_says_done_with_everything(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS[1:]:
        fill(cluster, partition, 5)
    async with member_of(cluster, auto_commit=False) as consumer:
        assert len(await read_all(consumer, 45)) == 45
        assert consumer.mark()
        result = await consumer.commit()
        assert {partition: at.offset for partition, at in result.committed.items()} == {
            partition: 20 if partition == FIRST else 5 for partition in ORDERS
        }
        assert await consumer.commit()


async def test_a_list_of_records_is_marked_up_to_the_last_of_each_partition(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, auto_commit=False) as consumer:
        records = await read_all(consumer, 5)
        assert consumer.mark(records[:3])
        assert not consumer.mark(records[:2])
        assert consumer.mark([])
        assert [offset.offset for offset in (await consumer.commit()).committed.values()] == [3]
        with pytest.raises(TypeError, match="record must be a Record"):
            consumer.mark([records[3], "x"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="needs a record"):
            consumer.mark(records, "stored")
        assert not (await consumer.commit()).committed  # a wrong list marks nothing


async def test_a_bare_mark_in_an_iteration_marks_the_record_in_hand(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, auto_commit=False) as consumer:
        assert consumer.mark()  # nothing was handed out
        async for record in consumer:
            if record.offset == 7:
                consumer.mark()
                break
        assert (await consumer.commit()).committed[FIRST].offset == 8
        with pytest.raises(TypeError, match="record must be"):
            consumer.mark(7)  # type: ignore[arg-type]


async def test_a_mark_behind_a_commit_of_the_user_says_done_too(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as first:
        assert await take(first, 1)
        await first.commit({FIRST: OffsetAndMetadata(20)})
        records = await first.poll(4)
        assert not first.mark(records[-1])  # there is nothing to commit
        began = asyncio.get_running_loop().time()
        async with member_of(cluster) as second:
            await until_stable(first, second, within=60.0)
            assert asyncio.get_running_loop().time() - began < 15.0


async def test_after_seeking_back_a_record_is_in_hand_although_it_was_marked_before(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as first:
        await read_all(first, 10)
        first.mark()
        first.seek(FIRST, 5)
        assert (await first.poll(1, timeout=5.0))[0].offset == 5
        async with member_of(cluster):
            await until(lambda: first.membership is MemberState.REVOKING)
            await asyncio.sleep(20.0)
            assert first.membership is MemberState.REVOKING


# Marks that cannot be committed.


async def evicted(cluster: EmbeddedCluster, consumer: Consumer) -> None:
    """Wait until the member lost its partitions, because it did not read."""
    await until(lambda: not consumer.assignment)


async def test_a_mark_of_a_lost_partition_is_refused_by_the_next_commit(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        await evicted(cluster, consumer)
        assert not any(list(map(consumer.mark, records)))
        result = await consumer.commit()
        assert not result
        assert isinstance(result.refused[FIRST], IllegalStateError)
        with pytest.raises(CommitFailed, match="orders-0"):
            result.raise_for_refused()
        assert await consumer.commit()  # the refusal was reported, once


async def test_a_mark_before_the_loss_is_refused_too(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0, auto_commit=False) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        consumer.mark(records[0])
        await evicted(cluster, consumer)
        result = await consumer.commit()
        assert "orders-0" in str(result.refused[FIRST])
        assert await committed(cluster) is None


async def test_a_refusal_that_a_commit_has_returned_is_not_returned_again_after_the_loss(
    cluster: EmbeddedCluster,
) -> None:
    async with member_of(cluster, max_poll_interval=20.0, auto_commit=False) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        consumer.mark(records[0])
        cluster.on(OffsetCommitRequest, times=None).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert set((await consumer.commit()).refused) == {FIRST}
        await evicted(cluster, consumer)
        assert await consumer.commit()


async def test_the_automatic_commit_does_not_hide_a_refusal(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0, auto_commit_interval=1.0) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        await evicted(cluster, consumer)
        consumer.mark(records[-1])
        await asyncio.sleep(10.0)
        assert set((await consumer.commit()).refused) == {FIRST}


async def test_a_bare_mark_of_lost_partitions_is_refused(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0) as consumer:
        await consumer.poll(3, timeout=10.0)
        await evicted(cluster, consumer)
        assert not consumer.mark()
        assert set((await consumer.commit()).refused) == {FIRST}


async def test_records_of_an_earlier_ownership_cannot_be_marked(cluster: EmbeddedCluster) -> None:
    """The partition was lost and came back, so its records will be read again: the old ones must not be committed."""
    async with member_of(cluster, session_timeout=10.0) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        with cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID):
            await until(lambda: consumer.membership is not MemberState.STABLE)
        await until_stable(consumer)
        assert not consumer.mark(records[0])
        result = await consumer.commit()
        assert set(result.refused) == {FIRST}
        again = await consumer.poll(1, timeout=10.0)
        assert again[0].offset == 0
        assert consumer.mark(again[0])
        assert (await consumer.commit()).committed[FIRST].offset == 1


async def test_commits_that_wait_while_the_session_is_lost_are_refused(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, session_timeout=10.0, auto_commit=False) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        consumer.mark(records[0])
        with cluster.on(OffsetCommitRequest, times=None).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None):
            one, two = (asyncio.create_task(consumer.commit()) for _ in range(2))
            await asyncio.sleep(1.0)
            cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
            await asyncio.sleep(5.0)
        for result in (await one, await two):
            assert set(result.refused) == {FIRST}
            assert not result.committed


async def test_a_commit_in_on_lost_is_refused(cluster: EmbeddedCluster) -> None:
    results = []

    class Commits(RebalanceListener):
        async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            results.append(await handle.commit())

    async with member_of(cluster, listener=Commits(), max_poll_interval=20.0, auto_commit=False) as consumer:
        records = await consumer.poll(3, timeout=10.0)
        consumer.mark(records[0])
        await evicted(cluster, consumer)
    assert [set(result.refused) for result in results] == [{FIRST}]


async def test_a_commit_with_records_in_hand_and_nothing_marked_warns_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if "nothing is marked" in record.getMessage()]

    async with member_of(cluster) as consumer:
        with caplog.at_level(logging.WARNING):
            assert await consumer.commit()
            assert warnings() == []  # nothing was handed out
            await consumer.poll(3, timeout=10.0)
            for _ in range(3):
                assert await consumer.commit()
            assert len(warnings()) == 1
            assert "mark()" in warnings()[0]

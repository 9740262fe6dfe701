"""Seeks of a member, of a consumer that only commits, and of a claim; and the marks that follow them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.consumer import Claim, ConsumerGroupHandler, ConsumerGroupSession
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import IllegalStateError, KafkaTimeout
from aiokafka_lite.protocol.messages import OffsetFetchRequest
from aiokafka_lite.types import OffsetAndMetadata
from tests.embedded.consumer.direct_writes import fill, take
from tests.embedded.group.recording_members import ORDERS, member_of, read_all
from tests.embedded.group.test_sessions import Recorder, Running, committed, group_of, until

FIRST, SECOND = ORDERS[0], ORDERS[1]


@pytest.mark.parametrize("settings", [{}, {"topics": ()}], ids=["member", "commit only"])
async def test_a_seek_to_the_committed_offsets_reads_again_what_was_not_committed(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    fill(cluster, FIRST, 20)
    fill(cluster, SECOND, 5)
    async with member_of(cluster, auto_commit=False, **settings) as consumer:
        if settings:
            consumer.assign([FIRST, SECOND])
        await read_all(consumer, 25)
        assert await consumer.commit({FIRST: OffsetAndMetadata(12)})
        await consumer.seek_to_committed()
        assert await consumer.position(FIRST) == 12
        assert await consumer.position(SECOND) == 0  # nothing is committed: the policy is earliest
        records = await read_all(consumer, 13)
        assert sorted((record.partition, record.offset) for record in records) == [
            *((0, offset) for offset in range(12, 20)),
            *((1, offset) for offset in range(5)),
        ]


async def test_a_seek_to_the_committed_offsets_moves_only_the_named_partitions(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 20)
    fill(cluster, SECOND, 5)
    async with member_of(cluster, auto_commit=False) as consumer:
        await read_all(consumer, 25)
        await consumer.seek_to_committed([FIRST])
        assert (await consumer.position(FIRST), await consumer.position(SECOND)) == (0, 5)


async def test_a_seek_to_the_committed_offsets_ends_within_its_timeout(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    fill(cluster, FIRST, 5)
    async with member_of(cluster) as consumer:
        await read_all(consumer, 5)
        fault = cluster.on(OffsetFetchRequest, times=None).delay(100.0)
        began = loop.time()
        with pytest.raises(KafkaTimeout, match="within 2 s"):
            await consumer.seek_to_committed([FIRST], timeout=2.0)
        assert loop.time() - began == pytest.approx(2.0, abs=0.1)
        assert await consumer.position(FIRST) == 5  # nothing has moved
        fault.remove()


async def test_a_seek_during_a_seek_to_the_committed_offsets_wins(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 20)
    fill(cluster, SECOND, 5)
    async with member_of(cluster, auto_commit=False) as consumer:
        await read_all(consumer, 25)
        cluster.on(OffsetFetchRequest).delay(1.0)
        seeking = asyncio.create_task(consumer.seek_to_committed([FIRST, SECOND]))
        await asyncio.sleep(0.5)
        consumer.seek(FIRST, 11)
        await seeking
        assert (await consumer.position(FIRST), await consumer.position(SECOND)) == (11, 0)


async def test_marks_report_whether_they_are_new_and_keep_their_metadata(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 5)
    async with member_of(cluster, auto_commit=False) as consumer:
        records = await take(consumer, 3)
        assert consumer.mark(records[2], "third")
        assert not consumer.mark(records[0])
        assert await consumer.commit()
        assert (await consumer.committed([FIRST]))[FIRST] == OffsetAndMetadata(3, "third", 0)


async def test_a_claim_reads_and_marks_from_where_it_seeks(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 20)
    offsets: list[int] = []
    ended: list[Claim] = []

    class Seeking(ConsumerGroupHandler):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            if claim.topic_partition != FIRST:
                return
            async for record in claim:
                offsets.append(record.offset)
                session.mark(record)
                if record.offset == 4:
                    claim.seek(17)
                if record.offset == 19 and offsets.count(19) == 1:
                    claim.seek(2)
                elif offsets.count(3) == 2:
                    ended.append(claim)
                    raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await group_of(cluster).consume(["orders"], Seeking())
    assert offsets == [0, 1, 2, 3, 4, 17, 18, 19, 2, 3]
    assert await committed(cluster) == {FIRST: 4}
    with pytest.raises(IllegalStateError, match="has ended"):
        ended[0].seek(0)


async def test_waiting_for_the_end_of_a_session_may_be_limited(cluster: EmbeddedCluster) -> None:
    handler = Recorder()
    running = Running(cluster, handler)
    await until(lambda: len(handler.reading) == 6)
    (session,) = handler.sessions
    assert not await session.wait_cancelled(timeout=1.0)
    waiting = asyncio.ensure_future(session.wait_cancelled())
    await running.cancel()
    assert await waiting


async def test_a_close_cancels_claims_that_take_longer_than_its_timeout(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()

    class Slow(Recorder):
        async def cleanup(self, session: ConsumerGroupSession) -> None:
            await super().cleanup(session)
            await asyncio.sleep(1.4)

    running = Running(cluster, handler := Slow())
    await until(lambda: len(handler.reading) == 6)
    began = loop.time()
    await running.group.close(timeout=0.5)
    assert loop.time() - began < 1.0
    await running.task

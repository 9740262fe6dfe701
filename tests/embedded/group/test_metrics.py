"""The counters of a membership: rebalances, heartbeats, commits, and the time since the last poll."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.consumer import Claim, ConsumerGroupHandler, ConsumerGroupSession
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.group import MemberState
from aiokafka_lite.metrics import GroupMetrics, MemberMetrics
from aiokafka_lite.protocol.messages import HeartbeatRequest, OffsetCommitRequest, SyncGroupRequest
from tests.embedded.consumer.direct_writes import fill, take
from tests.embedded.group.recording_members import ORDERS, member_of, until_stable
from tests.embedded.group.test_sessions import group_of
from tests.waiting import until


def member(group: GroupMetrics | None) -> MemberMetrics:
    assert group is not None
    assert group.member is not None
    return group.member


async def test_a_member_counts_its_rebalances_and_how_long_they_took(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as first:
        await until_stable(first)
        alone = member(first.metrics().group)
        assert (alone.state, alone.assigned_partitions) == ("STABLE", 6)
        assert (alone.rebalances.latency.count, alone.rebalances.failures) == (1, 0)
        async with member_of(cluster) as second:
            await until_stable(first, second)
            shared = member(first.metrics().group)
            joined = member(second.metrics().group)
        assert (shared.assigned_partitions, joined.assigned_partitions) == (3, 3)
        assert shared.rebalances.latency.count == 2
        assert joined.rebalances.latency.total > 0
        assert joined.rebalances.last_success_ago is not None


async def test_a_rebalance_without_an_assignment_has_failed(cluster: EmbeddedCluster) -> None:
    with cluster.on(SyncGroupRequest, times=1).fail(ErrorCode.NOT_COORDINATOR):
        async with member_of(cluster) as consumer:
            await until_stable(consumer)
            rebalances = member(consumer.metrics().group).rebalances
    assert (rebalances.failures, rebalances.latency.count) == (1, 1)


async def test_heartbeats_are_counted_and_timed(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, heartbeat_interval=1.0, session_timeout=30.0) as consumer:
        await until_stable(consumer)
        with cluster.on(HeartbeatRequest, times=1).disconnect():
            await until(lambda: member(consumer.metrics().group).heartbeats.failures)
        await until(lambda: member(consumer.metrics().group).heartbeats.latency.count >= 3)
        heartbeats = member(consumer.metrics().group).heartbeats
    assert heartbeats.failures == 1
    assert heartbeats.last_success_ago is not None
    assert heartbeats.last_success_ago < 1.0


async def test_a_commit_that_is_retried_counts_as_a_failure_and_a_success(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 10)
    async with member_of(cluster, auto_commit=False) as consumer:
        await take(consumer, 10)
        consumer.mark()
        with cluster.on(OffsetCommitRequest, times=1).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            assert await consumer.commit()
        group = consumer.metrics().group
    assert group is not None
    assert (group.commits.failures, group.commits.latency.count) == (1, 1)


async def test_the_time_since_the_last_poll_is_that_of_the_program(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await until_stable(consumer)
        await consumer.poll()
        await asyncio.sleep(20)  # virtual time
        assert member(consumer.metrics().group).last_poll_ago == pytest.approx(20, abs=0.1)
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(20)  # virtual time
        assert member(consumer.metrics().group).last_poll_ago == 0
        waiting.cancel()
        await asyncio.wait([waiting])


class Collect(ConsumerGroupHandler[bytes, bytes]):
    """Counts the records and marks them."""

    def __init__(self) -> None:
        self.read = 0

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
        async for record in claim:
            session.mark(record)
            self.read += 1


async def test_a_consumer_group_has_the_metrics_of_the_running_consume(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 10)
    group, handler = group_of(cluster), Collect()
    with pytest.raises(IllegalStateError, match="is not consuming; it has no metrics"):
        group.metrics()
    consuming = asyncio.create_task(group.consume(["orders"], handler))
    await until(lambda: handler.read == 10)
    metrics = group.metrics()
    await group.close()
    await consuming
    assert metrics.partitions[ORDERS[0]].lag == 0
    assert member(metrics.group).state == MemberState.STABLE.name

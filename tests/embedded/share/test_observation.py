"""``diagnose()``, ``health()`` and ``metrics()`` of a share consumer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, BrokerError, ConfigurationError, ErrorCode, IllegalStateError
from aiokafka_lite.protocol.messages import ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest
from aiokafka_lite.share.diagnosis import SharePartitionReport
from tests.embedded.share.billing_consumers import GROUP, read, share_consumer, write
from tests.waiting import until


async def test_a_diagnosis_shows_the_membership_and_the_records_of_each_partition(cluster: EmbeddedCluster) -> None:
    await write(cluster, *[b"v"] * 6, topic="jobs")
    async with share_consumer(cluster, "jobs", acknowledgement_mode="explicit") as consumer:
        records = await read(consumer, 3)
        await asyncio.sleep(10)  # virtual time
        assert await consumer.renew(records[2]) == 30
        consumer.accept(records[0])
        diagnosis = consumer.diagnose()
        assert diagnosis.group.group_id == GROUP
        assert diagnosis.group.state == "STABLE"
        assert diagnosis.group.member_id == consumer.member_id
        assert diagnosis.group.coordinator is not None
        assert diagnosis.group.coordinator.startswith(("1 at", "2 at"))
        (partition,) = diagnosis.partitions
        assert partition.lock_ends_in is not None
        assert 0 < partition.lock_ends_in <= 20, "the lock that was not renewed"
        assert replace(partition, leader=0, lock_ends_in=None) == SharePartitionReport(
            partition="jobs-0",
            is_assigned=True,
            leader=0,
            buffered=3,
            returned=2,
            acknowledged=1,
            lock_ends_in=None,
        )
        assert diagnosis.settings["acknowledgement_mode"] == "'explicit'"
        assert json.loads(json.dumps(diagnosis.to_dict()))["group"]["group_id"] == GROUP


async def test_a_consumer_that_is_not_started_has_a_diagnosis(cluster: EmbeddedCluster) -> None:
    diagnosis = share_consumer(cluster).diagnose()
    assert (diagnosis.group.state, diagnosis.group.coordinator, diagnosis.partitions) == ("JOINING", None, ())


async def test_a_share_consumer_is_ready_while_it_is_a_member(cluster: EmbeddedCluster) -> None:
    consumer = share_consumer(cluster)
    assert consumer.health().problems == ("it has not started yet",)
    with cluster.on(ShareGroupHeartbeatRequest, times=1).delay(5.0):
        async with consumer:
            assert consumer.health().problems == ("it is not a member of its group: JOINING",)
            await until(lambda: consumer.assignment)
            assert consumer.health().to_dict() == {"is_live": True, "is_ready": True, "problems": []}
    assert consumer.health().problems == ("it is closed",)


async def test_a_share_consumer_whose_program_does_not_read_is_not_live_if_a_limit_is_given(
    cluster: EmbeddedCluster,
) -> None:
    async with share_consumer(cluster) as consumer:
        await consumer.poll()
        await asyncio.sleep(400)  # virtual time
        assert consumer.health().is_live, "a share group has no max_poll_interval"
        health = consumer.health(max_poll_ago=300.0)
        assert (health.is_live, health.problems) == (False, ("the program has not asked for records for 400 s",))
        reading = asyncio.create_task(consumer.poll(timeout=1000.0))
        await asyncio.sleep(400)  # virtual time
        assert consumer.health(max_poll_ago=300.0).is_live, "a read that waits for records"
        reading.cancel()
        with pytest.raises(ConfigurationError, match="max_poll_ago must be a number of seconds, got '5'"):
            consumer.health(max_poll_ago="5")  # type: ignore[arg-type]


async def test_a_share_consumer_that_is_refused_finally_is_not_live(cluster: EmbeddedCluster) -> None:
    consumer = share_consumer(cluster)
    with cluster.on(ShareGroupHeartbeatRequest).fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        await consumer.start()
        with pytest.raises(BrokerError):
            await consumer.poll(timeout=60.0)
    health = consumer.health()
    assert not health.is_live
    assert health.problems[0].startswith("it has failed: ")
    with pytest.raises(BrokerError):
        await consumer.close()


async def test_a_share_consumer_without_permission_is_live_and_not_ready(cluster: EmbeddedCluster) -> None:
    async with share_consumer(cluster) as consumer:
        await until(lambda: consumer.assignment)
        with cluster.on(ShareGroupHeartbeatRequest, times=None).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED):
            with pytest.raises(AuthorizationError):
                await consumer.poll(timeout=60.0)
            health = consumer.health()
            assert health.is_live
            assert not health.is_ready
            assert any("GROUP_AUTHORIZATION_FAILED" in problem for problem in health.problems)
        await write(cluster, b"v")
        assert len(await read(consumer, 1)) == 1
        await until(lambda: consumer.health().is_ready)


async def test_metrics_of_another_thread_are_refused(cluster: EmbeddedCluster) -> None:
    async with share_consumer(cluster) as consumer:
        with pytest.raises(IllegalStateError, match="must be called in the event loop"):
            await asyncio.to_thread(consumer.metrics)  # virtual time may jump until the thread has ended


async def test_metrics_have_what_was_returned_and_the_latencies_of_requests(cluster: EmbeddedCluster) -> None:
    await write(cluster, *[b"v"] * 6)
    async with share_consumer(cluster, renew_locks_for=0.0) as consumer:
        await read(consumer, 2)
        before = consumer.metrics()
        assert (before.records_consumed, before.records_buffered, before.rebalances) == (2, 4, 1)
        assert 1 <= before.fetch_latency.count <= before.fetch_requests
        assert before.acknowledge_latency.count == 0
        await asyncio.sleep(31)  # virtual time; the locks end
        await read(consumer, 6)
        await consumer.commit()
        after = consumer.metrics()
        assert after.records_consumed == 8, "redelivered records count again"
        assert after.acknowledge_latency.count == after.acknowledge_requests >= 1
        assert after.fetch_latency.max is not None
        assert (after.fetch_failures, after.acknowledge_failures) == (0, 0)


async def test_the_requests_that_close_sessions_count_as_acknowledge_requests(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"v")
    async with share_consumer(cluster) as consumer:
        await read(consumer, 1)
    metrics = consumer.metrics()
    assert metrics.acknowledge_latency.count == metrics.acknowledge_requests >= 1


async def test_metrics_have_the_requests_without_a_response(cluster: EmbeddedCluster) -> None:
    async with share_consumer(cluster) as consumer:
        await until(lambda: consumer.assignment)
        with cluster.on(ShareFetchRequest, times=1).disconnect():
            await consumer.poll(timeout=5.0)
        await write(cluster, b"v")
        await read(consumer, 1)
        with cluster.on(ShareAcknowledgeRequest, times=1).disconnect():
            assert not await consumer.commit()
        metrics = consumer.metrics()
        assert (metrics.fetch_failures, metrics.acknowledge_failures) == (1, 1)


async def test_metrics_have_the_latencies_and_the_failures_of_heartbeats(cluster: EmbeddedCluster) -> None:
    async with share_consumer(cluster) as consumer:
        await until(lambda: consumer.assignment)
        with cluster.on(ShareGroupHeartbeatRequest, times=1).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            await until(lambda: consumer.metrics().heartbeats.failures)
        before = consumer.metrics().heartbeats.latency.count
        await until(lambda: consumer.metrics().heartbeats.latency.count > before)
        last = consumer.metrics().heartbeats.last_success_ago
        assert last is not None
        assert last < 5

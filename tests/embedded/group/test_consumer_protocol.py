"""Members of the consumer protocol (KIP-848) on an embedded cluster, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import ConfigurationError, ConsumerGroup
from aiokafka_lite.acls import AclBinding, AclOperation, AclResourceType
from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, BrokerError, ErrorCode, UnsupportedVersion
from aiokafka_lite.group import MemberState
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.cancelling import cancel_after
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import (
    CONSUMER,
    ORDERS,
    Ownership,
    Reading,
    Worker,
    member_of,
    read_all,
    until_stable,
)


def epochs(cluster: EmbeddedCluster) -> list[int]:
    """Return the member epochs of all heartbeats."""
    return [seen.request.member_epoch for seen in cluster.history.of(ConsumerGroupHeartbeatRequest)]


async def test_members_join_share_and_leave_and_no_partition_has_two_owners(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    fill(cluster, ORDERS[0], 5)
    workers = [await Worker(cluster, ownership, f"worker-{number}", **CONSUMER).start() for number in range(3)]
    await until_stable(*(worker.consumer for worker in workers))
    assert {len(worker.consumer.assignment) for worker in workers} == {2}
    await workers[0].stop()
    await until_stable(*(worker.consumer for worker in workers[1:]))
    await workers[1].stop()
    await until_stable(workers[2].consumer)
    await workers[2].stop()
    assert ownership.clashes == []
    assert set(ownership.read.values()) == {1}
    assert cluster.history.of(JoinGroupRequest) == []
    assert epochs(cluster).count(-1) == 3


async def test_auto_takes_the_consumer_protocol_where_the_cluster_has_it() -> None:
    for release, protocol in (("4.3", "consumer"), ("3.9", "classic")):
        async with EmbeddedCluster(tcp=False, as_kafka=release) as cluster:
            await cluster.create_topic("orders", partitions=6)
            async with member_of(cluster, group_protocol="auto") as consumer:
                await until_stable(consumer)
                group = consumer.diagnose().group
                assert group is not None
                assert group.protocol == protocol


async def test_a_cluster_without_the_protocol_is_named_by_the_error() -> None:
    async with EmbeddedCluster(tcp=False, as_kafka="3.9") as cluster:
        await cluster.create_topic("orders", partitions=6)
        consumer = member_of(cluster, **CONSUMER)
        await consumer.start()
        for use in (consumer.poll(timeout=60.0), consumer.close()):
            with pytest.raises(UnsupportedVersion, match=r'group_protocol="consumer" requires Kafka 4\.0 or newer'):
                await use


async def test_a_member_that_closes_while_auto_is_not_decided_ends_at_once(cluster: EmbeddedCluster) -> None:
    consumer = member_of(cluster, group_protocol="auto")
    await consumer.start()
    for node in range(1, 4):
        await cluster.stop(node)
    began = asyncio.get_running_loop().time()
    await consumer.close()
    assert asyncio.get_running_loop().time() - began < 3.0


async def test_a_topic_that_is_refused_before_auto_is_decided_is_an_error() -> None:
    async with EmbeddedCluster(tcp=False, super_users=["User:admin"]) as cluster:
        await cluster.create_topic("orders", partitions=6)
        acls = cluster.authorizer.acls
        assert acls is not None
        acls.create(AclBinding(AclResourceType.GROUP, "workers", "User:ANONYMOUS", AclOperation.READ))
        cluster.on(FindCoordinatorRequest, times=None).delay(5.0)
        consumer = member_of(cluster, group_protocol="auto")
        await consumer.start()
        await asyncio.sleep(2.0)
        acls.create(AclBinding(AclResourceType.TOPIC, "orders", "User:ANONYMOUS", AclOperation.READ))
        with pytest.raises(AuthorizationError, match="orders"):
            await consumer.poll(timeout=60.0)
        await consumer.close()


async def test_commits_and_fetches_of_offsets_name_the_member_and_its_epoch(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 5)
    async with member_of(cluster, **CONSUMER) as consumer:
        await read_all(consumer, 5)
        await consumer.poll(timeout=0.1)
        assert (await consumer.commit()).committed[ORDERS[0]].offset == 5
        metadata = consumer.group_metadata()
        (commit,) = (seen.request for seen in cluster.history.of(OffsetCommitRequest))
        identity = (metadata.member_id, metadata.generation_id)
        assert (commit.member_id, commit.generation_id_or_member_epoch) == identity
        fetched = cluster.history.of(OffsetFetchRequest)[0].request.groups[0]
        assert (fetched.member_id, fetched.member_epoch) == identity


async def test_a_commit_with_a_stale_epoch_is_repeated_under_the_epoch_of_the_next_heartbeat(
    cluster: EmbeddedCluster,
) -> None:
    fill(cluster, ORDERS[0], 5)
    async with member_of(cluster, auto_commit=False, **CONSUMER) as consumer:
        await read_all(consumer, 5)
        await consumer.poll(timeout=20.0)  # the early heartbeats after an assignment are over
        cluster.on(OffsetCommitRequest).fail(ErrorCode.STALE_MEMBER_EPOCH, times=1)
        before = len(cluster.history.of(ConsumerGroupHeartbeatRequest))
        assert (await consumer.commit(timeout=4.0)).committed[ORDERS[0]].offset == 5
        assert len(cluster.history.of(ConsumerGroupHeartbeatRequest)) == before + 1  # at once, and not after 5 s


async def test_a_fenced_member_loses_its_partitions_and_reads_again_from_its_commit(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    fill(cluster, ORDERS[0], 5)
    worker = await Worker(cluster, ownership, "worker", **CONSUMER).start()
    await until_stable(worker.consumer)
    cluster.on(ConsumerGroupHeartbeatRequest).fail(ErrorCode.FENCED_MEMBER_EPOCH, times=1)
    await asyncio.sleep(20.0)
    await until_stable(worker.consumer)
    await worker.stop()
    assert [what for _, what, _ in ownership.events] == ["assigned", "lost", "assigned", "revoked"]
    assert ownership.clashes == []
    assert epochs(cluster).count(0) == 2


async def test_a_member_whose_event_loop_is_blocked_for_a_session_is_evicted_warns_and_joins_again(
    cluster: EmbeddedCluster, ownership: Ownership, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await Worker(cluster, ownership, "worker", **CONSUMER).start()
    await until_stable(worker.consumer)
    await asyncio.sleep(20.0)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.now += 60.0
    await asyncio.sleep(20.0)
    await until_stable(worker.consumer)
    await worker.stop()
    assert [what for _, what, _ in ownership.events] == ["assigned", "lost", "assigned", "revoked"]
    assert "the event loop was blocked for" in caplog.text
    assert "was evicted from the group after the event loop was blocked for" in caplog.text


async def test_a_heartbeat_whose_answer_is_lost_costs_nothing(cluster: EmbeddedCluster, ownership: Ownership) -> None:
    worker = await Worker(cluster, ownership, "worker", **CONSUMER).start()
    await until_stable(worker.consumer)
    cluster.on(ConsumerGroupHeartbeatRequest).apply_then_disconnect(times=1)
    await asyncio.sleep(20.0)
    await worker.stop()
    assert [what for _, what, _ in ownership.events] == ["assigned", "revoked"]
    whole = [seen.request for seen in cluster.history.of(ConsumerGroupHeartbeatRequest) if seen.request.rack_id is None]
    assert sum(request.rebalance_timeout_ms > 0 for request in whole) == 2  # joining, and after the failure


async def test_a_member_that_does_not_read_leaves_and_joins_again_with_the_next_read(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, ORDERS[0], 5)
    async with member_of(cluster, max_poll_interval=17.0, **CONSUMER) as consumer:
        await read_all(consumer, 5)
        await asyncio.sleep(16.5)
        assert consumer.membership is MemberState.STABLE
        await asyncio.sleep(1.0)
        assert consumer.membership is MemberState.UNJOINED
        assert "no records were requested for more than max_poll_interval = 17 s" in caplog.text
        assert len(await read_all(consumer, 5)) == 5  # the member never read beyond them


async def test_a_static_member_that_restarts_keeps_its_partitions(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    first = await Worker(cluster, ownership, "first", group_instance_id="a", **CONSUMER).start()
    second = await Worker(cluster, ownership, "second", group_instance_id="b", **CONSUMER).start()
    await until_stable(first.consumer, second.consumer)
    owned = second.consumer.assignment
    await second.stop()
    assert epochs(cluster)[-1] == -2
    again = await Worker(cluster, ownership, "again", group_instance_id="b", **CONSUMER).start()
    await until_stable(first.consumer, again.consumer)
    assert again.consumer.assignment == owned
    await first.stop()
    await again.stop()


async def test_a_static_member_whose_join_was_not_answered_joins_again(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    cluster.on(ConsumerGroupHeartbeatRequest).apply_then_disconnect(times=1)
    worker = await Worker(cluster, ownership, "worker", group_instance_id="a", **CONSUMER).start()
    await until_stable(worker.consumer)
    await worker.stop()
    assert epochs(cluster)[:4] == [0, 0, -2, 0]


async def test_an_instance_id_that_another_member_holds_is_refused_when_a_session_has_passed(
    cluster: EmbeddedCluster,
) -> None:
    began = asyncio.get_running_loop().time()
    async with member_of(cluster, group_instance_id="a", **CONSUMER) as older:
        await until_stable(older)
        async with Reading(older):
            newer = member_of(cluster, group_instance_id="a", **CONSUMER)
            await newer.start()
            with pytest.raises(BrokerError, match="another member holds this group_instance_id"):
                await newer.poll(timeout=90.0)
            assert 60.0 <= asyncio.get_running_loop().time() - began < 65.0
            with pytest.raises(BrokerError):
                await newer.close()
        assert older.membership is MemberState.STABLE


@pytest.mark.parametrize(
    "settings,says",
    [
        ({**CONSUMER, "session_timeout": 10.0}, "session_timeout cannot be combined"),
        ({**CONSUMER, "heartbeat_interval": 1.0}, "heartbeat_interval cannot be combined"),
        ({**CONSUMER, "strategies": ["range"]}, "strategies cannot be combined"),
        ({"group_remote_assignor": "range"}, "group_remote_assignor requires group_protocol"),
        ({"group_protocol": "new"}, "group_protocol must be one of"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Consumer("localhost:9092", group_id="g", topics=["t"], **settings)
    with pytest.raises(ConfigurationError, match=says):
        ConsumerGroup("localhost:9092", group_id="g", **settings)


async def test_a_read_that_is_cancelled_while_the_member_joins_loses_no_record(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 5)
    interrupted = 0
    for turns in range(0, 61, 3):
        async with member_of(cluster, group_id=f"group-{turns}", **CONSUMER) as consumer:
            interrupted += not await cancel_after(turns, consumer.poll(timeout=60.0))
            records = await read_all(consumer, 30)
        assert len({(record.partition, record.offset) for record in records}) == 30
    assert interrupted > 5

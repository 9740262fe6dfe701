"""Groups that change between the classic and the consumer protocol while they have members (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.admin import Admin, GroupType
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.group import RangeStrategy
from aiokafka_lite.protocol.codec import encode_versioned
from aiokafka_lite.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.embedded.broker.raw_client import Peer
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import CONSUMER, COOPERATIVE, ORDERS, Ownership, Worker, until_stable

EAGER: dict[str, Any] = {"strategies": [RangeStrategy()]}
RECORDS = 10

each_strategy = pytest.mark.parametrize("classic", [COOPERATIVE, EAGER], ids=["cooperative", "eager"])


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A broker with a topic of six partitions. Assignments are not delayed: virtual time does not move that clock."""
    configs = {"group.consumer.assignment.interval.ms": "0"}
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=6)
        yield cluster


async def group_type(cluster: EmbeddedCluster) -> GroupType:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        (listed,) = await admin.groups.list()
        assert listed.type is not None
        return listed.type


async def read_once(cluster: EmbeddedCluster, ownership: Ownership) -> None:
    """Write records to each partition, and wait until each record has been read, and none of them twice."""
    before = len(ownership.read)
    for partition in ORDERS:
        fill(cluster, partition, RECORDS)
    async with asyncio.timeout(30):
        while len(ownership.read) < before + RECORDS * len(ORDERS):
            await asyncio.sleep(0.05)  # virtual time
    assert set(ownership.read.values()) == {1}


@each_strategy
async def test_a_member_of_the_consumer_protocol_joins_classic_members(
    cluster: EmbeddedCluster, ownership: Ownership, classic: dict[str, Any]
) -> None:
    workers = [await Worker(cluster, ownership, f"classic-{number}", **classic).start() for number in range(2)]
    await until_stable(*(worker.consumer for worker in workers))
    await read_once(cluster, ownership)
    workers.append(await Worker(cluster, ownership, "new", **CONSUMER).start())
    await until_stable(*(worker.consumer for worker in workers))
    assert [len(worker.consumer.assignment) for worker in workers] == [2, 2, 2]
    assert await group_type(cluster) is GroupType.CONSUMER
    await read_once(cluster, ownership)
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []
    assert [worker.error for worker in workers] == [None, None, None]


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("upgrades", [True, False], ids=["upgrade", "downgrade"])
@each_strategy
async def test_three_members_migrate_one_after_the_other(
    cluster: EmbeddedCluster, ownership: Ownership, classic: dict[str, Any], upgrades: bool, static: bool
) -> None:
    before, after = (classic, CONSUMER) if upgrades else (CONSUMER, classic)
    names = [{"group_instance_id": f"static-{number}"} if static else {} for number in range(3)]
    workers = [await Worker(cluster, ownership, f"before-{n}", **before, **names[n]).start() for n in range(3)]
    await until_stable(*(worker.consumer for worker in workers))
    for n in range(3):
        await read_once(cluster, ownership)
        await workers.pop(0).stop()
        workers.append(await Worker(cluster, ownership, f"after-{n}", **after, **names[n]).start())
        await until_stable(*(worker.consumer for worker in workers))
    await read_once(cluster, ownership)
    assert await group_type(cluster) is (GroupType.CONSUMER if upgrades else GroupType.CLASSIC)
    assert [worker.error for worker in workers] == [None, None, None]
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []


@each_strategy
async def test_a_group_becomes_classic_when_its_last_member_of_the_consumer_protocol_dies(
    cluster: EmbeddedCluster, ownership: Ownership, classic: dict[str, Any]
) -> None:
    new = await Worker(cluster, ownership, "new", **CONSUMER).start()
    workers = [await Worker(cluster, ownership, f"classic-{number}", **classic).start() for number in range(2)]
    await until_stable(new.consumer, *(worker.consumer for worker in workers))
    await read_once(cluster, ownership)
    await new.consumer.commit()
    await new.die()
    await until_stable(*(worker.consumer for worker in workers), within=120.0)
    assert await group_type(cluster) is GroupType.CLASSIC
    await read_once(cluster, ownership)
    for worker in workers:
        await worker.stop()
    assert ownership.clashes == []


async def test_a_group_of_both_protocols_outlives_its_coordinator(ownership: Ownership) -> None:
    configs = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.replication.factor": "3"}
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=6, replication_factor=3)
        protocols = {"new": CONSUMER, "cooperative": COOPERATIVE, "other": COOPERATIVE}
        workers = [await Worker(cluster, ownership, name, **values).start() for name, values in protocols.items()]
        await until_stable(*(worker.consumer for worker in workers))
        (coordinator,) = cluster.history.of(FindCoordinatorRequest)[-1].response.coordinators
        await cluster.stop(coordinator.node_id)
        await read_once(cluster, ownership)
        await asyncio.sleep(60)  # longer than each session
        assert {what for _, what, _ in ownership.events} == {"assigned", "revoked"}
        for worker in workers:
            await worker.stop()
        assert ownership.clashes == []


async def test_a_group_that_became_classic_rebalances_although_its_coordinator_moves(ownership: Ownership) -> None:
    configs = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.replication.factor": "3"}
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=6, replication_factor=3)
        new = await Worker(cluster, ownership, "new", **CONSUMER).start()
        worker = await Worker(cluster, ownership, "classic", **COOPERATIVE).start()
        await until_stable(new.consumer, worker.consumer)
        await new.die()
        await asyncio.sleep(39)  # virtual time; the session of 45 s is up to one heartbeat old
        async with asyncio.timeout(7):
            while await group_type(cluster) is not GroupType.CLASSIC:
                await asyncio.sleep(0.25)
        (coordinator,) = cluster.history.of(FindCoordinatorRequest)[-1].response.coordinators
        await cluster.stop(coordinator.node_id)
        async with asyncio.timeout(60):
            while len(worker.consumer.assignment) < len(ORDERS):
                await asyncio.sleep(0.25)
        await read_once(cluster, ownership)
        await worker.stop()
        assert ownership.clashes == []


def join_request(member_id: str = "", metadata: bytes | None = None, protocol_type: str = "consumer") -> Any:
    """Return a JoinGroup request of a classic member."""
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["orders"]), 1)
    protocol = JoinGroupRequestProtocol(name="range", metadata=subscription if metadata is None else metadata)
    return JoinGroupRequest(
        group_id="workers",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=[protocol],
    )


def heartbeat_request(epoch: int, member_id: str = "new") -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id="workers", member_id=member_id, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 20_000, ["orders"], []
    return request


async def host_group(peer: Peer) -> None:
    """Create the topic of the offsets, so that the broker hosts the group."""
    await peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["workers"]))


@pytest.mark.parametrize(
    ("policy", "upgrade", "join", "after"),
    [
        ("bidirectional", ErrorCode.NONE, ErrorCode.NONE, GroupType.CLASSIC),
        ("UPGRADE", ErrorCode.NONE, ErrorCode.NONE, GroupType.CONSUMER),
        ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE, GroupType.CLASSIC),
        ("disabled", ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, GroupType.CONSUMER),
    ],
)
async def test_the_policy_allows_each_direction(
    policy: str, upgrade: ErrorCode, join: ErrorCode, after: GroupType
) -> None:
    configs = {"group.consumer.migration.policy": policy}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=6)
        async with Peer(cluster) as peer:
            await host_group(peer)
            classic = await peer.ask(join_request(), 3)
            assert (await peer.ask(heartbeat_request(0))).error_code == upgrade
            leaving = LeaveGroupRequestMember(member_id=classic.member_id)
            answer = await peer.ask(LeaveGroupRequest(group_id="workers", members=[leaving]))
            assert answer.members[0].error_code == ErrorCode.NONE
            await peer.ask(heartbeat_request(-1))
            assert (await peer.ask(heartbeat_request(0))).error_code == ErrorCode.NONE
            assert (await peer.ask(join_request(), 3)).error_code == join
            await peer.ask(heartbeat_request(-1))
            assert await group_type(cluster) is after


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"metadata": b""}, "the embedded consumer protocol is malformed"),
        ({"protocol_type": "connect"}, "the group does not use the consumer embedded protocol"),
    ],
)
async def test_a_group_without_subscriptions_of_consumers_stays_classic(
    cluster: EmbeddedCluster, values: dict[str, Any], says: str
) -> None:
    async with Peer(cluster) as peer:
        await host_group(peer)
        joined = await peer.ask(join_request(**values), 3)
        refused = await peer.ask(heartbeat_request(0))
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert says in str(refused.error_message)
        heartbeat = HeartbeatRequest(group_id="workers", generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await peer.ask(heartbeat)).error_code == ErrorCode.NONE


async def test_a_custom_assignor_keeps_its_group_classic(cluster: EmbeddedCluster) -> None:
    assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"mine"), 1)
    async with Peer(cluster) as peer:
        await host_group(peer)
        joined = await peer.ask(join_request(), 3)
        synced = await peer.ask(sync_request(joined, assignment), 3)
        assert synced.assignment == assignment
        refused = await peer.ask(heartbeat_request(0))
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "an unsupported custom assignor is in use" in str(refused.error_message)


def sync_request(joined: JoinGroupResponse, assignment: bytes | None = None) -> SyncGroupRequest:
    own = joined.member_id
    assignments = [] if assignment is None else [SyncGroupRequestAssignment(member_id=own, assignment=assignment)]
    return SyncGroupRequest(
        group_id="workers", generation_id=joined.generation_id, member_id=own, assignments=assignments
    )


BEATS = {
    "syncs": [ErrorCode.NONE] * 6,
    "does not sync": [ErrorCode.NONE] * 5 + [ErrorCode.UNKNOWN_MEMBER_ID],
    "does not join again": [ErrorCode.REBALANCE_IN_PROGRESS] * 5 + [ErrorCode.UNKNOWN_MEMBER_ID],
}


@pytest.mark.parametrize("what", list(BEATS))
async def test_a_classic_member_is_removed_if_it_does_not_sync_or_join_within_20_s(
    cluster: EmbeddedCluster, what: str
) -> None:
    async with Peer(cluster) as peer:
        await host_group(peer)
        await peer.ask(heartbeat_request(0))
        joined = await peer.ask(join_request(), 3)
        if what != "does not sync":
            await peer.ask(sync_request(joined), 3)
        if what == "does not join again":
            await peer.ask(heartbeat_request(0, "third"))
        heartbeat = HeartbeatRequest(group_id="workers", generation_id=joined.generation_id, member_id=joined.member_id)
        seen = []
        for _ in range(6):
            seen.append((await peer.ask(heartbeat)).error_code)
            await asyncio.sleep(4.5)
        assert seen == BEATS[what]


async def test_a_member_of_a_classic_group_keeps_its_session_timeout(cluster: EmbeddedCluster) -> None:
    async with Peer(cluster) as peer:
        await host_group(peer)
        joined = await peer.ask(join_request(), 3)
        await peer.ask(sync_request(joined), 3)
        half = (await peer.ask(heartbeat_request(0))).assignment
        assert half is not None
        assert len(half.topic_partitions[0].partitions) == 3
        await asyncio.sleep(10.5)
        every = (await peer.ask(heartbeat_request(2))).assignment
        assert every is not None
        assert every.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]


async def test_a_partition_that_a_leader_gave_to_two_members_gets_one_owner(cluster: EmbeddedCluster) -> None:
    """A classic leader may assign whatever it likes, and the coordinator does not check it."""
    partition = ConsumerProtocolAssignmentTopicPartition(topic="orders", partitions=[0])
    assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[partition]), 1)
    async with Peer(cluster) as peer, Peer(cluster) as other:
        await host_group(peer)
        first = await peer.ask(join_request(), 3)
        joins = other.ask(join_request(), 3), peer.ask(join_request(first.member_id), 3)
        members: list[JoinGroupResponse] = await asyncio.gather(*joins)
        (leader,) = (joined for joined in members if joined.member_id == joined.leader)
        sync = sync_request(leader)
        sync.assignments = [
            SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment) for joined in members
        ]
        assert (await peer.ask(sync, 3)).error_code == ErrorCode.NONE
        assert (await peer.ask(heartbeat_request(0))).error_code == ErrorCode.NONE
        request = ConsumerGroupDescribeRequest(group_ids=["workers"], include_authorized_operations=False)
        (group,) = (await peer.ask(request)).groups
        targets = [
            number
            for member in group.members
            for topic in member.target_assignment.topic_partitions
            for number in topic.partitions
        ]
        assert sorted(targets) == [0, 1, 2, 3, 4, 5]

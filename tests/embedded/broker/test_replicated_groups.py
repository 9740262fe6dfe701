"""Answers about the members of a group wait until the replicas have the records of these members."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer
from tests.virtual import in_virtual_time

JOIN, LEAVE = 0, -1


def consumer_heartbeat(epoch: int, member_id: str) -> m.ConsumerGroupHeartbeatRequest:
    request = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
    if epoch == JOIN:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 1000, ["t"], []
    return request


def share_heartbeat(epoch: int, member_id: str) -> m.ShareGroupHeartbeatRequest:
    topics = ["t"] if epoch == JOIN else None
    return m.ShareGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
    )


REQUESTS = {
    "consumer": (
        consumer_heartbeat,
        m.ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
    ),
    "share": (share_heartbeat, m.ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)),
}
both = pytest.mark.parametrize("kind", sorted(REQUESTS))


class Group:
    """The requests of the members of one group, on a cluster of two brokers."""

    def __init__(self, cluster: EmbeddedCluster, kind: str) -> None:
        self.cluster = cluster
        self._heartbeat, self._describe = REQUESTS[kind]

    async def start(self) -> None:
        """Find the coordinator. The first question makes the internal topic."""
        await self.cluster.create_topic("t", 2)
        async with Peer(self.cluster) as peer:
            answer = await peer.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        self.coordinator = answer.coordinators[0].node_id
        self.follower = 3 - self.coordinator

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Return the answer of the coordinator."""
        async with Peer(self.cluster, self.coordinator) as peer:
            return await peer.ask(request, version)

    async def heartbeat(self, epoch: int, member_id: str = "a") -> Any:
        return await self.ask(self._heartbeat(epoch, member_id))

    async def describe(self) -> Any:
        return (await self.ask(self._describe)).groups


class ClassicMember:
    """The requests of the only member of a classic group, which is its leader."""

    def __init__(self, cluster: EmbeddedCluster, instance_id: str | None = None) -> None:
        self.group = Group(cluster, "consumer")
        self.member_id = ""
        self.instance_id = instance_id

    async def join(self) -> m.JoinGroupResponse:
        answer: m.JoinGroupResponse = await self.group.ask(
            m.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
        )
        self.member_id = answer.member_id
        return await self.join() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else answer

    async def sync(self) -> m.SyncGroupResponse:
        assignment = m.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"mine")
        answer: m.SyncGroupResponse = await self.group.ask(
            m.SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[assignment],
            )
        )
        return answer

    async def heartbeat(self) -> ErrorCode:
        request = m.HeartbeatRequest(
            group_id="g", generation_id=1, member_id=self.member_id, group_instance_id=self.instance_id
        )
        return ErrorCode.of((await self.group.ask(request)).error_code)

    async def commit(self) -> ErrorCode:
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [m.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = m.OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=1, member_id=self.member_id, topics=topics
        )
        answer = await self.group.ask(request, m.OffsetCommitRequest.TOPIC_IDS.before)
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    async def leave(self) -> m.LeaveGroupResponse:
        member = m.LeaveGroupRequestMember(member_id=self.member_id, group_instance_id=self.instance_id)
        answer: m.LeaveGroupResponse = await self.group.ask(m.LeaveGroupRequest(group_id="g", members=[member]))
        return answer


async def while_frozen(group: Group, call: Coroutine[Any, Any, Any]) -> Any:
    """Return the answer to a call that began while the follower was frozen. It must come after the follower was
    thawed."""
    await group.cluster.freeze(group.follower)
    calling = asyncio.create_task(call)
    await asyncio.sleep(1)
    assert not calling.done()
    await group.cluster.thaw(group.follower)
    return await calling


@in_virtual_time
async def test_the_answers_to_classic_members_wait_for_the_replicas() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        member = ClassicMember(cluster, "static")
        await member.group.start()
        await member.join()
        assert (await while_frozen(member.group, member.sync())).assignment == b"mine"
        member.member_id = ""  # it has restarted
        assert (await while_frozen(member.group, member.join())).error_code == ErrorCode.NONE
        assert (await while_frozen(member.group, member.leave())).error_code == ErrorCode.NONE


@in_virtual_time
async def test_the_heartbeat_of_a_classic_member_waits_for_records_that_others_have_written() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        member = ClassicMember(cluster)
        await member.group.start()
        await member.join()
        await member.sync()
        await cluster.freeze(member.group.follower)
        committing = asyncio.create_task(member.commit())
        await asyncio.sleep(1)
        heartbeat = asyncio.create_task(member.heartbeat())
        await asyncio.sleep(1)
        assert not heartbeat.done()
        await cluster.thaw(member.group.follower)
        assert (await committing, await heartbeat) == (ErrorCode.NONE, ErrorCode.NONE)


@in_virtual_time
async def test_assignments_that_the_replicas_do_not_get_are_dropped_after_five_seconds_and_members_rejoin() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        member = ClassicMember(cluster)
        await member.group.start()
        await member.join()
        await cluster.freeze(member.group.follower)
        answer = await member.sync()
        assert (answer.error_code, answer.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")
        assert (await member.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        await cluster.thaw(member.group.follower)
        assert (await member.join()).generation_id == 2


@in_virtual_time
async def test_assignments_that_the_log_refuses_begin_another_rebalance() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, configs={"min.insync.replicas": "2"}) as cluster:
        member = ClassicMember(cluster)
        await member.group.start()
        await member.join()
        await cluster.stop(member.group.follower)
        assert (await member.sync()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await member.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        await cluster.start_node(member.group.follower)
        await cluster.until_in_sync("__consumer_offsets")
        assert (await member.join()).generation_id == 2


@in_virtual_time
async def test_a_static_member_that_returns_is_not_acknowledged_without_replicas() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, configs={"min.insync.replicas": "2"}) as cluster:
        member = ClassicMember(cluster, "static")
        await member.group.start()
        await member.join()
        await member.sync()
        await cluster.stop(member.group.follower)
        before, member.member_id = member.member_id, ""  # it has restarted
        answer = await member.join()
        assert (answer.error_code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        await cluster.start_node(member.group.follower)
        await cluster.until_in_sync("__consumer_offsets")
        member.member_id = before  # the group has the member as it was
        assert await member.heartbeat() is ErrorCode.NONE
        assert (await member.sync()).assignment == b"mine"


@both
@in_virtual_time
async def test_a_heartbeat_waits_for_the_replicas_and_an_idle_one_for_the_records_of_others(kind: str) -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        group = Group(cluster, kind)
        await group.start()
        epoch = (await group.heartbeat(JOIN)).member_epoch
        await cluster.freeze(group.follower)
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(group.heartbeat(JOIN, "b"))
            await asyncio.sleep(1)
            idle = tasks.create_task(group.heartbeat(epoch))
            await asyncio.sleep(1)
            assert not joining.done()
            assert not idle.done()
            await cluster.thaw(group.follower)
        assert joining.result().error_code == idle.result().error_code == ErrorCode.NONE


@both
@in_virtual_time
async def test_a_description_of_a_group_has_what_the_replicas_have(kind: str) -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        group = Group(cluster, kind)
        await group.start()
        await cluster.freeze(group.follower)
        first = asyncio.create_task(group.heartbeat(JOIN))
        await asyncio.sleep(1)
        assert (await group.describe())[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await cluster.thaw(group.follower)
        await first
        before = await group.describe()
        await cluster.freeze(group.follower)
        second = asyncio.create_task(group.heartbeat(JOIN, "b"))
        await asyncio.sleep(1)
        assert await group.describe() == before
        await cluster.thaw(group.follower)
        await second
        assert [member.member_id for member in (await group.describe())[0].members] == ["a", "b"]


@both
@in_virtual_time
async def test_a_heartbeat_that_the_replicas_do_not_get_is_refused_after_five_seconds(kind: str) -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        group = Group(cluster, kind)
        await group.start()
        await cluster.freeze(group.follower)
        started = asyncio.get_running_loop().time()
        assert (await group.heartbeat(JOIN)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert 5 <= asyncio.get_running_loop().time() - started < 6
        await cluster.thaw(group.follower)
        assert (await group.heartbeat(JOIN)).error_code == ErrorCode.NONE


@both
@in_virtual_time
async def test_a_heartbeat_whose_records_the_log_refuses_changes_nothing(kind: str) -> None:
    """With too few replicas in sync no member joins, leaves or expires: the group keeps its members."""
    async with EmbeddedCluster(brokers=2, tcp=False, configs={"min.insync.replicas": "2"}) as cluster:
        group = Group(cluster, kind)
        await group.start()
        epoch = (await group.heartbeat(JOIN)).member_epoch
        before = await group.describe()
        await cluster.stop(group.follower)
        for refused in (group.heartbeat(JOIN, "b"), group.heartbeat(LEAVE)):
            assert (await refused).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(100)
        assert (await group.heartbeat(epoch)).error_code == ErrorCode.NONE
        assert await group.describe() == before
        await cluster.start_node(group.follower)
        await cluster.until_in_sync("__consumer_offsets")
        assert (await group.heartbeat(JOIN, "b")).error_code == ErrorCode.NONE
        await asyncio.sleep(100)
        assert (await group.describe())[0].members == []

"""Members of a share group: assignments, epochs, sessions, and descriptions of the group."""

from __future__ import annotations

import asyncio

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer

from .raw_members import Member, partitions_of, set_configs
from .requests import heartbeat


async def test_partitions_move_to_a_new_member_and_back(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("clicks", 4)
    first, second = Member(cluster), Member(cluster, "second")
    assert await first.join(["clicks"]) == [0, 1, 2, 3]
    assert await second.join(["clicks"]) == [2, 3]
    assert partitions_of(await first.beat()) == [0, 1]
    assert (await first.beat()).assignment is None
    assert partitions_of(await first.beat(["clicks"])) == [0, 1]
    await second.leave()
    assert partitions_of(await first.beat()) == [0, 1, 2, 3]


async def test_more_members_than_partitions_share_them(cluster: EmbeddedCluster) -> None:
    members = [Member(cluster, name) for name in ("a", "b", "c")]
    assert [await member.join() for member in members] == [[0], [0], [0]]


async def test_a_topic_that_appears_or_grows_is_assigned(cluster: EmbeddedCluster) -> None:
    member = Member(cluster)
    assert await member.join(["clicks"]) == []
    await cluster.create_topic("clicks", 2)
    assert partitions_of(await member.beat()) == [0, 1]


async def test_a_silent_member_loses_its_partitions(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_session_timeout_ms="45000")
    first, second = Member(cluster), Member(cluster, "second")
    await first.join()
    await asyncio.sleep(30.0)
    await second.join()
    await asyncio.sleep(20.0)
    assert (await second.beat()).error_code == ErrorCode.NONE
    assert (await first.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_repeated_heartbeat_is_accepted_and_another_epoch_is_fenced(cluster: EmbeddedCluster) -> None:
    first, second = Member(cluster), Member(cluster, "second")
    await first.join()
    old = first.epoch
    await second.join()
    await first.beat()
    async with await first.coordinator() as peer:
        assert (await peer.ask(heartbeat("workers", "first", old))).member_epoch == first.epoch
        fenced = await peer.ask(heartbeat("workers", "first", first.epoch + 1))
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH


async def test_a_new_coordinator_knows_the_members() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, configs={"offsets.topic.num.partitions": "1"}) as cluster:
        await cluster.create_topic("orders")
        member = Member(cluster)
        await member.join()
        await cluster.move_leader("__consumer_offsets", 0)
        assert (await member.beat()).error_code == ErrorCode.NONE


async def test_a_full_group_refuses_another_member() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, configs={"group.share.max.size": "1"}) as cluster:
        await cluster.create_topic("orders")
        await Member(cluster).join()
        refused = await Member(cluster, "second").beat(["orders"])
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_the_group_is_listed_and_deleted_when_it_is_empty(cluster: EmbeddedCluster) -> None:
    member = Member(cluster)
    await member.join()
    delete = m.DeleteGroupsRequest(groups_names=["workers"])
    listing = m.ListGroupsRequest(types_filter=["share"])
    async with await member.coordinator() as peer:
        groups = (await peer.ask(listing)).groups
        assert [(group.group_id, group.group_type, group.group_state) for group in groups] == [
            ("workers", "share", "Stable")
        ]
        assert (await peer.ask(delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await member.leave()
        assert (await peer.ask(m.ListGroupsRequest(states_filter=["Empty"]))).groups[0].group_id == "workers"
        assert (await peer.ask(delete)).results[0].error_code == ErrorCode.NONE
        assert (await peer.ask(listing)).groups == []
        assert (await peer.ask(delete)).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_heartbeat_goes_to_the_coordinator(cluster: EmbeddedCluster) -> None:
    member = Member(cluster)
    await member.join()
    other = await member.coordinator()
    wrong = next(number for number in cluster.nodes if number != other.node.node_id)
    async with Peer(cluster, wrong) as peer:
        assert (await peer.ask(heartbeat("workers", "first", 0, ["orders"]))).error_code == ErrorCode.NOT_COORDINATOR

"""Records of a share group: acquired, acknowledged, delivered again, kept across leaders and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.share.session import MOST_PARTITIONS, SessionRefused, ShareSessions
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer

from .raw_members import ACCEPT, GAP, REJECT, RELEASE, RENEW, Member, set_configs, write
from .requests import share_acknowledge, share_fetch


async def test_members_share_the_records_of_a_partition(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_auto_offset_reset="earliest")
    await write(cluster, 5)
    async with Member(cluster) as first, Member(cluster, "second") as second:
        assert await first.fetch(max_records=2) == [(0, 1, 1)]
        assert await second.fetch() == [(2, 4, 1)]
        assert await first.acknowledge((0, 1, ACCEPT)) == (ErrorCode.NONE, None)
        assert await first.offsets() == (2, 3)
        assert await second.fetch((2, 4, ACCEPT)) == []
        assert await second.offsets() == (5, 0)


async def test_a_group_begins_with_new_records(cluster: EmbeddedCluster) -> None:
    await write(cluster, 3)
    async with Member(cluster) as member:
        assert await member.fetch() == []
        await write(cluster, 1)
        assert await member.fetch() == [(3, 3, 1)]


async def test_a_group_may_begin_with_the_records_of_the_last_hour(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_auto_offset_reset="by_duration:PT1H")
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        await producer.send("orders", b"old", timestamp=cluster.nodes[1].now_ms() - 2 * 3600 * 1000)
        await producer.send("orders", b"new")
    async with Member(cluster) as member:
        assert await member.fetch() == [(1, 1, 1)]


async def test_a_fetch_waits_for_records(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        await member.fetch()
        waiting = asyncio.create_task(member.fetch(max_wait_ms=60_000))
        await asyncio.sleep(10.0)
        assert not waiting.done()
        await write(cluster, 1)
        assert await waiting == [(0, 0, 1)]


async def test_a_fetch_waits_for_records_that_another_member_releases(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as first, Member(cluster, "second") as second:
        await first.fetch()
        await write(cluster, 1)
        await first.fetch()
        waiting = asyncio.create_task(second.fetch(max_wait_ms=60_000))
        await asyncio.sleep(10.0)
        assert not waiting.done()
        await first.acknowledge((0, 0, RELEASE))
        assert await waiting == [(0, 0, 2)]


async def test_a_record_is_delivered_again_when_its_acquisition_lock_ends(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_record_lock_duration_ms="15000")
    async with Member(cluster) as first, Member(cluster, "second") as second:
        await first.fetch()
        await write(cluster, 2)
        assert await first.fetch() == [(0, 1, 1)]
        await asyncio.sleep(10.0)
        assert await first.acknowledge((1, 1, RENEW), renew=True) == (ErrorCode.NONE, None)
        await asyncio.sleep(5.1)
        assert await second.fetch() == [(0, 0, 2)]
        error, _ = await first.acknowledge((0, 0, ACCEPT))
        assert error is ErrorCode.INVALID_RECORD_STATE
        await asyncio.sleep(10.0)
        assert await second.fetch() == [(1, 1, 2)]


@pytest.mark.parametrize("ending", ["the session closes", "the connection ends"])
async def test_the_end_of_a_session_releases_its_records(cluster: EmbeddedCluster, ending: str) -> None:
    async with Member(cluster) as first, Member(cluster, "second") as second:
        await first.fetch()
        await write(cluster, 2)
        assert await first.fetch() == [(0, 1, 1)]
        await first.acknowledge((0, 0, ACCEPT))
        if ending == "the session closes":
            await first.close_session()
        else:
            first.leader.stream.abort()
        assert await second.fetch(max_wait_ms=5_000) == [(1, 1, 2)]


async def test_a_record_that_is_released_too_often_is_archived(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_delivery_count_limit="2")
    async with Member(cluster) as member:
        await member.fetch()
        await write(cluster, 2)
        assert await member.fetch() == [(0, 1, 1)]
        await member.acknowledge((1, 1, ACCEPT))
        assert await member.fetch((0, 0, RELEASE)) == [(0, 0, 2)]
        assert await member.fetch((0, 0, RELEASE)) == []
        assert await member.offsets() == (2, 0)


async def test_gaps_and_rejected_records_are_not_delivered_again(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        await member.fetch()
        await write(cluster, 3)
        assert await member.fetch() == [(0, 2, 1)]
        assert await member.fetch((0, 0, GAP), (1, 1, REJECT), (2, 2, RELEASE)) == [(2, 2, 2)]
        assert await member.offsets() == (2, 1)


async def test_a_member_gets_no_more_records_than_it_may_lock(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_partition_max_record_locks="100")
    async with Member(cluster) as member:
        await member.fetch()
        await write(cluster, 101)
        assert await member.fetch() == [(0, 99, 1)]
        assert await member.fetch() == []
        assert await member.fetch((0, 0, ACCEPT)) == [(100, 100, 1)]


async def test_deleted_records_are_not_delivered(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as first, Member(cluster, "second") as second:
        await first.fetch()
        await write(cluster, 4)
        assert await first.fetch(max_records=2) == [(0, 1, 1)]
        leader = cluster.nodes[cluster.leader_of("orders", 0)]
        leader.replica_manager.delete_records(leader.replica_manager.require(("orders", 0)), 3)
        assert await second.fetch() == [(3, 3, 1)]
        assert await first.acknowledge((0, 1, ACCEPT)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("level, delivered", [("read_uncommitted", [(0, 5, 1)]), ("read_committed", [(2, 5, 1)])])
async def test_records_of_aborted_transactions_are_for_groups_that_read_uncommitted_ones(
    cluster: EmbeddedCluster, level: str, delivered: list[tuple[int, int, int]]
) -> None:
    """Offsets 2 and 5 are the markers of the transactions: members acknowledge them as gaps."""
    await set_configs(cluster, share_isolation_level=level, share_auto_offset_reset="earliest")
    settings = {"connector": cluster.connector, "transactional_id": "x"}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        for commits in (False, True):
            await producer.begin_transaction()
            await producer.send_many("orders", [b"1", b"2"])
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    async with Member(cluster) as member:
        assert await member.fetch() == delivered


async def test_a_new_leader_continues_with_the_state_of_the_old_one(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        await member.fetch()
        await write(cluster, 5)
        assert await member.fetch() == [(0, 4, 1)]
        await member.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (3, 3, ACCEPT))
        await cluster.move_leader("orders", 0)
        response = await member.fetch_response()
        partition = response.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.current_leader.leader_id == cluster.leader_of("orders", 0)
        assert [node_endpoint.node_id for node_endpoint in response.node_endpoints] == [cluster.leader_of("orders", 0)]
        await member.connect()
        assert await member.fetch() == [(1, 1, 2), (2, 2, 1), (4, 4, 1)]


async def test_a_leader_that_was_replaced_without_its_knowledge_takes_no_acknowledgements(
    cluster: EmbeddedCluster,
) -> None:
    """Its state of the share partition would overwrite the new leader's state."""
    await set_configs(cluster, share_auto_offset_reset="earliest")
    async with Member(cluster) as first, Member(cluster, "second") as second:
        await first.fetch()
        await write(cluster, 2)
        assert await first.fetch() == [(0, 1, 1)]
        await cluster.partition_network([cluster.leader_of("orders", 0)])
        await asyncio.sleep(15.0)
        await second.connect()
        assert await second.fetch() == [(0, 1, 1)]
        error, _ = await first.acknowledge((0, 0, ACCEPT))
        assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await second.acknowledge((0, 0, ACCEPT)) == (ErrorCode.NONE, None)


async def test_a_restart_with_a_data_dir_keeps_the_state(tmp_path: Path) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster:
        await cluster.create_topic("orders")
        async with Member(cluster) as member:
            await member.fetch()
            await write(cluster, 4)
            assert await member.fetch() == [(0, 3, 1)]
            await member.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT))
            epoch = member.epoch
            await member.close_session()
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster, Member(cluster) as member:
        assert member.epoch > epoch
        assert await member.offsets() == (1, 2)
        assert await member.fetch() == [(1, 1, 2), (3, 3, 2)]


async def test_a_deleted_topic_takes_its_state_with_it(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        await member.fetch()
        await write(cluster, 2)
        await member.fetch()
        await member.acknowledge((0, 1, ACCEPT))
        await cluster.delete_topic("orders")
        await cluster.create_topic("orders", 1, 3)
        await member.beat()
        assert await member.offsets() == (-1, -1)


async def test_a_group_that_was_deleted_begins_again(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, share_auto_offset_reset="earliest")
    await write(cluster, 2)
    async with Member(cluster) as member:
        assert await member.fetch() == [(0, 1, 1)]
        await member.acknowledge((0, 0, ACCEPT))
        await member.leave()
        async with await member.coordinator() as peer:
            deleted = await peer.ask(m.DeleteGroupsRequest(groups_names=["workers"]))
        assert deleted.results[0].error_code == ErrorCode.NONE
        await member.join()
        assert await member.fetch() == [(0, 1, 1)]


async def test_an_altered_offset_ends_all_deliveries(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        await member.fetch()
        await write(cluster, 3)
        assert await member.fetch() == [(0, 2, 1)]
        await member.leave()
        partition = m.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
        topic = m.AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=[partition])
        async with await member.coordinator() as peer:
            answer = await peer.ask(m.AlterShareGroupOffsetsRequest(group_id="workers", topics=[topic]))
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        assert await member.fetch() == [(1, 2, 1)]


async def test_a_broker_with_too_many_share_sessions_refuses_another_one() -> None:
    configs = {"group.share.max.share.sessions": "1"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("orders")
        async with Member(cluster) as first, Member(cluster, "second") as second:
            await first.fetch()
            response = await second.fetch_response()
            assert response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            await first.close_session()
            assert await second.fetch() == []


def test_the_share_sessions_of_a_broker_have_a_limited_number_of_partitions() -> None:
    """A client could fill the memory otherwise, because partitions that do not exist are remembered too."""
    sessions = ShareSessions(slots=2)
    partitions = [(bytes(16), number) for number in range(MOST_PARTITIONS)]
    sessions.update(sessions.open(("g", "first"), 1), partitions, ())
    second = sessions.open(("g", "second"), 1)
    with pytest.raises(SessionRefused):
        sessions.update(second, partitions[:1], ())
    assert [session.partitions == {} for _, session in sessions.of_connection(1)] == [False, True]


async def test_without_the_feature_share_groups_are_unsupported() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka="4.1") as cluster, Peer(cluster) as peer:
        request = m.ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
        assert (await peer.ask(request)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_acknowledgement_of_records_that_are_not_in_flight_is_refused_as_by_kafka(
    cluster: EmbeddedCluster,
) -> None:
    await set_configs(cluster, share_auto_offset_reset="earliest")
    async with Member(cluster) as member:
        await member.fetch(max_records=0)
        code, _ = await member.acknowledge((0, 0, ACCEPT))
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no member has read the partition"
        await member.fetch()
        code, _ = await member.acknowledge((0, 0, ACCEPT))
        assert code is ErrorCode.INVALID_RECORD_STATE, "no record is in flight"
        await write(cluster, 1)
        assert await member.fetch() == [(0, 0, 1)]
        code, _ = await member.acknowledge((1, 1, ACCEPT))
        assert code is ErrorCode.INVALID_REQUEST, "the record is past those in flight"


async def test_a_partition_that_a_later_request_adds_is_answered_once(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader_of("orders", 0)
    await cluster.create_topic("more", 1, 3)
    if cluster.leader_of("more", 0) != leader:
        await cluster.move_leader("more", 0, leader)
    more = cluster.controller.topics["more"].topic_id
    async with Member(cluster) as member:
        await member.join(["orders", "more"])
        first = share_fetch("workers", "first", 0, member.topic_id)
        second = share_fetch("workers", "first", 1, more)
        third = share_fetch("workers", "first", 2, more)
        answers = [await member.leader.ask(request) for request in (first, second, third)]
        named = [[topic.topic_id for topic in answer.responses] for answer in answers]
        assert named == [[member.topic_id], [more], []]


async def test_a_wrong_acquire_mode_leaves_the_session_as_in_kafka(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        wrong = share_fetch("workers", "first", 0, member.topic_id, share_acquire_mode=7)
        assert (await member.leader.ask(wrong)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        following = share_fetch("workers", "first", 1, member.topic_id)
        assert (await member.leader.ask(following)).error_code == ErrorCode.NONE


async def test_an_unknown_topic_is_reported_before_wrong_types_of_acknowledgements(cluster: EmbeddedCluster) -> None:
    async with Member(cluster) as member:
        await member.fetch()
        request = share_acknowledge("workers", "first", 1, bytes(15) + b"\x01", (0, 0, (9,)))
        (topic,) = (await member.leader.ask(request)).responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

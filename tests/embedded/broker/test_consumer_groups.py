"""Consumer groups whose coordinator assigns: they survive their coordinator, and a restart from disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiokafka_lite import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.embedded.broker.raw_client import Peer
from tests.virtual import in_virtual_time

CLASSIC = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10000,
    rebalance_timeout_ms=10000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)


async def coordinator(cluster: EmbeddedCluster) -> int:
    """Return the node that coordinates the group. The first request for it creates the offsets topic."""
    running = next(node for node in cluster.nodes.values() if node.is_running)
    async with Peer(cluster, running.node_id) as peer:
        (broker,) = (await peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))).coordinators
    assert broker.error_code == ErrorCode.NONE
    return broker.node_id


async def heartbeat(
    cluster: EmbeddedCluster, epoch: int, member_id: str = "a", topic: str = "t"
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 1000, [topic], []
    async with Peer(cluster, await coordinator(cluster)) as peer:
        return await peer.ask(request)


async def described(cluster: EmbeddedCluster) -> ConsumerGroupDescribeGroup:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    async with Peer(cluster, await coordinator(cluster)) as peer:
        (group,) = (await peer.ask(request)).groups
    return group


async def test_a_group_outlives_its_coordinator() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        await cluster.create_topic("t", 2, 3)
        assert (await heartbeat(cluster, 0)).member_epoch == 2
        before, first = await described(cluster), await coordinator(cluster)
        await cluster.stop(first)
        assert await coordinator(cluster) != first
        answer = await heartbeat(cluster, 2)
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
        assert await described(cluster) == before


async def test_a_group_outlives_a_restart_from_disk(tmp_path: Path) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        await heartbeat(cluster, 0)
        before = await described(cluster)
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster:
        assert await described(cluster) == before
        assert (await heartbeat(cluster, 2)).member_epoch == 2


async def test_a_partition_that_a_member_has_to_revoke_is_described_as_its_own() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, configs={"group.consumer.assignment.interval.ms": "0"}) as cluster:
        await cluster.create_topic("t", 2)
        await heartbeat(cluster, 0)
        await heartbeat(cluster, 0, "b")
        assert (await heartbeat(cluster, 2)).member_epoch == 2, "the member has to revoke a partition first"
        owned = {
            member.member_id: [topic.partitions for topic in member.assignment.topic_partitions]
            for member in (await described(cluster)).members
        }
        assert owned == {"a": [[0, 1]], "b": []}


async def test_a_group_id_belongs_to_one_type_until_the_group_is_empty() -> None:
    configs = {"group.consumer.migration.policy": "disabled"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("t", 2)
        await heartbeat(cluster, 0)
        async with Peer(cluster) as peer:
            assert (await peer.ask(CLASSIC)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            await heartbeat(cluster, -1)
            joined = await peer.ask(CLASSIC)
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            (listed,) = (await peer.ask(ListGroupsRequest())).groups
            assert (listed.group_id, listed.group_type) == ("g", "classic")
            assert (await described(cluster)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert (await heartbeat(cluster, 0)).member_epoch == 2
            (listed,) = (await peer.ask(ListGroupsRequest(types_filter=["Consumer"]))).groups
            assert (listed.group_state, listed.group_type) == ("Stable", "consumer")


async def test_a_commit_with_an_old_version_is_refused_before_its_epoch_is_checked() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("t", 2)
        await heartbeat(cluster, 0)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="g",
            member_id="a",
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        async with Peer(cluster) as peer:
            answer = await peer.ask(request, 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_member_that_may_not_join_gets_no_member_id() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("t", 2)
        await heartbeat(cluster, 0)
        async with Peer(cluster) as peer:
            refused = await peer.ask(replace(CLASSIC, member_id="stranger", protocol_type="other"))
        assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


@pytest.mark.parametrize("pattern", ["(", "(a|b)*a(a|b){600}"])
async def test_a_member_whose_pattern_is_refused_makes_no_group(pattern: str) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await coordinator(cluster)
        refused = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=pattern,
            topic_partitions=[],
        )
        async with Peer(cluster) as peer:
            assert (await peer.ask(refused)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            assert (await peer.ask(ListGroupsRequest())).groups == []


async def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        for name in ("t", "u"):
            await cluster.create_topic(name, 1)
        await heartbeat(cluster, 0)
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("t", "u")
        ]
        async with Peer(cluster) as peer:
            answer = await peer.ask(OffsetDeleteRequest(group_id="g", topics=topics))
        assert [topic.partitions[0].error_code for topic in answer.topics] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
        ]


@pytest.mark.parametrize(("release", "offers"), [("3.9.1", False), ("4.0.1", True)])
async def test_releases_before_4_0_do_not_offer_the_protocol(release: str, offers: bool) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka=release) as cluster:
        assert (ConsumerGroupHeartbeatRequest.api_key in cluster.nodes[1].versions) is offers


@in_virtual_time
async def test_a_member_gets_the_partitions_of_one_that_has_just_left_in_virtual_time() -> None:
    """The interval between two assignments is one of the loop's time, which tests may move."""
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=1)
        for number in range(2):
            await cluster.produce("orders", b"%d" % number, partition=0)
            consumer: Consumer = Consumer(
                cluster.bootstrap_servers,
                connector=cluster.connector,
                topics=["orders"],
                group_id="billing",
                group_protocol="consumer",
                auto_offset_reset="earliest",
            )
            async with consumer:
                (record,) = await consumer.poll(timeout=10.0)
                assert record.value == b"%d" % number
                consumer.mark(record)
                await consumer.commit()

"""Topics that are created and deleted, and racks, in the assignment of a group."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.group import CooperativeStickyStrategy, MemberState, RangeStrategy, StickyStrategy
from aiokafka_lite.protocol.messages import MetadataRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import COOPERATIVE, Reading, member_of, until_stable


def topics_of(*consumers: Consumer) -> set[str]:
    return {partition.topic for consumer in consumers for partition in consumer.assignment}


async def until_topics(topics: set[str], *consumers: Consumer) -> None:
    async with asyncio.timeout(30):
        while topics_of(*consumers) != topics or any(
            consumer.membership is not MemberState.STABLE for consumer in consumers
        ):
            await asyncio.sleep(0.1)  # virtual


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_pattern_follows_topics_that_are_created_and_deleted(
    cluster: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    pattern = re.compile(r"orders(-.*)?")
    members = [member_of(cluster, topics=pattern, metadata_max_age=5.0, **settings) for _ in range(2)]
    async with members[0], members[1], Reading(*members):
        await until_stable(*members)
        await cluster.create_topic("orders-north", partitions=2)  # found after metadata_max_age, five seconds
        await cluster.create_topic("orders-south", partitions=2)
        await until_topics({"orders", "orders-north", "orders-south"}, *members)
        assert sum(len(member.assignment) for member in members) == 10
        await cluster.delete_topic("orders-north")
        await until_topics({"orders", "orders-south"}, *members)
        assert sum(len(member.assignment) for member in members) == 8
        for member in members:
            assert member.state is ServiceState.RUNNING
    async with member_of(cluster, topics=pattern) as after:
        fill(cluster, TopicPartition("orders-south", 1), 3)
        assert len(await after.poll(timeout=20.0)) == 3


async def test_a_deleted_topic_leaves_a_pattern_at_once_and_is_not_created_again(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders-north", partitions=2)
    member = member_of(cluster, topics=re.compile(r"orders(-.*)?"))
    async with member, Reading(member):
        await until_topics({"orders", "orders-north"}, member)
        await cluster.delete_topic("orders-north")
        began = asyncio.get_running_loop().time()
        await until_topics({"orders"}, member)
        assert asyncio.get_running_loop().time() - began < 10.0
        cluster.history.clear()
        await asyncio.sleep(700.0)  # longer than every refresh interval
        assert topics_of(member) == {"orders"}
        assert member.state is ServiceState.RUNNING
        assert len(cluster.history.of(MetadataRequest)) < 12


@pytest.mark.parametrize("strategy", [RangeStrategy, StickyStrategy, CooperativeStickyStrategy])
async def test_members_get_partitions_with_a_replica_in_their_rack(strategy: Any) -> None:
    # The members join together: a partition that a member owns stays with it in any rack.
    configs = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "3000"}
    async with EmbeddedCluster(
        brokers=3, tcp=False, seed=1, configs=configs, config=ClusterConfig(racks=["a", "b", "c"])
    ) as cluster:
        await cluster.create_topic("orders", assignments=[[1], [2], [3], [1], [2], [3]])
        members = [member_of(cluster, client_rack=rack, strategies=[strategy()]) for rack in "cab"]
        async with members[0], members[1], members[2], Reading(*members):
            async with asyncio.timeout(60):
                while sorted(len(member.assignment) for member in members) != [2, 2, 2]:
                    await asyncio.sleep(0.1)  # virtual
            await asyncio.sleep(10.0)
            view = members[0]._core.client.view
            leaders = [
                {view.nodes[view.leader_of(partition).node_id].rack for partition in member.assignment}
                for member in members
            ]
        assert leaders == [{"c"}, {"a"}, {"b"}]

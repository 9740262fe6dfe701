"""The topics that a consumer reads, and its calls about topics."""

from __future__ import annotations

import asyncio
import re

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import IllegalStateError, UnknownTopic
from aiokafka_lite.protocol.messages import LeaveGroupRequest, MetadataRequest, MetadataResponse
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster with the topics "orders" (two partitions of ten records each) and "payments"."""
    await cluster.create_topic("orders", partitions=2)
    await cluster.create_topic("payments")
    fill(cluster, FIRST, 10)
    fill(cluster, SECOND, 10)
    return cluster


async def test_topics_are_listed_without_internal_ones(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"], group_id="g") as consumer:
        await take(consumer, 20)
        assert await consumer.commit()  # now there is a topic for offsets
        assert await consumer.topics() == {"orders", "payments"}


async def test_partitions_of_any_topic_are_described_with_their_leaders(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        partitions = await consumer.partitions_for("orders")
        assert [partition.partition for partition in partitions] == [0, 1]
        assert [partition.leader for partition in partitions] == [orders.leader_of(*FIRST), orders.leader_of(*SECOND)]


async def test_partitions_of_a_topic_that_does_not_appear_are_an_error(orders: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with consumer_of(orders, allow_auto_create_topics=False) as consumer:
        began = loop.time()
        with pytest.raises(UnknownTopic, match="'nowhere' did not appear within 2 s"):
            await consumer.partitions_for("nowhere", timeout=2.0)
        assert loop.time() - began == pytest.approx(2.0, abs=0.1)


async def test_the_subscription_names_whole_topics_and_not_assigned_ones(orders: EmbeddedCluster) -> None:
    consumer = consumer_of(orders, topics=["orders"])
    assert consumer.subscription() == {"orders"}
    assigned = consumer_of(orders)
    assigned.assign([FIRST])
    assert assigned.subscription() == frozenset()


async def test_the_subscription_of_a_pattern_names_the_topics_that_match(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=re.compile("o.*"), group_id="g") as consumer:
        await take(consumer, 20)
        assert consumer.subscription() == {"orders"}


async def test_an_unsubscribed_member_leaves_and_comes_back_by_subscribe(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"], group_id="g") as consumer:
        await take(consumer, 20)
        consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        async with asyncio.timeout(10.0):
            while consumer.assignment or not orders.history.of(LeaveGroupRequest):
                await asyncio.sleep(0.05)  # virtual
        with pytest.raises(IllegalStateError, match="nothing to read"):
            await consumer.poll()
        consumer.subscribe(["orders"])
        fill(orders, FIRST, 1)
        assert [record.partition for record in await take(consumer, 1)] == [0]


async def test_an_unsubscribed_consumer_of_whole_topics_may_be_assigned_partitions(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"]) as consumer:
        await take(consumer, 20)
        consumer.unsubscribe()
        assert consumer.assignment == ()
        with pytest.raises(IllegalStateError, match="nothing to read"):
            await consumer.poll()
        consumer.assign([SECOND])
        assert {record.partition for record in await take(consumer, 10)} == {1}


async def test_unsubscribe_ends_an_assignment(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 5)
        consumer.unsubscribe()
        assert consumer.assignment == ()


async def test_an_assigned_partition_outlives_brokers_that_do_not_list_it_yet(orders: EmbeddedCluster) -> None:
    def without_second(response: MetadataResponse) -> MetadataResponse:
        for topic in response.topics:
            topic.partitions = [partition for partition in topic.partitions if partition.partition_index != 1]
        return response

    for node in orders.nodes:
        orders.cap_versions(node, MetadataRequest, 9)  # without topic ids, an answer may be about another topic
    async with consumer_of(orders, metadata_max_age=1.0) as consumer:
        consumer.assign([SECOND])
        await take(consumer, 10)
        with orders.on(MetadataRequest, times=None).alter(without_second):
            assert await consumer.poll(timeout=10.0) == []
        fill(orders, SECOND, 1)
        assert [record.partition for record in await take(consumer, 1)] == [1]

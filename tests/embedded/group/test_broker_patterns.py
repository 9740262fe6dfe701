"""Members that subscribe by a pattern which the brokers match (KIP-848), in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, Record, SubscriptionPattern, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ConfigurationError, ErrorCode, UnsupportedVersion
from aiokafka_lite.protocol.messages import ConsumerGroupHeartbeatRequest, ListOffsetsRequest, MetadataRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import CONSUMER, Reading, member_of
from tests.embedded.group.test_topics_and_racks import until_topics

ORDERS = SubscriptionPattern("orders(-.*)?")


def subscriptions(cluster: EmbeddedCluster) -> list[tuple[list[str] | None, str | None]]:
    """Return the names and the pattern of each heartbeat that has one of them."""
    requests = [seen.request for seen in cluster.history.of(ConsumerGroupHeartbeatRequest)]
    pairs = [(request.subscribed_topic_names, request.subscribed_topic_regex) for request in requests]
    return [pair for pair in pairs if pair != (None, None)]


async def test_members_read_the_topics_that_the_brokers_match(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("audit")
    await cluster.create_topic("orders-south", partitions=2)
    members = [member_of(cluster, topics=ORDERS, **CONSUMER) for _ in range(2)]
    async with members[0], members[1], Reading(*members):
        await until_topics({"orders", "orders-south"}, *members)
        async with asyncio.timeout(60.0):
            while sum(len(member.assignment) for member in members) != 8:
                await asyncio.sleep(0.1)  # virtual
        assert members[0].subscription() | members[1].subscription() == {"orders", "orders-south"}
        await cluster.create_topic("orders-north", partitions=2)
        await until_topics({"orders", "orders-south", "orders-north"}, *members)
        await cluster.delete_topic("orders-south")
        await until_topics({"orders", "orders-north"}, *members)
    assert {names == [] and pattern for names, pattern in subscriptions(cluster)} == {ORDERS.pattern}


async def test_a_subscription_changes_between_patterns_and_names(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("audit")
    member = member_of(cluster, topics=["audit"], **CONSUMER)
    async with member, Reading(member):
        await until_topics({"audit"}, member)
        member.subscribe(SubscriptionPattern("ord.*"))
        await until_topics({"orders"}, member)
        member.subscribe(["audit"])
        await until_topics({"audit"}, member)
        assert member.subscription() == {"audit"}
    assert subscriptions(cluster) == [(["audit"], None), ([], "ord.*"), (["audit"], "")]


async def test_records_of_a_topic_that_appears_later_are_read(cluster: EmbeddedCluster) -> None:
    fill(cluster, TopicPartition("orders", 0), 2)
    async with member_of(cluster, topics=ORDERS, auto_offset_reset="latest", **CONSUMER) as member:
        await member.wait_assigned()
        await asyncio.sleep(10.0)
        await cluster.create_topic("orders-north", partitions=1)
        fill(cluster, TopicPartition("orders-north", 0), 3)
        assert len(await member.poll(timeout=60.0)) == 3


async def test_a_handler_reads_the_topics_that_the_brokers_match(cluster: EmbeddedCluster) -> None:
    fill(cluster, TopicPartition("orders", 0), 3)
    done = asyncio.Event()
    offsets: list[int] = []

    async def handle(record: Record[bytes, bytes]) -> None:
        offsets.append(record.offset)
        if len(offsets) == 3:
            done.set()

    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "connector": cluster.connector}
    async with ConsumerGroup(cluster.bootstrap_servers, group_id="billing", **CONSUMER, **settings) as group:
        running = asyncio.create_task(group.consume(ORDERS, Workers(handle)))
        async with asyncio.timeout(60.0):
            await done.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_pattern_that_re2_does_not_have_ends_the_member(cluster: EmbeddedCluster) -> None:
    with pytest.raises(BrokerError, match=r"orders\(\?=x\)") as caught:
        async with member_of(cluster, topics=SubscriptionPattern("orders(?=x)"), **CONSUMER) as member:
            await member.poll(timeout=60.0)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_brokers_without_patterns_are_refused(cluster: EmbeddedCluster) -> None:
    for node in cluster.nodes.values():
        node.versions[ConsumerGroupHeartbeatRequest.api_key] = (0, 0)
    with pytest.raises(UnsupportedVersion, match=r"a SubscriptionPattern requires Kafka 4\.0 or newer"):
        async with member_of(cluster, topics=ORDERS, **CONSUMER) as member:
            await member.poll(timeout=60.0)


async def test_the_names_of_topics_are_asked_for_again(cluster: EmbeddedCluster) -> None:
    fill(cluster, TopicPartition("orders", 0), 1)
    with cluster.on(MetadataRequest, times=4).fail(ErrorCode.LEADER_NOT_AVAILABLE):
        async with member_of(cluster, topics=ORDERS, auto_offset_reset="earliest", **CONSUMER) as member:
            assert len(await member.poll(timeout=60.0)) == 1
            assert cluster.history.of(ListOffsetsRequest)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"topics": ORDERS, "group_id": "g"},
            "a SubscriptionPattern requires group_protocol=\"consumer\", got 'classic'",
        ),
        ({"topics": ORDERS, "group_id": "g", "group_protocol": "auto"}, "got 'auto'"),
        ({"topics": ORDERS}, "topics given by a pattern require a group_id"),
        ({"topics": SubscriptionPattern(""), "group_id": "g", **CONSUMER}, "a text that is not empty"),
        ({"topics": SubscriptionPattern(b"x"), "group_id": "g", **CONSUMER}, "a text that is not empty"),  # type: ignore[arg-type]
    ],
)
def test_a_pattern_needs_the_consumer_protocol(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Consumer("localhost:9092", **settings)
    assert text in str(caught.value)

"""A topic of several that is deleted: a warning, and the other topics are read on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, UnknownTopic
from aiokafka_lite.protocol.messages import JoinGroupRequest, MetadataRequest, MetadataResponse
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill
from tests.embedded.group.recording_members import ORDERS, each_way, member_of, read_all
from tests.waiting import until

OTHER = TopicPartition("other", 0)


@pytest.fixture(autouse=True)
async def other_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("other", partitions=1)
    fill(cluster, ORDERS[0], 5)
    fill(cluster, OTHER, 5)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and "other" in record.message
    ]


@each_way
async def test_a_group_reads_on_without_a_deleted_topic(
    cluster: EmbeddedCluster, settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        member_of(cluster, topics=["orders", "other"], allow_auto_create_topics=False, **settings) as first,
        member_of(cluster, topics=["orders", "other"], allow_auto_create_topics=False, **settings) as second,
    ):
        members = (first, second)

        async def read() -> list[TopicPartition]:
            """Read with both members for a minute. Return the partitions of the records."""
            partitions = []
            for _ in range(60):
                for member in members:
                    records = await member.poll(timeout=0.5)
                    partitions += [TopicPartition(record.topic, record.partition) for record in records]
            return partitions

        assert set(await read()) == {ORDERS[0], OTHER}
        assert sorted((*first.assignment, *second.assignment)) == [*ORDERS, OTHER]
        await cluster.delete_topic("other")
        fill(cluster, ORDERS[0], 5)
        assert set(await read()) == {ORDERS[0]}
        assert sorted((*first.assignment, *second.assignment)) == ORDERS
        assert any("continues without" in warning for warning in warnings(caplog))
        await cluster.create_topic("other", partitions=2)
        fill(cluster, OTHER, 5)
        assert set(await read()) == {OTHER}
        assert sorted((*first.assignment, *second.assignment)) == [*ORDERS, OTHER, TopicPartition("other", 1)]


async def test_a_broker_that_does_not_know_a_topic_for_a_moment_causes_no_rebalance(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_of(cluster, topics=["orders", "other"], allow_auto_create_topics=False) as consumer:
        await read_all(consumer, 10)
        generation = consumer.group_metadata().generation_id
        unknown = cluster.on(MetadataRequest, topic="other").fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=1)
        await consumer._core.client.refresh()
        assert unknown.hits == 1
        assert await consumer.poll(timeout=30.0) == []
        assert not [record for record in caplog.records if "continues without" in record.getMessage()]
        assert consumer.group_metadata().generation_id == generation
        assert len(cluster.history.of(JoinGroupRequest)) == 2


async def test_a_consumer_without_a_group_reads_on_without_a_deleted_topic(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_of(cluster, topics=["orders", "other"], allow_auto_create_topics=False) as consumer:
        await read_all(consumer, 10)
        await cluster.delete_topic("other")
        assert await consumer.poll(timeout=200.0) == []
        assert list(consumer.assignment) == ORDERS
        assert any("reading continues" in warning for warning in warnings(caplog))
        await cluster.create_topic("other", partitions=1)
        fill(cluster, OTHER, 5)
        await until(lambda: OTHER in consumer.assignment, within=400.0)
        assert [record.topic for record in await read_all(consumer, 5)] == ["other"] * 5


async def test_the_deletion_of_a_topic_with_several_partitions_is_logged_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("other-2", partitions=3)
    async with consumer_of(cluster, topics=["orders", "other-2"], allow_auto_create_topics=False) as consumer:
        await read_all(consumer, 5)
        await cluster.delete_topic("other-2")
        assert await consumer.poll(timeout=200.0) == []
        assert list(consumer.assignment) == ORDERS
        assert len([warning for warning in warnings(caplog) if "reading continues" in warning]) == 1


async def test_the_only_topic_of_a_consumer_without_a_group_is_an_error_when_it_is_deleted(
    cluster: EmbeddedCluster,
) -> None:
    async with consumer_of(cluster, topics=["other"], allow_auto_create_topics=False) as consumer:
        await read_all(consumer, 5)
        await cluster.delete_topic("other")
        with pytest.raises(UnknownTopic, match="other-0"):
            await consumer.poll(timeout=200.0)


async def test_an_assigned_partition_whose_topic_is_deleted_is_an_error(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, allow_auto_create_topics=False) as consumer:
        consumer.assign([ORDERS[0], OTHER])
        await read_all(consumer, 10)
        await cluster.delete_topic("other")
        with pytest.raises(UnknownTopic, match="other-0"):
            await consumer.poll(timeout=200.0)


async def test_a_member_waits_for_a_partition_that_its_broker_lists_late(cluster: EmbeddedCluster) -> None:
    """The leader of the group knew the new partition, and the metadata of this member's broker was out of date."""

    def without_the_last_partition(response: MetadataResponse) -> MetadataResponse:
        for topic in response.topics:
            if topic.name == "orders" and is_out_of_date:
                del topic.partitions[-1:]
        return response

    is_out_of_date = False
    cluster.on(MetadataRequest, times=None).alter(without_the_last_partition)
    async with member_of(cluster, group_instance_id="a") as leader:
        await leader.wait_assigned()
        is_out_of_date = True
        async with member_of(cluster, group_instance_id="b") as other:
            joining = asyncio.create_task(other.wait_assigned())
            while not joining.done():
                await leader.poll(timeout=1.0)
            assert ORDERS[-1] in joining.result()
            assert await other.poll(timeout=10.0) == []
            is_out_of_date = False
            fill(cluster, ORDERS[-1], 1)
            assert len(await read_all(other, 1)) == 1

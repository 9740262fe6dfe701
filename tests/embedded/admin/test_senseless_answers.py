"""Wrong but well-formed answers to the admin client cause few requests, and no error except KafkaErrors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite.admin import Admin, ConfigResource, NewTopic
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaError, KafkaTimeout
from aiokafka_lite.protocol.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    TopicPartitionCursor,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import TopicPartition
from tests.embedded.transactions.raw_producer import TransactionalPeer

ORDERS = ConfigResource.topic("orders")


def page_that_ends_at(topic: str, partition: int, *, is_empty: bool) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        response.next_cursor = TopicPartitionCursor(topic_name=topic, partition_index=partition)
        if is_empty:
            response.topics = []
        return response

    return change


@pytest.mark.parametrize(
    ("topic", "partition", "is_empty"), [("", -1, False), ("a", 0, True), ("b", 2, True)], ids=["start", "a", "b"]
)
async def test_pages_without_progress_are_requested_with_pauses_until_the_deadline(
    admin: Admin, cluster: EmbeddedCluster, topic: str, partition: int, is_empty: bool
) -> None:
    await admin.topics.create([NewTopic("a", 1), NewTopic("b", 3)])
    wrong = cluster.on(DescribeTopicPartitionsRequest, times=None)
    wrong.alter(page_that_ends_at(topic, partition, is_empty=is_empty))
    pages = admin.topics.pages(size=2, timeout=5.0)
    async with asyncio.timeout(10):
        with pytest.raises(KafkaTimeout, match="which is not after the start of this page"):
            await anext(pages)
    assert wrong.hits <= 5 * 5
    wrong.remove()
    assert [topic.name async for page in pages for topic in page] == ["a", "b", "b"]


async def test_a_second_page_that_begins_like_the_first_one_is_refused(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("a", 4))
    pages = admin.topics.pages(size=2, timeout=5.0)
    await anext(pages)
    cluster.on(DescribeTopicPartitionsRequest, times=None).alter(page_that_ends_at("a", 2, is_empty=False))
    with pytest.raises(KafkaTimeout, match="partition 2 of topic 'a', which is not after the start of this page"):
        await anext(pages)


@pytest.mark.parametrize(
    ("request_type", "call"),
    [
        (ListGroupsRequest, lambda admin: admin.groups.list(timeout=5.0)),
        (ListTransactionsRequest, lambda admin: admin.transactions.list(timeout=5.0)),
    ],
)
async def test_a_broker_that_denies_its_own_id_is_named_at_the_deadline(
    admin: Admin, cluster: EmbeddedCluster, request_type: type[Request[Any]], call: Callable[[Admin], Awaitable[Any]]
) -> None:
    wrong = cluster.on(request_type, times=None).fail(ErrorCode.BROKER_ID_NOT_REGISTERED)
    with pytest.raises(KafkaTimeout, match=r"^listing \w+ did not succeed within 5 s; .*BROKER_ID_NOT_REGISTERED"):
        await call(admin)
    assert wrong.hits <= 3 * 5 * 5
    wrong.remove()
    await call(admin)


async def test_settings_of_another_resource_change_nothing(old_admin: Admin, old_cluster: EmbeddedCluster) -> None:
    """Kafka 1.1 replaces all settings of a resource, so the client reads them first."""
    await old_admin.topics.create(NewTopic("orders", 1))

    def about_another(response: Any) -> Any:
        response.results[0].resource_name = "another"
        return response

    wrong = old_cluster.on(DescribeConfigsRequest, times=None).alter(about_another)
    results = await old_admin.configs.alter({ORDERS: {"retention.ms": 5}}, timeout=3.0)
    with pytest.raises(KafkaError, match="the response does not have this item"):
        results.raise_for_errors()
    assert not old_cluster.history.of(AlterConfigsRequest)
    wrong.remove()
    (await old_admin.configs.alter({ORDERS: {"retention.ms": 5}})).raise_for_errors()


@pytest.mark.parametrize("field", ["producer_id", "producer_epoch"])
async def test_a_fenced_producer_has_an_id_and_an_epoch(admin: Admin, cluster: EmbeddedCluster, field: str) -> None:
    def change(response: Any) -> Any:
        setattr(response, field, -1)
        return response

    wrong = cluster.on(InitProducerIdRequest, times=None).alter(change)
    results = await admin.transactions.fence_producers("x", timeout=5.0)
    with pytest.raises(KafkaTimeout, match="was answered with producer id"):
        results.raise_for_errors()
    wrong.remove()
    assert (await admin.transactions.fence_producers("x"))["x"].producer_epoch >= 0


async def test_a_producer_without_an_id_is_no_value_error(admin: Admin, cluster: EmbeddedCluster) -> None:
    def without_id(response: Any) -> Any:
        for active_producer in response.topics[0].partitions[0].active_producers:
            active_producer.producer_id = -1
        return response

    await admin.topics.create(NewTopic("orders", 1))
    async with TransactionalPeer(cluster, "open") as writer:
        await writer.initialize()
        await writer.write("orders", b"1")
        cluster.on(DescribeProducersRequest, times=None).alter(without_id)
        hanging = admin.transactions.find_hanging(
            partitions=[TopicPartition("orders", 0)], max_transaction_timeout=0.0, timeout=5.0
        )
        with pytest.raises(KafkaTimeout, match="was answered with the producer id -1"):
            await hanging

"""The first position: after ``start`` or an assignment it is fixed, so that every later record is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aiokafka_lite.consumer import (
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    RebalanceHandle,
    RebalanceListener,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, ErrorCode, KafkaTimeout
from aiokafka_lite.protocol.messages import ListOffsetsRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take, write
from tests.waiting import until

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LATEST = {"auto_offset_reset": "latest"}


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster with a topic of two partitions, 100 records each. Its brokers answer lookups of offsets late."""
    await cluster.create_topic("orders", partitions=2)
    fill(cluster, FIRST, 100)
    fill(cluster, SECOND, 100)
    cluster.on(ListOffsetsRequest, times=None).delay(2.0)
    return cluster


@pytest.mark.parametrize("settings", [{}, {"group_id": "bookkeeping"}], ids=["without a group", "commits only"])
@pytest.mark.parametrize("policy", ["latest", "by_duration:PT1H"])
async def test_a_record_that_is_written_after_the_start_is_read(
    orders: EmbeddedCluster, settings: dict[str, Any], policy: str
) -> None:
    consumer = consumer_of(orders, auto_offset_reset=policy, **settings)
    consumer.assign([FIRST, SECOND])
    async with consumer:
        write(orders, SECOND, [b"after"])
        assert [(record.partition, record.value) for record in await take(consumer, 1)] == [(1, b"after")]


async def test_a_record_of_a_whole_topic_that_is_written_after_the_start_is_read(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"], **LATEST) as consumer:
        write(orders, SECOND, [b"after"])
        assert (await take(consumer, 1))[0].value == b"after"


async def test_a_record_of_a_topic_that_the_start_creates_is_read(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, topics=["new"], **LATEST) as consumer:
        write(cluster, TopicPartition("new", 0), [b"after"])
        assert (await take(consumer, 1))[0].value == b"after"


async def test_after_an_assignment_a_known_position_is_fixed(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, **LATEST) as consumer:
        consumer.assign([FIRST])
        assert await consumer.position(FIRST) == 100
        write(orders, FIRST, [b"after"])
        assert (await take(consumer, 1))[0].value == b"after"


class WritesWhenAssigned(RebalanceListener):
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.assigned = asyncio.Event()

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        write(self.cluster, SECOND, [b"after"])
        self.assigned.set()


async def test_a_record_that_is_written_after_an_assignment_in_a_group_is_read(orders: EmbeddedCluster) -> None:
    listener = WritesWhenAssigned(orders)
    async with consumer_of(orders, topics=["orders"], group_id="g", listener=listener, **LATEST) as consumer:
        assert (await take(consumer, 1))[0].value == b"after"


async def test_a_record_that_is_written_after_setup_of_a_session_is_read(orders: EmbeddedCluster) -> None:
    class Handler(ConsumerGroupHandler[bytes, bytes]):
        values: list[bytes | None] = []

        async def setup(self, session: ConsumerGroupSession) -> None:
            write(orders, SECOND, [b"after"])

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
            async for record in claim:
                self.values.append(record.value)
                done.set()

    done = asyncio.Event()
    handler = Handler()
    async with ConsumerGroup(
        orders.bootstrap_servers, connector=orders.connector, group_id="g", auto_offset_reset="latest"
    ) as group:
        consuming = asyncio.create_task(group.consume(["orders"], handler))
        await asyncio.wait_for(done.wait(), 30.0)
    await consuming
    assert handler.values == [b"after"]


async def test_a_leader_that_does_not_answer_fails_the_start_with_its_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    cluster.on(ListOffsetsRequest, times=None).drop()
    began = asyncio.get_running_loop().time()
    with pytest.raises(KafkaTimeout, match=r"the position of orders-0 was not found within 10 s: its leader, broker"):
        await consumer_of(cluster, topics=["orders"], api_timeout=10.0, request_timeout=4.0, **LATEST).start()
    assert asyncio.get_running_loop().time() - began == pytest.approx(10.0, abs=0.5)


async def test_a_partition_without_a_leader_delays_the_start_and_does_not_fail_it(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("orders", partitions=3, replication_factor=1)
    await cluster.kill(cluster.leader_of("orders", 0))
    async with consumer_of(cluster, topics=["orders"], api_timeout=10.0, **LATEST) as consumer:
        write(cluster, SECOND, [b"after"])
        assert [record.value for record in await take(consumer, 1)] == [b"after"]
    assert "the position of orders-0 was not found within 10 s" in caplog.text


async def test_a_start_by_the_earliest_record_does_not_wait_for_its_offset(orders: EmbeddedCluster) -> None:
    began = asyncio.get_running_loop().time()
    async with consumer_of(orders, topics=["orders"]) as consumer:
        assert asyncio.get_running_loop().time() - began < 1.0
        assert len(await take(consumer, 200)) == 200


async def test_a_refused_lookup_is_raised_by_the_read_and_not_by_the_start(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    cluster.on(ListOffsetsRequest, times=None).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with consumer_of(cluster, topics=["orders"], **LATEST) as consumer:
        with pytest.raises(AuthorizationError, match="orders-0"):
            await consumer.poll(timeout=10.0)


async def test_a_leader_that_does_not_answer_delays_a_member_and_does_not_end_it(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("orders", partitions=2)
    cluster.on(ListOffsetsRequest, node=cluster.leader_of("orders", 0), times=None).drop()
    listener = WritesWhenAssigned(cluster)
    settings: dict[str, Any] = {"group_id": "g", "listener": listener, "api_timeout": 10.0, "request_timeout": 4.0}
    async with consumer_of(cluster, topics=["orders"], **settings, **LATEST) as consumer:
        assert (await take(consumer, 1))[0].value == b"after"
    assert "the position of orders-0 was not found within 10 s" in caplog.text


async def test_a_member_that_waits_for_a_position_closes_at_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    fault = cluster.on(ListOffsetsRequest, times=None).drop()
    consumer = consumer_of(cluster, topics=["orders"], group_id="g", **LATEST)
    await consumer.start()
    await until(lambda: fault.hits, "the lookup is at the broker")
    began = asyncio.get_running_loop().time()
    await consumer.close()
    assert asyncio.get_running_loop().time() - began < 3.0


@pytest.mark.parametrize("turns", range(0, 200, 7))
async def test_a_start_that_is_cancelled_leaves_nothing_behind(orders: EmbeddedCluster, turns: int) -> None:
    consumer: Consumer = consumer_of(orders, topics=["orders"], **LATEST)
    starting = asyncio.create_task(consumer.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

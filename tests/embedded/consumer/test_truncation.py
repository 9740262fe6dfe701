"""Truncation checks: the leader's log is not the one that was read (KIP-320).

Brokers with Fetch v12 compare logs themselves; older ones are asked by OffsetForLeaderEpoch after the leader changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite import Consumer
from aiokafka_lite.consumer import Claim, ConsumerGroup, ConsumerGroupHandler, ConsumerGroupSession, ResetReason
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import AuthorizationError, ErrorCode, OffsetOutOfRange
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from aiokafka_lite.types import OffsetAndMetadata, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, leader, take, write
from tests.waiting import until

FIRST = TopicPartition("orders", 0)
LAST_THAT_DOES_NOT_COMPARE, FIRST_THAT_COMPARES = 11, 12


async def cluster_with_fetch(newest: int) -> AsyncIterator[EmbeddedCluster]:
    versions = {**default_versions(), FetchRequest.api_key: (4, newest)}
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders")
        fill(cluster, FIRST, 100)
        yield cluster


@pytest.fixture(params=[LAST_THAT_DOES_NOT_COMPARE, FIRST_THAT_COMPARES, 18])
async def orders(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """A topic of 100 records in batches of ten, on brokers of several releases."""
    async for cluster in cluster_with_fetch(request.param):
        yield cluster


@pytest.fixture
async def old_orders() -> AsyncIterator[EmbeddedCluster]:
    async for cluster in cluster_with_fetch(LAST_THAT_DOES_NOT_COMPARE):
        yield cluster


async def truncate(cluster: EmbeddedCluster, offset: int) -> None:
    """Truncate the log as an unclean election does, and write other records at the same offsets."""
    replica = leader(cluster, FIRST)
    replica.truncate_to(offset)
    await cluster.move_leader("orders", 0, cluster.leader_of("orders", 0))
    for number in range(60):
        write(cluster, FIRST, [b"other %d" % number])


def asked(cluster: EmbeddedCluster) -> list[OffsetForLeaderEpochRequest]:
    """Return the requests of consumers, not of followers."""
    requests = [exchange.request for exchange in cluster.history.of(OffsetForLeaderEpochRequest)]
    return [request for request in requests if request.replica_id < 0]


async def test_a_truncated_log_is_read_from_the_point_of_divergence(
    orders: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    resets: list[tuple[TopicPartition, int, int, ResetReason]] = []
    async with consumer_of(orders, on_offset_reset=lambda *reset: resets.append(reset)) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        await truncate(orders, 60)
        records = await take(consumer, 60)
        assert [(record.offset, record.value) for record in records] == [
            (60 + number, b"other %d" % number) for number in range(60)
        ]
    assert "orders-0 was truncated at offset 60, but the consumer has fetched it up to 100" in caplog.text
    assert resets == [(FIRST, 100, 60, ResetReason.TRUNCATED)]


@pytest.mark.parametrize("read", [5, 10])
async def test_a_truncation_behind_the_position_drops_only_fetched_records(orders: EmbeddedCluster, read: int) -> None:
    """Also in the middle of a batch, whose remaining records must not be returned twice."""
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        records = await take(consumer, read)
        await truncate(orders, 60)
        await asyncio.sleep(2.0)
        records += await take(consumer, 120 - read)
        assert [record.offset for record in records] == list(range(120))
        assert records[60].value == b"other 0"


async def test_without_a_policy_a_truncated_log_is_an_error_that_names_the_offsets(
    orders: EmbeddedCluster,
) -> None:
    async with consumer_of(orders, auto_offset_reset="none") as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 0)
        await take(consumer, 100)
        await truncate(orders, 60)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match="truncated at offset 60, but it was read up to 100"):
                await anext(consumer)
        consumer.seek(FIRST, 60)
        assert (await take(consumer, 1))[0].value == b"other 0"


async def test_an_old_broker_is_asked_once_after_each_change_of_the_leader(old_orders: EmbeddedCluster) -> None:
    async with consumer_of(old_orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        assert asked(old_orders) == []  # the records were read from the same leader
        for number in range(3):
            await old_orders.move_leader("orders", 0, old_orders.leader_of("orders", 0))
            write(old_orders, FIRST, [b"more"])
            assert (await take(consumer, 1))[0].offset == 100 + number
        assert len(asked(old_orders)) == 3
        await consumer.poll(timeout=30.0)
        assert len(asked(old_orders)) == 3


async def test_brokers_that_compare_logs_are_not_asked(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        await truncate(orders, 60)
        await take(consumer, 60)
    newest = orders.history.of(FetchRequest)[-1].version
    assert (len(asked(orders)) > 0) == (newest == LAST_THAT_DOES_NOT_COMPARE)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR]
)
async def test_a_failed_truncation_check_is_retried_at_a_bounded_rate(
    old_orders: EmbeddedCluster, code: ErrorCode
) -> None:
    async with consumer_of(old_orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        fault = old_orders.on(OffsetForLeaderEpochRequest, times=None).fail(code)
        await truncate(old_orders, 60)
        assert await consumer.poll(timeout=1.0) == []  # until the old leader has been fetched from for the last time
        fetches = len(old_orders.history.of(FetchRequest))
        assert await consumer.poll(timeout=29.0) == []
        assert 25 <= fault.hits <= 45
        assert len(old_orders.history.of(FetchRequest)) == fetches  # nothing is fetched before there is an answer
        fault.remove()
        assert (await take(consumer, 1))[0].value == b"other 0"


async def test_a_connection_that_breaks_during_a_truncation_check_costs_nothing(old_orders: EmbeddedCluster) -> None:
    async with consumer_of(old_orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        old_orders.on(OffsetForLeaderEpochRequest, times=3).disconnect()
        await truncate(old_orders, 60)
        assert (await take(consumer, 1))[0].value == b"other 0"


async def test_a_truncation_check_without_permission_is_an_error(old_orders: EmbeddedCluster) -> None:
    async with consumer_of(old_orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        old_orders.on(OffsetForLeaderEpochRequest, times=1).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await truncate(old_orders, 60)
        with pytest.raises(AuthorizationError, match=r"whether the log of orders-0 was truncated"):
            await anext(consumer)
        assert (await take(consumer, 1))[0].value == b"other 0"


@pytest.mark.parametrize("policy, offset", [("earliest", 0), ("latest", 120), ("none", None)])
async def test_a_log_without_any_epoch_that_was_read_is_read_by_the_policy(
    old_orders: EmbeddedCluster, policy: str, offset: int | None
) -> None:
    def without_epochs(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        part = OffsetForLeaderEpochResponsePartition(error_code=0, partition=0, leader_epoch=-1, end_offset=-1)
        topic = OffsetForLeaderEpochResponseTopic(topic="orders", partitions=[part])
        return OffsetForLeaderEpochResponse(topics=[topic])

    async with consumer_of(old_orders, auto_offset_reset=policy) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 0)
        await take(consumer, 100)
        old_orders.on(OffsetForLeaderEpochRequest, times=None).answer(without_epochs)
        await truncate(old_orders, 60)
        if offset is None:
            with pytest.raises(OffsetOutOfRange, match=r"orders-0 has no offset 100"):
                await anext(consumer)
            return
        await asyncio.sleep(2.0)
        assert await consumer.position(FIRST) == offset


async def test_a_seek_during_a_truncation_check_wins(old_orders: EmbeddedCluster) -> None:
    async with consumer_of(old_orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        fault = old_orders.on(OffsetForLeaderEpochRequest, times=1).delay(3.0)
        await truncate(old_orders, 60)
        await asyncio.sleep(2.0)
        assert fault.hits == 1
        consumer.seek(FIRST, 20)
        assert (await take(consumer, 1))[0].offset == 20


async def test_a_claim_in_the_middle_of_a_batch_reads_nothing_twice_after_a_truncation(
    orders: EmbeddedCluster,
) -> None:
    offsets: list[int] = []

    class Handler(ConsumerGroupHandler):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            async for record in claim:
                offsets.append(record.offset)
                if record.offset == 4:
                    await truncate(orders, 60)
                    await asyncio.sleep(2.0)
                if record.offset == 119:
                    done.set()

    done = asyncio.Event()
    group = ConsumerGroup(orders.bootstrap_servers, group_id="readers", connector=orders.connector)
    consuming = asyncio.ensure_future(group.consume(["orders"], Handler()))
    async with asyncio.timeout(60.0):
        await done.wait()
    await group.close()
    await consuming
    assert offsets == list(range(120))
    assert len(orders.nodes[orders.leader_of("orders", 0)].parts.fetch_sessions) == 0


async def test_a_former_leader_that_is_cut_off_does_not_reset_a_committed_offset(orders: EmbeddedCluster) -> None:
    bills = TopicPartition("bills", 0)
    await orders.create_topic("bills", 1, 3)
    former = orders.leader_of("bills", 0)
    settings: dict[str, Any] = {"group_id": "billing", "auto_commit": False, "auto_offset_reset": "earliest"}
    async with consumer_of(orders, topics=["bills"], **settings) as consumer:
        write(orders, bills, [b"early"])
        await take(consumer, 1)
        await orders.partition_network([former])
        await until(lambda: orders.leader_of("bills", 0) not in (former, -1), "another broker leads")
        write(orders, bills, [b"late", b"later"])
        (await consumer.commit({bills: OffsetAndMetadata(3, leader_epoch=1)})).raise_for_refused()
    outdated = orders.nodes[former]
    async with Consumer(
        f"{outdated.host}:{outdated.port}", connector=orders.connector, topics=["bills"], **settings
    ) as restarted:
        await restarted.wait_assigned()
        write(orders, bills, [b"new"])
        assert [record.value for record in await take(restarted, 1)] == [b"new"]


async def test_a_committed_offset_of_a_topic_before_it_was_created_again_is_reset(orders: EmbeddedCluster) -> None:
    settings: dict[str, Any] = {"group_id": "billing", "auto_commit": False, "auto_offset_reset": "earliest"}
    async with consumer_of(orders, topics=["orders"], **settings) as consumer:
        await consumer.wait_assigned()
        (await consumer.commit({FIRST: OffsetAndMetadata(500, leader_epoch=7)})).raise_for_refused()
    async with consumer_of(orders, topics=["orders"], **settings) as restarted:
        assert (await take(restarted, 1))[0].offset == 0

"""Reading from the closest replica (KIP-392)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import FetchRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take, until_replicated

FIRST = TopicPartition("orders", 0)
LEADER, NEAR = 1, 2


@pytest.fixture
async def racks() -> AsyncIterator[EmbeddedCluster]:
    """orders-0 is led in rack a and followed in rack b; it has 100 records."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, config=ClusterConfig(racks=["a", "b", "c"])) as cluster:
        await cluster.create_topic("orders", assignments=[[LEADER, NEAR]])
        await cluster.until_in_sync("orders")
        fill(cluster, FIRST, 100)
        await until_replicated(cluster, FIRST)
        yield cluster


def records_from(cluster: EmbeddedCluster, node: int) -> int:
    """Return the bytes of records that a broker sent to consumers."""
    return sum(
        len(part.records or b"")
        for exchange in cluster.history.of(FetchRequest, node=node)
        if isinstance(exchange.request, FetchRequest)
        and exchange.request.replica_state.replica_id < 0
        and exchange.request.replica_id < 0
        and exchange.response is not None
        for topic in exchange.response.responses
        for part in topic.partitions
    )


async def test_a_consumer_reads_from_the_replica_in_its_rack(racks: EmbeddedCluster) -> None:
    async with consumer_of(racks, client_rack="b") as consumer:
        consumer.assign([FIRST])
        assert [record.offset for record in await take(consumer, 100)] == list(range(100))
    assert records_from(racks, LEADER) == 0
    assert records_from(racks, NEAR) > 0


async def test_a_consumer_elsewhere_reads_from_the_leader(racks: EmbeddedCluster) -> None:
    async with consumer_of(racks, client_rack="c") as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
    assert records_from(racks, NEAR) == 0


async def test_the_leader_is_read_when_the_follower_dies(racks: EmbeddedCluster) -> None:
    async with consumer_of(racks, client_rack="b", max_partition_fetch_bytes=300) as consumer:
        consumer.assign([FIRST])
        offsets = [record.offset for record in await take(consumer, 30)]
        await racks.kill(NEAR, noticed_after=1.0)
        offsets += [record.offset for record in await take(consumer, 70)]
    assert offsets == list(range(100))
    assert records_from(racks, LEADER) > 0


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_the_leader_is_asked_before_an_error_of_a_follower_resets_anything(
    racks: EmbeddedCluster, code: ErrorCode
) -> None:
    fault = racks.on(FetchRequest, node=NEAR, topic="orders", times=None).fail(code)
    async with consumer_of(racks, client_rack="b", auto_offset_reset="none") as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 40)
        assert await consumer.poll(timeout=20.0) == []
        assert fault.hits < 45
        fault.remove()
        assert (await take(consumer, 1))[0].offset == 40


async def test_the_leader_is_asked_again_after_a_while(racks: EmbeddedCluster) -> None:
    async with consumer_of(racks, client_rack="b", metadata_max_age=10.0) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        requests = len(racks.history.of(FetchRequest, node=LEADER))
        await consumer.poll(timeout=35.0)
        assert len(racks.history.of(FetchRequest, node=LEADER)) > requests
        assert records_from(racks, LEADER) == 0

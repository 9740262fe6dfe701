"""The setting ``retries``: how often a batch is sent again."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import producer_of, values_of


async def test_without_retries_a_batch_is_sent_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, retries=0) as producer:
        assert not producer.config.idempotence
        await producer.send("t", b"0")
        cluster.history.clear()
        cluster.on(ProduceRequest, times=1).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        deliveries = [producer.send_nowait("t", b"%d" % number) for number in (1, 2)]
        for delivery in deliveries:
            with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
                await delivery
        assert len(cluster.history.of(ProduceRequest)) == 1
        assert (await producer.send("t", b"3")).offset == 1
        cluster.on(ProduceRequest, times=1).disconnect()
        with pytest.raises(ConnectionLost):
            await producer.send("t", b"4")
        assert producer.metrics().retries == 0
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == [b"0", b"3"]


async def test_a_batch_fails_after_its_retries_and_later_batches_are_written_in_order(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, retries=2, batch_size=200, max_in_flight_requests_per_connection=1) as producer:
        await producer.send("t", b"first")
        cluster.history.clear()
        cluster.on(ProduceRequest, times=3).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        failing = producer.send_nowait("t", b"failing")
        await asyncio.sleep(0.01)
        later = [producer.send_nowait("t", b"%0100d" % number) for number in range(6)]
        with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
            await failing
        assert [(await delivery).offset for delivery in later] == list(range(1, 7))
    assert values_of(cluster, "t") == [b"first", *(b"%0100d" % number for number in range(6))]


async def test_with_retries_left_a_batch_is_written(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, retries=3) as producer:
        cluster.on(ProduceRequest, times=3).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert (await producer.send("t", b"v")).offset == 0
        assert producer.metrics().retries == 3

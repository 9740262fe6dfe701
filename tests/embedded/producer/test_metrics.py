"""The metrics of a producer, and its choice of partitions by the load of brokers."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ErrorCode, KafkaTimeout
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import batches_of, producer_of, values_of
from tests.embedded.producer.test_faults import throttled


async def test_before_the_first_record_all_counters_are_zero(cluster: EmbeddedCluster) -> None:
    producer = producer_of(cluster)
    metrics = producer.metrics()
    assert metrics.records_sent == metrics.requests_in_flight == metrics.buffered_bytes == 0
    assert metrics.batch_size_average is None
    assert not metrics.brokers
    with pytest.raises(dataclasses.FrozenInstanceError):
        metrics.retries = 1  # type: ignore[misc]


async def test_a_snapshot_can_become_json(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"v")
        snapshot = dataclasses.asdict(producer.metrics())
    assert json.loads(json.dumps(snapshot))["brokers"]["1"]["requests"] == 1


async def test_records_batches_and_requests_are_counted(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [1]])
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        with cluster.on(ProduceRequest, times=None).delay(0.2):
            await asyncio.gather(*(producer.send("t", b"%d" % number, partition=number % 2) for number in range(10)))
            late = asyncio.ensure_future(producer.send("t", b"10", partition=0))
            await asyncio.sleep(0.1)
            during = producer.metrics()
            await late
        after = producer.metrics()
    sizes = [batch.size for number in range(2) for batch in batches_of(cluster, "t", number)]
    assert during.requests_in_flight == during.brokers[1].requests_in_flight == during.batches_unsettled == 1
    assert during.brokers[1].queued_bytes in sizes
    assert during.buffered_bytes > 0
    assert (after.requests_sent, after.batches_sent, after.records_sent) == (2, 3, 11)
    assert after.bytes_sent == sum(sizes)
    assert (after.records_delivered, after.records_failed, after.retries) == (11, 0, 0)
    assert after.batch_size_average == pytest.approx(sum(sizes) / 3)
    assert after.records_per_batch_average == pytest.approx(11 / 3)
    assert after.records_per_request_average == pytest.approx(11 / 2)
    broker = after.brokers[1]
    assert broker.latency_p50 == pytest.approx(0.2, abs=0.05)
    assert broker.latency_max is not None
    assert (broker.requests, broker.requests_in_flight, broker.queued_bytes) == (2, 0, 0)
    assert broker.is_reachable
    assert after.buffered_bytes == after.batches_unsettled == 0


async def test_retries_failures_and_throttling_are_counted(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, max_block=1.0, request_timeout=2.0, delivery_timeout=10.0) as producer:
        cluster.on(ProduceRequest, times=2).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        await producer.send("t", b"v")
        assert producer.metrics().retries == 2
        cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError):
            await producer.send("t", b"v")
        with pytest.raises(BrokerError):
            await producer.send("unknown", b"v")
        with cluster.on(ProduceRequest, times=None).drop(), pytest.raises(KafkaTimeout):
            await producer.send("t", b"v")
        metrics = producer.metrics()
        assert (metrics.records_delivered, metrics.records_failed) == (1, 3)
        cluster.on(ProduceRequest).answer(throttled(0.25))
        await producer.send("t", b"v")
        assert producer.metrics().throttle_time == pytest.approx(0.25)


async def test_a_producer_that_was_closed_has_no_request_in_flight(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    producer = producer_of(cluster)
    async with producer:
        await producer.partitions_for("t")
        cluster.on(ProduceRequest).drop()
        delivery = producer.send_nowait("t", b"v")
        await asyncio.sleep(0.1)
        assert producer.metrics().requests_in_flight == 1
        await producer.close(1.0)
    with pytest.raises(KafkaTimeout, match="closed"):
        await delivery
    metrics = producer.metrics()
    assert metrics.requests_in_flight == metrics.buffered_bytes == metrics.batches_unsettled == 0
    assert not any(broker.queued_bytes for broker in metrics.brokers.values())


async def test_a_slow_broker_gets_fewer_records_without_a_key(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3, assignments=[[1], [2], [3]])
    with cluster.on(ProduceRequest, node=2, times=None).delay(2.0):
        async with producer_of(cluster) as producer:
            for _ in range(4_000):
                producer.send_nowait("t", b"x" * 5_000)
                await asyncio.sleep(0.0025)
    counts = [len(values_of(cluster, "t", partition)) for partition in range(3)]
    assert sum(counts) == 4_000
    assert 0 < counts[1] < min(counts[0], counts[2]) / 2


async def test_records_without_a_key_avoid_a_broker_that_cannot_be_reached(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3, assignments=[[1], [2], [3]])
    async with producer_of(cluster, batch_size=1_000, linger=0.01) as producer:
        await producer.send_many("t", [b"x" * 500] * 500)
        await cluster.kill(2, noticed_after=1e6)  # metadata still names it
        broken = producer.send_nowait("t", b"x", partition=1)
        await asyncio.sleep(2.0)
        assert not producer.metrics().brokers[2].is_reachable
        deliveries = []
        for _ in range(300):
            deliveries.append(producer.send_nowait("t", b"x" * 500))
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10.0):
            partitions = [(await delivery).partition for delivery in deliveries[150:]]
        assert set(partitions) == {0, 2}
        await cluster.start_node(2)
        await broken
        assert producer.metrics().brokers[2].is_reachable

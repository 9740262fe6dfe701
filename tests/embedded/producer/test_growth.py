"""Idle topics and unlisted brokers are dropped, so that a producer can run for months."""

from __future__ import annotations

import asyncio

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.producer import DefaultPartitioner, RoundRobinPartitioner
from aiokafka_lite.producer.accumulator import TOPIC_IDLE
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import batches_of, producer_of, values_of


async def test_idle_topics_are_dropped(cluster: EmbeddedCluster) -> None:
    partitioner = DefaultPartitioner()
    async with producer_of(cluster, partitioner=partitioner) as producer:
        for number in range(30):
            await cluster.create_topic(f"t{number}", 2)
            await producer.send(f"t{number}", b"v")
            await asyncio.sleep(TOPIC_IDLE / 5)
        assert len(producer._pipeline.accumulator.topics) < 10
        assert len(partitioner._sticky) < 10
        assert len(partitioner._candidates) < 10


async def test_sealed_batches_are_not_kept_when_records_come_as_lists(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        for _ in range(20):
            await producer.send_many("t", [b"v"], keys=[b"k"])
            await producer.send_many("t", [b"v"], partition=1)
        assert len(producer._pipeline.accumulator.choice._sealed) < 5


async def test_a_topic_that_was_dropped_is_written_under_a_newer_epoch(cluster: EmbeddedCluster) -> None:
    for name in ("t", "u"):
        await cluster.create_topic(name, 1)
    async with producer_of(cluster, partitioner=RoundRobinPartitioner()) as producer:
        for number in range(3):
            await producer.send("t", b"%d" % number)
        await asyncio.sleep(2 * TOPIC_IDLE)
        await producer.send("u", b"v")
        assert set(producer._pipeline.accumulator.topics) == {"u"}
        for number in range(3, 6):
            assert (await producer.send("t", b"%d" % number)).offset == number
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(cluster, "t")] == [
        (epoch, number) for epoch in (0, 1) for number in range(3)
    ]


async def test_a_topic_with_unsettled_records_is_not_dropped(cluster: EmbeddedCluster) -> None:
    for name in ("t", "u"):
        await cluster.create_topic(name, 1)
    async with producer_of(cluster, delivery_timeout=10 * TOPIC_IDLE) as producer:
        await producer.send("t", b"0")
        with cluster.on(ProduceRequest, topic="t", times=None).drop():
            waiting = producer.send_nowait("t", b"1")
            await asyncio.sleep(2 * TOPIC_IDLE)
            await producer.send("u", b"v")
            assert set(producer._pipeline.accumulator.topics) == {"t", "u"}
        assert (await waiting).offset == 1
    assert values_of(cluster, "t") == [b"0", b"1"]


async def test_a_topic_that_is_written_to_stays_in_metadata(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, delivery_timeout=10.0, request_timeout=5.0, metadata_max_age=30.0) as producer:
        for _ in range(10):
            await producer.send("t", b"v")
            await asyncio.sleep(100.0)
            assert "t" in producer._client.view.topics


async def test_brokers_that_metadata_no_longer_lists_are_dropped(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3, 3)
    async with producer_of(cluster) as producer:
        for partition in range(3):
            await producer.send("t", b"v", partition=partition)
        assert set(producer.metrics().brokers) == {1, 2, 3}
        await cluster.kill(3)
        for partition in range(3):
            await producer.send("t", b"v", partition=partition)
        assert set(producer.metrics().brokers) == {1, 2}
        await cluster.start_node(3)
        await cluster.until_in_sync("t", 60.0)
        await cluster.move_leader("t", 0, 3)
        assert (await producer.send("t", b"v", partition=0)).offset == 2
        assert 3 in producer.metrics().brokers

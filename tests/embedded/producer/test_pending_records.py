"""Records that wait until metadata has their topic."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    BufferFull,
    ErrorCode,
    KafkaTimeout,
    UnknownTopic,
)
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import producer_of, values_of


async def test_the_first_records_of_an_unknown_topic_wait_for_it(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster) as producer:
        deliveries = [producer.send_nowait("later", b"%d" % number) for number in range(3)]
        await asyncio.sleep(1.0)
        await cluster.create_topic("later", 1)
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
        assert (await producer.send("later", b"3")).offset == 3
    assert values_of(cluster, "later") == [b"0", b"1", b"2", b"3"]


async def test_a_missing_topic_is_an_error_after_max_block(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, max_block=5.0) as producer:
        before = loop.time()
        delivery = producer.send_nowait("nowhere", b"v")
        with pytest.raises(UnknownTopic, match="nowhere"):
            await producer.send("nowhere", b"v")
        with pytest.raises(UnknownTopic, match="nowhere"):
            await delivery
        assert 4.9 < loop.time() - before < 5.5
        assert producer.metrics().buffered_bytes == 0
        await cluster.create_topic("nowhere", 1)
        assert (await producer.send("nowhere", b"v")).offset == 0


async def test_a_wrong_partition_of_a_pending_topic_fails_only_its_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        wrong, right = (producer.send_nowait("t", b"v", partition=number) for number in (5, 1))
        with pytest.raises(UnknownTopic, match="partition=5"):
            await wrong
        assert (await right).partition == 1


async def test_the_delivery_timeout_of_pending_records_counts_from_the_send(
    cluster: EmbeddedCluster,
) -> None:
    loop = asyncio.get_running_loop()
    await cluster.create_topic("u", 1)
    async with producer_of(cluster, delivery_timeout=10.0, request_timeout=4.0) as producer:
        await producer.send("u", b"v")
        began = loop.time()
        ends: dict[bytes, float] = {}

        async def send(value: bytes, topic: str = "t") -> None:
            with pytest.raises(KafkaTimeout, match="delivery_timeout=10 s"):
                await producer.send(topic, value)
            ends[value] = loop.time() - began

        cluster.on(ProduceRequest, times=None).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        tasks = [asyncio.ensure_future(send(b"0"))]
        await asyncio.sleep(3.0)
        tasks.append(asyncio.ensure_future(send(b"3")))
        await asyncio.sleep(2.0)
        tasks.append(asyncio.ensure_future(send(b"5", "u")))  # begun before the held ones
        await asyncio.sleep(1.0)
        await cluster.create_topic("t", 1)
        await asyncio.gather(*tasks)
        assert ends == pytest.approx({b"0": 10.0, b"3": 13.0, b"5": 15.0}, abs=0.01)


async def test_metadata_is_not_awaited_longer_than_the_delivery_timeout(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, delivery_timeout=10.0, request_timeout=4.0, max_block=60.0) as producer:
        with pytest.raises(UnknownTopic):
            await producer.send("t", b"v")
        assert loop.time() < 11.0


async def test_pending_records_are_charged_for_the_memory_that_they_take(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, buffer_memory=1_000_000) as producer:
        pending = 0
        gc.collect()
        tracemalloc.start()
        try:
            with pytest.raises(BufferFull):
                while True:
                    producer.send_nowait("t", b"%d" % pending, key=b"key")
                    pending += 1
            assert pending > 1_000
            assert tracemalloc.get_traced_memory()[0] < 1_300_000
        finally:
            tracemalloc.stop()


async def test_pending_records_move_in_slices_and_before_newer_records(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, buffer_memory=10_000_000) as producer:
        deliveries = [producer.send_nowait("t", b"%06d" % number) for number in range(20_000)]
        await cluster.create_topic("t", 1)
        topic = producer._pipeline.accumulator.topics["t"]
        while not topic.is_known:
            await asyncio.sleep(0)
        turns = 0
        while topic.pending is not None:
            for _ in range(700):  # a sender that does not stop
                deliveries.append(producer.send_nowait("t", b"%06d" % len(deliveries)))
            await asyncio.sleep(0)
            turns += 1
        assert 10 < turns < 50
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(len(deliveries)))
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == [b"%06d" % number for number in range(len(deliveries))]


async def test_records_that_are_moving_wait_if_metadata_loses_their_topic(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, max_block=5.0) as producer:
        deliveries = [producer.send_nowait("t", b"%06d" % number) for number in range(5_000)]
        await cluster.create_topic("t", 1)
        topic = producer._pipeline.accumulator.topics["t"]
        while not topic.is_known:
            await asyncio.sleep(0)
        topic.update(ClusterView())
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(5_000))


async def test_a_use_of_a_topic_that_metadata_has_just_lost_is_recorded_with_a_later_batch(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"1")
        topic = producer._pipeline.accumulator.topics["t"]
        topic.used_until = 0.0
        with monkeypatch.context() as patch:
            patch.setattr(Client, "known_topic", lambda *_, **__: None)
            delivery = producer.send_nowait("t", b"2")
        assert topic.used_until == 0.0
        await delivery
        await producer.send("t", b"3")
        assert topic.used_until > 0.0


async def test_a_delivery_shows_no_partition_before_the_topic_is_known(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        delivery = producer.send_nowait("t", b"v")
        assert repr(delivery) == "<Delivery t open>"
        await delivery
        assert repr(delivery) == "<Delivery t-0 delivered>"

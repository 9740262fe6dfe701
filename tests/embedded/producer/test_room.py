"""Room in ``buffer_memory``: senders wait for it in order, and settled records release it."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    BufferFull,
    IllegalStateError,
    KafkaTimeout,
    SerializationError,
    UnknownTopic,
)
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import producer_of, values_of


async def test_nothing_lingers_while_senders_wait_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, buffer_memory=64 * 1024, linger=20.0) as producer:
        began = loop.time()
        results = await asyncio.gather(*(producer.send("t", b"%03d" % number + bytes(1_000)) for number in range(300)))
        assert loop.time() - began < 21.0  # the last ones had room, and lingered
        assert sorted(result.offset for result in results) == list(range(300))
        await producer.drain()
        producer.send_nowait("t", b"v")
        began = loop.time()
        await producer.drain()
        assert loop.time() - began < 1.0


async def test_a_full_buffer_refuses_send_nowait_and_delays_send(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=4_000, max_block=2.0) as producer:
        await producer.partitions_for("t")
        with cluster.on(ProduceRequest, times=1).delay(1.0):
            accepted = [producer.send_nowait("t", b"x" * 900) for _ in range(4)]
            with pytest.raises(BufferFull, match="buffer_memory=4000"):
                producer.send_nowait("t", b"x" * 900)
            assert (await producer.send("t", b"y" * 900)).offset == 4
            assert all(delivery.done() for delivery in accepted)
        with cluster.on(ProduceRequest, times=1).delay(5.0):
            for _ in range(4):
                producer.send_nowait("t", b"x" * 900)
            with pytest.raises(KafkaTimeout, match=r"max_block=2 s.*buffer_memory=4000"):
                await producer.send("t", b"x" * 900)
        await producer.drain()
        assert producer.metrics().buffered_bytes <= 4_000
    assert producer.metrics().buffered_bytes == 0


async def test_drain_waits_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=100_000, linger=60.0) as producer:
        accepted = 0
        for number in range(5_000):
            try:
                producer.send_nowait("t", b"%05d" % number + b"x" * 95)
                accepted += 1
            except BufferFull:
                await producer.drain()
                producer.send_nowait("t", b"%05d" % number + b"x" * 95)
    values = values_of(cluster, "t")
    assert len(values) == 5_000
    assert values == sorted(values)  # type: ignore[type-var]
    assert accepted < 5_000


async def test_waiting_senders_get_room_in_the_order_of_their_calls(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=3_000) as producer:
        await asyncio.gather(*(producer.send("t", b"%03d" % number + b"x" * 500) for number in range(100)))
    values = values_of(cluster, "t")
    assert values == sorted(values)  # type: ignore[type-var]
    assert len(values) == 100


async def test_send_nowait_does_not_overtake_a_sender_that_has_waited_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=4_000) as producer:
        await producer.send("t", b"first")
        for number in range(3):
            producer.send_nowait("t", b"%d" % number * 1_000)
        waiting = asyncio.ensure_future(producer.send("t", b"waited" + b"x" * 1_000))
        await asyncio.sleep(0)
        while True:  # in each iteration of the loop, also between the release and the wake-up
            try:
                later = producer.send_nowait("t", b"later")
                break
            except BufferFull:
                await asyncio.sleep(0)
        assert (await waiting).offset == 4
        assert (await later).offset == 5


@pytest.mark.parametrize("call", ["send", "put", "send_many"])
async def test_a_call_that_waits_for_room_says_that_its_record_is_not_accepted_when_the_producer_closes(
    cluster: EmbeddedCluster, call: str
) -> None:
    await cluster.create_topic("t", 1)
    producer = producer_of(cluster, buffer_memory=2_000, max_request_size=1_900)
    await producer.start()
    await producer.send("t", b"v")
    cluster.on(ProduceRequest, times=None).drop()
    accepted = producer.send_nowait("t", bytes(1_500))
    more = [bytes(1_500)] if call == "send_many" else bytes(1_500)
    waiting = asyncio.ensure_future(getattr(producer, call)("t", more))
    await asyncio.sleep(0.1)
    await producer.close(1.0)
    with pytest.raises(IllegalStateError, match="the record for topic 't' was not accepted: the producer was closed"):
        await waiting
    with pytest.raises(KafkaTimeout):
        await accepted


async def test_tasks_that_drain_a_small_buffer_all_make_progress(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    drained = 0

    async def write(producer: Producer) -> None:
        nonlocal drained
        for _ in range(20):
            while True:
                try:
                    producer.send_nowait("t", b"x" * 1_000)
                    break
                except BufferFull:
                    drained += 1
                    assert drained < 1_000
                    await producer.drain()

    async with producer_of(cluster, buffer_memory=4_000) as producer:
        await asyncio.gather(write(producer), write(producer), write(producer))
    assert len(values_of(cluster, "t")) == 60


async def test_a_refused_record_releases_its_memory(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"v")
        for arguments in ({"partition": 2**31}, {"partition": -1}, {"partition": "0"}, {"key": 5}, {"timestamp": -1}):
            with pytest.raises((UnknownTopic, SerializationError)):
                producer.send_nowait("t", b"v", **arguments)  # type: ignore[arg-type]
        assert producer.metrics().buffered_bytes == 0


async def test_delivered_batches_keep_no_bytes(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        deliveries = [producer.send_nowait("t", bytes(1_000)) for _ in range(100)]
        await producer.flush()
        kept = {delivery.batch_result for delivery in deliveries}
        assert all(batch.builder.uncompressed_size == 0 for batch in kept)
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))

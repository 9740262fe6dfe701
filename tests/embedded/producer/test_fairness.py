"""With a full buffer or a long backlog, no partition and no sender waits much longer than the others."""

from __future__ import annotations

import asyncio

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.types import RecordMetadata
from tests.embedded.producer.producers_and_logs import producer_of


async def test_a_partition_with_a_backlog_does_not_delay_the_others() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("t", 10)
        sizes = {"batch_size": 10_000, "max_request_size": 30_000}
        async with producer_of(cluster, max_in_flight_requests_per_connection=1, **sizes) as producer:
            await producer.send("t", b"first", partition=0)
            cluster.on(ProduceRequest, times=None).delay(0.1)
            backlog = [producer.send_nowait("t", bytes(5_000), partition=0) for _ in range(400)]
            others = [producer.send_nowait("t", b"other", partition=number) for number in range(1, 10)]
            await asyncio.gather(*others)
            assert sum(delivery.done() for delivery in backlog) < 40
            await producer.flush()


async def test_senders_that_wait_for_room_take_turns(cluster: EmbeddedCluster) -> None:
    """Ten tasks, each with a partition of its own, and a buffer for a few records."""
    await cluster.create_topic("t", 10)
    sent = [0] * 10
    async with producer_of(cluster, buffer_memory=20_000, max_request_size=20_000) as producer:

        async def send_on(number: int) -> None:
            while True:
                await producer.put("t", bytes(4_000), partition=number)
                sent[number] += 1

        cluster.on(ProduceRequest, times=None).delay(0.1)
        tasks = [asyncio.create_task(send_on(number)) for number in range(10)]
        await asyncio.sleep(60.0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert producer.metrics().buffered_bytes <= 20_000
    assert min(sent) > 50
    assert max(sent) - min(sent) <= 5  # the first task fills the buffer once before any other task runs


async def test_a_callback_that_sends_again_does_not_delay_a_partition_that_waits_for_a_request(
    cluster: EmbeddedCluster,
) -> None:
    """The callback runs when the answer has freed the connection, before the waiting sender's task continues."""
    await cluster.create_topic("t", 2, assignments=[[1], [1]])
    async with producer_of(cluster, max_in_flight_requests_per_connection=1) as producer:
        for _ in range(3):
            await producer.send("t", b"lone", partition=0)
        again = 0

        def send_again(metadata: RecordMetadata, error: Exception | None) -> None:
            nonlocal again
            if not waiting.done() and again < 100:
                again += 1
                producer.send_nowait("t", b"again", partition=0).report(send_again)

        producer.send_nowait("t", b"first", partition=0).report(send_again)
        waiting = producer.send_nowait("t", b"waiting", partition=1)
        await waiting
        assert again <= 2

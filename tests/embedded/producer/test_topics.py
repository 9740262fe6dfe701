"""Topics that metadata lacks for a while, and topics that are deleted and created again."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaTimeout, UnknownTopic
from aiokafka_lite.producer import Delivery
from aiokafka_lite.protocol.messages import InitProducerIdRequest, MetadataRequest, ProduceRequest
from aiokafka_lite.types import RecordMetadata
from tests.embedded.producer.producers_and_logs import batches_of, producer_of, values_of

LONG = 1_000.0
"""Seconds after which metadata of an unused topic is dropped."""


def numbers_of(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[tuple[int, int]]:
    """Return epoch and first sequence of each batch in the log."""
    return [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(cluster, topic, partition)]


async def test_records_for_a_partition_without_a_leader_wait_until_their_timeout(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, assignments=[[2]])
    async with producer_of(cluster, delivery_timeout=2 * LONG) as producer:
        await producer.send("t", b"0")
        await cluster.kill(2)
        waiting = [producer.send_nowait("t", b"%d" % number) for number in (1, 2)]
        await asyncio.sleep(LONG)
        assert not waiting[0].done()
        await cluster.start_node(2)
        async with asyncio.timeout(30.0):
            assert [(await delivery).offset for delivery in waiting] == [1, 2]
            assert (await producer.send("t", b"3")).offset == 3
    assert values_of(cluster, "t") == [b"0", b"1", b"2", b"3"]
    assert numbers_of(cluster, "t") == [(0, 0), (0, 1), (0, 3)]


async def test_a_send_that_times_out_names_the_metadata_error_of_its_topic(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster) as producer:
        with pytest.raises(KafkaTimeout, match=r"'typo' was not .* timeout=2 s; brokers report UNKNOWN_TOPIC"):
            await producer.send("typo", b"v", timeout=2.0)
        await producer.close(timeout=0.0)


@pytest.mark.parametrize("away", [10.0, LONG])
async def test_sequences_continue_after_metadata_lacked_the_topic(cluster: EmbeddedCluster, away: float) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0")
        with cluster.on(MetadataRequest, times=None).fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            producer._client.request_refresh(["t"])
            await asyncio.sleep(away)
        assert (await producer.send("t", b"1")).offset == 1
    assert numbers_of(cluster, "t") == [(0, 0), (0, 1)]


async def test_sequences_continue_after_a_topic_was_unused_for_long(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0")
        await asyncio.sleep(LONG)
        assert "t" not in producer._client.view.topics
        assert (await producer.send("t", b"1")).offset == 1
    assert numbers_of(cluster, "t") == [(0, 0), (0, 1)]


@pytest.mark.parametrize("in_flight", [1, 5])
async def test_a_recreated_topic_gets_batches_in_flight_under_a_new_epoch(
    cluster: EmbeddedCluster, in_flight: int
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, batch_size=100, max_in_flight_requests_per_connection=in_flight) as producer:
        for _ in range(3):
            await producer.send("t", b"old")
        await cluster.delete_topic("t")
        await cluster.create_topic("t", 1)
        deliveries = [producer.send_nowait("t", b"%d" % number + b"x" * 50) for number in range(6)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(6))
    assert [value[:1] for value in values_of(cluster, "t") if value] == [b"%d" % number for number in range(6)]
    assert numbers_of(cluster, "t") == [(1, number) for number in range(6)]


@pytest.mark.parametrize("release, lost", [("3.9", 1), (None, 2), (None, 3)])
async def test_a_batch_that_the_new_topic_may_have_is_not_written_twice(release: str | None, lost: int) -> None:
    """Requests to brokers before 4.1 name topics, so a lost answer may have come from the new topic."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False, as_kafka=release) as cluster:
        await cluster.create_topic("t", 1)
        async with producer_of(cluster) as producer:
            await producer.send("t", b"old")
            await cluster.delete_topic("t")
            await cluster.create_topic("t", 1)
            cluster.on(ProduceRequest, nth=lost).apply_then_disconnect()
            for number in range(3):
                assert (await producer.send("t", b"%d" % number)).offset == number
        assert values_of(cluster, "t") == [b"0", b"1", b"2"]


async def test_other_topics_keep_their_sequences_when_one_is_recreated(cluster: EmbeddedCluster) -> None:
    for topic in ("t", "u"):
        await cluster.create_topic(topic, 1)
    async with producer_of(cluster) as producer:
        for topic in ("t", "u"):
            await producer.send(topic, b"0")
        await cluster.delete_topic("t")
        await cluster.create_topic("t", 1)
        for topic in ("t", "u"):
            await producer.send(topic, b"1")
    assert numbers_of(cluster, "t") == [(1, 0)]
    assert numbers_of(cluster, "u") == [(0, 0), (0, 1)]
    assert len(cluster.history.of(InitProducerIdRequest)) == 1


async def test_a_record_sent_again_when_its_topic_is_not_found_stays_before_later_records(
    cluster: EmbeddedCluster,
) -> None:
    again: list[Delivery] = []
    async with producer_of(cluster, max_block=1.0) as producer:

        def send_again(_: RecordMetadata, error: Exception | None) -> None:
            if error is not None:
                again.append(producer.send_nowait("t", b"again"))

        first = producer.send_nowait("t", b"first")
        first.report(send_again)
        with pytest.raises(UnknownTopic):
            await first
        await cluster.create_topic("t", 1)
        third = producer.send_nowait("t", b"third")
        offsets = [(await delivery).offset for delivery in (*again, third)]
        assert offsets == [0, 1]
        assert values_of(cluster, "t") == [b"again", b"third"]


@pytest.mark.parametrize("release", [None, "3.9"])
async def test_records_for_a_partition_that_a_recreated_topic_lacks_fail_at_once(release: str | None) -> None:
    loop = asyncio.get_running_loop()
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False, as_kafka=release) as cluster:
        await cluster.create_topic("t", 3)
        async with producer_of(cluster) as producer:
            for number in range(3):
                await producer.send("t", b"old", partition=number)
            await cluster.delete_topic("t")
            began = loop.time()
            deliveries = [producer.send_nowait("t", b"new", partition=number) for number in range(3)]
            await asyncio.sleep(1.0)
            await cluster.create_topic("t", 2)
            assert [(await delivery).offset for delivery in deliveries[:2]] == [0, 0]
            with pytest.raises(UnknownTopic, match="topic 't' has partitions 0 to 1, got partition=2"):
                await deliveries[2]
            assert loop.time() - began < 10.0
            with pytest.raises(UnknownTopic, match="partition=2"):
                await producer.send("t", b"new", partition=2)
            assert [(await producer.send("t", b"newer", key=b"%d" % key)).partition < 2 for key in range(5)]
            await cluster.delete_topic("t")
            await cluster.create_topic("t", 3)
            producer._client.request_refresh(["t"])
            await asyncio.sleep(1.0)
            assert (await producer.send("t", b"newest", partition=2)).offset == 0
            assert producer.metrics().buffered_bytes == 0

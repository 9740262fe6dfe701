"""Records that name a partition which the producer's metadata does not list (yet)."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, ErrorCode, KafkaTimeout, UnknownTopic
from aiokafka_lite.producer import Delivery
from aiokafka_lite.protocol.messages import MetadataRequest, MetadataResponse
from tests.embedded.producer.producers_and_logs import producer_of, values_of


def add_partitions(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    """Give the topic ``count`` partitions. No client is notified."""
    cluster.controller.create_partitions(topic, count, None)


def without_partition_0(response: MetadataResponse) -> MetadataResponse:
    for topic in response.topics:
        topic.partitions = [partition for partition in topic.partitions if partition.partition_index != 0]
    return response


async def test_a_record_for_a_partition_that_was_just_added_is_written(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0", partition=0)
        add_partitions(cluster, "t", 4)
        before = loop.time()
        assert (await producer.send("t", b"3", partition=3)).partition == 3
        assert loop.time() - before < 5.0


async def test_records_sent_before_the_partition_exists_are_written_in_order(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0", partition=0)
        deliveries = [
            producer.send_nowait("t", b"%d" % number, partition=number % 2 + 1, key=b"k") for number in range(50)
        ]
        # Other partitions go on meanwhile.
        assert (await producer.send("t", b"1", partition=0)).offset == 1
        await asyncio.sleep(5.0)
        assert not any(delivery.done() for delivery in deliveries)
        add_partitions(cluster, "t", 2)
        assert [(await delivery).offset for delivery in deliveries[::2]] == list(range(25))
        add_partitions(cluster, "t", 3)
        assert [(await delivery).offset for delivery in deliveries[1::2]] == list(range(25))
        assert (await producer.send("t", b"last", partition=1)).offset == 25
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t", 1) == [*(b"%d" % number for number in range(0, 50, 2)), b"last"]


async def test_a_partition_that_does_not_exist_is_an_error_after_max_block(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, max_block=5.0) as producer:
        await producer.partitions_for("t")
        cluster.history.clear()
        before = loop.time()
        with pytest.raises(UnknownTopic, match="topic 't' has partitions 0 to 1, got partition=2"):
            await producer.send("t", b"v", partition=2)
        assert 5.0 <= loop.time() - before < 6.0
        assert len(cluster.history.of(MetadataRequest)) <= 25  # at most five a second
        for number in (-1, 2**31):  # no partition can have these numbers
            with pytest.raises(UnknownTopic):
                producer.send_nowait("t", b"v", partition=number)
        assert producer.metrics().buffered_bytes == 0
        assert (await producer.send("t", b"v", partition=1)).offset == 0


async def test_a_stream_of_records_for_a_missing_partition_affects_no_other_record(cluster: EmbeddedCluster) -> None:
    for topic in ("t", "u"):
        await cluster.create_topic(topic, 1)
    async with producer_of(cluster, max_block=1.0) as producer:
        refused: list[Delivery] = []
        for number in range(200):  # twice as long as max_block, so that records expire while others are added
            refused += [producer.send_nowait("t", b"x", partition=7) for _ in range(10)]
            await producer.send("u", b"%d" % number)
            await producer.send("t", b"%d" % number, partition=0)
            await asyncio.sleep(0.01)
        for delivery in refused:
            with pytest.raises(UnknownTopic, match="partitions 0 to 0, got partition=7"):
                async with asyncio.timeout(2.0):
                    await delivery
        add_partitions(cluster, "t", 8)
        assert (await producer.send("t", b"x", partition=7)).offset == 0
        assert producer.metrics().buffered_bytes == 0
    expected = [b"%d" % number for number in range(200)]
    assert values_of(cluster, "t") == values_of(cluster, "u") == expected


async def test_a_topic_created_again_with_fewer_partitions_fails_only_the_records_of_the_others(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 3)
    async with producer_of(cluster, max_block=1.0, metadata_max_age=0.5) as producer:
        for number in range(3):
            await producer.send("t", b"old", partition=number)
        cluster.controller.delete_topic("t")
        await asyncio.sleep(0.3)
        await cluster.create_topic("t", 1)
        errors = 0
        written: list[int] = []
        for number in range(300):
            gone = producer.send_nowait("t", b"x", partition=2)
            written.append((await producer.send("t", b"%d" % number, partition=0)).offset)
            await asyncio.sleep(0.01)
            errors += gone.done() and gone.exception() is not None
        await producer.flush()
        with pytest.raises(UnknownTopic):
            await gone
        assert written == list(range(300))


async def test_a_first_record_for_a_missing_partition_waits_no_longer_than_max_block(cluster: EmbeddedCluster) -> None:
    """The topic is not known either: both waits together are bounded."""
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, max_block=5.0) as producer:
        before = loop.time()
        wrong = producer.send_nowait("t", b"v", partition=9)
        assert (await producer.send("t", b"v", partition=0)).offset == 0
        with pytest.raises(UnknownTopic):
            await wrong
        assert 5.0 <= loop.time() - before < 6.0


async def test_close_fails_records_whose_partition_does_not_exist(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    producer = producer_of(cluster)
    await producer.start()
    await producer.partitions_for("t")
    delivery: Delivery = producer.send_nowait("t", b"v", partition=7)
    await producer.close(timeout=1.0)
    with pytest.raises(KafkaTimeout, match="closed before"):
        await delivery


async def test_a_topic_that_is_refused_ends_the_wait_for_its_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()

    def refused(response: MetadataResponse) -> MetadataResponse:
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    async with producer_of(cluster) as producer:
        await producer.send("t", b"0", partition=0)
        cluster.on(MetadataRequest, times=None).alter(refused)
        before = loop.time()
        deliveries = [producer.send_nowait("t", b"v", partition=3) for _ in range(2)]
        for delivery in deliveries:
            with pytest.raises(AuthorizationError, match="topic 't' cannot be used"):
                await delivery
        assert loop.time() - before < 5.0
        assert producer.metrics().buffered_bytes == 0


async def test_rows_of_a_table_wait_for_a_partition_that_was_just_added(cluster: EmbeddedCluster) -> None:
    pa = pytest.importorskip("pyarrow")
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0")
        add_partitions(cluster, "t", 3)
        written = await producer.send_arrow("t", pa.table({"value": [b"a", b"b"], "partition": [2, 1]}))
        assert {run.partition for run in written} == {1, 2}


async def test_metadata_with_a_huge_partition_number_costs_no_memory(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)

    def huge(response: MetadataResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.partition_index = 2**31 - 1

    async with producer_of(cluster, max_block=2.0) as producer:
        answer = await producer._client.send(MetadataRequest(topics=None))
        huge(answer)
        fault = cluster.on(MetadataRequest, times=None).answer(lambda request: answer)
        with fault, pytest.raises((UnknownTopic, KafkaTimeout)):
            await producer.send("t", b"v", partition=0)
        assert (await producer.send("t", b"v", partition=0)).offset == 0


async def test_a_key_may_go_to_a_partition_that_metadata_leaves_out(cluster: EmbeddedCluster) -> None:
    """Brokers before Kafka 3 leave out a new partition whose replicas are all down; its records wait for a leader."""
    await cluster.create_topic("t", 3)
    fault = cluster.on(MetadataRequest, times=None).alter(without_partition_0)
    async with producer_of(cluster) as producer:
        deliveries = [producer.send_nowait("t", b"v", key=b"%d" % number) for number in range(20)]
        await asyncio.sleep(5.0)
        waiting = [delivery for delivery in deliveries if not delivery.done()]
        assert 0 < len(waiting) < 20
        fault.remove()
        assert {(await delivery).partition for delivery in waiting} == {0}


async def test_rows_of_a_table_for_a_partition_above_a_gap_are_written(cluster: EmbeddedCluster) -> None:
    pa = pytest.importorskip("pyarrow")
    await cluster.create_topic("t", 3)
    cluster.on(MetadataRequest, times=None).alter(without_partition_0)
    async with producer_of(cluster, max_block=5.0) as producer:
        written = await producer.send_arrow("t", pa.table({"value": [b"a", b"b"], "partition": [2, 1]}))
        assert {run.partition for run in written} == {1, 2}
        with pytest.raises(UnknownTopic, match="brokers list no partition=0 of topic 't', which has partition 2"):
            await producer.send_arrow("t", pa.table({"value": [b"c", b"d"], "partition": [1, 0]}))
        assert producer.metrics().records_sent == 2  # a wrong table is refused as a whole


async def test_a_send_that_times_out_names_a_partition_that_does_not_exist(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0", partition=1)
        with pytest.raises(KafkaTimeout, match=r"within timeout=3 s; the topic has 2 partitions, got partition=99$"):
            await producer.send("t", b"x", partition=99, timeout=3.0)

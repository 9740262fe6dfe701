"""The stream of failed deliveries: ``producer.failures()``."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ErrorCode, KafkaTimeout, UnknownTopic
from aiokafka_lite.producer import Delivery, FailedRecord, Failures
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.types import Header
from tests.embedded.producer.producers_and_logs import producer_of, values_of
from tests.embedded.producer.test_faults import naming


async def rest_of(failures: Failures) -> list[FailedRecord]:
    """Return the failures of the stream until it ends."""
    return [failure async for failure in failures]


async def settled(delivery: Delivery) -> None:
    """Wait until the delivery has a result or an error."""
    await asyncio.gather(delivery, return_exceptions=True)


async def test_each_failed_record_is_in_the_stream_with_its_content(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster, compression="gzip") as producer:
        await producer.send("t", b"delivered", partition=1)
        failures = producer.failures()
        cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        headers = {"a": b"1", "b": None}
        first = producer.send_nowait("t", b"value", key=b"key", headers=headers, partition=1, timestamp=1_000)
        second = producer.send_nowait("t", None, partition=1, timestamp=2_000)
        await asyncio.gather(first, second, return_exceptions=True)
        assert (await producer.send("t", b"delivered", partition=1)).offset == 1
    failed = await rest_of(failures)
    errors = [failure.error for failure in failed]
    assert all(isinstance(error, BrokerError) and str(error) == str(first.exception()) for error in errors)
    assert failed == [
        FailedRecord("t", 1, b"key", b"value", (Header("a", b"1"), Header("b", None)), 1_000, errors[0]),
        FailedRecord("t", 1, None, None, (), 2_000, errors[1]),
    ]


async def test_failed_records_can_be_sent_to_another_topic(cluster: EmbeddedCluster) -> None:
    for topic in ("t", "failed"):
        await cluster.create_topic(topic, 1)
    async with producer_of(cluster) as producer:

        async def divert() -> None:
            async for failure in producer.failures():
                await producer.send("failed", failure.value, key=failure.key, headers=failure.headers)

        diverting = asyncio.create_task(divert())
        await asyncio.sleep(0)
        cluster.on(ProduceRequest, topic="t", times=2).fail(ErrorCode.INVALID_RECORD)
        for number in range(3):
            producer.send_nowait("t", b"%d" % number)
            await asyncio.sleep(1.0)
        assert values_of(cluster, "failed") == [b"0", b"1"]
    await diverting


async def test_records_of_unknown_topics_and_partitions_are_in_the_stream(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, max_block=5.0) as producer:
        failures = producer.failures()
        producer.send_nowait("typo", b"1", headers=[("a", b"1")])
        producer.send_nowait("t", b"2", partition=9)
        failed = [await anext(failures) for _ in range(2)]
    assert {(failure.topic, failure.partition, failure.value, failure.headers) for failure in failed} == {
        ("typo", None, b"1", (Header("a", b"1"),)),
        ("t", 9, b"2", ()),
    }
    assert all(isinstance(failure.error, UnknownTopic) for failure in failed)


async def test_only_the_refused_records_of_a_batch_are_in_the_stream(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        failures = producer.failures()
        await producer.send("t", b"first")
        cluster.on(ProduceRequest).answer(naming(1, 3))
        deliveries = [producer.send_nowait("t", b"%d" % number) for number in range(5)]
        await asyncio.gather(*deliveries, return_exceptions=True)
    assert [failure.value for failure in await rest_of(failures)] == [b"1", b"3"]


async def test_records_that_fail_when_the_producer_closes_are_in_the_stream_and_are_not_logged(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)
    producer = producer_of(cluster)
    failures = producer.failures()  # also before the start
    await producer.start()
    await producer.partitions_for("t")
    with cluster.on(ProduceRequest, times=None).drop():
        producer.send_nowait("t", b"1")
        producer.send_nowait("typo", b"2")
        await producer.close(timeout=1.0)
    failed = await rest_of(failures)
    assert {failure.value for failure in failed} == {b"1", b"2"}
    assert all(isinstance(failure.error, KafkaTimeout) for failure in failed)
    assert await rest_of(producer.failures()) == []  # a stream after the end
    del failed
    gc.collect()
    assert "were not delivered" not in caplog.text


async def test_a_stream_of_a_producer_that_never_starts_ends_at_close(cluster: EmbeddedCluster) -> None:
    producer = producer_of(cluster)
    failures = producer.failures()
    await producer.close()
    assert await rest_of(failures) == []


async def test_a_stream_that_is_not_read_drops_records_and_counts_them(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        failures = producer.failures(max_bytes=3_000)
        with cluster.on(ProduceRequest, times=None).fail(ErrorCode.INVALID_RECORD):
            for _ in range(10):
                await settled(producer.send_nowait("t", bytes(1_000)))
    assert len(await rest_of(failures)) == 2
    assert failures.dropped == 8
    assert [record.message for record in caplog.records if "stream" in record.message] == [
        "a stream of failed deliveries is full and drops records: read it faster"
    ]


async def test_a_cancelled_wait_loses_no_failure(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        failures = producer.failures()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(failures), 1.0)
        cluster.on(ProduceRequest).fail(ErrorCode.INVALID_RECORD)
        producer.send_nowait("t", b"v")
        assert (await anext(failures)).value == b"v"


async def test_a_stream_that_its_user_has_dropped_keeps_nothing(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        failures = producer.failures()
        cluster.on(ProduceRequest).fail(ErrorCode.INVALID_RECORD)
        await settled(producer.send_nowait("t", b"v"))
        del failures
        gc.collect()
        assert not list(producer._failures._streams)


async def test_wrong_bounds_are_refused(cluster: EmbeddedCluster) -> None:
    producer = producer_of(cluster)
    for wrong in (0, -1, "1", 1.5):
        with pytest.raises((TypeError, ValueError), match="max_bytes must be a whole number >= 1"):
            producer.failures(max_bytes=wrong)  # type: ignore[arg-type]

"""Wrong but well-formed answers to share consumers: few requests, clear errors, and quick recovery."""

from __future__ import annotations

import asyncio
import copy
import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.faults import Fault
from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.messages import (
    MetadataRequest,
    ShareAcknowledgeRequest,
    ShareAcquiredRecords,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from tests.embedded.cluster.alterations import with_topic_id
from tests.embedded.share.billing_consumers import read, share_consumer, write
from tests.waiting import until

LAST = 2**31 - 1


def with_fields(**fields: Any) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        for name, value in fields.items():
            setattr(response, name, value)
        return response

    return change


def acquires(*ranges: tuple[int, int]) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.acquired_records = [
                    ShareAcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)
                    for first, last in ranges
                ]
        return response

    return change


def answers_twice(response: Any) -> Any:
    response.responses *= 2
    return response


async def answer_always(cluster: EmbeddedCluster, change: Callable[[Any], Any]) -> Fault:
    """Answer each ShareFetch at once with the first answer that had records, changed."""
    kept: list[Any] = []

    def keep(response: Any) -> Any:
        if response.responses:
            kept.append(change(copy.deepcopy(response)))
        return response

    with cluster.on(ShareFetchRequest, times=None).alter(keep):
        async with share_consumer(cluster, "jobs") as consumer:
            await read(consumer, 2)
    return cluster.on(ShareFetchRequest, times=None).answer(lambda request: kept[0]).delay(0.002)


@pytest.mark.parametrize(
    "change",
    [
        with_fields(acquisition_lock_timeout_ms=0),
        with_fields(acquisition_lock_timeout_ms=-1),
        with_fields(acquisition_lock_timeout_ms=1),
        acquires((3, 1)),
        acquires((0, 1), (1, 2)),
        acquires((-5, -1)),
        acquires((0, 2**63 - 1)),
        acquires(),
        answers_twice,
    ],
    ids=["lock 0", "lock -1", "lock 1", "reversed", "overlapping", "negative", "endless", "none", "answers twice"],
)
async def test_records_that_cannot_be_used_are_fetched_again_with_pauses(
    cluster: EmbeddedCluster, change: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    await write(cluster, b"a", b"b", topic="jobs")
    wrong = await answer_always(cluster, change)
    async with share_consumer(cluster, "jobs") as consumer:
        await until(lambda: consumer.assignment)
        caplog.set_level(logging.INFO, "aiokafka_lite.share")
        await consumer.poll(timeout=20.0)
        assert wrong.hits <= 5 * 20
        assert len(caplog.records) <= 5 * 20
        wrong.remove()
        await cluster.produce("jobs", b"c", partition=0)
        values: set[bytes | None] = set()
        async with asyncio.timeout(120):
            while b"c" not in values:
                values.update(record.value for record in await consumer.poll(timeout=5.0))


async def test_a_renewal_of_no_length_is_an_error_and_keeps_the_lock(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a", topic="jobs")
    cluster.on(ShareAcknowledgeRequest).alter(with_fields(acquisition_lock_timeout_ms=0), times=1)
    async with share_consumer(cluster, "jobs", acknowledgement_mode="explicit") as consumer:
        (record,) = await read(consumer, 1)
        with pytest.raises(ProtocolError, match="renewed an acquisition lock for 0 s"):
            await consumer.renew(record)
        assert await consumer.renew(record) == 30.0
        consumer.accept(record)
        assert await consumer.commit()


@pytest.mark.parametrize("epoch", [0, -1, LAST])
async def test_a_wrong_epoch_costs_few_heartbeats_and_few_log_lines(
    cluster: EmbeddedCluster, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with share_consumer(cluster) as consumer:
        await until(lambda: len(consumer.assignment) == 2)
        caplog.set_level(logging.INFO, "aiokafka_lite.share")
        wrong = cluster.on(ShareGroupHeartbeatRequest, times=None).alter(with_fields(member_epoch=epoch))
        await asyncio.sleep(60.0)
        assert wrong.hits <= 140
        assert len(caplog.records) <= (5 if epoch <= 0 else 5 * 70)
        wrong.remove()
        await asyncio.sleep(10.0)
        assert len(consumer.assignment) == 2


@pytest.mark.parametrize("topic_id", [bytes(16), b"another topic id"], ids=["no id", "an unknown id"])
async def test_an_assignment_of_a_topic_that_does_not_exist_is_requested_again(
    cluster: EmbeddedCluster, topic_id: bytes
) -> None:
    wrong = cluster.on(ShareGroupHeartbeatRequest, times=None).alter(with_topic_id(topic_id))
    async with share_consumer(cluster) as consumer:
        await asyncio.sleep(30.0)
        assert not consumer.assignment
        assert wrong.hits <= 60
        requests = len(cluster.history.of(MetadataRequest))
        await asyncio.sleep(60.0)
        assert (len(cluster.history.of(MetadataRequest)) - requests >= 10) is any(topic_id)  # or metadata is outdated
        wrong.remove()
        await asyncio.sleep(30.0)
        assert len(consumer.assignment) == 2


async def test_batches_that_decompress_to_much_are_decoded_when_they_are_read(cluster: EmbeddedCluster) -> None:
    size, count = 4 << 20, 16
    async with Producer(
        cluster.bootstrap_servers,
        connector=cluster.connector,
        compression="gzip",
        max_request_size=2 * size,
        batch_size=2 * size,
        linger=0,
    ) as producer:
        for _ in range(count):
            await producer.send("jobs", bytes(size), partition=0)
    async with share_consumer(cluster, "jobs") as consumer:
        tracemalloc.start()
        try:
            before, polled = tracemalloc.get_traced_memory()[0], 0
            while polled < count:
                records = await consumer.poll(timeout=10.0)
                assert all(record.value == bytes(size) for record in records)
                polled += len(records)
                del records
            assert tracemalloc.get_traced_memory()[1] - before < 10 * size
        finally:
            tracemalloc.stop()
        assert await consumer.commit()

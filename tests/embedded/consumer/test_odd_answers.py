"""Well-formed answers with a wrong meaning: impossible numbers, other partitions, and refusals that stay.

Each one is an error or is ignored, and causes at most a few requests a second. Correct answers end its effects.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer, ResetReason
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, Fault
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import CorruptRecord, ErrorCode
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponsePartition,
    FetchResponseTopic,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from aiokafka_lite.protocol.records import encode_batch, rewrite_header
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, leader, take
from tests.pure.records.test_legacy import message

FIRST = TopicPartition("orders", 0)
SECONDS = 20.0
MOST_REQUESTS = 5 * SECONDS
BATCH = rewrite_header(encode_batch([(0, None, b"value", ())] * 3), 0, 0)


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster with a topic of one partition and 100 records."""
    await cluster.create_topic("orders")
    fill(cluster, FIRST, 100)
    return cluster


def fetched(request: FetchRequest, topic: str = "orders", index: int = 0, **parts: Any) -> FetchResponse:
    """Return an answer for one partition."""
    fields = {"error_code": 0, "high_watermark": 100, "aborted_transactions": None, "records": b"", **parts}
    topic_id = request.topics[0].topic_id if request.topics else bytes(16)
    if "topic_id" in fields:
        topic_id = fields.pop("topic_id")
    part = FetchResponsePartition(partition_index=index, **fields)
    answer = FetchResponseTopic(topic=topic, topic_id=topic_id, partitions=[part])
    return FetchResponse(session_id=0, responses=[answer])


async def errors_of(consumer: Consumer, seconds: float = SECONDS) -> list[CorruptRecord]:
    """Read for some seconds and return the errors; there must be no record."""
    loop = asyncio.get_running_loop()
    end, errors = loop.time() + seconds, []
    while loop.time() < end:
        try:
            assert await consumer.poll(timeout=end - loop.time()) == []
        except CorruptRecord as error:
            errors.append(error)
    return errors


# ---- refusals that stay


async def is_logged_once_as_an_outage(consumer: Consumer, refused: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Read while a request is refused with LEADER_NOT_AVAILABLE, until it is answered again."""
    assert await consumer.poll(timeout=SECONDS) == []
    assert refused.hits <= MOST_REQUESTS
    (outage,) = consumer.diagnose().outages
    assert "LEADER_NOT_AVAILABLE" in outage.error
    refused.remove()
    assert await take(consumer, 1)
    begun, ended = (line for line in caplog.messages if "orders-0" in line)
    assert "LEADER_NOT_AVAILABLE" in begun
    assert "after" in ended


async def test_offsets_that_are_refused_for_long_are_an_outage(
    orders: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refused = orders.on(ListOffsetsRequest, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await is_logged_once_as_an_outage(consumer, refused, caplog)


async def test_the_outage_of_a_partition_ends_when_it_is_no_longer_assigned(orders: EmbeddedCluster) -> None:
    orders.on(ListOffsetsRequest, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await consumer.poll(timeout=SECONDS)
        consumer.assign([])
        assert [outage for outage in consumer.diagnose().outages if outage.lasts_for is not None] == []


async def test_truncation_checks_that_are_refused_for_long_are_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    versions = {**default_versions(), FetchRequest.api_key: (4, 11)}
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders")
        fill(cluster, FIRST, 100)
        async with consumer_of(cluster) as consumer:
            consumer.assign([FIRST])
            await take(consumer, 100)
            refused = cluster.on(OffsetForLeaderEpochRequest, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE)
            await cluster.move_leader("orders", 0, cluster.leader_of("orders", 0))
            await cluster.produce("orders", b"after")
            await is_logged_once_as_an_outage(consumer, refused, caplog)


# ---- batches


def claiming(length: int) -> bytes:
    return BATCH[:8] + struct.pack(">i", length) + BATCH[12:]


@pytest.mark.parametrize(
    "data",
    [claiming(2**31 - 1), claiming(len(BATCH)), BATCH[:40], *(BATCH[:size] for size in (1, 2, 8, 12, 15, 16))],
    ids=["2^31-1", "one too long", "40 bytes", "1", "2", "8", "12", "15", "16"],
)
async def test_a_batch_that_is_never_whole_is_an_error_at_its_offset(orders: EmbeddedCluster, data: bytes) -> None:
    with orders.on(FetchRequest, times=None).answer(lambda request: fetched(request, records=data)) as fault:
        async with consumer_of(orders) as consumer:
            consumer.assign([FIRST])
            consumer.seek(FIRST, 7)
            errors = await errors_of(consumer)
            assert {(error.topic, error.partition, error.offset) for error in errors} == {("orders", 0, 7)}
            assert len(errors) <= fault.hits <= MOST_REQUESTS
            fault.remove()
            assert (await take(consumer, 1))[0].offset == 7


@pytest.mark.parametrize(
    "data",
    [
        *(struct.pack(">q", base) + BATCH[8:] for base in (2**63 - 1, 2**63 - 3, -1, -(2**63))),
        message(0, 2**63 - 1, None, b"old"),
        message(1, 2**63 - 1, None, b"old"),
    ],
    ids=["2^63-1", "2^63-3", "-1", "-2^63", "format 0", "format 1"],
)
async def test_a_batch_with_impossible_offsets_is_an_error_and_the_consumer_continues(
    orders: EmbeddedCluster, data: bytes
) -> None:
    with orders.on(FetchRequest, times=None).answer(lambda request: fetched(request, records=data)) as fault:
        async with consumer_of(orders) as consumer:
            consumer.assign([FIRST])
            errors = await errors_of(consumer)
            assert {(error.topic, error.partition, error.offset) for error in errors} == {("orders", 0, 0)}
            assert fault.hits <= MOST_REQUESTS
            fault.remove()
            assert len(await take(consumer, 100)) == 100


async def test_records_before_a_batch_with_impossible_offsets_are_returned(orders: EmbeddedCluster) -> None:
    data = BATCH + struct.pack(">q", 2**63 - 2) + BATCH[8:]

    def answer(request: FetchRequest) -> FetchResponse:
        begins = request.topics and request.topics[0].partitions[0].fetch_offset == 0
        return fetched(request, records=data if begins else data[len(BATCH) :])

    with orders.on(FetchRequest, times=None).answer(answer):
        async with consumer_of(orders) as consumer:
            consumer.assign([FIRST])
            assert [record.offset for record in await take(consumer, 3)] == [0, 1, 2]
            with pytest.raises(CorruptRecord, match="orders-0 cannot be read at offset 3"):
                await consumer.poll(timeout=5.0)


# ---- refusals that stay


async def test_an_offset_that_stays_out_of_range_costs_one_line_and_one_call_a_backoff(
    orders: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    resets: list[ResetReason] = []
    fault = orders.on(FetchRequest, times=None).fail(ErrorCode.OFFSET_OUT_OF_RANGE)
    with caplog.at_level(logging.INFO, "aiokafka_lite"):
        async with consumer_of(
            orders, on_offset_reset=lambda partition, old, new, reason: resets.append(reason)
        ) as consumer:
            consumer.assign([FIRST])
            assert await consumer.poll(timeout=SECONDS) == []
            assert 3 <= fault.hits <= MOST_REQUESTS / 2
            assert len(orders.history.of(ListOffsetsRequest)) <= MOST_REQUESTS / 2
            assert len(resets) <= fault.hits
            lines = [record for record in caplog.records if "orders-0" in record.getMessage()]
            assert len(lines) <= len(resets) + 1
            fault.remove()
            assert len(await take(consumer, 100)) == 100


async def test_a_single_reset_is_not_delayed(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 1000)
        began = asyncio.get_running_loop().time()
        assert (await take(consumer, 1))[0].offset == 0
        assert asyncio.get_running_loop().time() - began < 0.05


@pytest.mark.parametrize(("end", "position"), [(5, 5), (-1, 50)], ids=["at an offset", "at no offset"])
async def test_a_log_that_always_diverges_is_asked_with_a_growing_pause(
    orders: EmbeddedCluster, end: int, position: int
) -> None:
    def diverging(request: FetchRequest) -> FetchResponse:
        return fetched(request, diverging_epoch=FetchResponseDivergingEpoch(epoch=0, end_offset=end))

    fault = orders.on(FetchRequest, times=None).answer(diverging)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 50)
        assert await consumer.poll(timeout=SECONDS) == []
        assert fault.hits <= MOST_REQUESTS / 2
        fault.remove()
        assert (await take(consumer, 1))[0].offset == position


@pytest.mark.parametrize("replica", [2, 99], ids=["another broker", "a broker that does not exist"])
async def test_a_preferred_replica_that_is_named_again_and_again_causes_no_busy_loop(
    orders: EmbeddedCluster, replica: int
) -> None:
    first = orders.leader_of("orders", 0)
    other = next(node for node in orders.nodes if node != first) if replica == 2 else replica

    def elsewhere(request: FetchRequest) -> FetchResponse:
        return fetched(request, preferred_read_replica=other)

    def back(request: FetchRequest) -> FetchResponse:
        return fetched(request, preferred_read_replica=first)

    faults = [orders.on(FetchRequest, node=first, times=None).answer(elsewhere)]
    faults.append(orders.on(FetchRequest, times=None).answer(back))
    async with consumer_of(orders, client_rack="here") as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=SECONDS) == []
        assert sum(fault.hits for fault in faults) <= MOST_REQUESTS
        for fault in faults:
            fault.remove()
        assert len(await take(consumer, 100)) == 100


# ---- answers to another question


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: FetchResponse(session_id=0, responses=[]),
        lambda request: fetched(request, index=7, records=BATCH),
        lambda request: fetched(request, topic="other", topic_id=b"x" * 16, records=BATCH),
        lambda request: fetched(request, index=-1, records=BATCH),
    ],
    ids=["nothing", "another partition", "another topic", "a negative partition"],
)
async def test_an_answer_to_fetch_about_something_else_is_ignored(
    orders: EmbeddedCluster, answer: Callable[[FetchRequest], FetchResponse]
) -> None:
    fault = orders.on(FetchRequest, times=None).answer(answer)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=SECONDS) == []
        assert fault.hits <= MOST_REQUESTS / 2
        fault.remove()
        assert len(await take(consumer, 100)) == 100


def looked_up(*parts: tuple[str, int, int]) -> ListOffsetsResponse:
    """Return an answer with (topic, partition, offset) and no error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic,
                partitions=[
                    ListOffsetsResponsePartition(
                        partition_index=index, error_code=0, timestamp=-1, offset=offset, leader_epoch=0
                    )
                ],
            )
            for topic, index, offset in parts
        ],
    )


ODD_LOOKUPS = pytest.mark.parametrize(
    "parts",
    [(), (("orders", 7, 5),), (("other", 0, 5),), (("orders", 0, -1),), (("orders", 0, -5),)],
    ids=["nothing", "another partition", "another topic", "no offset", "a negative offset"],
)


@ODD_LOOKUPS
async def test_a_lookup_that_is_not_answered_is_repeated_with_a_pause(
    orders: EmbeddedCluster, parts: tuple[tuple[str, int, int], ...]
) -> None:
    fault = orders.on(ListOffsetsRequest, times=None).answer(lambda request: looked_up(*parts))
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=SECONDS) == []
        assert 3 <= fault.hits <= MOST_REQUESTS / 2
        fault.remove()
        assert len(await take(consumer, 100)) == 100


@ODD_LOOKUPS
async def test_a_call_for_an_end_that_is_not_answered_is_repeated_with_a_pause(
    orders: EmbeddedCluster, parts: tuple[tuple[str, int, int], ...]
) -> None:
    fault = orders.on(ListOffsetsRequest, times=None).answer(lambda request: looked_up(*parts))
    async with consumer_of(orders) as consumer:
        ends = asyncio.create_task(consumer.end_offsets([FIRST]))
        await asyncio.sleep(SECONDS)
        assert 3 <= fault.hits <= MOST_REQUESTS / 2
        fault.remove()
        assert await ends == {FIRST: 100}


@pytest.mark.parametrize("index", [None, 7], ids=["nothing", "another partition"])
async def test_a_truncation_check_that_is_not_answered_is_repeated_with_a_pause(index: int | None) -> None:
    versions = {**default_versions(), FetchRequest.api_key: (4, 11)}
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders", replication_factor=3)
        await cluster.until_in_sync("orders")
        fill(cluster, FIRST, 100)

        def answer(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
            part = OffsetForLeaderEpochResponsePartition(
                partition=index or 0, error_code=0, leader_epoch=0, end_offset=1
            )
            topics = [] if index is None else [OffsetForLeaderEpochResponseTopic(topic="orders", partitions=[part])]
            return OffsetForLeaderEpochResponse(topics=topics)

        fault = cluster.on(OffsetForLeaderEpochRequest, times=None).answer(answer)
        async with consumer_of(cluster, max_partition_fetch_bytes=400) as consumer:
            consumer.assign([FIRST])
            await take(consumer, 10)
            await cluster.move_leader("orders", 0)
            fetched_ahead = [record async for record in until_silent(consumer)]
            assert 3 <= fault.hits <= MOST_REQUESTS / 2
            fault.remove()
            assert len(await take(consumer, 90 - len(fetched_ahead))) == 90 - len(fetched_ahead)


async def until_silent(consumer: Consumer) -> Any:
    """Yield the records that come before a silence of 20 s."""
    while records := await consumer.poll(timeout=SECONDS):
        for record in records:
            yield record


@pytest.mark.parametrize("high_watermark", [-1, 0, -(2**63)])
async def test_a_high_watermark_below_the_position_makes_no_negative_lag(
    orders: EmbeddedCluster, high_watermark: int
) -> None:
    def answer(request: FetchRequest) -> FetchResponse:
        return fetched(request, high_watermark=high_watermark, last_stable_offset=high_watermark, log_start_offset=90)

    with orders.on(FetchRequest, times=None).answer(answer):
        async with consumer_of(orders) as consumer:
            consumer.assign([FIRST])
            consumer.seek(FIRST, 50)
            assert await consumer.poll(timeout=2.0) == []
            assert (await consumer.lag())[FIRST] in (0, leader(orders, FIRST).log.end_offset - 50)


async def test_an_error_that_is_retried_without_end_is_one_line_and_so_is_its_end(
    orders: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fault = orders.on(FetchRequest, times=None).fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with caplog.at_level(logging.INFO, "aiokafka_lite.consumer"):
        async with consumer_of(orders) as consumer:
            consumer.assign([FIRST])
            assert await consumer.poll(timeout=SECONDS) == []
            fault.remove()
            assert len(await take(consumer, 100)) == 100
    answers, again = [record.getMessage() for record in caplog.records if "orders-0" in record.getMessage()]
    assert answers.endswith("answers UNKNOWN_TOPIC_OR_PARTITION; retrying")
    assert again.startswith("fetched orders-0 again after")

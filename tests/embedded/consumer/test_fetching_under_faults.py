"""Fetching while leaders move, brokers stop, and answers are refused, damaged or lost."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import FetchRequest, FetchResponse, MetadataRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take, write

FIRST = TopicPartition("orders", 0)


async def test_a_leader_that_moves_costs_no_record(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"], max_partition_fetch_bytes=400) as consumer:
        offsets: list[int] = []
        for moves in range(6):
            offsets += [record.offset for record in await take(consumer, 40)]
            await orders.move_leader("orders", moves % 3)
        offsets += [record.offset for record in await take(consumer, 60)]
    assert sorted(offsets) == sorted([*range(100)] * 3)


async def test_partitions_are_read_although_leaders_move_faster_than_a_backoff(
    orders: EmbeddedCluster,
) -> None:
    """The leader named in an error is asked at once: after a backoff it would often no longer be the leader."""
    partitions = [TopicPartition("orders", number) for number in range(3)]
    for partition in partitions:
        fill(orders, partition, 900)

    async def move_on_and_on() -> None:
        for moves in itertools.count():
            await asyncio.sleep(0.02)
            await orders.move_leader("orders", moves % 3)

    moving = asyncio.create_task(move_on_and_on())
    async with consumer_of(orders, max_partition_fetch_bytes=400, fetch_max_bytes=400) as consumer:
        consumer.assign(partitions)
        await asyncio.sleep(1.0)  # as long as it takes to fail some times in a row
        async with asyncio.timeout(5.0):
            offsets = [record.offset for record in await take(consumer, 3000)]
    moving.cancel()
    assert sorted(offsets) == sorted([*range(1000)] * 3)


async def test_a_broker_that_is_killed_costs_no_record(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"], max_partition_fetch_bytes=400) as consumer:
        offsets = [record.offset for record in await take(consumer, 60)]
        await orders.kill(orders.leader_of("orders", 0), noticed_after=3.0)
        offsets += [record.offset for record in await take(consumer, 240)]
    assert sorted(offsets) == sorted([*range(100)] * 3)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_retriable_error_is_retried_with_backoff(orders: EmbeddedCluster, code: ErrorCode) -> None:
    fault = orders.on(FetchRequest, topic="orders", partition=0, times=None).fail(code)
    async with consumer_of(orders, topics=["orders"]) as consumer:
        records = await take(consumer, 200)  # the other partitions are not held up
        assert {record.partition for record in records} == {1, 2}
        assert await consumer.poll(timeout=20.0) == []
        assert fault.hits < 45
        assert len(orders.history.of(MetadataRequest)) < 45
        fault.remove()
        assert [record.offset for record in await take(consumer, 100)] == list(range(100))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
async def test_a_lost_session_is_created_again(orders: EmbeddedCluster, code: ErrorCode) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        orders.on(FetchRequest, times=1).answer(
            lambda request: FetchResponse(error_code=code, session_id=0, responses=[])
        )
        await consumer.poll(timeout=2.0)
        orders.history.clear()
        write(orders, FIRST, [b"after"])
        assert (await take(consumer, 1))[0].value == b"after"


Fault = Callable[[Any], Any]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda fault: fault.disconnect(),
        lambda fault: fault.apply_then_disconnect(),
        lambda fault: fault.truncate(30),
        lambda fault: fault.reply_bytes(b"\xff\xff\xff\xff"),
        lambda fault: fault.reply_bytes(b"\0\0\0\x08\0\0\0\x01abcd"),
        lambda fault: fault.drop(),
    ],
    ids=["disconnect", "apply then disconnect", "truncate", "negative size", "wrong correlation id", "no answer"],
)
async def test_a_broken_connection_or_answer_costs_no_record(orders: EmbeddedCluster, break_it: Fault) -> None:
    async with consumer_of(orders, topics=["orders"], max_partition_fetch_bytes=400, request_timeout=2.0) as consumer:
        offsets = [record.offset for record in await take(consumer, 60)]
        break_it(orders.on(FetchRequest, times=3))
        offsets += [record.offset for record in await take(consumer, 240)]
    assert sorted(offsets) == sorted([*range(100)] * 3)


async def test_answers_that_end_the_session_for_long_are_an_outage_that_is_logged_once(
    orders: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(response: Any) -> Any:
        response.error_code, response.responses = ErrorCode.UNKNOWN_SERVER_ERROR, []
        return response

    caplog.set_level(logging.INFO)
    fault = orders.on(FetchRequest, times=None).alter(refuse)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=20.0) == []
        assert fault.hits <= 5 * 20
        (outage,) = consumer.diagnose().outages
        assert "UNKNOWN_SERVER_ERROR" in outage.error
        fault.remove()
        await take(consumer, 100)
    lines = [line for line in caplog.messages if "fetch" in line]
    assert len(lines) == 2
    assert "answers each fetch with UNKNOWN_SERVER_ERROR; retrying" in lines[0]
    assert "failed attempts" in lines[1]


async def test_endless_garbage_causes_no_busy_loop_and_close_is_quick(orders: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    fault = orders.on(FetchRequest, times=None).reply_bytes(b"\0\0\0\x04\0\0\0\x01")
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=30.0) == []
        assert 3 < fault.hits < 60
        began = loop.time()
    assert loop.time() - began < 5.0


async def test_immediate_empty_answers_cause_no_busy_loop(orders: EmbeddedCluster) -> None:
    fault = orders.on(FetchRequest, times=None).answer(lambda request: FetchResponse(session_id=0, responses=[]))
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        assert await consumer.poll(timeout=30.0) == []
        assert fault.hits < 60

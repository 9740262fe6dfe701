"""Every public coroutine of a producer without transactions, cancelled at every turn of the event loop that it takes.

A record whose call returned is in the log once; one whose call was cancelled is there once or not at all. Nothing stays
behind, and the next call works. ``test_every_transaction_call.py`` has the coroutines of transactions.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pyarrow
import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ErrorCode
from aiokafka_lite.producer import Delivery, Failures, Producer
from aiokafka_lite.producer.record_calls import RecordCalls
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.cancelling import Covered, at_every_turn, public_coroutines
from tests.embedded.producer.producers_and_logs import producer_of, values_of

covers = Covered()


async def doubled(value: bytes) -> bytes:
    await asyncio.sleep(0)
    return value


def table(value: bytes) -> Any:
    return pyarrow.table({"value": pyarrow.array([value], pyarrow.binary())})


async def put_and(putting: Awaitable[Any], what: Callable[[Any], Awaitable[object]]) -> None:
    await what(await putting)


WRITES: dict[str, Callable[[Producer, bytes], Awaitable[object]]] = {
    "send": lambda producer, value: producer.send("t", value),
    "send_many": lambda producer, value: producer.send_many("t", [value]),
    "send_arrow": lambda producer, value: producer.send_arrow("t", table(value)),
    "put": lambda producer, value: put_and(producer.put("t", value), lambda delivery: delivery.wait()),
    "put_arrow": lambda producer, value: put_and(
        producer.put_arrow("t", table(value)), lambda delivery: producer.flush()
    ),
    "drain": lambda producer, value: put_and(producer.put("t", value), lambda delivery: producer.drain()),
}

ELSEWHERE = {
    "Producer.close",
    "Producer.flush",
    "Producer.send_offsets_to_transaction",
    *(f"Producer.{verb}_transaction" for verb in ("begin", "prepare", "commit", "abort", "detach")),
}
"""Cancelled at every turn in ``test_lifetime.py``, ``test_every_transaction_call.py`` and
``test_two_phase_commit.py``.
"""


@covers(*(f"RecordCalls.{name}" for name in WRITES if name != "drain"), "Producer.drain", "Delivery.wait")
@pytest.mark.parametrize(
    "name, settings",
    [
        *((name, {}) for name in WRITES),
        *((name, {"value_serializer": doubled}) for name in WRITES if "arrow" not in name),
    ],
)
async def test_a_write_that_is_cancelled_is_there_once_or_not_at_all(
    cluster: EmbeddedCluster, name: str, settings: dict[str, Any]
) -> None:
    await cluster.create_topic("t", 1)
    numbers, done = itertools.count(), set()

    async with producer_of(cluster, buffer_memory=2_000, max_request_size=1_900, **settings) as producer:

        async def call() -> None:
            value = b"%04d" % next(numbers) + b"x" * 800
            await WRITES[name](producer, value)
            done.add(value)

        await at_every_turn(call)
        await producer.flush()
        assert producer.metrics().buffered_bytes == 0
        await call()
    values = values_of(cluster, "t")
    assert set(values) >= done
    assert max(Counter(values).values()) == 1


@covers("Producer.partitions_for")
async def test_a_look_at_partitions_that_is_cancelled_can_be_repeated(cluster: EmbeddedCluster) -> None:
    topics = [f"topic-{number}" for number in range(60)]
    for topic in topics:
        await cluster.create_topic(topic, 2)
    remaining = iter(topics)
    async with producer_of(cluster) as producer:
        for partitions in await at_every_turn(lambda: producer.partitions_for(next(remaining))):
            assert len(partitions) == 2


@covers("Failures.__anext__")
async def test_a_look_at_failures_that_is_cancelled_loses_none(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    values, numbers = [], itertools.count()
    async with producer_of(cluster) as producer:
        failures = producer.failures()

        async def fail_one() -> None:
            with cluster.on(ProduceRequest, times=1).fail(ErrorCode.INVALID_RECORD), suppress(BrokerError):
                await producer.send("t", b"%d" % next(numbers))

        async def call() -> None:
            values.append((await anext(failures)).value)

        for turns in range(5):
            await fail_one()
            task = asyncio.ensure_future(call())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        while len(values) < 5:
            await call()
    assert values == [b"%d" % number for number in range(5)]


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(Producer, RecordCalls, Delivery, Failures) - ELSEWHERE == covers

"""What a call cannot use is refused by name, before anything is done."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.logs import consumer_of, fill, take

FIRST = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda each: each.poll("a"), TypeError, "max_records='a'"),
        (lambda each: each.poll(True), TypeError, "max_records=True"),
        (lambda each: each.poll(0), ValueError, "max_records=0"),
        (lambda each: each.poll(1, timeout="1"), ConfigurationError, "timeout='1'"),
        (lambda each: each.poll(1, timeout=None), ConfigurationError, "timeout=None"),
        (lambda each: each.poll(1, timeout=float("nan")), ConfigurationError, "timeout=nan"),
        (lambda each: each.batches("5"), TypeError, "max_records='5'"),
        (lambda each: each.batches(5, timeout="1"), ConfigurationError, "timeout='1'"),
        (lambda each: each.assign("t"), TypeError, "partitions='t'"),
        (lambda each: each.assign(None), TypeError, "partitions=None"),
        (lambda each: each.assign(["t"]), TypeError, "'t' is no partition"),
        (lambda each: each.assign([("t", "0")]), TypeError, r"\('t', '0'\) is no partition"),
        (lambda each: each.assign([("t", True)]), TypeError, r"\('t', True\) is no partition"),
        (lambda each: each.assign([(b"t", 0)]), TypeError, r"\(b't', 0\) is no partition"),
        (lambda each: each.assign([("t", -1)]), ValueError, r"\('t', -1\) is no partition"),
        (lambda each: each.assign([("t", 2**31)]), ValueError, "is no partition"),
        (lambda each: each.assign(FIRST), TypeError, r"as in \[TopicPartition\("),
        (lambda each: each.pause(FIRST), TypeError, r"as in \[TopicPartition\("),
        (lambda each: each.resume("orders"), TypeError, "partitions='orders'"),
        (lambda each: each.seek("orders", 1), TypeError, "'orders' is no partition"),
        (lambda each: each.seek(FIRST, "1"), TypeError, "offset='1'"),
        (lambda each: each.seek(FIRST, True), TypeError, "offset=True"),
        (lambda each: each.seek(FIRST, -1), ValueError, "offset=-1.*seek_to_beginning"),
        (lambda each: each.seek(FIRST, 2**63), ValueError, "offset="),
        (lambda each: each.mark("x"), TypeError, "record='x'"),
        (lambda each: each.mark(FIRST), TypeError, "record=TopicPartition"),
        (lambda each: each.close("5"), ConfigurationError, "timeout='5'"),
        (lambda each: each.highwater(0), TypeError, "0 is no partition"),
        (lambda each: each.seek_to_end(FIRST), TypeError, r"as in \[TopicPartition\("),
        (lambda each: each.position("orders"), TypeError, "'orders' is no partition"),
        (lambda each: each.position(FIRST, timeout="1"), ConfigurationError, "timeout='1'"),
        (lambda each: each.lag(FIRST), TypeError, r"as in \[TopicPartition\("),
        (lambda each: each.beginning_offsets(FIRST), TypeError, r"as in \[TopicPartition\("),
        (lambda each: each.end_offsets([FIRST], timeout=[]), ConfigurationError, r"timeout=\[\]"),
        (lambda each: each.offsets_for_times([FIRST]), TypeError, "timestamps="),
        (lambda each: each.offsets_for_times({FIRST: time.time()}), TypeError, "whole number of milliseconds"),
        (lambda each: each.offsets_for_times({FIRST: 2**63}), ValueError, "milliseconds since the epoch"),
        (lambda each: each.offsets_for_times({"orders": 1}), TypeError, "'orders' is no partition"),
    ],
)
async def test_a_mistake_is_named(
    cluster: EmbeddedCluster, call: Callable[[Consumer], Any], kind: type[Exception], says: str
) -> None:
    await cluster.create_topic("orders")
    fill(cluster, FIRST, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([FIRST])
        with pytest.raises(kind, match=says):
            result = call(consumer)
            if isinstance(result, Awaitable):
                await result
        assert consumer.assignment == (FIRST,)
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))


async def test_a_timeout_that_is_over_already_is_one_like_others(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    async with consumer_of(cluster) as consumer:
        consumer.assign([("orders", 0)])  # type: ignore[list-item]
        assert await consumer.poll(timeout=-1) == []


@pytest.mark.parametrize(
    "read",
    [
        lambda consumer: anext(consumer),
        lambda consumer: consumer.poll(timeout=5.0),
        lambda consumer: consumer.poll(),
        lambda consumer: anext(consumer.batches()),
        lambda consumer: anext(consumer.batches(timeout=5.0)),
    ],
)
async def test_reading_without_anything_to_read_says_so(
    cluster: EmbeddedCluster, read: Callable[[Consumer], Awaitable[object]]
) -> None:
    await cluster.create_topic("orders")
    fill(cluster, FIRST, 10)
    async with consumer_of(cluster) as consumer:
        with pytest.raises(IllegalStateError, match=r"nothing to read.*topics.*assign"):
            await read(consumer)
        consumer.assign([FIRST])
        assert (await anext(consumer)).offset == 0
        waiting = asyncio.ensure_future(read(consumer))
        consumer.assign([])
        with pytest.raises(IllegalStateError, match="nothing to read"):
            await waiting


async def test_a_member_that_owns_nothing_waits(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    async with (
        consumer_of(cluster, topics=["orders"], group_id="g") as one,
        consumer_of(cluster, topics=["orders"], group_id="g") as other,
    ):
        polls = await asyncio.gather(one.poll(timeout=20.0), other.poll(timeout=20.0))
        assert polls == [[], []]
        assert sorted(len(each.assignment) for each in (one, other)) == [0, 1]


async def test_a_pattern_that_nothing_matches_yet_waits(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, topics=re.compile("orders.*"), group_id="g") as consumer:
        assert await consumer.poll(timeout=10.0) == []

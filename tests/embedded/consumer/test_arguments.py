"""Wrong arguments are refused by name, and the refused call changes nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.types import TopicPartition
from tests.case_notes import case
from tests.embedded.consumer.direct_writes import consumer_of, fill, take

FIRST = TopicPartition("orders", 0)


WHOLE, SECONDS = "a whole number", "a number of seconds"
PARTITION, PARTITIONS = "partition must be", "partitions must be"

MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda consumer: consumer.poll("a"), TypeError, f"max_records must be {WHOLE} >= 1, got 'a'"),
    (lambda consumer: consumer.poll(True), TypeError, f"max_records must be {WHOLE} >= 1, got True"),
    (lambda consumer: consumer.poll(0), ValueError, f"max_records must be {WHOLE} >= 1, got 0"),
    (lambda consumer: consumer.poll(1, timeout="1"), ConfigurationError, f"timeout must be {SECONDS}, got '1'"),
    (lambda consumer: consumer.poll(1, timeout=None), ConfigurationError, f"timeout must be {SECONDS}, got None"),
    (
        lambda consumer: consumer.poll(1, timeout=float("nan")),
        ConfigurationError,
        f"timeout must be {SECONDS}, got nan",
    ),
    (lambda consumer: consumer.poll(partitions="t"), TypeError, f"{PARTITIONS} an iterable of TopicPartition, got 't'"),
    (
        lambda consumer: consumer.poll(partitions=[("t", 0)]),
        IllegalStateError,
        "; assign() it first, or in a group, await",
    ),
    (lambda consumer: consumer.batches("5"), TypeError, f"max_records must be {WHOLE} >= 1, got '5'"),
    (lambda consumer: consumer.batches(5, timeout="1"), ConfigurationError, f"timeout must be {SECONDS}, got '1'"),
    (lambda consumer: consumer.assign("t"), TypeError, f"{PARTITIONS} an iterable of TopicPartition, got 't'"),
    (lambda consumer: consumer.assign(None), TypeError, f"{PARTITIONS} an iterable of TopicPartition, got None"),
    (lambda consumer: consumer.assign(["t"]), TypeError, f"{PARTITION} a TopicPartition(topic, number), got 't'"),
    (
        lambda consumer: consumer.assign([("t", "0")]),
        TypeError,
        f"{PARTITION} a topic name and {WHOLE}, got ('t', '0')",
    ),
    (
        lambda consumer: consumer.assign([("t", True)]),
        TypeError,
        f"{PARTITION} a topic name and {WHOLE}, got ('t', True)",
    ),
    (lambda consumer: consumer.assign([(b"t", 0)]), TypeError, f"{PARTITION} a topic name and {WHOLE}, got (b't', 0)"),
    (
        lambda consumer: consumer.assign([("t", -1)]),
        ValueError,
        f"{PARTITION} a topic name and {WHOLE} >= 0, got ('t', -1)",
    ),
    (lambda consumer: consumer.assign([("t", 2**31)]), ValueError, f"{PARTITION} a topic name and {WHOLE} >= 0"),
    (lambda consumer: consumer.assign(FIRST), TypeError, "got one alone; pass [TopicPartition("),
    (lambda consumer: consumer.pause(FIRST), TypeError, "got one alone; pass [TopicPartition("),
    (
        lambda consumer: consumer.resume("orders"),
        TypeError,
        f"{PARTITIONS} an iterable of TopicPartition, got 'orders'",
    ),
    (
        lambda consumer: consumer.seek("orders", 1),
        TypeError,
        f"{PARTITION} a TopicPartition(topic, number), got 'orders'",
    ),
    (lambda consumer: consumer.seek(FIRST, "1"), TypeError, f"offset must be {WHOLE} >= 0, got '1'"),
    (lambda consumer: consumer.seek(FIRST, True), TypeError, f"offset must be {WHOLE} >= 0, got True"),
    (lambda consumer: consumer.seek(FIRST, -1), ValueError, f"offset must be {WHOLE} >= 0, got -1"),
    (
        lambda consumer: consumer.seek(FIRST, 2**63),
        ValueError,
        f"offset must be {WHOLE} >= 0 and <= 9223372036854775807, got 9223372036854775808",
    ),
    (lambda consumer: consumer.mark("x"), TypeError, "record must be a Record or a list of them, got 'x'"),
    (lambda consumer: consumer.mark(7, "x"), TypeError, "record must be a Record or a list of them, got 7"),
    (
        lambda consumer: consumer.mark(metadata="x"),
        ValueError,
        "metadata='x' needs a record: call mark(record, metadata)",
    ),
    (lambda consumer: consumer.mark(FIRST), TypeError, "record must be a Record or a list of them, got TopicPartition"),
    (lambda consumer: consumer.close("5"), ConfigurationError, f"timeout must be {SECONDS}, or None, got '5'"),
    (lambda consumer: consumer.high_watermark(0), TypeError, f"{PARTITION} a TopicPartition(topic, number), got 0"),
    (lambda consumer: consumer.seek_to_end(FIRST), TypeError, "got one alone; pass [TopicPartition("),
    (
        lambda consumer: consumer.seek_to_end(timeout="1"),
        ConfigurationError,
        f"timeout must be {SECONDS}, or None, got '1'",
    ),
    (lambda consumer: consumer.seek_to_committed(), IllegalStateError, "this consumer has no group_id"),
    (
        lambda consumer: consumer.position("orders"),
        TypeError,
        f"{PARTITION} a TopicPartition(topic, number), got 'orders'",
    ),
    (lambda consumer: consumer.position(FIRST, timeout="1"), ConfigurationError, f"timeout must be {SECONDS}, or None"),
    (lambda consumer: consumer.lag(FIRST), TypeError, "got one alone; pass [TopicPartition("),
    (lambda consumer: consumer.beginning_offsets(FIRST), TypeError, "got one alone; pass [TopicPartition("),
    (
        lambda consumer: consumer.end_offsets([FIRST], timeout=[]),
        ConfigurationError,
        f"timeout must be {SECONDS}, or None",
    ),
    (lambda consumer: consumer.offsets_for_times([FIRST]), TypeError, "timestamps must be a mapping"),
    (
        lambda consumer: consumer.offsets_for_times({FIRST: 1.5}),
        TypeError,
        "in milliseconds must be a whole number >= 0",
    ),
    (
        lambda consumer: consumer.offsets_for_times({FIRST: 2**63}),
        ValueError,
        "in milliseconds must be a whole number >= 0",
    ),
    (
        lambda consumer: consumer.offsets_for_times({"orders": 1}),
        TypeError,
        f"{PARTITION} a TopicPartition(topic, number)",
    ),
    (lambda consumer: consumer.partitions_for("orders", timeout="1"), ConfigurationError, f"timeout must be {SECONDS}"),
    (lambda consumer: consumer.topics(timeout="1"), ConfigurationError, f"timeout must be {SECONDS}"),
    (lambda consumer: consumer.subscribe(["orders"]), IllegalStateError, "pass topics alone, or use assign()"),
]


async def test_a_wrong_argument_is_named_and_changes_nothing(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    fill(cluster, FIRST, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([FIRST])
        for number, (call, kind, says) in enumerate(MISTAKES):
            with case(number, says), pytest.raises(kind, match=re.escape(says)):
                result = call(consumer)
                if isinstance(result, Awaitable):
                    await result
        assert consumer.assignment == (FIRST,)
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))


async def test_a_negative_timeout_is_over_at_once(cluster: EmbeddedCluster) -> None:
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
async def test_reading_without_topics_and_assignment_is_an_error(
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
        assert sorted(len(consumer.assignment) for consumer in (one, other)) == [0, 1]


async def test_a_member_whose_pattern_matches_no_topic_yet_waits(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, topics=re.compile("orders.*"), group_id="g") as consumer:
        assert await consumer.poll(timeout=10.0) == []

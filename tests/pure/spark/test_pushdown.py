"""Filters narrow ranges, and Spark applies those that are not exact."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from aiokafka_lite.spark.offsets import Range
from aiokafka_lite.spark.pushdown import is_exact, narrowed
from aiokafka_lite.types import TopicPartition

WANTED = [Range(TopicPartition(topic, number), 10, 20) for topic in ("a", "b") for number in (0, 1)]
OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)


def left(*filters: Filter) -> list[tuple[str, int, int, int]]:
    """The narrowed ranges. The record at offset 10 + n has the time n seconds."""

    def offsets_from(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = {each: 10 + -(-time // 1000) for each, time in times.items()}
        return {each: offset if offset < 25 else None for each, offset in found.items()}

    return [(*each.partition, each.start, each.end) for each in narrowed(WANTED, filters, offsets_from)]


@pytest.mark.parametrize(
    "given, start, end",
    [
        (EqualTo(OFFSET, 12), 12, 13),
        (GreaterThan(OFFSET, 12), 13, 20),
        (GreaterThanOrEqual(OFFSET, 12), 12, 20),
        (LessThan(OFFSET, 12), 10, 12),
        (LessThanOrEqual(OFFSET, 12), 10, 13),
        (GreaterThan(OFFSET, -5), 10, 20),
        (LessThan(OFFSET, 500), 10, 20),
    ],
)
def test_filters_of_offsets_cut_every_range(given: Filter, start: int, end: int) -> None:
    assert is_exact(given)
    assert left(given) == [(*each.partition, start, end) for each in WANTED]


def test_filters_of_topics_and_partitions_select_ranges() -> None:
    for given, expected in (
        (EqualTo(PARTITION, 1), [("a", 1), ("b", 1)]),
        (In(PARTITION, (1, 7)), [("a", 1), ("b", 1)]),
        (LessThan(PARTITION, 1), [("a", 0), ("b", 0)]),
        (EqualTo(TOPIC, "b"), [("b", 0), ("b", 1)]),
        (GreaterThan(TOPIC, "b"), []),
    ):
        assert is_exact(given)
        assert [each[:2] for each in left(given)] == expected
    assert left(EqualTo(TOPIC, "a"), EqualTo(PARTITION, 0), GreaterThan(OFFSET, 18)) == [("a", 0, 19, 20)]
    assert left(GreaterThan(OFFSET, 19)) == []


def test_filters_of_times_move_the_start_and_are_not_exact() -> None:
    time = datetime.fromtimestamp(3.5, UTC)
    for given in (GreaterThan(TIMESTAMP, time), GreaterThanOrEqual(TIMESTAMP, time.replace(tzinfo=None))):
        assert not is_exact(given)
        assert left(given) == [(*each.partition, 14, 20) for each in WANTED]
    assert left(GreaterThan(TIMESTAMP, datetime.fromtimestamp(99, UTC))) == []
    assert left(LessThan(TIMESTAMP, time)) == left()


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(PARTITION, 1)),
        IsNotNull(OFFSET),
        In(OFFSET, (11, 12)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        StringStartsWith(TOPIC, "a"),
    ],
)
def test_other_filters_are_left_to_spark(given: Filter) -> None:
    assert not is_exact(given)
    assert left(given) == left()

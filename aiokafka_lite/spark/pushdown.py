"""Filter pushdown: filters of a query narrow the ranges of offsets, so that excluded records are not fetched.

Filters of topics, partitions and offsets are exact, because a range has one topic and partition, and its offsets are
known. A filter of times is not exact, because timestamps in a log are not sorted: only the first record at or after a
time can be looked up. Spark applies such a filter to the rows as well.

Spark 4.3 keeps the plan of a reader with the loaded frame, not with the scan. If a frame is used twice with different
filters, both uses get the ranges of the last filter. A source cannot detect this, so the option is off by default, and
its documentation requires a ``load()`` for each filter.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ..types import TopicPartition
from .offsets import Range

OffsetsFrom = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]

Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In

_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, allowed: value in allowed,
}


def is_exact(given: Filter) -> bool:
    """Whether the ranges contain no row that the filter excludes, so that Spark need not apply it."""
    if not isinstance(given, Comparison):
        return False
    if given.attribute == ("offset",):
        return not isinstance(given, In) and isinstance(given.value, int)
    return given.attribute in (("topic",), ("partition",))


def narrowed(wanted: Iterable[Range], filters: Iterable[Filter], offsets_from: OffsetsFrom) -> list[Range]:
    """The ranges that the filters leave. ``offsets_from`` looks up the first offsets at or after a time."""
    kept = list(wanted)
    since: float | None = None
    for given in filters:
        if isinstance(given, Comparison) and is_exact(given):
            kept = [part for each in kept if (part := _narrowed(each, given)) is not None]
        elif (time := _since(given)) is not None:
            since = time if since is None else max(since, time)
    if since is None or not kept:
        return kept
    found = offsets_from({each.partition: max(0, math.floor(since)) for each in kept})
    begun = [replace(each, start=max(each.start, _or_end(found[each.partition], each))) for each in kept]
    return [each for each in begun if each.size > 0]


def _narrowed(each: Range, given: Comparison) -> Range | None:
    (column,) = given.attribute
    if column == "offset":
        return _of_offsets(each, given)
    value = each.partition.topic if column == "topic" else each.partition.partition
    return each if _COMPARISONS[type(given)](value, given.value) else None


def _of_offsets(each: Range, given: Comparison) -> Range | None:
    low, high = each.start, each.end
    match given:
        case EqualTo():
            low, high = given.value, given.value + 1
        case GreaterThan():
            low = given.value + 1
        case GreaterThanOrEqual():
            low = given.value
        case LessThan():
            high = given.value
        case LessThanOrEqual():
            high = given.value + 1
    kept = replace(each, start=max(low, each.start), end=min(high, each.end))
    return kept if kept.size > 0 else None


def _since(given: Filter) -> float | None:
    """The earliest timestamp, in milliseconds, that a filter accepts; None if it is not such a filter."""
    if not isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual) or given.attribute != ("timestamp",):
        return None
    if not isinstance(given.value, datetime):
        return None
    time = given.value if given.value.tzinfo is not None else given.value.replace(tzinfo=UTC)
    return time.timestamp() * 1000


def _or_end(offset: int | None, each: Range) -> int:
    return each.end if offset is None else offset

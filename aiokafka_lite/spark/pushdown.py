"""Filters that Spark would apply to rows, applied to ranges of offsets instead: what they exclude is not even fetched.

Topics, partitions and offsets are known of a range, so that a filter of them is exact and Spark need not look again.
Times are not in order in a log: only where records of some age begin can be told, so that Spark filters them as well.

Spark 4.3 keeps what a reader planned with the frame that was loaded, and not with the scan: a frame that is used twice,
with another filter or none, gets the ranges of the last filter. Nothing here can tell, so the option is off by default,
and its documentation asks for a ``load()`` for each filter.
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
    """Whether no row comes that the filter excludes, so that Spark need not apply it."""
    if not isinstance(given, Comparison):
        return False
    if given.attribute == ("offset",):
        return not isinstance(given, In) and isinstance(given.value, int)
    return given.attribute in (("topic",), ("partition",))


def narrowed(wanted: Iterable[Range], filters: Iterable[Filter], offsets_from: OffsetsFrom) -> list[Range]:
    """What is left of the ranges; ``offsets_from`` tells where records of some age begin, if it has to be asked."""
    left = list(wanted)
    since: float | None = None
    for given in filters:
        if isinstance(given, Comparison) and is_exact(given):
            left = [kept for each in left if (kept := _narrowed(each, given)) is not None]
        elif (time := _since(given)) is not None:
            since = time if since is None else max(since, time)
    if since is None or not left:
        return left
    found = offsets_from({each.partition: max(0, math.floor(since)) for each in left})
    begun = [replace(each, start=max(each.start, _or_end(found[each.partition], each))) for each in left]
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
    """The age in milliseconds that a filter asks for at least, if it is one of that kind."""
    if not isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual) or given.attribute != ("timestamp",):
        return None
    if not isinstance(given.value, datetime):
        return None
    time = given.value if given.value.tzinfo is not None else given.value.replace(tzinfo=UTC)
    return time.timestamp() * 1000


def _or_end(offset: int | None, each: Range) -> int:
    return each.end if offset is None else offset

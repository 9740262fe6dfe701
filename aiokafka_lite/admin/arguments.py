"""Arguments, read once and refused where they are wrong, before any broker is asked.

Wrong types are TypeError and wrong values ValueError, raised by the call itself: they are the caller's, not an item's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ..types import TopicPartition

T = TypeVar("T")
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
LONGEST_TEXT = 2**15 - 1
"""Bytes of UTF-8."""
_SHOWN = 50


def names(given: str | Iterable[str], what: str) -> list[str]:
    """One name or several, without repetition."""
    listed = [given] if isinstance(given, str) else several(given, f"{what} names")
    return list(dict.fromkeys(text(what, name) for name in listed))


def text(what: str, value: object) -> str:
    """Text that a request can carry."""
    if not isinstance(value, str):
        raise TypeError(f"{what} {value!r} is not text but {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {value!r} cannot be written as UTF-8") from None
    if size > LONGEST_TEXT:
        raise ValueError(f"{what} {value[:_SHOWN]!r}… has {size} bytes, and {LONGEST_TEXT} are the most")
    return value


def several(given: Iterable[T], what: str) -> list[T]:
    """A list of what was given as many. Text is not: it would be taken for its letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{given!r} is not a list of {what}")
    return list(given)


def partition(given: object) -> TopicPartition:
    """A partition; a plain pair of topic and number will do."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return TopicPartition(text("topic", given[0]), whole("partition", given[1], 0, INT32_MAX))
    raise TypeError(f"{given!r} is not a TopicPartition")


def partitions(given: TopicPartition | Iterable[TopicPartition]) -> list[TopicPartition]:
    """Partitions, without repetition; one alone will do."""
    if isinstance(given, TopicPartition):
        return [partition(given)]
    return list(dict.fromkeys(partition(each) for each in several(given, "TopicPartition")))


def by_partition(given: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
    """A mapping whose keys are partitions."""
    mapping(given, "TopicPartition")
    return {partition(key): value for key, value in given.items()}


def mapping(given: object, keys: str) -> None:
    """Raise TypeError unless it is a mapping."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{given!r} is not a mapping of {keys}")


def whole(name: str, value: object, low: int, high: int) -> int:
    """A whole number in a range, both ends included."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name}={value!r}: a whole number from {low} to {high}")
    return int(value)


def brokers(given: Iterable[int]) -> list[int]:
    """Broker ids."""
    return [whole("broker id", each, 0, INT32_MAX) for each in several(given, "broker ids")]


def by_topic(given: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions under the names of their topics."""
    topics: dict[str, list[int]] = {}
    for topic, number in given:
        topics.setdefault(topic, []).append(number)
    return topics

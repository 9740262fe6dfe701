"""Parses the options that say which partitions a query reads, and where it begins and ends in them. Pure.

The forms are the same as in Spark's own Kafka connector, including JSON: ``{"topic":{"0":23,"1":-2}}``.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..arguments import INT64_MAX, is_whole, must_be, shown
from ..cluster.topics import problem_of_topic_name
from ..errors import ConfigurationError
from ..types import TopicPartition

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

_EXAMPLE = '{"topic":{"0":23,"1":-2}}'


@dataclass(frozen=True, slots=True)
class SubscribeStrategy:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePatternStrategy:
    """All partitions of the topics whose name contains a match of the pattern."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether the query reads a topic of this name."""
        return re.search(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class AssignStrategy:
    """The partitions of the option ``assign``."""

    partitions: tuple[TopicPartition, ...]


Selection = SubscribeStrategy | SubscribePatternStrategy | AssignStrategy


class Edge(Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Unmatched(Enum):
    """The start in a partition without a record at or after the given timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ExplicitOffsets:
    """An offset for each partition; -2 is the earliest, -1 the latest. No other partition is read."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Times in milliseconds: one for all partitions, or one for each.

    The bound is the offset of the first record at this time or later.
    """

    times: int | Mapping[TopicPartition, int]
    unmatched: Unmatched

    def of(self, partition: TopicPartition) -> int:
        """Return the time of a partition."""
        return self.times if isinstance(self.times, int) else self.times[partition]


Bound = Edge | ExplicitOffsets | Timestamps
"""The bound at which reading begins or ends."""


def wrong(name: str, value: object, what: str) -> ConfigurationError:
    """Return the error for a wrong value of an option. ``what`` describes the values that are allowed."""
    return ConfigurationError(must_be(f"option {name}", what, value))


def subscribe(text: str) -> SubscribeStrategy:
    """Parse topics separated by commas."""
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise wrong("subscribe", text, "names of topics, separated by commas")
    for topic in topics:
        _check_topic("subscribe", topic)
    return SubscribeStrategy(topics)


def subscribe_pattern(text: str) -> SubscribePatternStrategy:
    """Parse a regular expression, which selects the topics whose name contains a match."""
    if not text.strip():
        raise wrong("subscribePattern", text, "a regular expression, as in orders-.*")
    try:
        with warnings.catch_warnings():
            # Python warns of sets in sets. It reads them in another way than Java, and would match other topics.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text.strip())
    except (re.error, FutureWarning) as error:
        reason = wrong("subscribePattern", text, "a regular expression of Python, which lacks some forms of Java's")
        raise ConfigurationError(f"{reason}: {error}") from None
    return SubscribePatternStrategy(text.strip())


def assign(text: str) -> AssignStrategy:
    """Parse partitions by topic, as JSON: ``{"topic":[0,1]}``."""
    what = 'partitions of each topic, as in {"topic":[0,1]}'
    partitions: list[TopicPartition] = []
    for topic, numbers in _json_object("assign", text, what).items():
        _check_topic("assign", topic)
        if not isinstance(numbers, list) or not numbers:
            raise wrong("assign", text, what)
        if not all(is_whole(number) and number >= 0 for number in numbers):
            raise wrong("assign", text, what)
        partitions += (TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise wrong("assign", text, what)
    return AssignStrategy(tuple(sorted(set(partitions))))


def offsets(name: str, text: str) -> Edge | ExplicitOffsets:
    """Parse ``earliest``, ``latest``, or an offset for each partition as JSON."""
    for edge in Edge:
        if text.strip().lower() == edge.value:
            return edge
    what = f"earliest, latest, or an offset for each partition, as in {_EXAMPLE}, where -2 is earliest and -1 is latest"
    by_partition = _by_partition(name, text, what)
    for offset in by_partition.values():
        if offset < EARLIEST_OFFSET:
            raise wrong(name, text, what)
    return ExplicitOffsets(by_partition)


def timestamp(name: str, text: str) -> int:
    """Parse milliseconds since the epoch."""
    if not re.fullmatch(r"\d{1,18}", text.strip()):
        raise wrong(name, text, "milliseconds since the epoch, as in 1760000000000")
    return int(text)


def timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    """Parse milliseconds for each partition, as JSON."""
    what = 'milliseconds since the epoch for each partition, as in {"topic":{"0":1760000000000}}'
    times = _by_partition(name, text, what)
    if any(time < 0 for time in times.values()):
        raise wrong(name, text, what)
    return times


def option(end: Literal["starting", "ending"], bound: Bound) -> str:
    """Return the name of the option that has set a bound."""
    if not isinstance(bound, Timestamps):
        return f"{end}Offsets"
    return f"{end}Timestamp" if isinstance(bound.times, int) else f"{end}OffsetsByTimestamp"


def check_same_partitions(selection: Selection, bound: Bound, name: str) -> None:
    """Raise ConfigurationError if a bound names a topic or partition outside of the selection.

    This check needs no cluster, unlike ``check_all_named``.
    """
    by_partition = named(bound)
    if by_partition is None:
        return
    for partition in by_partition:
        match selection:
            case SubscribeStrategy(topics):
                chosen = partition.topic in topics
            case SubscribePatternStrategy():
                chosen = selection.matches(partition.topic)
            case AssignStrategy(partitions):
                chosen = partition in partitions
        if not chosen:
            raise ConfigurationError(f"option {name} names {partition}, which the query does not read")
    if isinstance(selection, AssignStrategy) and set(selection.partitions) - set(by_partition):
        check_all_named(selection.partitions, bound, name)


def check_order(starting: Bound, ending: Bound) -> None:
    """Raise ConfigurationError if the starting time of a partition is after its ending time."""
    if not isinstance(starting, Timestamps) or not isinstance(ending, Timestamps):
        return
    begins, ends = named(starting), named(ending)
    if isinstance(starting.times, int) and isinstance(ending.times, int):
        pairs = [(starting.times, ending.times)]
    else:
        partitions = sorted((begins or ends or {}).keys() & (ends or begins or {}).keys())
        pairs = [(starting.of(partition), ending.of(partition)) for partition in partitions]
    for begin, end in pairs:
        if begin > end:
            raise wrong(option("ending", ending), end, f"{begin} or later, as {option('starting', starting)} says")


def check_all_named(partitions: tuple[TopicPartition, ...], bound: Bound, name: str) -> None:
    """Raise ConfigurationError if a bound names partitions, but not exactly these."""
    by_partition = named(bound)
    if by_partition is None:
        return
    missing = sorted(set(partitions) - set(by_partition))
    unknown = sorted(set(by_partition) - set(partitions))
    if missing:
        what = "an offset for every partition, where -2 is earliest and -1 is latest"
        if isinstance(bound, Timestamps):
            what = "a time for every partition"
        raise ConfigurationError(f"option {name} must have {what}; {_listed(missing)} is missing")
    if unknown:
        raise ConfigurationError(f"option {name} names {_listed(unknown)}, which does not exist")


def named(bound: Bound) -> Mapping[TopicPartition, int] | None:
    """Return the value of each partition that a bound names; None if the bound has one value for all partitions."""
    match bound:
        case ExplicitOffsets(by_partition):
            return by_partition
        case Timestamps(times) if not isinstance(times, int):
            return times
        case _:
            return None


def _listed(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"


def _by_partition(name: str, text: str, what: str) -> dict[TopicPartition, int]:
    values: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(name, text, what).items():
        if not isinstance(numbers, dict):
            raise wrong(name, text, what)
        for partition, number in numbers.items():
            if not re.fullmatch(r"\d{1,10}", partition) or not is_whole(number) or abs(number) > INT64_MAX:
                raise wrong(name, text, what)
            place = TopicPartition(topic, int(partition))
            if place in values:
                raise ConfigurationError(f"option {name} names {place} twice: {shown(text)}")
            values[place] = number
    if not values:
        raise wrong(name, text, what)
    return values


def _json_object(name: str, text: str, what: str) -> dict[str, object]:
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [key for key, _ in pairs]
            twice.extend(key for key in members if names.count(key) > 1)
        return members

    try:
        parsed = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise wrong(name, text, what)
    if twice:
        raise ConfigurationError(f"option {name} names {twice[0]!r} twice in one object: {shown(text)}")
    return parsed


def _check_topic(name: str, topic: str) -> None:
    if (problem := problem_of_topic_name(topic)) is not None:
        raise ConfigurationError(f"option {name}: {problem}")

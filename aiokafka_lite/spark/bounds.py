"""Which partitions a query reads, and where in them it begins and ends, as users write it. Pure.

The forms are those of Spark's own Kafka connector, JSON included: ``{"topic":{"0":23,"1":-2}}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..cluster.topics import check_topic_name
from ..errors import ConfigurationError, InvalidTopic
from ..types import TopicPartition

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
INT64_MAX = 2**63 - 1

_EXAMPLE = '{"topic":{"0":23,"1":-2}}'


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | SubscribePattern | Assign


class Edge(Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Unmatched(Enum):
    """What a timestamp means in a partition that has no record that young."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each of exactly these partitions; -2 is the earliest, -1 the latest."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The first record of each partition that is not older, in milliseconds: one time for all, or one for each."""

    times: int | Mapping[TopicPartition, int]
    unmatched: Unmatched


Bound = Edge | Offsets | Timestamps
"""Where reading begins or ends."""


def wrong(name: str, value: object, instead: str) -> ConfigurationError:
    """The error for an option's value; ``instead`` says what to write."""
    return ConfigurationError(f"option {name}={value!r}: {instead}")


def subscribe(text: str) -> Subscribe:
    """Topics joined by commas."""
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise wrong("subscribe", text, "write the names of topics, joined by commas")
    for topic in topics:
        _check_topic("subscribe", text, topic)
    return Subscribe(topics)


def subscribe_pattern(text: str) -> SubscribePattern:
    """A regular expression that the whole of a topic's name has to match."""
    if not text.strip():
        raise wrong("subscribePattern", text, "write a regular expression, as orders-.*")
    try:
        re.compile(text.strip())
    except re.error as error:
        raise wrong(
            "subscribePattern", text, f"{error}; Python's regular expressions are understood here, not all of Java's"
        ) from None
    return SubscribePattern(text.strip())


def assign(text: str) -> Assign:
    """Partitions by topic, as JSON: ``{"topic":[0,1]}``."""
    instead = 'write the partitions of each topic, as {"topic":[0,1]}'
    partitions: list[TopicPartition] = []
    for topic, numbers in _json_object("assign", text, instead).items():
        _check_topic("assign", text, topic)
        if not isinstance(numbers, list) or not numbers:
            raise wrong("assign", text, instead)
        if not all(_is_whole(number) and number >= 0 for number in numbers):
            raise wrong("assign", text, instead)
        partitions += (TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise wrong("assign", text, instead)
    return Assign(tuple(sorted(set(partitions))))


def offsets(name: str, text: str) -> Edge | Offsets:
    """``earliest``, ``latest``, or an offset for each partition as JSON."""
    for edge in Edge:
        if text.strip().lower() == edge.value:
            return edge
    instead = f"write earliest, latest, or an offset for each partition, as {_EXAMPLE}; -2 is earliest, -1 latest"
    given = _by_partition(name, text, instead)
    for offset in given.values():
        if offset < EARLIEST_OFFSET:
            raise wrong(name, text, instead)
    return Offsets(given)


def timestamp(name: str, text: str) -> int:
    """Milliseconds since the epoch."""
    if not re.fullmatch(r"\d{1,18}", text.strip()):
        raise wrong(name, text, "write milliseconds since the epoch, as 1760000000000")
    return int(text)


def timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    """Milliseconds for each partition, as JSON."""
    instead = 'write milliseconds since the epoch for each partition, as {"topic":{"0":1760000000000}}'
    given = _by_partition(name, text, instead)
    if any(time < 0 for time in given.values()):
        raise wrong(name, text, instead)
    return given


def option(end: Literal["starting", "ending"], bound: Bound) -> str:
    """The option that a bound was written by."""
    if not isinstance(bound, Timestamps):
        return f"{end}Offsets"
    return f"{end}Timestamp" if isinstance(bound.times, int) else f"{end}OffsetsByTimestamp"


def check_same_partitions(selection: Selection, bound: Bound, name: str) -> None:
    """Raise ConfigurationError where a bound names topics or partitions that the selection plainly does not have.

    Whether every partition is named can only be told with the cluster's help; this needs no cluster.
    """
    by_partition = named(bound)
    if by_partition is None:
        return
    for partition in by_partition:
        match selection:
            case Subscribe(topics):
                chosen = partition.topic in topics
            case SubscribePattern(pattern):
                chosen = re.fullmatch(pattern, partition.topic) is not None
            case Assign(partitions):
                chosen = partition in partitions
        if not chosen:
            raise ConfigurationError(f"option {name}: it names {partition}, which the query does not read")
    if isinstance(selection, Assign) and set(selection.partitions) - set(by_partition):
        check_all_named(selection.partitions, bound, name)


def check_all_named(partitions: tuple[TopicPartition, ...], bound: Bound, name: str) -> None:
    """Raise ConfigurationError unless a bound that names partitions names exactly these."""
    by_partition = named(bound)
    if by_partition is None:
        return
    missing = sorted(set(partitions) - set(by_partition))
    unknown = sorted(set(by_partition) - set(partitions))
    if missing:
        instead = "write an offset for every partition; -2 is the earliest, -1 the latest"
        if isinstance(bound, Timestamps):
            instead = "write a time for every partition"
        raise ConfigurationError(f"option {name}: it leaves out {_listed(missing)}; {instead}")
    if unknown:
        raise ConfigurationError(f"option {name}: it names {_listed(unknown)}, and there is no such partition")


def named(bound: Bound) -> Mapping[TopicPartition, int] | None:
    """The partitions that a bound speaks of one by one; None if it speaks of all alike."""
    match bound:
        case Offsets(by_partition):
            return by_partition
        case Timestamps(times) if not isinstance(times, int):
            return times
        case _:
            return None


def _listed(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"


def _by_partition(name: str, text: str, instead: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(name, text, instead).items():
        if not isinstance(numbers, dict):
            raise wrong(name, text, instead)
        for partition, number in numbers.items():
            if not re.fullmatch(r"\d{1,10}", partition) or not _is_whole(number) or abs(number) > INT64_MAX:
                raise wrong(name, text, instead)
            place = TopicPartition(topic, int(partition))
            if place in found:
                raise wrong(name, text, f"it names {place} twice")
            found[place] = number
    if not found:
        raise wrong(name, text, instead)
    return found


def _json_object(name: str, text: str, instead: str) -> dict[str, object]:
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [key for key, _ in pairs]
            twice.extend(key for key in made if names.count(key) > 1)
        return made

    try:
        parsed = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise wrong(name, text, instead)
    if twice:
        raise wrong(name, text, f"it names {twice[0]!r} twice in one place")
    return parsed


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _check_topic(name: str, text: str, topic: str) -> None:
    try:
        check_topic_name(topic)
    except InvalidTopic as error:
        raise wrong(name, text, str(error)) from None

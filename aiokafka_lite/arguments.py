"""Checks of the arguments that users pass in. They run first in each call, so that an error names the wrong argument.

Three rules. A message reads ``<name> must be <what>, got <value>``. A method raises TypeError for an argument of the
wrong type, and ValueError for a value out of range. A wrong setting or timeout is a ConfigurationError. The checks do
not depend on the purpose of an argument, so every component can use them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from . import disclosure
from .errors import ConfigurationError
from .types import OffsetAndMetadata, Record, TopicPartition

T = TypeVar("T")

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

MAX_STRING = INT16_MAX
"""Bytes of UTF-8 that a string of the protocol can have."""

_SHOWN = 80
"""Characters of a wrong value that an error shows."""


# Texts of errors.


def shown(value: object) -> str:
    """Shorten the value for an error text."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def must_be(name: str, what: str, value: object) -> str:
    """Return the text of most errors here: ``partition must be a whole number >= 0, got 'x'``.

    The value of a setting that may hold a secret is not quoted.
    """
    return f"{name} must be {what}, got {disclosure.value_of(name, what, value, shown(value))}"


def plural(count: int, noun: str) -> str:
    """Format a number of things, as in "1 partition", "2 partitions" and "2 batches"."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending}"


def in_seconds(seconds: float) -> str:
    """Format a duration for an error text, in three digits: ``0.55 s``, ``3600 s``."""
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


# Settings, timeouts and callables: ConfigurationError.


def check_timeout(timeout: float | None) -> None:
    """Raise ConfigurationError unless the timeout is a number of seconds, or None. Below zero, it has expired."""
    if timeout is not None and not _is_seconds(timeout):
        raise ConfigurationError(must_be("timeout", "a number of seconds, or None", timeout))


def check_wait(timeout: float | None, name: str = "timeout") -> None:
    """Raise ConfigurationError unless the value is a number of seconds. None is wrong: the call has no default."""
    if type(timeout) is float and timeout >= 0:
        return  # the usual case is fast: it runs for each poll
    if not _is_seconds(timeout):
        raise ConfigurationError(must_be(name, "a number of seconds", timeout))


def check_seconds(name: str, value: object) -> None:
    """Raise ConfigurationError unless the value is a finite number of seconds, 0 or more."""
    if not _is_seconds(value) or not 0 <= value < math.inf:
        raise ConfigurationError(must_be(name, "a number of seconds >= 0", value))


def _is_seconds(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def check_methods(name: str, value: object, *methods: str) -> None:
    """Raise ConfigurationError unless ``value`` has these methods and is not a class of such objects."""
    if isinstance(value, type):
        raise ConfigurationError(f"{name} must be an object, got the class {value.__name__}; pass {value.__name__}()")
    if not all(callable(getattr(value, method, None)) for method in methods):
        needed = " and ".join(f"{method}()" for method in methods)
        raise ConfigurationError(must_be(name, f"an object with {needed}", value))


def for_part(name: str, argument: object) -> object:
    """Call a serializer's or deserializer's ``for_part``, if it has that method. Returns the result, or the object
    itself.
    """
    choose = getattr(argument, "for_part", None)
    return argument if choose is None else choose(name.partition("_")[0])


def check_function(name: str, value: object) -> None:
    """Raise ConfigurationError unless ``value`` can be called."""
    if not callable(value):
        raise ConfigurationError(must_be(name, "a function", value))


# Arguments of methods: TypeError and ValueError.


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether the value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(name: str, value: object, low: int = 0, high: int = INT32_MAX) -> int:
    """Check that a value is a whole number from ``low`` to ``high``, both included."""
    is_above = is_whole(value) and value > high
    at_most = f" and <= {high}" if is_above or high not in (INT32_MAX, INT64_MAX) else ""
    what = f"a whole number >= {low}{at_most}"
    if not is_whole(value):
        raise TypeError(must_be(name, what, value))
    if not low <= value <= high:
        raise ValueError(must_be(name, what, value))
    return int(value)


def check_max_records(value: object) -> None:
    """Check the number of records that a call returns at most. Other clients have the timeout in its place."""
    if type(value) is int and 1 <= value <= INT32_MAX:
        return  # the usual case is fast: it runs for each poll
    if isinstance(value, float):
        raise TypeError(f"{must_be('max_records', 'a whole number >= 1', value)}; for seconds, pass timeout={value}")
    whole("max_records", value, 1)


def text(name: str, value: object) -> str:
    """Check that a value is a string that a request can carry."""
    if not isinstance(value, str):
        raise TypeError(must_be(name, "a string", value))
    if len(value) <= MAX_STRING and value.isascii():
        return value  # the usual case is fast: an assignment of 100,000 partitions checks each name
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(must_be(name, "a string that UTF-8 can encode", value)) from None
    if size > MAX_STRING:
        excerpt = "" if disclosure.may_hold_secret(name) else f": {shown(value)}"
        raise ValueError(f"{name} must be at most {MAX_STRING} bytes long, got {size} bytes{excerpt}")
    return value


def several(argument: Iterable[T], what: str) -> list[T]:
    """Make a list of an iterable. A string is refused, because it would become a list of its letters."""
    if isinstance(argument, str | bytes) or not isinstance(argument, Iterable):
        raise TypeError(must_be(what, "an iterable", argument))
    return list(argument)


def names(argument: str | Iterable[str], what: str) -> list[str]:
    """Check one name or several, and drop duplicates. ``what`` says in errors what a name is, for example "topic"."""
    items = [argument] if isinstance(argument, str) else several(argument, f"{what}s")
    return list(dict.fromkeys(text(what, name) for name in items))


def mapping(name: str, argument: object, keys: str) -> Mapping[Any, Any]:
    """Check that a value is a mapping. ``keys`` describes its keys in errors."""
    if not isinstance(argument, Mapping):
        raise TypeError(must_be(name, f"a mapping of {keys}", argument))
    return argument


def broker_ids(argument: Iterable[int]) -> list[int]:
    return [whole("broker id", broker_id) for broker_id in several(argument, "brokers")]


# Partitions and offsets.


def partition(argument: object) -> TopicPartition:
    """Check one partition. A plain tuple of topic and number is accepted."""
    if not isinstance(argument, tuple) or len(argument) != 2:
        raise TypeError(must_be("partition", "a TopicPartition(topic, number)", argument))
    topic, number = argument
    if not isinstance(topic, str) or not is_whole(number):
        raise TypeError(must_be("partition", "a topic name and a whole number", argument))
    if not 0 <= number <= INT32_MAX:
        raise ValueError(must_be("partition", "a topic name and a whole number >= 0", argument))
    text("topic", topic)
    return argument if isinstance(argument, TopicPartition) else TopicPartition(topic, number)


def partitions(argument: object) -> list[TopicPartition]:
    """Check partitions, and drop duplicates. A single partition is refused, because it is itself a tuple."""
    if isinstance(argument, TopicPartition):
        raise TypeError(f"partitions must be an iterable of TopicPartition, got one alone; pass [{argument!r}]")
    if isinstance(argument, str | bytes) or not isinstance(argument, Iterable):
        raise TypeError(must_be("partitions", "an iterable of TopicPartition", argument))
    return list(dict.fromkeys(partition(item) for item in argument))


def by_partition(name: str, argument: object, values: str = "offsets") -> dict[TopicPartition, Any]:
    """Check the keys of a mapping by partition. ``values`` describes its values in errors."""
    return {partition(key): value for key, value in mapping(name, argument, f"TopicPartition to {values}").items()}


def by_topic(argument: Iterable[tuple[T, int]]) -> dict[T, list[int]]:
    """Group partition numbers by the names, or the ids, of their topics."""
    topics: dict[T, list[int]] = {}
    for topic, number in argument:
        topics.setdefault(topic, []).append(number)
    return topics


def offset(value: object, name: str = "offset") -> int:
    """Check an offset: the offset of the next record to read."""
    return whole(name, value, 0, INT64_MAX)


def timestamps(argument: object) -> dict[TopicPartition, int]:
    """Check milliseconds since the epoch, by partition."""
    return {
        key: whole(f"timestamp of {key} in milliseconds", value, 0, INT64_MAX)
        for key, value in by_partition("timestamps", argument, "milliseconds").items()
    }


def offsets(argument: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check the offsets to commit, by partition. An int is an offset without metadata."""
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, value in by_partition("offsets", argument).items():
        if type(value) is int:
            value = OffsetAndMetadata(value)
        if not isinstance(value, OffsetAndMetadata):
            raise TypeError(must_be(f"offset of {key}", "an int or an OffsetAndMetadata", value))
        check_mark(value.offset, value.metadata, value.leader_epoch)
        checked[key] = value
    return checked


def record(argument: object) -> Record:
    if not isinstance(argument, Record):
        raise TypeError(must_be("record", "a Record that a read has returned", argument))
    return argument


def marked(argument: object, metadata: str) -> list[Record] | None:
    """Check the records to mark, or None for all. Metadata belongs to the offset of one record."""
    if isinstance(argument, Record):
        return [argument]
    if (
        argument is not None and not isinstance(argument, list) and type(argument) is not tuple
    ):  # a TopicPartition is a tuple
        raise TypeError(must_be("record", "a Record or a list of them", argument))
    checked = None if argument is None else [record(item) for item in argument]
    if metadata:
        raise ValueError(f"metadata={metadata!r} needs a record: call mark(record, metadata)")
    return checked


def check_mark(value: object, metadata: object, leader_epoch: object) -> None:
    """Check the three parts of an offset to commit, in the call: a later error would end the commit task instead."""
    # Hot, runs for each record. The usual case is decided here, which halves the time of a mark (from 3.0 to 1.5 µs).
    if (
        type(value) is int
        and 0 <= value <= INT64_MAX
        and type(metadata) is str
        and (leader_epoch is None or (type(leader_epoch) is int and 0 <= leader_epoch <= INT32_MAX))
    ):
        return
    offset(value)
    if not isinstance(metadata, str):
        raise TypeError(must_be("metadata", "a string", metadata))
    if leader_epoch is not None:
        whole("leader_epoch", leader_epoch)

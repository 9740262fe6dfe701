"""The values of ``.option(...)``: parsed, checked and typed, for a batch read, a stream read and a write.

Names, defaults and meanings are the same as in Spark's own Kafka connector, so a query only has to change the name of
the format. ``OPTIONS`` marks the options that only this source has. An option that does not exist, or is not for this
kind of query, is an error that names a similar option. If it were ignored, users would notice the mistake in
production.

This module imports neither pyspark nor any other slow module, because every planner worker imports it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Literal

from ..arguments import INT32_MAX, INT64_MAX
from ..errors import ConfigurationError
from ..settings import properties
from ..settings.spelling import property_names, respelled, spelled
from . import bounds
from .bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Bound,
    Edge,
    ExplicitOffsets,
    Selection,
    Timestamps,
    Unmatched,
    wrong,
)

logger = logging.getLogger(__name__)

KAFKA_PREFIX = "kafka."
BOOTSTRAP_SERVERS = "bootstrap.servers"
TRANSACTIONAL_ID = "transactional.id"

DEFAULT_TRIGGER_DELAY = 15 * 60.0
DEFAULT_POLL_TIMEOUT = 120.0
DEFAULT_OFFSET_RETRIES = 3
DEFAULT_OFFSET_RETRY_INTERVAL = 0.01
DEFAULT_RECORDS_PER_TASK = 50_000
DEFAULT_PREFETCH_BYTES = 32 * 1024 * 1024
DEFAULT_MAX_DECOMPRESSED_SIZE = 128 * 1024 * 1024
DEFAULT_TRANSACTIONAL_ID_PREFIX = "kafka-lite"

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"


class Scope(Flag):
    """The kinds of query that an option is for."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    ALL = READ | WRITE


_SCOPE_NAMES = {Scope.BATCH_READ: "a batch read", Scope.STREAM_READ: "a stream read", Scope.WRITE: "a write"}

OPTIONS: Mapping[str, Scope] = {
    # Of Spark's own connector.
    "subscribe": Scope.READ,
    "subscribePattern": Scope.READ,
    "assign": Scope.READ,
    "startingTimestamp": Scope.READ,
    "startingOffsetsByTimestamp": Scope.READ,
    "startingOffsetsByTimestampStrategy": Scope.READ,
    "startingOffsets": Scope.READ,
    "endingTimestamp": Scope.BATCH_READ,
    "endingOffsetsByTimestamp": Scope.BATCH_READ,
    "endingOffsets": Scope.BATCH_READ,
    "failOnDataLoss": Scope.READ,
    "maxOffsetsPerTrigger": Scope.READ,
    "minOffsetsPerTrigger": Scope.READ,
    "maxTriggerDelay": Scope.READ,
    "minPartitions": Scope.READ,
    "maxRecordsPerPartition": Scope.READ,
    "groupIdPrefix": Scope.READ,
    "includeHeaders": Scope.ALL,
    "kafkaConsumer.pollTimeoutMs": Scope.READ,
    "fetchOffset.numRetries": Scope.READ,
    "fetchOffset.retryIntervalMs": Scope.READ,
    "topic": Scope.WRITE,
    # Only of this source.
    "maxBytesPerTrigger": Scope.READ,
    "recordsPerTask": Scope.READ,
    "prefetchBytes": Scope.READ,
    "maxDecompressedSize": Scope.READ,
    "freezeGc": Scope.ALL,
    "deadLetterTopic": Scope.WRITE,
    "delivery": Scope.WRITE,
    "transactionalIdPrefix": Scope.WRITE,
}
"""Every option. Options that begin with ``kafka.`` are properties of the client."""

_BY_LOWER_CASE = {name.lower(): name for name in OPTIONS}

_SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)
"""Options that Spark itself reads, and passes to a source or sink nevertheless."""

_USE_INSTEAD = {
    "path": "topics are named by .option('subscribe', 'a,b'), and for a write by .option('topic', 'a')",
    "paths": "topics are named by .option('subscribe', 'a,b')",
    "bootstrap.servers": "write kafka.bootstrap.servers",
    "topics": "write subscribe for a read, and topic for a write",
    "kafka.topic": "write subscribe for a read, and topic for a write",
    "group.id": "write kafka.group.id, which is used for authorization only",
    "endingoffset": "write endingOffsets",
    "startingoffset": "write startingOffsets",
    "pushdown": "rows were missing where a loaded frame was used under two filters; choose records by assign, "
    "startingOffsets, startingTimestamp and their ending counterparts",
}

_REFUSED_PROPERTIES = {
    "auto.offset.reset": "write startingOffsets; a restarted query continues from its checkpoint",
    "enable.auto.commit": "leave it out; the checkpoint has the offsets, and nothing is committed to Kafka",
    "interceptor.classes": "leave it out; transform the rows in Spark",
    "key.deserializer": "leave it out; keys are binary, and CAST(key AS STRING) or from_json reads them",
    "value.deserializer": "leave it out; values are binary, and CAST(value AS STRING) or from_json reads them",
    "key.serializer": "leave it out; the key column is string or binary",
    "value.serializer": "leave it out; the value column is string or binary",
}
"""Properties of Kafka's clients that a query must not set, and what to do instead."""

_TRIGGER_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")

_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Properties(dict[str, str]):
    """The ``kafka.*`` options without this prefix. ``repr`` does not show values, because some are secrets.

    The values are as the user wrote them: each node resolves ``file:`` and ``env:`` when it connects. They never
    change, so the properties can be the key of a client.
    """

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"<Properties {' '.join(sorted(self))}>"

    def settings(self, convert: Callable[[Mapping[str, str]], dict[str, object]]) -> dict[str, Any]:
        """Convert to settings. Raises ConfigurationError with the option as the user wrote it."""
        try:
            return convert(self)
        except ConfigurationError as error:
            raise ConfigurationError(f"option {KAFKA_PREFIX}{error}") from None

    @contextmanager
    def named(self) -> Iterator[None]:
        """Make errors of a client or configuration in the body name the option as the user wrote it."""
        names = {setting: KAFKA_PREFIX + name for setting, name in property_names(self).items()}
        try:
            with spelled(names, {KAFKA_PREFIX + name: value for name, value in self.items()}):
                yield
        except ConfigurationError as error:
            option = "option " if str(error).startswith(KAFKA_PREFIX) else ""
            raise ConfigurationError(f"{option}{error}") from None

    @property
    def isolation_level(self) -> Literal["read_committed", "read_uncommitted"]:
        """The isolation level; by default ``read_uncommitted``, as in Kafka's own consumer."""
        level = self.get("isolation.level", "read_uncommitted")
        if level == "read_committed":
            return "read_committed"
        if level == "read_uncommitted":
            return "read_uncommitted"
        raise wrong("kafka.isolation.level", level, "read_committed or read_uncommitted")


_OPTION_NAMES = {
    setting: KAFKA_PREFIX + name
    for setting, name in property_names(()).items()
    if setting in ("max_request_size", "buffer_memory", "batch_size")
}
"""The options of the settings that an error about a size names. Other settings have names that a topic may have too."""


def with_option_names(text: str) -> str:
    """Replace the names of settings, in the text of a client's error about a size, by the names of options."""
    return respelled(text, _OPTION_NAMES, {})


@dataclass(frozen=True, kw_only=True)
class Read:
    """The options that batch and stream reads share. Times are seconds, sizes are bytes."""

    properties: Properties
    selection: Selection
    starting: Bound
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    records_per_task: int
    include_headers: bool
    poll_timeout: float
    offset_retries: int
    offset_retry_interval: float
    prefetch_bytes: int
    max_decompressed_size: int
    freeze_gc: bool


@dataclass(frozen=True, kw_only=True)
class BatchRead(Read):
    """A ``spark.read``: from ``starting`` up to ``ending``, both resolved when the query is planned."""

    ending: Bound


@dataclass(frozen=True, kw_only=True)
class StreamRead(Read):
    """A ``spark.readStream``. Limits count the offsets, or the bytes, of all partitions together."""

    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float


@dataclass(frozen=True, kw_only=True)
class Write:
    """A ``write`` or ``writeStream``. ``topic`` overrides the column ``topic``.

    ``dead_letter_topic`` gets the rows that their topic cannot take. If it is None, such a row fails its task.
    ``transactional_id_prefix`` is None if the delivery is at least once.
    """

    properties: Properties
    topic: str | None
    dead_letter_topic: str | None
    include_headers: bool
    freeze_gc: bool
    transactional_id_prefix: str | None


def without_effect(options: Mapping[str, str]) -> list[str]:
    """Return the options with properties of Java's clients that have no counterpart here. They are dropped."""
    names = (name.lower() for name in options)
    kafka_names = {name.removeprefix(KAFKA_PREFIX) for name in names if name.startswith(KAFKA_PREFIX)}
    return [KAFKA_PREFIX + name for name in _without_effect(kafka_names)]


def _without_effect(names: set[str]) -> list[str]:
    # A write with exactly-once delivery has a transactional id for each task.
    return sorted([*properties.without_effect(names), *names.intersection((TRANSACTIONAL_ID,))])


def is_read(options: Mapping[str, str]) -> bool:
    """Return whether these options are for a read. Spark does not say so before it makes a reader or writer."""
    return any(name.lower() in ("subscribe", "subscribepattern", "assign") for name in options)


def check_read(options: Mapping[str, str]) -> Read:
    """Check the options of a read of either kind. Raises ConfigurationError if they fit neither.

    The kind is not known here. If an option is for batches only, the rules of a batch read apply, otherwise the rules
    of a stream read. Only a batch has the rule that it must not begin at the end.
    """
    try:
        return batch_read(options, quiet=True)
    except ConfigurationError as error:
        for_batch = error
    only_for_batch = {name.lower() for name, scope in OPTIONS.items() if scope is Scope.BATCH_READ}
    if any(name.lower() in only_for_batch for name in options):
        raise for_batch
    return stream_read(options)


def batch_read(options: Mapping[str, str], *, quiet: bool = False) -> BatchRead:
    """Check the options of ``spark.read``. Raises ConfigurationError with the correction of a wrong option.

    Limits of a trigger have no effect; they are ignored with a warning (unless ``quiet``), as in Spark's connector.
    """
    query = _Given(options, Scope.BATCH_READ)
    limits = [name for name in _TRIGGER_LIMITS if name in query]
    if limits and not quiet:
        logger.warning("ignored options that have no effect in a batch read: %s", ", ".join(limits))
    query.trigger_limits()  # checked, because the query may be a stream
    query.size("maxBytesPerTrigger")
    starting = query.bound("starting", Edge.EARLIEST)
    if starting is Edge.LATEST or _has(starting, LATEST_OFFSET):
        allowed = "earliest, or offsets without -1 (latest), in a batch read"
        raise wrong("startingOffsets", query.text("startingOffsets"), allowed)
    ending = query.bound("ending", Edge.LATEST)
    if ending is Edge.EARLIEST or _has(ending, EARLIEST_OFFSET):
        allowed = "latest, or offsets without -2 (earliest), in a batch read"
        raise wrong("endingOffsets", query.text("endingOffsets"), allowed)
    bounds.check_order(starting, ending)
    common = query.common(starting)
    bounds.check_same_partitions(common.selection, ending, bounds.option("ending", ending))
    return BatchRead(**vars(common), ending=ending)


def stream_read(options: Mapping[str, str]) -> StreamRead:
    """Check the options of ``spark.readStream``. Raises ConfigurationError with the correction of a wrong option."""
    query = _Given(options, Scope.STREAM_READ)
    most, least, delay = query.trigger_limits()
    return StreamRead(
        **vars(query.common(query.bound("starting", Edge.LATEST))),
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=query.size("maxBytesPerTrigger"),
        min_offsets_per_trigger=least,
        max_trigger_delay=delay,
    )


def write(options: Mapping[str, str]) -> Write:
    """Check the options of a write of either kind. Raises ConfigurationError with the correction of a wrong option."""
    query = _Given(options, Scope.WRITE)
    topic = query.text("topic")
    if topic is not None and not topic.strip():
        raise wrong("topic", topic, "the name of a topic, or left out to use the column topic")
    topic = None if topic is None else topic.strip()
    return Write(
        properties=query.properties(),
        topic=topic,
        dead_letter_topic=query.dead_letter_topic(topic),
        include_headers=query.switch("includeHeaders", False),
        freeze_gc=query.switch("freezeGc", True),
        transactional_id_prefix=query.transactional_id_prefix(),
    )


def _has(bound: Bound, special: int) -> bool:
    return isinstance(bound, ExplicitOffsets) and special in bound.by_partition.values()


def _elsewhere(name: str) -> str:
    """Return the queries that an option is for, or the option to use instead."""
    if name == "topic":
        return "write subscribe to name the topics to read"
    scopes = [text for scope, text in _SCOPE_NAMES.items() if scope in OPTIONS[name]]
    return f"it is for {' and '.join(scopes)}"


class _Given:
    """The options of one query by their names in lower case: Spark's options have no case."""

    def __init__(self, options: Mapping[str, str], scope: Scope) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._scope = scope
        for name in self._values:
            self._check_name(name)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def _check_name(self, name: str) -> None:
        if name in _USE_INSTEAD:
            raise ConfigurationError(f"option {name} does not exist: {_USE_INSTEAD[name]}")
        if name.startswith((KAFKA_PREFIX, "_")) or name in _SPARKS_OWN:
            return
        spelling = _BY_LOWER_CASE.get(name)
        if spelling is None:
            close = difflib.get_close_matches(name, _BY_LOWER_CASE, n=1)
            here = ", ".join(option for option, scope in OPTIONS.items() if scope & self._scope)
            meant = f"did you mean {_BY_LOWER_CASE[close[0]]}?" if close else f"there are {here}"
            raise ConfigurationError(f"option {name} does not exist; {meant}")
        if not OPTIONS[spelling] & self._scope:
            # Without a known kind, the text says "a read", because an option of writes is for neither kind of read.
            here = "a read" if OPTIONS[spelling] is Scope.WRITE else _SCOPE_NAMES[self._scope]
            raise ConfigurationError(f"option {spelling} is not for {here}; {_elsewhere(spelling)}")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def switch(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise wrong(name, value, "true or false")
        return value.lower() == "true"

    def whole(self, name: str, low: int, high: int = INT64_MAX) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise wrong(name, value, f"a whole number from {low} to {high}")
        return number

    def milliseconds(self, name: str, low: int, default: float) -> float:
        number = self.whole(name, low)
        return default if number is None else number / 1000

    def duration(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", value.strip().lower())
        if match is None or (match[2] or "ms") not in _TIME_UNITS:
            raise wrong(name, value, "a number with a unit, as in 500ms, 30s, 15m, 1h or 1d")
        return int(match[1]) * _TIME_UNITS[match[2] or "ms"]

    def size(self, name: str) -> int | None:
        """Return a number of bytes. The units are those of Spark: powers of 1024."""
        value = self.text(name)
        if value is None:
            return None
        match = re.fullmatch(r"(\d{1,18})\s*([bkmgt]?)b?", value.strip().lower())
        number = int(match[1]) * _SIZE_UNITS[match[2]] if match else 0
        if not 1 <= number <= INT64_MAX:
            raise wrong(name, value, "a number of bytes of 1 or more, with or without a unit, as in 500k, 100m or 1g")
        return number

    def trigger_limits(self) -> tuple[int | None, int | None, float]:
        """Return the maximum and minimum of offsets per trigger, and the seconds to wait for the minimum."""
        most, least = self.whole("maxOffsetsPerTrigger", 1), self.whole("minOffsetsPerTrigger", 1)
        if most is not None and least is not None and least > most:
            raise wrong("minOffsetsPerTrigger", least, f"at most maxOffsetsPerTrigger ({most})")
        return most, least, self.duration("maxTriggerDelay", DEFAULT_TRIGGER_DELAY)

    def properties(self) -> Properties:
        values = {
            name.removeprefix(KAFKA_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(KAFKA_PREFIX)
        }
        for name, instead in _REFUSED_PROPERTIES.items():
            if name in values:
                raise ConfigurationError(f"option {KAFKA_PREFIX}{name} is not for a query: {instead}")
        if not values.get(BOOTSTRAP_SERVERS, "").strip():
            raise ConfigurationError(
                'option kafka.bootstrap.servers is required: write .option("kafka.bootstrap.servers", "host:9092")'
            )
        for name in _without_effect(set(values)):
            del values[name]
        return Properties(values)

    def selection(self) -> Selection:
        """Return the partitions to read, from exactly one of three options."""
        forms: dict[str, Callable[[str], Selection]] = {
            "subscribe": bounds.subscribe,
            "subscribePattern": bounds.subscribe_pattern,
            "assign": bounds.assign,
        }
        selections = {name: text for name in forms if (text := self.text(name)) is not None}
        if len(selections) != 1:
            present = " and ".join(selections) or "none"
            raise ConfigurationError(f"exactly one of the options {', '.join(forms)} is required, got {present}")
        ((name, text),) = selections.items()
        return forms[name](text)

    def bound(self, end: Literal["starting", "ending"], default: Edge) -> Bound:
        """Return where reading begins or ends. One time overrides times by partition; times override offsets."""
        unmatched = Unmatched.LATEST if end == "ending" else self._unmatched()
        if (text := self.text(f"{end}Timestamp")) is not None:
            return Timestamps(bounds.timestamp(f"{end}Timestamp", text), unmatched)
        if (text := self.text(f"{end}OffsetsByTimestamp")) is not None:
            return Timestamps(bounds.timestamps(f"{end}OffsetsByTimestamp", text), unmatched)
        if (text := self.text(f"{end}Offsets")) is not None:
            return bounds.offsets(f"{end}Offsets", text)
        return default

    def _unmatched(self) -> Unmatched:
        name = "startingOffsetsByTimestampStrategy"
        value = self.text(name) or Unmatched.ERROR.value
        for strategy in Unmatched:
            if value.lower() == strategy.value:
                return strategy
        raise wrong(name, value, "error or latest")

    def dead_letter_topic(self, topic: str | None) -> str | None:
        name = self.text("deadLetterTopic")
        if name is None:
            return None
        name = name.strip()
        if not name or name == topic:
            raise wrong("deadLetterTopic", name, "the name of a topic, other than that of the option topic")
        return name

    def transactional_id_prefix(self) -> str | None:
        delivery = (self.text("delivery") or AT_LEAST_ONCE).strip().lower()
        prefix = self.text("transactionalIdPrefix")
        if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
            raise wrong("delivery", delivery, f"{AT_LEAST_ONCE} or {EXACTLY_ONCE}")
        if delivery == AT_LEAST_ONCE:
            if prefix is not None:
                raise ConfigurationError(f"option transactionalIdPrefix requires .option('delivery', '{EXACTLY_ONCE}')")
            return None
        return (prefix or "").strip() or DEFAULT_TRANSACTIONAL_ID_PREFIX

    def common(self, starting: Bound) -> Read:
        kafka = self.properties()
        kafka.isolation_level  # noqa: B018 — checks the value
        selection, retries = self.selection(), self.whole("fetchOffset.numRetries", 0, INT32_MAX)
        bounds.check_same_partitions(selection, starting, bounds.option("starting", starting))
        return Read(
            properties=kafka,
            selection=selection,
            starting=starting,
            fail_on_data_loss=self.switch("failOnDataLoss", True),
            min_partitions=self.whole("minPartitions", 1, INT32_MAX),
            max_records_per_partition=self.whole("maxRecordsPerPartition", 1),
            records_per_task=self.whole("recordsPerTask", 1) or DEFAULT_RECORDS_PER_TASK,
            include_headers=self.switch("includeHeaders", False),
            poll_timeout=self.milliseconds("kafkaConsumer.pollTimeoutMs", 1, DEFAULT_POLL_TIMEOUT),
            offset_retries=DEFAULT_OFFSET_RETRIES if retries is None else retries,
            offset_retry_interval=self.milliseconds("fetchOffset.retryIntervalMs", 0, DEFAULT_OFFSET_RETRY_INTERVAL),
            prefetch_bytes=self.whole("prefetchBytes", 1024, INT32_MAX) or DEFAULT_PREFETCH_BYTES,
            max_decompressed_size=self.whole("maxDecompressedSize", 1, INT32_MAX) or DEFAULT_MAX_DECOMPRESSED_SIZE,
            freeze_gc=self.switch("freezeGc", True),
        )

"""Topic and broker settings under Kafka's names: their types, defaults, and what the embedded broker reads of them.

A setting is a string on the wire and in the tables here; ``TopicConfig`` is the parsed view that the hot path uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ..types import Compression

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """Types as DescribeConfigs v3 numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs v1 numbers it."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class InvalidConfig(ValueError):
    """A setting that does not exist, or a value that it does not take; the message names both."""


class ConfigKey(NamedTuple):
    """One setting; ``broker_name`` is the broker setting that a topic setting falls back to."""

    type: ConfigType
    default: str | None
    broker_name: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    read_only: bool = False
    pattern: str = ""

    def canonical(self, value: str) -> str:
        """A valid value as brokers show it."""
        match self.type:
            case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
                return str(int(value))
            case ConfigType.DOUBLE:
                return str(float(value))
            case ConfigType.BOOLEAN:
                return value.strip().lower()
            case ConfigType.LIST:
                return ",".join(dict.fromkeys(part.strip() for part in value.split(",")))
        return value.strip()

    def check(self, name: str, value: str) -> None:
        """Raise InvalidConfig unless the value fits."""
        kind = self.type
        if kind is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
            raise InvalidConfig(f"{name}={value!r}: use true or false")
        if kind in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE):
            try:
                number = float(value) if kind is ConfigType.DOUBLE else int(value)
            except ValueError:
                raise InvalidConfig(f"{name}={value!r}: not a number") from None
            ceiling = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT32_MAX}.get(kind, INT64_MAX)
            low, high = self.minimum, self.maximum if self.maximum is not None else ceiling
            if number > high or (low is not None and number < low):
                raise InvalidConfig(f"{name}={value}: must lie within {low if low is not None else '-'}..{high}")
        if self.pattern and re.fullmatch(self.pattern, value) is None:
            raise InvalidConfig(f"{name}={value!r}: must look like {self.pattern}")
        if self.allowed:
            parts = [part.strip() for part in value.split(",") if value] if kind is ConfigType.LIST else [value]
            if not all(part in self.allowed for part in parts):
                raise InvalidConfig(f"{name}={value!r}: use {', '.join(self.allowed)}")


_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

_THROTTLED = r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?"

TOPIC_KEYS: dict[str, ConfigKey] = {
    "cleanup.policy": ConfigKey(_LIST, "delete", "log.cleanup.policy", allowed=("compact", "delete")),
    "compression.gzip.level": ConfigKey(_INT, "-1", "compression.gzip.level", pattern="-1|[1-9]"),
    "compression.lz4.level": ConfigKey(_INT, "9", "compression.lz4.level", 1, 17),
    "compression.type": ConfigKey(
        _STRING,
        "producer",
        "compression.type",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": ConfigKey(_INT, "3", "compression.zstd.level", -131072, 22),
    "delete.retention.ms": ConfigKey(_LONG, "86400000", "log.cleaner.delete.retention.ms", 0),
    "file.delete.delay.ms": ConfigKey(_LONG, "60000", "log.segment.delete.delay.ms", 0),
    "flush.messages": ConfigKey(_LONG, str(INT64_MAX), "log.flush.interval.messages", 1),
    "flush.ms": ConfigKey(_LONG, str(INT64_MAX), "log.flush.interval.ms", 0),
    "follower.replication.throttled.replicas": ConfigKey(_LIST, "", pattern=_THROTTLED),
    "index.interval.bytes": ConfigKey(_INT, "4096", "log.index.interval.bytes", 0),
    "leader.replication.throttled.replicas": ConfigKey(_LIST, "", pattern=_THROTTLED),
    "local.retention.bytes": ConfigKey(_LONG, "-2", "log.local.retention.bytes", -2),
    "local.retention.ms": ConfigKey(_LONG, "-2", "log.local.retention.ms", -2),
    "max.compaction.lag.ms": ConfigKey(_LONG, str(INT64_MAX), "log.cleaner.max.compaction.lag.ms", 1),
    "max.message.bytes": ConfigKey(_INT, "1048588", "message.max.bytes", 0),
    "message.timestamp.after.max.ms": ConfigKey(_LONG, "3600000", "log.message.timestamp.after.max.ms", 0),
    "message.timestamp.before.max.ms": ConfigKey(_LONG, str(INT64_MAX), "log.message.timestamp.before.max.ms", 0),
    "message.timestamp.type": ConfigKey(
        _STRING, "CreateTime", "log.message.timestamp.type", allowed=("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": ConfigKey(_DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", 0, 1),
    "min.compaction.lag.ms": ConfigKey(_LONG, "0", "log.cleaner.min.compaction.lag.ms", 0),
    "min.insync.replicas": ConfigKey(_INT, "1", "min.insync.replicas", 1),
    "preallocate": ConfigKey(_BOOLEAN, "false", "log.preallocate"),
    "remote.log.copy.disable": ConfigKey(_BOOLEAN, "false"),
    "remote.log.delete.on.disable": ConfigKey(_BOOLEAN, "false"),
    "remote.storage.enable": ConfigKey(_BOOLEAN, "false"),
    "retention.bytes": ConfigKey(_LONG, "-1", "log.retention.bytes"),
    "retention.ms": ConfigKey(_LONG, "604800000", "log.retention.ms", -1),
    "segment.bytes": ConfigKey(_INT, "1073741824", "log.segment.bytes", 1048576),
    "segment.index.bytes": ConfigKey(_INT, "10485760", "log.index.size.max.bytes", 4),
    "segment.jitter.ms": ConfigKey(_LONG, "0", "log.roll.jitter.ms", 0),
    "segment.ms": ConfigKey(_LONG, "604800000", "log.roll.ms", 1),
    "unclean.leader.election.enable": ConfigKey(_BOOLEAN, "false", "unclean.leader.election.enable"),
}

BROKER_KEYS: dict[str, ConfigKey] = {
    **{key.broker_name: key for key in TOPIC_KEYS.values() if key.broker_name is not None},
    "auto.create.topics.enable": ConfigKey(_BOOLEAN, "true", read_only=True),
    "broker.id": ConfigKey(_INT, "-1", read_only=True),
    "connections.max.idle.ms": ConfigKey(_LONG, "600000", read_only=True),
    "default.replication.factor": ConfigKey(_INT, "1", read_only=True),
    "delete.topic.enable": ConfigKey(_BOOLEAN, "true", read_only=True),
    "fetch.max.bytes": ConfigKey(_INT, "57671680", minimum=1024, read_only=True),
    "group.initial.rebalance.delay.ms": ConfigKey(_INT, "3000", read_only=True),
    "group.max.session.timeout.ms": ConfigKey(_INT, "1800000", read_only=True),
    "group.min.session.timeout.ms": ConfigKey(_INT, "6000", read_only=True),
    "log.cleaner.backoff.ms": ConfigKey(_LONG, "15000", minimum=0),
    "log.cleaner.threads": ConfigKey(_INT, "1", minimum=0),
    "log.retention.check.interval.ms": ConfigKey(_LONG, "300000", minimum=1, read_only=True),
    "max.connections": ConfigKey(_INT, str(INT32_MAX), minimum=0),
    "max.incremental.fetch.session.cache.slots": ConfigKey(_INT, "1000", minimum=0, read_only=True),
    "node.id": ConfigKey(_INT, "-1", read_only=True),
    "num.partitions": ConfigKey(_INT, "1", minimum=1, read_only=True),
    "offsets.topic.num.partitions": ConfigKey(_INT, "50", minimum=1, read_only=True),
    "offsets.topic.replication.factor": ConfigKey(ConfigType.SHORT, "3", minimum=1, read_only=True),
    "producer.id.expiration.ms": ConfigKey(_INT, "86400000", minimum=1),
    "quota.window.num": ConfigKey(_INT, "11", minimum=1, read_only=True),
    "quota.window.size.seconds": ConfigKey(_INT, "1", minimum=1, read_only=True),
    "replica.lag.time.max.ms": ConfigKey(_LONG, "30000", read_only=True),
    "socket.request.max.bytes": ConfigKey(_INT, "104857600", minimum=1, read_only=True),
    "transactional.id.expiration.ms": ConfigKey(_INT, "604800000", minimum=1, read_only=True),
}


def check_configs(keys: Mapping[str, ConfigKey], values: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig for a name that ``keys`` lacks or a value that it refuses."""
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            raise InvalidConfig(f"there is no setting {name!r}")
        if value is None:
            raise InvalidConfig(f"{name}: a value is needed")
        key.check(name, value)


_COMPRESSIONS = {"uncompressed": Compression.NONE} | {
    each.name.lower(): each for each in Compression if each is not Compression.NONE
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings, parsed; times are in milliseconds, sizes in bytes, negative limits are none."""

    compacted: bool
    deleted: bool
    log_append_time: bool
    compression: Compression | None
    """What batches are compressed with, whatever their producer did; None leaves them as they come."""
    max_message_bytes: int
    min_insync_replicas: int
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    delete_retention_ms: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    unclean_leader_election: bool

    @classmethod
    def parse(cls, topic: Mapping[str, str], broker: Mapping[str, str]) -> TopicConfig:
        """The effective settings: the topic's own, else the broker's, else Kafka's default."""

        def value(name: str) -> str:
            return effective(name, topic, broker)[0] or ""

        whole: Callable[[str], int] = lambda name: int(value(name))  # noqa: E731
        policy = {part.strip() for part in value("cleanup.policy").split(",")}
        return cls(
            compacted="compact" in policy,
            deleted="delete" in policy,
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            compression=_COMPRESSIONS.get(value("compression.type")),
            max_message_bytes=whole("max.message.bytes"),
            min_insync_replicas=whole("min.insync.replicas"),
            retention_ms=whole("retention.ms"),
            retention_bytes=whole("retention.bytes"),
            segment_bytes=whole("segment.bytes"),
            segment_ms=whole("segment.ms"),
            delete_retention_ms=whole("delete.retention.ms"),
            timestamp_before_max_ms=whole("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=whole("message.timestamp.after.max.ms"),
            unclean_leader_election=value("unclean.leader.election.enable").lower() == "true",
        )


def effective(name: str, topic: Mapping[str, str], broker: Mapping[str, str]) -> tuple[str | None, ConfigSource]:
    """A topic setting's value and where it comes from, with all settings of the broker taken as one."""
    return topic_synonyms(name, topic, [(ConfigSource.STATIC_BROKER, broker)])[0][1:]


class Synonym(NamedTuple):
    """One of the places that a setting's value may come from."""

    name: str
    value: str | None
    source: ConfigSource


Layers = Sequence[tuple[ConfigSource, Mapping[str, str]]]
"""A broker's settings by where they come from, the strongest first."""


def topic_synonyms(name: str, topic: Mapping[str, str], layers: Layers) -> list[Synonym]:
    """Every value that a topic setting has somewhere, the one in force first."""
    key = TOPIC_KEYS[name]
    found = [Synonym(name, topic[name], ConfigSource.DYNAMIC_TOPIC)] if name in topic else []
    if key.broker_name is None:
        return [*found, Synonym(name, key.default, ConfigSource.DEFAULT)]
    return [*found, *broker_synonyms(key.broker_name, layers)]


_WITHOUT_DEFAULT = frozenset({"log.retention.ms", "log.flush.interval.ms", "log.roll.ms", "log.roll.jitter.ms"})
"""Settings whose default is that of a setting in another unit, such as hours."""


def has_default(name: str) -> bool:
    """Whether a broker has a default for a setting under this name, which is one of a broker's or of a topic's."""
    return name in BROKER_KEYS and name not in _WITHOUT_DEFAULT


def broker_synonyms(name: str, layers: Layers, *, own: bool = False) -> list[Synonym]:
    """Every value that a broker setting has somewhere, the one in force first.

    A default that is given in another unit counts, unless the broker is asked for its ``own`` settings.
    """
    found = [Synonym(name, layer[name], source) for source, layer in layers if name in layer]
    default = None if own and not has_default(name) else BROKER_KEYS[name].default
    return [*found, Synonym(name, default, ConfigSource.DEFAULT)]

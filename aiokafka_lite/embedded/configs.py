"""Topic and broker settings under Kafka's names: their types, their defaults, and the values in force.

A setting has one source. Its value is a string in the tables here and on the wire; ``ClusterSettings`` holds what was
set, and DescribeConfigs, ``BrokerSettings`` and ``TopicConfig`` all read it there. ``TopicConfig`` is parsed once, for
the hot path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ..arguments import INT16_MAX, INT32_MAX, INT64_MAX, must_be
from ..types import Compression


class ConfigType(IntEnum):
    """Types of settings, numbered as in DescribeConfigs v3."""

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
    """The source of a value, numbered as in DescribeConfigs v1."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class InvalidConfig(ValueError):
    """The setting does not exist, or does not accept the value; the message names both."""


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
        """A valid value in the form in which brokers show it."""
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
        """Raise InvalidConfig unless the setting accepts the value."""
        if self.type is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
            raise InvalidConfig(must_be(name, "true or false", value))
        if self.type in _LARGEST:
            self._check_number(name, value)
        if self.pattern and re.fullmatch(self.pattern, value) is None:
            raise InvalidConfig(must_be(name, f"a string that matches {self.pattern}", value))
        if self.allowed:
            parts = [part.strip() for part in value.split(",") if value] if self.type is ConfigType.LIST else [value]
            if not all(part in self.allowed for part in parts):
                raise InvalidConfig(must_be(name, f"one of {', '.join(self.allowed)}", value))

    def _check_number(self, name: str, value: str) -> None:
        try:
            number = float(value) if self.type is ConfigType.DOUBLE else int(value)
        except ValueError:
            raise InvalidConfig(must_be(name, "a number", value)) from None
        high = self.maximum if self.maximum is not None else _LARGEST[self.type]
        if number > high or (self.minimum is not None and number < self.minimum):
            low = "" if self.minimum is None else f">= {self.minimum} and "
            raise InvalidConfig(must_be(name, f"a number {low}<= {high}", value))


_LARGEST = {
    ConfigType.SHORT: INT16_MAX,
    ConfigType.INT: INT32_MAX,
    ConfigType.LONG: INT64_MAX,
    ConfigType.DOUBLE: INT64_MAX,
}


_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

_COMPRESSIONS = {"uncompressed": Compression.NONE} | {
    each.name.lower(): each for each in Compression if each is not Compression.NONE
}
_THROTTLED = r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

TOPIC_KEYS: dict[str, ConfigKey] = {
    "cleanup.policy": ConfigKey(_LIST, "delete", "log.cleanup.policy", allowed=("compact", "delete")),
    "compression.gzip.level": ConfigKey(_INT, "-1", "compression.gzip.level", pattern="-1|[1-9]"),
    "compression.lz4.level": ConfigKey(_INT, "9", "compression.lz4.level", 1, 17),
    "compression.type": ConfigKey(
        _STRING,
        "producer",
        "compression.type",
        allowed=(*_COMPRESSIONS, "producer"),
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
    "allow.everyone.if.no.acl.found": ConfigKey(_BOOLEAN, "false", read_only=True),
    "authorizer.class.name": ConfigKey(_STRING, "", allowed=("", STANDARD_AUTHORIZER), read_only=True),
    "broker.id": ConfigKey(_INT, "-1", read_only=True),
    "connection.failed.authentication.delay.ms": ConfigKey(_INT, "100", minimum=0, read_only=True),
    "connections.max.idle.ms": ConfigKey(_LONG, "600000", read_only=True),
    "connections.max.reauth.ms": ConfigKey(_LONG, "0", read_only=True),
    "default.replication.factor": ConfigKey(_INT, "1", read_only=True),
    "delete.topic.enable": ConfigKey(_BOOLEAN, "true", read_only=True),
    "fetch.max.bytes": ConfigKey(_INT, "57671680", minimum=1024, read_only=True),
    "group.initial.rebalance.delay.ms": ConfigKey(_INT, "3000", minimum=0, read_only=True),
    "group.max.session.timeout.ms": ConfigKey(_INT, "1800000", read_only=True),
    "group.max.size": ConfigKey(_INT, str(INT32_MAX), minimum=1, read_only=True),
    "group.min.session.timeout.ms": ConfigKey(_INT, "6000", read_only=True),
    "log.cleaner.backoff.ms": ConfigKey(_LONG, "15000", minimum=0),
    "log.cleaner.threads": ConfigKey(_INT, "1", minimum=0),
    "log.retention.check.interval.ms": ConfigKey(_LONG, "300000", minimum=1, read_only=True),
    "max.connections": ConfigKey(_INT, str(INT32_MAX), minimum=0),
    "max.incremental.fetch.session.cache.slots": ConfigKey(_INT, "1000", minimum=0, read_only=True),
    "node.id": ConfigKey(_INT, "-1", read_only=True),
    "num.partitions": ConfigKey(_INT, "1", minimum=1, read_only=True),
    "offsets.retention.check.interval.ms": ConfigKey(_LONG, "600000", minimum=1, read_only=True),
    "offsets.retention.minutes": ConfigKey(_INT, "10080", minimum=1, read_only=True),
    "offsets.topic.num.partitions": ConfigKey(_INT, "50", minimum=1, read_only=True),
    "offsets.topic.replication.factor": ConfigKey(ConfigType.SHORT, "3", minimum=1, read_only=True),
    "queued.max.request.bytes": ConfigKey(_LONG, "-1", read_only=True),
    "producer.id.expiration.ms": ConfigKey(_INT, "86400000", minimum=1),
    "quota.window.num": ConfigKey(_INT, "11", minimum=1, read_only=True),
    "quota.window.size.seconds": ConfigKey(_INT, "1", minimum=1, read_only=True),
    "replica.lag.time.max.ms": ConfigKey(_LONG, "30000", read_only=True),
    "sasl.server.max.receive.size": ConfigKey(_INT, "524288", read_only=True),
    "socket.request.max.bytes": ConfigKey(_INT, "104857600", minimum=1, read_only=True),
    "super.users": ConfigKey(_STRING, "", pattern=r"([^:;]+:[^;]+(;|$))*", read_only=True),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ConfigKey(_INT, "10000", minimum=1, read_only=True),
    "transaction.max.timeout.ms": ConfigKey(_INT, "900000", minimum=1, read_only=True),
    "transaction.partition.verification.enable": ConfigKey(_BOOLEAN, "true"),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ConfigKey(_INT, "3600000", minimum=1, read_only=True),
    "transaction.state.log.min.isr": ConfigKey(_INT, "2", minimum=1, read_only=True),
    "transaction.state.log.num.partitions": ConfigKey(_INT, "50", minimum=1, read_only=True),
    "transaction.state.log.replication.factor": ConfigKey(ConfigType.SHORT, "3", minimum=1, read_only=True),
    "transaction.state.log.segment.bytes": ConfigKey(_INT, "104857600", minimum=1048576, read_only=True),
    "transactional.id.expiration.ms": ConfigKey(_INT, "604800000", minimum=1, read_only=True),
}


def check_configs(keys: Mapping[str, ConfigKey], values: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig for a name that ``keys`` lacks, or a value that its setting does not accept."""
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            raise InvalidConfig(f"unknown setting {name!r}")
        if value is None:
            raise InvalidConfig(f"{name} must have a value")
        key.check(name, value)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The parsed settings of a topic. Times are in milliseconds, sizes in bytes; a negative limit is no limit."""

    compacted: bool
    deleted: bool
    log_append_time: bool
    compression: Compression | None
    """The codec that the broker compresses batches with; None keeps the codec of the producer."""
    max_message_bytes: int
    min_insync_replicas: int
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    unclean_leader_election: bool

    @classmethod
    def parse(cls, topic: Mapping[str, str], broker: Mapping[str, str]) -> TopicConfig:
        """The settings in force: the topic's own, else the broker's, else Kafka's default."""

        def value(name: str) -> str:
            return topic_synonyms(name, topic, [(ConfigSource.STATIC_BROKER, broker)])[0].value or ""

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
            min_compaction_lag_ms=whole("min.compaction.lag.ms"),
            max_compaction_lag_ms=whole("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
            timestamp_before_max_ms=whole("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=whole("message.timestamp.after.max.ms"),
            unclean_leader_election=value("unclean.leader.election.enable").lower() == "true",
        )


class Synonym(NamedTuple):
    """One of the values that a setting has, and where it comes from."""

    name: str
    value: str | None
    source: ConfigSource


Layers = Sequence[tuple[ConfigSource, Mapping[str, str]]]
"""The settings of a broker by their source; the source that wins comes first."""


def topic_synonyms(name: str, topic: Mapping[str, str], layers: Layers) -> list[Synonym]:
    """All values of a topic setting, the one in force first."""
    key = TOPIC_KEYS[name]
    found = [Synonym(name, topic[name], ConfigSource.DYNAMIC_TOPIC)] if name in topic else []
    if key.broker_name is None:
        return [*found, Synonym(name, key.default, ConfigSource.DEFAULT)]
    return [*found, *broker_synonyms(key.broker_name, layers)]


_WITHOUT_DEFAULT = frozenset({"log.retention.ms", "log.flush.interval.ms", "log.roll.ms", "log.roll.jitter.ms"})
"""Settings whose default comes from a setting in another unit, such as hours."""


def has_default(name: str) -> bool:
    """Whether a broker setting has a default under exactly this name."""
    return name in BROKER_KEYS and name not in _WITHOUT_DEFAULT


def broker_synonyms(name: str, layers: Layers, *, own: bool = False) -> list[Synonym]:
    """All values of a broker setting, the one in force first.

    A default that comes from a setting in another unit counts, except in the answer to a request for the broker's
    ``own`` settings.
    """
    found = [Synonym(name, layer[name], source) for source, layer in layers if name in layer]
    default = None if own and not has_default(name) else BROKER_KEYS[name].default
    return [*found, Synonym(name, default, ConfigSource.DEFAULT)]


class ClusterSettings:
    """The broker settings of the cluster's configuration and of AlterConfigs. Owner: the cluster."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = dict(static)
        self._dynamic: dict[str, dict[str, str]] = {}  # by broker id; "" is all brokers

    @property
    def shared(self) -> dict[str, str]:
        """The settings that all brokers share, without defaults."""
        return {**self._static, **self.dynamic("")}

    def dynamic(self, broker: str) -> Mapping[str, str]:
        """The settings that AlterConfigs gave one broker, or, with "", all brokers."""
        return self._dynamic.get(broker, {})

    def replace_dynamic(self, broker: str, configs: Mapping[str, str]) -> None:
        self._dynamic[broker] = dict(configs)

    def layers(self, broker: str = "") -> Layers:
        """The settings of one broker, or, with "", of all brokers."""
        own = {"broker.id": broker, "node.id": broker} if broker else {}
        layers = [
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic("")),
            (ConfigSource.STATIC_BROKER, {**self._static, **own}),
        ]
        if broker:
            layers.insert(0, (ConfigSource.DYNAMIC_BROKER, self.dynamic(broker)))
        return layers

    def of(self, broker: str = "") -> BrokerSettings:
        return BrokerSettings(self, broker)


class BrokerSettings:
    """The settings in force on one broker, or, with "", those that all brokers share. Each call reads them again."""

    def __init__(self, settings: ClusterSettings, broker: str) -> None:
        self._settings = settings
        self._broker = broker

    def value(self, name: str) -> str:
        return broker_synonyms(name, self._settings.layers(self._broker))[0].value or ""

    def number(self, name: str) -> int:
        return int(self.value(name))

    def seconds(self, name: str) -> float:
        """The value, in seconds, of a setting that is in milliseconds."""
        return self.number(name) / 1000

    def enabled(self, name: str) -> bool:
        return self.value(name).strip().lower() == "true"

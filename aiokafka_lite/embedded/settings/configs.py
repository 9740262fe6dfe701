"""Topic and broker settings under Kafka's names: their types, their defaults, and the values in force.

A setting has one source. Its value is a string in the tables here and on the wire; ``ClusterSettings`` holds what was
set, and DescribeConfigs, ``BrokerSettings`` and ``TopicConfig`` all read it there. ``TopicConfig`` is parsed once, for
the hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from ...arguments import INT64_MAX, must_be
from ...types import Compression
from .broker_keys import BROKER_KEYS, THROTTLE_KEYS
from .keys import ConfigKey, ConfigType, InvalidConfig, UpdateMode
from .listener_configs import base_name, listener_prefix


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs v1.

    ``ConfigSource`` of ``admin`` is the client's side.
    """

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


_COMPRESSIONS = {"uncompressed": Compression.NONE} | {
    codec.name.lower(): codec for codec in Compression if codec is not Compression.NONE
}
_THROTTLED = r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?"


_BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The settings of topics, each with the broker setting that it falls back to, and whose declaration it shares."""

_LIMITS = {
    "flush.ms": (str(INT64_MAX), 0),
    "retention.ms": ("604800000", -1),
    "segment.jitter.ms": ("0", 0),
    "segment.ms": ("604800000", 1),
}
"""The default and the minimum of the settings that brokers also have in other units."""

_DECLARED_BY_BROKERS = {
    name: BROKER_KEYS[broker_name]._replace(broker_name=broker_name, scope=UpdateMode.CLUSTER)
    for name, broker_name in _BROKER_NAMES.items()
}
_WITHOUT_EFFECT = {
    "follower.replication.throttled.replicas": ConfigKey(ConfigType.LIST, "", pattern=_THROTTLED, has_effect=False),
    "leader.replication.throttled.replicas": ConfigKey(ConfigType.LIST, "", pattern=_THROTTLED, has_effect=False),
    "remote.log.copy.disable": ConfigKey(ConfigType.BOOLEAN, "false", has_effect=False),
    "remote.log.delete.on.disable": ConfigKey(ConfigType.BOOLEAN, "false", has_effect=False),
    "remote.storage.enable": ConfigKey(ConfigType.BOOLEAN, "false", has_effect=False),
}
_WITH_LIMITS = {
    name: _DECLARED_BY_BROKERS[name]._replace(default=default, minimum=minimum)
    for name, (default, minimum) in _LIMITS.items()
}
_WITH_CODECS = {
    "compression.type": _DECLARED_BY_BROKERS["compression.type"]._replace(allowed=(*_COMPRESSIONS, "producer")),
}
TOPIC_KEYS: dict[str, ConfigKey] = dict(
    sorted((_DECLARED_BY_BROKERS | _WITH_LIMITS | _WITH_CODECS | _WITHOUT_EFFECT).items())
)
"""The settings of topics by name."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The parsed settings of a topic. Times are in milliseconds, sizes in bytes; a negative limit is no limit."""

    compacted: bool
    deleted: bool
    log_append_time: bool
    compression: Compression | None
    """The codec that the broker compresses batches with; None keeps the codec of the producer."""
    compression_level: int | None
    """The level of that codec; None is its default."""
    max_message_bytes: int
    min_insync_replicas: int
    flush_messages: int
    flush_ms: int
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
        """Return the settings in force: the topic's own, else the broker's, else Kafka's default."""

        def value(name: str) -> str:
            return topic_synonyms(name, topic, [(ConfigSource.STATIC_BROKER, broker)])[0].value or ""

        whole: Callable[[str], int] = lambda name: int(value(name))  # noqa: E731
        compression = _COMPRESSIONS.get(value("compression.type"))
        policy = {part.strip() for part in value("cleanup.policy").split(",")}
        return cls(
            compacted="compact" in policy,
            deleted="delete" in policy,
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            compression=compression,
            compression_level=_level(compression, value),
            max_message_bytes=whole("max.message.bytes"),
            min_insync_replicas=whole("min.insync.replicas"),
            flush_messages=whole("flush.messages"),
            flush_ms=whole("flush.ms"),
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


_FAST_LZ4 = 9
"""The default level of lz4. Kafka uses the fast compressor at this level, and the compressor of lz4hc at all others."""


def _level(compression: Compression | None, value: Callable[[str], str]) -> int | None:
    """Return the level of a codec that the broker compresses with."""
    if compression not in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        return None
    level = int(value(f"compression.{compression.name.lower()}.level"))
    is_default = (compression, level) in ((Compression.GZIP, -1), (Compression.LZ4, _FAST_LZ4))
    return None if is_default else level


class Synonym(NamedTuple):
    """One of the values of a setting, and its source."""

    name: str
    value: str | None
    source: ConfigSource


Layers = Sequence[tuple[ConfigSource, Mapping[str, str]]]
"""The settings of a broker by their source; the source that wins comes first."""


def topic_synonyms(name: str, topic: Mapping[str, str], layers: Layers) -> list[Synonym]:
    """Return all values of a topic setting, the effective value first."""
    key = TOPIC_KEYS[name]
    synonyms = [Synonym(name, topic[name], ConfigSource.DYNAMIC_TOPIC)] if name in topic else []
    if key.broker_name is None:
        return [*synonyms, Synonym(name, key.default, ConfigSource.DEFAULT)]
    *set_values, default = broker_synonyms(key.broker_name, layers)
    synonyms += set_values
    for other, factor in _OTHER_UNITS.get(key.broker_name, {}).items():
        for source, layer in layers:
            if other in layer:
                synonyms.append(Synonym(other, str(max(-1, int(layer[other]) * factor)), source))
    return [*synonyms, default if default.value is not None else default._replace(value=key.default)]


_OTHER_UNITS = {
    "log.retention.ms": {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "log.roll.ms": {"log.roll.hours": 3_600_000},
    "log.roll.jitter.ms": {"log.roll.jitter.hours": 3_600_000},
    "log.flush.interval.ms": {"log.flush.scheduler.interval.ms": 1},
}
"""The settings in other units that apply if a setting in milliseconds is not set, with their units in milliseconds."""


def has_default(name: str) -> bool:
    """Return whether a broker setting has a default under exactly this name, and not under the name of another unit."""
    return name in BROKER_KEYS and BROKER_KEYS[name].default is not None


UNKNOWN_KEY = ConfigKey(ConfigType.UNKNOWN, None, scope=UpdateMode.NONE, has_effect=False)
"""A setting of a broker that Kafka does not know. It is kept for plugins, and its value is never shown."""


def broker_key(name: str) -> ConfigKey:
    """Return the declaration of a broker setting. A setting of a listener cannot be changed for all listeners at
    once."""
    base = base_name(name)
    if base in BROKER_KEYS:
        return BROKER_KEYS[base]._replace(scope=UpdateMode.NONE)
    return BROKER_KEYS.get(name) or THROTTLE_KEYS.get(name, UNKNOWN_KEY)


def broker_synonyms(name: str, layers: Layers) -> list[Synonym]:
    """Return all values of a broker setting, the effective value first.

    Without a value for the listener, the value for all listeners applies.
    """
    synonyms = [Synonym(name, layer[name], source) for source, layer in layers if name in layer]
    base = base_name(name)
    if base in BROKER_KEYS:
        return [*synonyms, *broker_synonyms(base, layers)]
    return [*synonyms, Synonym(name, BROKER_KEYS.get(name, UNKNOWN_KEY).default, ConfigSource.DEFAULT)]


class ClusterSettings:
    """The broker settings of the cluster's configuration and of AlterConfigs. Owner: the cluster."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = dict(static)
        self._of_brokers: dict[str, dict[str, str]] = {}
        self._dynamic: dict[str, dict[str, str]] = {}  # by broker id; "" is all brokers
        self._resources: dict[tuple[int, str], dict[str, str]] = {}  # by type and name

    def set_static(self, broker: str, values: Mapping[str, str]) -> None:
        """Set the settings that only one broker has in its file: its addresses and its rack."""
        self._of_brokers[broker] = {"broker.id": broker, "node.id": broker, **values}

    def merged(self, broker: str = "") -> dict[str, str]:
        """Return the settings of one broker, or, with "", the settings that all brokers share; without defaults."""
        return {**self._static, **self.dynamic(""), **(self.dynamic(broker) if broker else {})}

    def dynamic(self, broker: str) -> Mapping[str, str]:
        """Return the settings that AlterConfigs gave one broker, or, with "", all brokers."""
        return self._dynamic.get(broker, {})

    def replace_dynamic(self, broker: str, configs: Mapping[str, str]) -> None:
        self._dynamic[broker] = dict(configs)

    def resource(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the settings of a group, or of a subscription of client metrics; ``kind`` is the number of the
        type."""
        return self._resources.get((kind, name), {})

    def resources(self, kind: int) -> list[str]:
        """Return the names of the resources of one type that have settings."""
        return [name for type_number, name in self._resources if type_number == kind]

    def replace_resource(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        self._resources.pop((kind, name), None)
        if configs:
            self._resources[kind, name] = dict(configs)

    def saved(self) -> dict[str, Any]:
        resources = [[kind, name, configs] for (kind, name), configs in self._resources.items()]
        return {
            "brokers": {broker: configs for broker, configs in self._dynamic.items() if configs},
            "resources": resources,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._dynamic = {broker: dict(configs) for broker, configs in state["brokers"].items()}
        self._resources = {(kind, name): dict(configs) for kind, name, configs in state["resources"]}

    def layers(self, broker: str = "") -> Layers:
        """Return the settings of one broker, or, with "", of all brokers."""
        own = self._of_brokers.get(broker, {})
        layers = [
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic("")),
            (ConfigSource.STATIC_BROKER, {**self._static, **own}),
        ]
        if broker:
            layers.insert(0, (ConfigSource.DYNAMIC_BROKER, self.dynamic(broker)))
        return layers

    def value(self, name: str, broker: str = "") -> str:
        """Return the first value of ``broker_synonyms``, without a list of all: each request reads some settings."""
        own = self._of_brokers.get(broker, {})
        layers = (self.dynamic(broker) if broker else {}, self.dynamic(""), own, self._static)
        while True:
            for layer in layers:
                if name in layer:
                    return layer[name] or ""
            base = base_name(name)
            if base not in BROKER_KEYS:
                return BROKER_KEYS.get(name, UNKNOWN_KEY).default or ""
            name = base

    def of(self, broker: str = "") -> BrokerSettings:
        return BrokerSettings(self, broker)


class BrokerSettings:
    """The settings in force on one broker, or, with "", the settings that all brokers share. Each call reads them
    again.
    """

    def __init__(self, settings: ClusterSettings, broker: str, prefix: str = "") -> None:
        self._settings = settings
        self._broker = broker
        self._prefix = prefix

    def of_listener(self, listener: str) -> BrokerSettings:
        """Return the settings in force for the clients of one listener."""
        return BrokerSettings(self._settings, self._broker, listener_prefix(listener))

    def value(self, name: str) -> str:
        return self._settings.value(self._prefix + name, self._broker)

    def own_value(self, name: str) -> str:
        """Return the value that is set for this listener alone; empty if there is none."""
        own = self._prefix + name
        return next((layer[own] for _, layer in self._settings.layers(self._broker) if own in layer), "")

    def of_mechanism(self, mechanism: str, name: str) -> str:
        """Return the value for the clients of one listener that log in by one mechanism."""
        return self.own_value(f"{mechanism.lower()}.{name}") or self.value(name)

    def number(self, name: str) -> int:
        return int(self.value(name))

    def seconds(self, name: str) -> float:
        """Return the value, in seconds, of a setting that is in milliseconds."""
        return self.number(name) / 1000

    def resource(self, kind: int, name: str) -> Mapping[str, str]:
        return self._settings.resource(kind, name)

    def enabled(self, name: str) -> bool:
        return self.value(name).strip().lower() == "true"


MOST_CONNECTIONS = "max.connections"
CREATION_RATE = "max.connection.creation.rate"
MOST_OF_ADDRESS = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"

_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""The sizes of pools of threads: a change may at most double them, and at most halve them."""


def check_dynamic(broker: str, changed: Mapping[str, str], settings: ClusterSettings) -> None:
    """Raise InvalidConfig unless these settings of one broker, or, with "", of all brokers, can change at run time."""
    _check_listener_scopes(broker, changed)
    _check_scopes(broker, changed)
    _check_connection_limits(broker, changed, settings)
    for name in filter(changed.__contains__, _THREADS):
        present, value = settings.of(broker).number(name), int(changed[name])
        if value != present and not max(1, present / 2) <= value <= present * 2:
            low, high = max(1, -(-present // 2)), present * 2
            raise InvalidConfig(must_be(name, f"from {low} to {high}, because it is {present} now", value))


def _check_listener_scopes(broker: str, changed: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless these settings of listeners can be set for one broker, or for all brokers."""
    for_all = {name for name, key in BROKER_KEYS.items() if key.scope is UpdateMode.CLUSTER}
    of_one = [name for name, base in _base_names(changed).items() if base not in for_all]
    if of_one and not broker:
        raise InvalidConfig(f"{', '.join(of_one)} can be changed only for one broker, not for all brokers")


def _check_scopes(broker: str, changed: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless these settings without a listener can be set for one broker, or for all brokers."""
    keys = {name: BROKER_KEYS[name] for name in changed if name in BROKER_KEYS}
    fixed = [name for name, key in keys.items() if key.read_only]
    if fixed:
        raise InvalidConfig(f"a running broker cannot change {', '.join(fixed)}")
    own = [name for name, key in keys.items() if key.scope is UpdateMode.BROKER]
    secure = [name for name in own if name.startswith("ssl.")]
    if secure:
        raise InvalidConfig(f"{', '.join(secure)} can be changed only with the prefix listener.name.<name>.")
    if own and not broker:
        raise InvalidConfig(f"{', '.join(own)} can be changed only for one broker, not for all brokers")


def _check_connection_limits(broker: str, changed: Mapping[str, str], settings: ClusterSettings) -> None:
    bases = _base_names(changed)
    for name, value in changed.items():
        base = bases.get(name, name)
        # Kafka checks the limits of all listeners when one broker changes.
        if base in (MOST_CONNECTIONS, CREATION_RATE) and (broker or name in bases) and int(value) == 0:
            raise InvalidConfig(must_be(name, "> 0", value))
    (source, _), *rest = settings.layers(broker)
    after: Layers = [(source, changed), *rest]
    of_address, overrides = (broker_synonyms(name, after)[0].value or "" for name in (MOST_OF_ADDRESS, OVERRIDES))
    if int(of_address) == 0 and not overrides:
        raise InvalidConfig(f"{MOST_OF_ADDRESS} can be 0 only with {OVERRIDES}")


def _base_names(changed: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of one listener, each with its name for all listeners."""
    return {name: base for name in changed if (base := base_name(name)) is not None}

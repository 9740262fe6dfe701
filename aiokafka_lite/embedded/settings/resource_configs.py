"""Settings of resources that are neither topics nor brokers: groups, and subscriptions of client metrics (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...arguments import must_be
from ...errors import ErrorCode
from .broker_keys import BROKER_KEYS
from .configs import BrokerSettings, ClusterSettings, ConfigSource, Layers, Synonym, broker_synonyms
from .keys import ConfigKey, ConfigType, InvalidConfig, UpdateMode, check_configs, nearest
from .topic_patterns import InvalidPattern, topic_pattern

CLIENT_METRICS = 16
GROUP = 32

_OF_GROUPS = """
    consumer.assignment.interval.ms consumer.heartbeat.interval.ms consumer.session.timeout.ms
    share.assignment.interval.ms share.delivery.count.limit share.heartbeat.interval.ms
    share.partition.max.record.locks share.record.lock.duration.ms share.session.timeout.ms
    streams.assignment.interval.ms streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms
    streams.num.standby.replicas streams.session.timeout.ms
"""
DURATION = r"P(?=\w)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
"""An ISO 8601 duration such as ``P1DT12H``; its groups are days, hours, minutes and seconds."""

GROUP_KEYS: dict[str, ConfigKey] = {
    **{
        name: BROKER_KEYS[f"group.{name}"]._replace(broker_name=f"group.{name}", scope=UpdateMode.CLUSTER)
        for name in _OF_GROUPS.split()
    },
    "share.auto.offset.reset": ConfigKey(
        ConfigType.STRING, "latest", pattern=rf"latest|earliest|by_duration:{DURATION}"
    ),
    "share.isolation.level": ConfigKey(
        ConfigType.STRING, "read_uncommitted", allowed=("read_uncommitted", "read_committed")
    ),
    "share.renew.acknowledge.enable": ConfigKey(ConfigType.BOOLEAN, "true"),
}
"""The settings of a group."""


def group_number(settings: BrokerSettings, group_id: str, name: str) -> int:
    """Return a numeric setting of a group. Without a value of its own, the group has the broker's value."""
    own = settings.resource(GROUP, group_id)
    return int(own[name]) if name in own else settings.number(f"group.{name}")


CLIENT_METRICS_KEYS: dict[str, ConfigKey] = {
    "interval.ms": ConfigKey(ConfigType.INT, "300000"),
    "match": ConfigKey(ConfigType.LIST, ""),
    "metrics": ConfigKey(ConfigType.LIST, ""),
}
SHORTEST_INTERVAL_MS = 100
LONGEST_INTERVAL_MS = 3_600_000
MATCHES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The properties of a client that a subscription can match, each with a regular expression."""


def _check_group(name: str, configs: Mapping[str, str], settings: ClusterSettings) -> None:
    if not name:
        raise InvalidConfig("a request for the settings of a group must name the group", ErrorCode.INVALID_REQUEST)
    check_configs(GROUP_KEYS, configs)
    brokers = settings.of()
    for config, value in configs.items():
        kind, _, what = config.partition(".")
        what = what.removeprefix("num.")  # num.standby.replicas has the limit max.standby.replicas
        for bound, sign in (("min", 1), ("max", -1)):
            limit = f"group.{kind}.{bound}.{what}"
            if limit in BROKER_KEYS and (int(value) - brokers.number(limit)) * sign < 0:
                sign_text = ">=" if sign > 0 else "<="
                raise InvalidConfig(f"{config} must be {sign_text} {limit}={brokers.number(limit)}, got {value}")


def _check_client_metrics(name: str, configs: Mapping[str, str], settings: ClusterSettings) -> None:
    if not name:
        raise InvalidConfig("a subscription must have a name", ErrorCode.INVALID_REQUEST)
    unknown = [config for config in configs if config not in CLIENT_METRICS_KEYS]
    if unknown:
        hint = nearest(unknown[0], CLIENT_METRICS_KEYS)
        raise InvalidConfig(f"unknown setting {unknown[0]!r}{hint}", ErrorCode.INVALID_REQUEST)
    check_configs(CLIENT_METRICS_KEYS, configs)
    interval = int(configs.get("interval.ms", SHORTEST_INTERVAL_MS))
    if not SHORTEST_INTERVAL_MS <= interval <= LONGEST_INTERVAL_MS:
        bounds = f"from {SHORTEST_INTERVAL_MS} to {LONGEST_INTERVAL_MS}"
        raise InvalidConfig(must_be("interval.ms", bounds, interval), ErrorCode.INVALID_REQUEST)
    for pattern in filter(None, configs.get("match", "").split(",")):
        what, _, expression = (part.strip() for part in pattern.partition("="))
        problem = ""
        try:
            topic_pattern(expression)
        except InvalidPattern as error:
            problem = f", which is not a valid pattern: {error}"
        if what not in MATCHES or not expression or problem:
            text = f"match must be one of {', '.join(MATCHES)}, =, and a pattern, got {pattern!r}{problem}"
            raise InvalidConfig(text)


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource whose settings can be changed. ``source`` is that of what the resource sets itself.

    ``check`` takes the name of the resource and all its new settings. It raises InvalidConfig.
    """

    keys: Mapping[str, ConfigKey]
    source: ConfigSource
    check: Callable[[str, Mapping[str, str], ClusterSettings], None]


CONFIG_RESOURCES = {
    CLIENT_METRICS: ResourceKind(CLIENT_METRICS_KEYS, ConfigSource.DYNAMIC_CLIENT_METRICS, _check_client_metrics),
    GROUP: ResourceKind(GROUP_KEYS, ConfigSource.DYNAMIC_GROUP, _check_group),
}
"""The kinds of resources by the number of the type in DescribeConfigs."""


def resource_synonyms(kind: ResourceKind, name: str, own: Mapping[str, str], layers: Layers) -> list[Synonym]:
    """Return all values of a setting of a resource, the effective value first. A group falls back to settings of
    brokers.
    """
    key = kind.keys[name]
    synonyms = [Synonym(name, own[name], kind.source)] if name in own else []
    if key.broker_name is not None:
        return [*synonyms, *broker_synonyms(key.broker_name, layers)]
    return [*synonyms, Synonym(name, key.default, ConfigSource.DEFAULT)]

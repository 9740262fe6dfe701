"""Settings of topics, brokers, groups and clients: describe with their sources, change only what is named.

Settings of one broker are asked from and changed at that broker; all others are asked from any broker and changed at
the controller. Before Kafka 2.3 a change replaces all settings of a resource (there is no IncrementalAlterConfigs,
KIP-339), so the present ones are read first and sent along: a change that somebody else makes between the two is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Self

from ..errors import KafkaError, UnsupportedVersion
from ..protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from . import arguments
from .calls import Calls, Deadline, Peer, Place, Places, answer_of
from .results import Results

SettingValue = str | int | float | bool


class _Open(IntEnum):
    """An enumeration that a newer broker may add to."""

    @classmethod
    def of(cls, number: int) -> Self:
        """The member, UNKNOWN (0) for a number that is not known here."""
        return cls(number if number in cls._value2member_map_ else 0)


class ResourceType(_Open):
    """What has settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Open):
    """Where a value comes from, from the nearest to the farthest."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    BROKER_FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(_Open):
    """What values a setting takes. UNKNOWN before Kafka 2.6."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Operation(IntEnum):
    """What a change does. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OF_BROKERS = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


class ConfigResource(NamedTuple):
    """A thing with settings. A broker's name is its id; an empty one stands for all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name!r}" if self.name else f"all {kind}s"

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        return cls(ResourceType.BROKER, str(arguments.whole("broker id", node_id, 0, arguments.INT32_MAX)))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        """What is set for all brokers while the cluster runs."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def broker_logger(cls, node_id: int) -> ConfigResource:
        """The levels of a broker's loggers (Kafka 2.4)."""
        return cls(ResourceType.BROKER_LOGGER, str(arguments.whole("broker id", node_id, 0, arguments.INT32_MAX)))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """A group (Kafka 4.0)."""
        return cls(ResourceType.GROUP, name)

    @property
    def node_id(self) -> int | None:
        """The broker that alone can tell, None where any can."""
        return int(self.name) if self.type in _OF_BROKERS and self.name else None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place that gives the setting a value, under the name that it has there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and its value, which is None for what is secret. ``synonyms`` are the places, nearest first."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting."""

    name: str
    value: SettingValue | None = None
    operation: Operation = Operation.SET

    def __post_init__(self) -> None:
        if not isinstance(self.operation, Operation):
            raise TypeError(f"{self.name}: {self.operation!r} is not an Operation, as Operation.SET is")
        arguments.text("setting", self.name)
        if self.operation is Operation.DELETE and self.value is not None:
            raise ValueError(f"{self.name}: a setting is deleted without a value")
        if self.operation is not Operation.DELETE:
            setting_text(self.name, self.value)


Changes = Mapping[str, SettingValue | None] | Iterable[ConfigChange]

_OWN = {
    ResourceType.TOPIC: ConfigSource.TOPIC,
    ResourceType.BROKER: ConfigSource.BROKER,
}


def setting_text(name: str, value: object) -> str:
    """A value as Kafka writes it; TypeError for what is no value of a setting."""
    arguments.text("setting", name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return arguments.text(f"the value of {name},", str(value))
    raise TypeError(f"{name}={value!r}: a setting is text, a number, or true or false")


class Configs:
    """What ``admin.configs`` does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = True,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, Mapping[str, Setting]]:
        """The settings of resources by name, all or those in ``names``; documentation since Kafka 2.6."""
        wanted = _resources(resources)
        keys = None if names is None else arguments.names(names, "setting")

        async def ask(
            peer: Peer, items: list[ConfigResource]
        ) -> Mapping[ConfigResource, Mapping[str, Setting] | KafkaError]:
            return await _describe(peer, items, keys, synonyms, documentation)

        deadline = self._calls.deadline(timeout)
        place = self._place(self._calls.any_broker)
        return await self._calls.settle("describing settings", wanted, place, ask, deadline)

    async def alter(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Change settings of resources and leave all others as they are.

        The changes of a resource are a mapping of names to values, None taking a setting back to its default, or a
        list of ``ConfigChange``. All of one resource's are made, or none.
        """
        arguments.mapping(changes, "ConfigResource")
        wanted = {resource: _changes(changes[resource]) for resource in _resources(changes)}

        async def ask(peer: Peer, items: list[ConfigResource]) -> Mapping[ConfigResource, KafkaError | None]:
            share = {item: wanted[item] for item in items}
            if peer.speaks(IncrementalAlterConfigsRequest):
                return await _alter(peer, share, validate_only)
            return await _replace(peer, share, validate_only)

        deadline = self._calls.deadline(timeout)
        place = self._place(self._calls.controller)
        return await self._calls.settle("changing settings", wanted, place, ask, deadline)

    def _place(self, others: Place) -> Place:
        """A broker's own settings at that broker, the rest where ``others`` says."""

        async def place(items: list[ConfigResource], deadline: Deadline) -> Places:
            nodes = {item: item.node_id for item in items}
            rest = [item for item, node_id in nodes.items() if node_id is None]
            places = await others(rest, deadline) if rest else Places()
            found = await self._calls.brokers([node for node in set(nodes.values()) if node is not None], deadline)
            for item, node_id in nodes.items():
                if node_id in found.by_node:
                    places.put(node_id, item)
                elif node_id is not None:
                    places.errors[item] = found.errors[node_id]
            return places

        return place


def _resources(given: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    listed: list[Any] = [given] if isinstance(given, ConfigResource) else arguments.several(given, "ConfigResource")
    for each in listed:
        if not isinstance(each, ConfigResource) or not isinstance(each.type, ResourceType):
            raise TypeError(f"{each!r} is not a ConfigResource; ConfigResource.topic(name) makes one of a topic")
        name = arguments.text("resource", each.name)
        if name and each.type in _OF_BROKERS and not re.fullmatch("[0-9]{1,9}", name):
            raise ValueError(f"{each}: a broker's name is its id, or empty for all brokers")
    return list(dict.fromkeys(listed))


def _changes(given: Changes) -> list[ConfigChange]:
    if not isinstance(given, Mapping):
        listed = arguments.several(given, "ConfigChange")
        for each in listed:
            if not isinstance(each, ConfigChange):
                raise TypeError(f"{each!r} is not a ConfigChange")
        return listed
    return [
        ConfigChange(name, operation=Operation.DELETE) if value is None else ConfigChange(name, value)
        for name, value in given.items()
    ]


async def _describe(
    peer: Peer, items: list[ConfigResource], names: list[str] | None, synonyms: bool, documentation: bool
) -> dict[ConfigResource, Mapping[str, Setting] | KafkaError]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=item.type, resource_name=item.name, configuration_keys=names)
            for item in items
        ],
        include_synonyms=synonyms,
        include_documentation=documentation and peer.speaks(DescribeConfigsRequest, 3),
    )
    answers: dict[ConfigResource, Mapping[str, Setting] | KafkaError] = {}
    for each in (await peer.send(request)).results:
        resource = ConfigResource(ResourceType.of(each.resource_type), each.resource_name)
        settings = {setting.name: _setting(setting) for setting in each.configs}
        answers[resource] = answer_of(each.error_code, f"settings of {resource}", settings, each.error_message)
    return answers


def _setting(given: DescribeConfigsResourceResult) -> Setting:
    return Setting(
        given.name,
        given.value,
        ConfigSource.of(given.config_source),
        given.read_only,
        given.is_sensitive,
        tuple(ConfigSynonym(each.name, each.value, ConfigSource.of(each.source)) for each in given.synonyms),
        ConfigType.of(given.config_type),
        given.documentation or None,
    )


async def _alter(
    peer: Peer, share: Mapping[ConfigResource, list[ConfigChange]], validate_only: bool
) -> dict[ConfigResource, KafkaError | None]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    IncrementalAlterConfigsRequestConfig(
                        name=change.name, config_operation=change.operation, value=_text(change)
                    )
                    for change in changes
                ],
            )
            for resource, changes in share.items()
        ],
        validate_only=validate_only,
    )
    return _altered((await peer.send(request)).responses)


def _text(change: ConfigChange) -> str | None:
    return None if change.value is None else setting_text(change.name, change.value)


def _altered(responses: Iterable[Any]) -> dict[ConfigResource, KafkaError | None]:
    answers: dict[ConfigResource, KafkaError | None] = {}
    for each in responses:
        resource = ConfigResource(ResourceType.of(each.resource_type), each.resource_name)
        answers[resource] = answer_of(each.error_code, f"changing {resource}", None, each.error_message)
    return answers


async def _replace(
    peer: Peer, share: Mapping[ConfigResource, list[ConfigChange]], validate_only: bool
) -> dict[ConfigResource, KafkaError | None]:
    """Read, change, write back."""
    answers: dict[ConfigResource, KafkaError | None] = {}
    resources = []
    for resource, described in (await _describe(peer, list(share), None, True, False)).items():
        try:
            if isinstance(described, KafkaError):
                raise described
            values = replaced(resource, described, share[resource])
        except KafkaError as error:
            answers[resource] = error
            continue
        resources.append(
            AlterConfigsRequestResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[AlterConfigsRequestConfig(name=name, value=value) for name, value in values.items()],
            )
        )
    if resources:
        answer = await peer.send(AlterConfigsRequest(resources=resources, validate_only=validate_only))
        answers |= _altered(answer.responses)
    return answers


def replaced(
    resource: ConfigResource, present: Mapping[str, Setting], changes: Iterable[ConfigChange]
) -> dict[str, str]:
    """All settings that a resource is to have of its own, after the changes. Pure.

    Raises UnsupportedVersion where one of them is secret, so that it would be lost.
    """
    own = _OWN.get(resource.type)
    if own is ConfigSource.BROKER and not resource.name:
        own = ConfigSource.ALL_BROKERS
    values = {name: setting.value for name, setting in present.items() if setting.source is own}
    for change in changes:
        if change.operation is Operation.DELETE:
            values.pop(change.name, None)
        elif change.operation is Operation.SET:
            values[change.name] = _text(change)
        else:
            known = present.get(change.name)
            listed = [part for part in ((known.value if known else "") or "").split(",") if part]
            given = [part.strip() for part in (_text(change) or "").split(",")]
            kept = [part for part in listed if part not in given]
            values[change.name] = ",".join([*kept, *given] if change.operation is Operation.APPEND else kept)
    secret = sorted(name for name, value in values.items() if value is None)
    if secret:
        text = f"changing {resource} and keeping its secret settings ({', '.join(secret)}) came with Kafka 2.3"
        raise UnsupportedVersion(text)
    return {name: value for name, value in values.items() if value is not None}

"""Settings of topics, brokers, groups and clients: describe them with their sources, and change some of them.

Settings of one broker are described and changed at that broker. All others are described at any broker and changed at
the controller. Before Kafka 2.3 there is no IncrementalAlterConfigs (KIP-339), and a change replaces all settings of a
resource. So this module reads the present settings first and sends them again. A change that another client makes
between the two requests is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Self

from .. import arguments, disclosure
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
    ListConfigResourcesRequest,
)
from .answers import answer_of, raise_for
from .calls import Calls
from .peer import Deadline, FindTargets, Peer, Targets
from .results import Results

SettingValue = str | int | float | bool


class _Open(IntEnum):
    """An enumeration that newer brokers may extend."""

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the member of this number, UNKNOWN (0) for an unknown one."""
        return cls(number if number in cls._value2member_map_ else 0)


class ConfigResourceType(_Open):
    """A kind of resource with settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Open):
    """The source of a value. TOPIC overrides BROKER, which overrides ALL_BROKERS, BROKER_FILE and DEFAULT.

    ``ConfigSource`` of ``embedded`` is the broker's side, with the numbers of the wire.
    """

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
    """The type of a setting's values. UNKNOWN before Kafka 2.6.

    ``ConfigType`` of ``embedded`` is the broker's side, with the numbers of the wire.
    """

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


class ConfigOperation(IntEnum):
    """The operation of a change. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class ConfigResource(NamedTuple):
    """A resource with settings. A broker's name is its id; an empty name means all brokers."""

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name!r}" if self.name else f"all {kind}s"

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        return cls(ConfigResourceType.BROKER, str(arguments.whole("broker id", node_id)))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        """Return the resource with the dynamic settings of all brokers."""
        return cls(ConfigResourceType.BROKER, "")

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """Return the resource of a group. Requires Kafka 4.0."""
        return cls(ConfigResourceType.GROUP, name)

    @property
    def node_id(self) -> int | None:
        """The id of the only broker that has these settings, None if any broker can describe them."""
        return int(self.name) if self.type in _OF_BROKERS and self.name else None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source of a setting's value, and the name of the setting in this source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. ``value`` is None if it is secret. ``synonyms`` are all its sources, the effective one first."""

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
        """Whether the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting."""

    name: str
    value: SettingValue | None = None
    operation: ConfigOperation = ConfigOperation.SET

    def __repr__(self) -> str:
        value = "***" if self.value is not None and disclosure.may_hold_secret(self.name) else repr(self.value)
        return f"ConfigChange(name={self.name!r}, value={value}, operation={self.operation})"

    def __post_init__(self) -> None:
        if not isinstance(self.operation, ConfigOperation):
            raise TypeError(
                arguments.must_be("operation", "a ConfigOperation such as ConfigOperation.SET", self.operation)
            )
        arguments.text("setting", self.name)
        if self.operation is ConfigOperation.DELETE and self.value is not None:
            raise ValueError(
                f"value must be None for ConfigOperation.DELETE, got {disclosure.kind(self.value)} for {self.name}"
            )
        if self.operation is not ConfigOperation.DELETE:
            setting_text(self.name, self.value)


Changes = Mapping[str, SettingValue | None] | Iterable[ConfigChange]


def setting_text(name: str, value: object) -> str:
    """Return the value as Kafka writes it. Raises TypeError unless it is a string, a number or a bool."""
    arguments.text("setting", name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return arguments.text(name, str(value))
    raise TypeError(arguments.must_be(name, "a string, a number or a bool", value))


class Configs:
    """The calls of ``admin.configs``."""

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
        """Read the settings of resources by name: all, or those in ``names``. ``documentation`` requires Kafka 2.6."""
        checked_resources = _resources(resources)
        keys = None if names is None else arguments.names(names, "setting")

        async def ask(
            peer: Peer, items: list[ConfigResource]
        ) -> Mapping[ConfigResource, Mapping[str, Setting] | KafkaError]:
            return await _describe(peer, items, keys, synonyms, documentation)

        deadline = self._calls.deadline(timeout)
        targets = self._targets(self._calls.any_broker)
        return await self._calls.settle("describing settings", checked_resources, targets, ask, deadline)

    async def list(
        self, types: Iterable[ConfigResourceType] | None = None, *, timeout: float | None = None
    ) -> tuple[ConfigResource, ...]:
        """List the resources of these types, all types if None; groups and client metrics only if they have settings.

        Requires Kafka 4.1; client metrics alone require 3.7.
        """
        resource_types = [] if types is None else arguments.several(types, "types")
        for resource_type in resource_types:
            if not isinstance(resource_type, ConfigResourceType):
                raise TypeError(
                    arguments.must_be("type", "a ConfigResourceType such as ConfigResourceType.TOPIC", resource_type)
                )

        async def ask(peer: Peer) -> tuple[ConfigResource, ...]:
            request = ListConfigResourcesRequest(resource_types=list(map(int, resource_types)))
            if resource_types == [ConfigResourceType.CLIENT_METRICS]:
                peer.require(ListConfigResourcesRequest.INTRODUCED, "listing client metrics")
                if not peer.speaks(ListConfigResourcesRequest.ALL_TYPES):
                    request = ListConfigResourcesRequest()
            else:
                peer.require(ListConfigResourcesRequest.ALL_TYPES, "listing resources with settings")
            answer = await peer.send(request)
            raise_for(answer.error_code, "listing resources with settings")
            return tuple(
                ConfigResource(ConfigResourceType.of(config_resource.resource_type), config_resource.resource_name)
                for config_resource in answer.config_resources
            )

        deadline = self._calls.deadline(timeout)
        if types is not None and not resource_types:
            return ()  # a request without types is for all types
        return await self._calls.one("listing resources with settings", self._calls.any_broker, ask, deadline)

    async def alter(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Change these settings of resources, and keep all other settings.

        The changes of a resource are a mapping of names to values, where None restores the default, or a list of
        ``ConfigChange``. All changes of a resource are made, or none.
        """
        argument: object = changes
        if not isinstance(argument, Mapping):  # not quoted: a change may set a password
            raise TypeError(f"changes must be a mapping of ConfigResource to changes, got {disclosure.kind(argument)}")
        changes_of = {resource: _changes(changes[resource]) for resource in _resources(changes)}

        async def ask(peer: Peer, items: list[ConfigResource]) -> Mapping[ConfigResource, KafkaError | None]:
            share = {item: changes_of[item] for item in items}
            if peer.speaks(IncrementalAlterConfigsRequest):
                return await _alter(peer, share, validate_only)
            return await _replace(peer, share, validate_only)

        deadline = self._calls.deadline(timeout)
        targets = self._targets(self._calls.controller)
        return await self._calls.settle("changing settings", changes_of, targets, ask, deadline)

    def _targets(self, find_others: FindTargets) -> FindTargets:
        """Return a search that finds the broker itself for its own settings, and asks ``others`` about the rest."""

        async def find(items: list[ConfigResource], deadline: Deadline) -> Targets:
            nodes = {item: item.node_id for item in items}
            other_items = [item for item, node_id in nodes.items() if node_id is None]
            targets = await find_others(other_items, deadline) if other_items else Targets()
            brokers = await self._calls.brokers([node for node in set(nodes.values()) if node is not None], deadline)
            for item, node_id in nodes.items():
                if node_id in brokers.by_node:
                    targets.put(node_id, item)
                elif node_id is not None:
                    targets.errors[item] = brokers.errors[node_id]
            return targets

        return find


def _resources(resources: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    items: list[Any] = (
        [resources] if isinstance(resources, ConfigResource) else arguments.several(resources, "resources")
    )
    for resource in items:
        if not isinstance(resource, ConfigResource) or not isinstance(resource.type, ConfigResourceType):
            raise TypeError(
                arguments.must_be("resource", "a ConfigResource such as ConfigResource.topic(name)", resource)
            )
        name = arguments.text("resource", resource.name)
        if name and resource.type in _OF_BROKERS and not re.fullmatch("[0-9]{1,9}", name):
            raise ValueError(arguments.must_be("name of a broker", "its id, or empty for all brokers", name))
    return list(dict.fromkeys(items))


def _changes(changes: Changes) -> list[ConfigChange]:
    if not isinstance(changes, Mapping):
        untyped: Any = changes
        if isinstance(untyped, str | bytes) or not isinstance(untyped, Iterable):
            what = "a mapping of names to values, or a list of ConfigChange"
            raise TypeError(f"the changes of a resource must be {what}, got {disclosure.kind(untyped)}")
        change_list = list(untyped)
        for change in change_list:
            if not isinstance(change, ConfigChange):
                raise TypeError(f"change must be a ConfigChange, got {disclosure.kind(change)}")
        return change_list
    return [
        ConfigChange(name, operation=ConfigOperation.DELETE) if value is None else ConfigChange(name, value)
        for name, value in changes.items()
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
        include_documentation=documentation and peer.speaks(DescribeConfigsRequest.DOCUMENTATION),
    )
    answers: dict[ConfigResource, Mapping[str, Setting] | KafkaError] = {}
    for result in (await peer.send(request)).results:
        resource = ConfigResource(ConfigResourceType.of(result.resource_type), result.resource_name)
        # A request without names is for all settings.
        settings = {} if names == [] else {setting.name: _setting(setting) for setting in result.configs}
        answers[resource] = answer_of(
            result.error_code, f"describing the settings of {resource}", settings, result.error_message
        )
    return answers


def _setting(response: DescribeConfigsResourceResult) -> Setting:
    return Setting(
        response.name,
        response.value,
        ConfigSource.of(response.config_source),
        response.read_only,
        response.is_sensitive,
        tuple(
            ConfigSynonym(synonym.name, synonym.value, ConfigSource.of(synonym.source)) for synonym in response.synonyms
        ),
        ConfigType.of(response.config_type),
        response.documentation or None,
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
    for response in responses:
        resource = ConfigResource(ConfigResourceType.of(response.resource_type), response.resource_name)
        answers[resource] = answer_of(
            response.error_code, f"changing settings of {resource}", None, response.error_message
        )
    return answers


async def _replace(
    peer: Peer, share: Mapping[ConfigResource, list[ConfigChange]], validate_only: bool
) -> dict[ConfigResource, KafkaError | None]:
    """Change settings on a broker that can only replace all of them: read all, change some, write all."""
    answers: dict[ConfigResource, KafkaError | None] = {}
    resources = []
    present = await _describe(peer, list(share), None, True, False)
    for resource in [item for item in share if item in present]:
        settings = present[resource]
        try:
            if isinstance(settings, KafkaError):
                raise settings
            values = replaced(resource, settings, share[resource])
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
    """Return the resource's own settings after the changes.

    Raises UnsupportedVersion if one of the settings is secret: its value cannot be read, so it would be lost.
    """
    source = _own_source(resource)
    values = {name: setting.value for name, setting in present.items() if setting.source is source}
    for change in changes:
        match change.operation:
            case ConfigOperation.DELETE:
                values.pop(change.name, None)
            case ConfigOperation.SET:
                values[change.name] = _text(change)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                present_setting = present.get(change.name)
                values[change.name] = _changed_list(present_setting.value if present_setting else None, change)
    secret = sorted(name for name, value in values.items() if value is None)
    if secret:
        what = f"changing settings of {resource} without losing its secret ones ({', '.join(secret)})"
        raise UnsupportedVersion(f"{what} requires Kafka 2.3 or newer")
    return {name: value for name, value in values.items() if value is not None}


def _own_source(resource: ConfigResource) -> ConfigSource | None:
    """Return the source of the settings that were made for this resource."""
    if resource.type is ConfigResourceType.BROKER:
        return ConfigSource.BROKER if resource.name else ConfigSource.ALL_BROKERS
    return ConfigSource.TOPIC if resource.type is ConfigResourceType.TOPIC else None


def _changed_list(present: str | None, change: ConfigChange) -> str:
    parts = [part for part in (present or "").split(",") if part]
    changed_parts = [part.strip() for part in (_text(change) or "").split(",")]
    remaining = [part for part in parts if part not in changed_parts]
    return ",".join([*remaining, *changed_parts] if change.operation is ConfigOperation.APPEND else remaining)

"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources: settings of resources.

The types of resources: 2 topic, 4 broker (by id; "" means all brokers), 8 loggers of a broker (KIP-412), 16
subscription of client metrics (KIP-714), 32 group.

- DescribeConfigs v0 has a flag for defaults; v1 adds sources and synonyms (KIP-226), v3 types and documentation.
- AlterConfigs replaces all settings of a resource: a setting that it does not name gets its default. It does not change
  loggers.
- IncrementalAlterConfigs (KIP-339) sets (0), deletes (1), appends to a list (2) or subtracts from one (3).
- An unknown setting or a bad value of a topic is INVALID_CONFIG, an unknown topic UNKNOWN_TOPIC_OR_PARTITION.
- A bad value of a broker is INVALID_REQUEST. An unknown setting of a broker is kept for plugins.
- ListConfigResources v0 lists subscriptions of client metrics, v1 the requested types (KIP-1142), by default all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol import messages as m
from ..metadata.controller import Refused
from ..metadata.topics import is_legal_name
from ..request_context import RequestContext, handles, refusal_in
from ..security.authorizer import CLUSTER, Resource
from ..settings.broker_keys import BROKER_KEYS
from ..settings.configs import (
    TOPIC_KEYS,
    ConfigSource,
    Synonym,
    broker_key,
    broker_synonyms,
    has_default,
    topic_synonyms,
)
from ..settings.keys import ConfigKey, ConfigType
from ..settings.resource_configs import CLIENT_METRICS, CONFIG_RESOURCES, GROUP, GROUP_KEYS, resource_synonyms

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
ALTERABLE = (TOPIC, BROKER, *CONFIG_RESOURCES)
DESCRIBABLE = (*ALTERABLE, BROKER_LOGGER)


class Change(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@handles(m.DescribeConfigsRequest)
def describe_configs(context: RequestContext, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
    unknown = [resource.resource_type for resource in request.resources if resource.resource_type not in DESCRIBABLE]
    if unknown:  # then all resources are refused
        message = f"resources of type {unknown[0]} have no settings"
        results = [_refused(resource, ErrorCode.INVALID_REQUEST, message) for resource in request.resources]
    else:
        results = [_describe(context, request, resource) for resource in request.resources]
    return m.DescribeConfigsResponse(results=results)


def _refused(resource: m.DescribeConfigsResource, code: ErrorCode, message: str | None) -> m.DescribeConfigsResult:
    return m.DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _describe(
    context: RequestContext, request: m.DescribeConfigsRequest, resource: m.DescribeConfigsResource
) -> m.DescribeConfigsResult:
    result = _refused(resource, ErrorCode.NONE, "")  # as Kafka; the other APIs have null
    with refusal_in(result):
        _allow(context, resource.resource_type, resource.resource_name, AclOperation.DESCRIBE_CONFIGS)
        if resource.resource_type == BROKER_LOGGER:
            result.configs = _loggers(context, resource)
            return result
        for name, key, synonyms in _settings(context, resource.resource_type, resource.resource_name):
            if not resource.configuration_keys or name in resource.configuration_keys:
                result.configs.append(_setting(context, request, name, key, synonyms))
    return result


def _loggers(context: RequestContext, resource: m.DescribeConfigsResource) -> list[m.DescribeConfigsResourceResult]:
    """Return the level of each logger of this broker. Raises Refused."""
    _check_this_broker(context, resource.resource_name)
    return [
        m.DescribeConfigsResourceResult(
            name=name,
            value=level,
            read_only=False,
            is_default=False,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            is_sensitive=False,
            synonyms=[],
            config_type=ConfigType.UNKNOWN,
            documentation="",
        )
        for name, level in context.broker.loggers.levels().items()
        if not resource.configuration_keys or name in resource.configuration_keys
    ]


def _check_this_broker(context: RequestContext, name: str) -> None:
    if name != str(context.broker.node_id):
        raise Refused(ErrorCode.INVALID_REQUEST, f"this is broker {context.broker.node_id}, not {name!r}")


def _settings(context: RequestContext, resource_type: int, name: str) -> Sequence[tuple[str, ConfigKey, list[Synonym]]]:
    """Return the settings of a resource, each with all its values. Raises Refused."""
    controller = context.broker.controller
    this_broker = controller.settings.layers(str(context.broker.node_id))
    if resource_type == TOPIC:
        if not is_legal_name(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
        topic = controller.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")  # as Kafka, without a message
        return [
            (setting, key, topic_synonyms(setting, topic.configs, this_broker)) for setting, key in TOPIC_KEYS.items()
        ]
    if resource_type in CONFIG_RESOURCES:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "settings belong to one resource, and no resource is named")
        kind, values = CONFIG_RESOURCES[resource_type], controller.settings.resource(resource_type, name)
        return [
            (setting, key, resource_synonyms(kind, setting, values, this_broker)) for setting, key in kind.keys.items()
        ]
    if name:
        _check_this_broker(context, name)
    if not name:  # what AlterConfigs gave all brokers, and no other value
        dynamic, source = controller.settings.dynamic(""), ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            (setting, broker_key(setting), [Synonym(setting, dynamic[setting], source)]) for setting in sorted(dynamic)
        ]
    layers = controller.settings.layers(name)
    names = sorted({*BROKER_KEYS, *(value for _, values in layers for value in values)})
    return [(setting, broker_key(setting), broker_synonyms(setting, layers)) for setting in names]


def _setting(
    context: RequestContext, request: m.DescribeConfigsRequest, name: str, key: ConfigKey, synonyms: list[Synonym]
) -> m.DescribeConfigsResourceResult:
    in_force = synonyms[0]
    described = []
    if request.include_synonyms and context.version >= m.DescribeConfigsRequest.SYNONYMS:
        described = [
            m.DescribeConfigsSynonym(name=synonym.name, value=_shown(key, synonym.value), source=synonym.source)
            for synonym in synonyms
            if synonym.source is not ConfigSource.DEFAULT or has_default(synonym.name) or synonym.name in GROUP_KEYS
        ]
    wants_documentation = request.include_documentation and context.version >= m.DescribeConfigsRequest.DOCUMENTATION
    return m.DescribeConfigsResourceResult(
        name=name,
        value=_shown(key, in_force.value),
        read_only=key.read_only,
        is_default=in_force.source is ConfigSource.DEFAULT and context.version < m.DescribeConfigsRequest.SYNONYMS,
        config_source=in_force.source,
        is_sensitive=key.is_sensitive,
        synonyms=described,
        config_type=key.type,
        documentation=key.documentation if wants_documentation else None,
    )


def _shown(key: ConfigKey, value: str | None) -> str | None:
    return None if key.is_sensitive or value is None else key.canonical(value)


@handles(m.AlterConfigsRequest)
def alter_configs(context: RequestContext, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        answer = m.AlterConfigsResponseResource(
            error_code=ErrorCode.NONE, error_message=None, resource_type=kind, resource_name=name
        )
        with refusal_in(answer):
            _check_names(context, kind, name, _names(resource.configs))
            nulls = [config.name for config in resource.configs if config.value is None]
            if nulls:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{', '.join(nulls)} must have a value")
            values = {config.name: config.value for config in resource.configs if config.value is not None}
            _replace(context, kind, name, values, request.validate_only)
        responses.append(answer)
    return m.AlterConfigsResponse(responses=responses)


@handles(m.IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    context: RequestContext, request: m.IncrementalAlterConfigsRequest
) -> m.IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        answer = m.IncrementalAlterConfigsResponseResource(
            error_code=ErrorCode.NONE, error_message=None, resource_type=kind, resource_name=name
        )
        with refusal_in(answer):
            change = _change_loggers if kind == BROKER_LOGGER else _change_settings
            change(context, resource, request.validate_only)
        responses.append(answer)
    return m.IncrementalAlterConfigsResponse(responses=responses)


def _change_settings(
    context: RequestContext, resource: m.IncrementalAlterConfigsRequestResource, validate_only: bool
) -> None:
    """Change settings of a resource, all or none. Raises Refused."""
    kind, name = resource.resource_type, resource.resource_name
    _check_names(context, kind, name, _names(resource.configs))
    values = dict(_own(context, kind, name))
    keys = {} if kind == CLIENT_METRICS else _keys(kind)  # as in Kafka, no list of client metrics can be appended to
    for change in resource.configs:
        _change(values, change, keys)
    _replace(context, kind, name, values, validate_only)


def _change_loggers(
    context: RequestContext, resource: m.IncrementalAlterConfigsRequestResource, validate_only: bool
) -> None:
    """Change levels of loggers of this broker, all or none. Raises Refused."""
    _check_distinct(_names(resource.configs))
    _allow(context, BROKER_LOGGER, resource.resource_name, AclOperation.ALTER_CONFIGS)
    _check_this_broker(context, resource.resource_name)
    changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
    context.broker.loggers.change(changes, validate_only=validate_only)


def _keys(resource_type: int) -> Mapping[str, ConfigKey]:
    if resource_type in CONFIG_RESOURCES:
        return CONFIG_RESOURCES[resource_type].keys
    return TOPIC_KEYS if resource_type == TOPIC else BROKER_KEYS


def _own(context: RequestContext, resource_type: int, name: str) -> Mapping[str, str]:
    controller = context.broker.controller
    if resource_type == TOPIC:
        topic = controller.topics.get(name)
        return {} if topic is None else topic.configs  # as in Kafka, an unknown topic is refused last
    if resource_type in CONFIG_RESOURCES:
        return controller.settings.resource(resource_type, name)
    return controller.settings.dynamic(name)


def _names(settings: Iterable[m.AlterConfigsRequestConfig | m.IncrementalAlterConfigsRequestConfig]) -> list[str]:
    return [setting.name for setting in settings]


def _check_names(context: RequestContext, resource_type: int, resource_name: str, names: Sequence[str]) -> None:
    """Raise Refused if the resource has no settings, or if a setting is named twice."""
    _check_distinct(names)
    if resource_type not in ALTERABLE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings")
    brokers = {str(broker) for broker in context.broker.controller.brokers}
    if resource_type == BROKER and resource_name and resource_name not in brokers:
        raise Refused(ErrorCode.INVALID_REQUEST, f"unknown broker {resource_name!r}")


def _check_distinct(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise Refused(ErrorCode.INVALID_REQUEST, "a setting is named twice")


def _change(
    values: dict[str, str], change: m.IncrementalAlterConfigsRequestConfig, keys: Mapping[str, ConfigKey]
) -> None:
    """Apply one incremental change. Raises Refused."""
    name, value = change.name, change.value
    if change.config_operation == Change.DELETE:
        values.pop(name, None)
        return
    if change.config_operation not in tuple(Change) or value is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{name} does not support operation {change.config_operation} with value {value!r}",
        )
    if change.config_operation == Change.SET:
        values[name] = value
        return
    key = keys.get(name)
    if key is None or key.type is not ConfigType.LIST:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list")
    values[name] = _changed_list(values.get(name, key.default or ""), value, Change(change.config_operation))


def _changed_list(present: str, value: str, change: Change) -> str:
    """Return a list with the elements of ``value`` appended or subtracted."""
    old = [part for part in present.split(",") if part]
    parts = [part.strip() for part in value.split(",")]
    if change is Change.APPEND:
        return ",".join([*old, *(part for part in parts if part not in old)])
    return ",".join(part for part in old if part not in parts)


def _replace(
    context: RequestContext, resource_type: int, name: str, values: Mapping[str, str], validate_only: bool
) -> None:
    """Replace the settings of a resource. Raises Refused."""
    _allow(context, resource_type, name, AclOperation.ALTER_CONFIGS)
    changes = context.broker.changes
    if resource_type == TOPIC:
        changes.set_topic_configs(name, values, validate_only=validate_only)
    elif resource_type == BROKER:
        changes.set_broker_configs(name, values, validate_only=validate_only)
    else:
        changes.set_resource_configs(resource_type, name, values, validate_only=validate_only)


@handles(m.ListConfigResourcesRequest, requires=AclOperation.DESCRIBE_CONFIGS)
def list_config_resources(
    context: RequestContext, request: m.ListConfigResourcesRequest
) -> m.ListConfigResourcesResponse:
    response = m.ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=[])
    controller = context.broker.controller
    brokers = [str(broker) for broker in controller.brokers]
    listed: dict[int, Iterable[str]] = {
        GROUP: controller.settings.resources(GROUP),
        CLIENT_METRICS: controller.settings.resources(CLIENT_METRICS),
        BROKER_LOGGER: brokers,
        BROKER: brokers,
        TOPIC: controller.topics,
    }
    types = set(request.resource_types or listed)
    if context.version < m.ListConfigResourcesRequest.ALL_TYPES:
        types = {CLIENT_METRICS}
    if not types <= set(listed):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
    else:
        response.config_resources = [
            m.ListedConfigResource(resource_name=name, resource_type=kind)
            for kind, names in listed.items()
            if kind in types
            for name in names
        ]
    return response


_WITH_ACLS = {
    TOPIC: (AclResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    GROUP: (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
"""The resources with ACLs of their own, and the error without permission. All others belong to the cluster."""


def _allow(context: RequestContext, resource_type: int, name: str, operation: AclOperation) -> None:
    resource, code = CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if resource_type in _WITH_ACLS:
        kind, code = _WITH_ACLS[resource_type]
        resource = Resource(kind, name)
    if not context.allows(operation, resource):
        raise Refused(code, f"{operation.name} is denied")

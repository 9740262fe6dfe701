"""Read and change the settings of topics, brokers, groups and client metrics.

DescribeConfigs:

- v0: only a flag shows whether a value is the default.
- v1: the source of a value, and its synonyms in order of precedence.
- v3: the type and the documentation of a setting.
- v4: flexible.

AlterConfigs replaces *all* settings of a resource, so a setting that is not named gets its default. v2 is flexible.

IncrementalAlterConfigs (KIP-339) changes only the named settings. v1 is flexible.

ListConfigResources v0 names the subscriptions of client metrics (KIP-714), v1 all kinds of resources (KIP-1142).
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int8, int16, int32, message, since, string, struct


@struct
class DescribeConfigsSynonym:
    """Another source of the value. Sources are in order of precedence."""

    name: str = string("1+", default="")
    value: str | None = string("1+", nullable="0+", default="")
    source: int = int8("1+", default=0)


@struct
class DescribeConfigsResourceResult:
    """One setting. The value of a sensitive setting is null."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    is_default: bool = boolean("0", default=False)
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", default=[], ignorable=True)
    config_type: int = int8("3+", default=0, ignorable=True)
    documentation: str | None = string("3+", nullable="0+", default="", ignorable=True)


@struct
class DescribeConfigsResult:
    """The settings of one resource, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsResponse(Response):
    """A result for each requested resource."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@struct
class DescribeConfigsResource:
    """A resource and its requested settings. Null means all."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Request settings. The settings of a broker must be requested from that broker."""

    SYNONYMS = since(1)
    DOCUMENTATION = since(3)

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


@struct
class AlterConfigsResponseResource:
    """Whether one resource was changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse(Response):
    """A result for each resource; some may have failed."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResponseResource] = array(AlterConfigsResponseResource)


@struct
class AlterConfigsRequestConfig:
    """A setting and its new value."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsRequestResource:
    """A resource and all its new settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterConfigsRequestConfig] = array(AlterConfigsRequestConfig)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    """Replace all settings of resources."""

    resources: list[AlterConfigsRequestResource] = array(AlterConfigsRequestResource)
    validate_only: bool = boolean()


@struct
class IncrementalAlterConfigsResponseResource:
    """Whether one resource was changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse(Response):
    """A result for each resource; some may have failed."""

    throttle_time_ms: int = int32(default=0)
    responses: list[IncrementalAlterConfigsResponseResource] = array(IncrementalAlterConfigsResponseResource)


@struct
class IncrementalAlterConfigsRequestConfig:
    """A change: ``config_operation`` is 0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct
class IncrementalAlterConfigsRequestResource:
    """A resource and the changes to it."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterConfigsRequestConfig] = array(IncrementalAlterConfigsRequestConfig)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Change the named settings only."""

    resources: list[IncrementalAlterConfigsRequestResource] = array(IncrementalAlterConfigsRequestResource)
    validate_only: bool = boolean()


@struct
class ListedConfigResource:
    """A resource that has settings."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse(Response):
    """The resources of the requested types."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ListedConfigResource] = array(ListedConfigResource)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    """List resources by type. No type means all types."""

    INTRODUCED = since(0, kafka="3.7")
    ALL_TYPES = since(1, kafka="4.1")

    resource_types: list[int] = array(int8, "1+", default=[])

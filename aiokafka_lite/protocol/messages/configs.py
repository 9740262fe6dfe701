"""configs"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int8, int16, int32, message, string, struct


@struct
class DescribeConfigsSynonym:
    """The synonyms for this configuration key."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@struct
class DescribeConfigsResourceResult:
    """Each listed configuration."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", default=0, ignorable=True)
    documentation: str | None = string("3+", nullable="0+", default="", ignorable=True)


@struct
class DescribeConfigsResult:
    """The results for each resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse(Response):
    """DescribeConfigsResponse"""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@struct
class DescribeConfigsResource:
    """The resources whose configurations we want to describe."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """DescribeConfigsRequest"""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


@struct
class AlterConfigsResponseResource:
    """The responses for each resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse(Response):
    """AlterConfigsResponse"""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResponseResource] = array(AlterConfigsResponseResource)


@struct
class AlterConfigsRequestConfig:
    """The configurations."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsRequestResource:
    """The updates for each resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterConfigsRequestConfig] = array(AlterConfigsRequestConfig)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    """AlterConfigsRequest"""

    resources: list[AlterConfigsRequestResource] = array(AlterConfigsRequestResource)
    validate_only: bool = boolean()


@struct
class IncrementalAlterConfigsResponseResource:
    """The responses for each resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse(Response):
    """IncrementalAlterConfigsResponse"""

    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResponseResource] = array(IncrementalAlterConfigsResponseResource)


@struct
class IncrementalAlterConfigsRequestConfig:
    """The configurations."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct
class IncrementalAlterConfigsRequestResource:
    """The incremental updates for each resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterConfigsRequestConfig] = array(IncrementalAlterConfigsRequestConfig)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """IncrementalAlterConfigsRequest"""

    resources: list[IncrementalAlterConfigsRequestResource] = array(IncrementalAlterConfigsRequestResource)
    validate_only: bool = boolean()

"""api_versions"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int16, int32, int64, message, string, struct


@struct
class ApiVersion:
    """The APIs supported by the broker."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted."""

    name: str = string("3+", default="")
    min_version: int = int16("3+", default=0)
    max_version: int = int16("3+", default=0)


@struct
class FinalizedFeatureKey:
    """List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0."""

    name: str = string("3+", default="")
    max_version_level: int = int16("3+", default=0)
    min_version_level: int = int16("3+", default=0)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse(Response):
    """ApiVersionsResponse"""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", default=[], tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", default=[], tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", default=False, tag=3, ignorable=True)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """ApiVersionsRequest"""

    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)

"""The versions of each API that a broker supports: the first request of a client.

- v1: the throttle time.
- v2: a broker responds first and throttles afterwards (KIP-219).
- v3: the name and version of the client's software (KIP-511); features are tagged fields. Only the body is flexible:
  the header must be readable before versions are negotiated.
- v4: a supported feature may begin at version 0.

A broker that lacks the version of the request responds in version 0; see ``versions.decode_api_versions``.
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int16, int32, int64, message, since, string, struct


@struct
class ApiVersion:
    """The versions of one API, both ends included."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    """A feature that the broker supports."""

    name: str = string("3+", default="")
    min_version: int = int16("3+", default=0)
    max_version: int = int16("3+", default=0)


@struct
class FinalizedFeatureKey:
    """A feature that the whole cluster uses. Meaningless while the epoch is -1."""

    name: str = string("3+", default="")
    max_version_level: int = int16("3+", default=0)
    min_version_level: int = int16("3+", default=0)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse(Response):
    """The broker's versions. With UNSUPPORTED_VERSION the response is in version 0 and may be empty."""

    CLIENT_THROTTLES = since(2)

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", default=[], tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", default=[], tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", default=False, tag=3, ignorable=True)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Request the broker's versions. Name and version of the software may contain ``[a-zA-Z0-9.-]`` only."""

    SOFTWARE_NAME = since(3)
    FEATURES = since(3, kafka="2.7")
    FEATURES_FROM_ZERO = since(4)

    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)

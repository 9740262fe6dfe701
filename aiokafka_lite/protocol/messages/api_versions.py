"""Which versions of each API a broker speaks: the first thing that a client asks.

- v1 adds the throttle time; from v2 on a throttled broker answers first and is silent afterwards (KIP-219).
- v3 is flexible in the body only, since the header must be readable before versions are agreed on, and carries the
  client's software name and version (KIP-511). Features appear as tagged fields.
- v4 lets a supported feature begin at version 0.

A broker that lacks the version asked for answers in version 0; see ``versions.decode_api_versions``.
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
    """A feature of the cluster that the broker could take part in."""

    name: str = string("3+", default="")
    min_version: int = int16("3+", default=0)
    max_version: int = int16("3+", default=0)


@struct
class FinalizedFeatureKey:
    """A feature that the whole cluster has agreed on; meaningless while the epoch is -1."""

    name: str = string("3+", default="")
    max_version_level: int = int16("3+", default=0)
    min_version_level: int = int16("3+", default=0)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse(Response):
    """What the broker speaks. With UNSUPPORTED_VERSION it comes in version 0 and may be empty."""

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
    """Ask what the broker speaks. Name and version of the software may contain ``[a-zA-Z0-9.-]`` only."""

    SOFTWARE_NAME = since(3)
    FEATURES = since(3, kafka="2.7")

    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)

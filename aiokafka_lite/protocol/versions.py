"""Negotiate the version of each API with a broker.

``VersionTable`` has the versions that a broker returned for ApiVersions. The connection picks the newest common version
of each request. Other layers only ask whether a feature is supported, by the name that the message declares:
``versions.supports(FetchRequest.TOPIC_IDS)``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from ..errors import ErrorCode, ProtocolError, UnsupportedVersion
from .codec import Buffer, decode_message
from .messages import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from .schema import MAX_VERSION, Message, Since, Versions


class VersionTable:
    """The versions of each API of one broker, and the cluster's finalized features. Immutable."""

    __slots__ = ("_features", "_ranges", "peer")

    def __init__(self, ranges: dict[int, Versions], peer: str, features: dict[str, int] | None = None) -> None:
        self._features = features or {}
        self._ranges = ranges
        self.peer: str = peer

    @classmethod
    def from_response(cls, response: ApiVersionsResponse, peer: str) -> VersionTable:
        """Return the table in a response to ApiVersions. ``peer`` names the broker in error texts."""
        ranges = _shared_ranges(tuple((api.api_key, api.min_version, api.max_version) for api in response.api_keys))
        # An epoch of -1 means that the broker does not know the finalized features.
        finalized = response.finalized_features if response.finalized_features_epoch >= 0 else []
        return cls(ranges, peer, {feature.name: feature.max_version_level for feature in finalized})

    @classmethod
    def newest(cls, requests: dict[int, Any], peer: str) -> VersionTable:
        """Return a table with all versions of ``requests``, for a peer that supports the same versions."""
        return cls({key: request.versions for key, request in requests.items()}, peer)

    def __repr__(self) -> str:
        return f"<VersionTable of {self.peer}: {len(self._ranges)} APIs>"

    def __str__(self) -> str:
        """Return the versions by API key: ``0:3-13 1:4-18``."""
        return " ".join(f"{key}:{first}-{last}" for key, (first, last) in sorted(self._ranges.items()))

    def offered(self, cls: type[Message]) -> Versions | None:
        """Return the broker's versions of an API, also of those that this client lacks; None if there are none."""
        return self._ranges.get(cls.api_key)

    def has_api(self, api_key: int) -> bool:
        """Return whether the broker offers an API, for a caller that does not import its message."""
        return api_key in self._ranges

    def supports(self, feature: Since) -> bool:
        """Return whether both sides support the first version with a feature: ``supports(FetchRequest.TOPIC_IDS)``."""
        return self._both_support(feature.message, feature)

    def level(self, feature: str) -> int:
        """Return the level of a finalized feature, such as ``transaction.version``. 0 if the cluster lacks it."""
        return self._features.get(feature, 0)

    def require(self, feature: Since, what: str) -> None:
        """Raise ``UnsupportedVersion`` unless both sides support the feature.

        ``what`` is the subject of the error's sentence: "``what`` requires Kafka 2.1 or newer".
        """
        if not self.supports(feature):
            raise UnsupportedVersion(f"{what} requires Kafka {feature.kafka} or newer, and {self.peer} is older")

    def _both_support(self, cls: type[Message], version: int) -> bool:
        offered = self.offered(cls)
        return offered is not None and version in offered and version in cls.versions

    def maximum(self, cls: type[Message], at_most: int = MAX_VERSION) -> int | None:
        """Return the newest common version, at most ``at_most``. None if there is none."""
        offered = self.offered(cls)
        if offered is None:
            return None
        last = offered.last - (offered.last == _MISREAD_BY_MOCK.get(cls.api_key))
        version = min(last, cls.versions.last, at_most)
        return version if self._both_support(cls, version) else None

    def pick(self, cls: type[Message], at_most: int = MAX_VERSION) -> int:
        """Return the newest common version, at most ``at_most``.

        Raises ``UnsupportedVersion``, which names the API and the versions of both sides.
        """
        version = self.maximum(cls, at_most)
        if version is not None:
            return version
        name = cls.__name__.removesuffix("Request")
        offered = self.offered(cls)
        if offered is None:
            raise UnsupportedVersion(f"{self.peer} does not support {name} (API key {cls.api_key})")
        ours = _range_text(Versions(cls.versions.first, min(cls.versions.last, at_most)))
        raise UnsupportedVersion(
            f"no common version of {name} (API key {cls.api_key}): this client supports {ours}, "
            f"{self.peer} supports {_range_text(offered)}"
        )


# librdkafka's mock cluster offers these versions of JoinGroup and SyncGroup as its newest, but parses them as the
# version before. The two versions differ only by the flexible encoding. So a broker that offers no newer version gets
# the version before.
_MISREAD_BY_MOCK = {11: 6, 14: 4}


# The brokers of a cluster offer the same versions, so their tables share one dict of some 10 KB.
@lru_cache(maxsize=8)
def _shared_ranges(offered: tuple[tuple[int, int, int], ...]) -> dict[int, Versions]:
    return {key: Versions(first, last) for key, first, last in offered}


def _range_text(versions: Versions) -> str:
    if versions.first > versions.last:
        return "no version"
    return f"{versions.first} to {versions.last}" if versions.first < versions.last else f"only {versions.first}"


_LONGEST_SHARED = 4096
"""Bytes of a response. The one with all APIs of Kafka 4.3 has some 900."""


# The brokers of a cluster send the same bytes for each connection. Nobody changes a response.
@lru_cache(maxsize=8)
def _shared_response(version: int, body: bytes) -> tuple[ApiVersionsResponse, int]:
    return decode_message(ApiVersionsResponse, version, body, 0)


def decode_api_versions(data: Buffer, position: int, version: int) -> tuple[ApiVersionsResponse, int]:
    """Decode a response to ApiVersions, which is not always in the version ``version``.

    A broker that lacks the version responds UNSUPPORTED_VERSION in version 0, which every client can decode. Since
    Kafka 2.4 (KIP-511) that response has the supported versions; before, it is empty. Some brokers send malformed
    bytes after the error code. Then the list counts as empty.
    """
    refused = False
    if len(data) - position >= 2:
        (code,) = struct.unpack_from(">h", data, position)
        refused = code == ErrorCode.UNSUPPORTED_VERSION and version > 0
    if not refused:
        if len(data) - position > _LONGEST_SHARED:
            return decode_message(ApiVersionsResponse, version, data, position)
        response, size = _shared_response(version, bytes(data[position:]))
        return response, position + size
    try:
        response, _ = decode_message(ApiVersionsResponse, 0, data, position)
    except ProtocolError:
        response = ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[])
    return response, len(data)  # further bytes, such as a throttle time, belong to another version


def version_after_refusal(refused_version: int, answer: ApiVersionsResponse, peer: str) -> int:
    """Return the version of ApiVersions to send next, after ``answer`` has refused version ``refused_version``.

    This is the newest common version, or 0 if the answer has none. It is always below ``refused_version``, so the
    retries end. Raises ``UnsupportedVersion`` if there is no version left.
    """
    ours = ApiVersionsRequest.versions
    offered = next((api for api in answer.api_keys if api.api_key == ApiVersionsRequest.api_key), None)
    if refused_version <= ours.first or (offered is not None and _beyond(offered, ours)):
        theirs = _range_text(Versions(offered.min_version, offered.max_version)) if offered else "no version"
        raise UnsupportedVersion(
            f"no common version of ApiVersions: this client supports {_range_text(ours)}, "
            f"{peer} refused version {refused_version} and supports {theirs}"
        )
    best = min(offered.max_version, ours.last) if offered is not None else ours.first
    version = best if ours.first <= best < refused_version else ours.first
    assert version < refused_version, "the version is always below the refused one, so the retries end"
    return version


def _beyond(offered: ApiVersion, ours: Versions) -> bool:
    return offered.min_version > ours.last or offered.max_version < ours.first

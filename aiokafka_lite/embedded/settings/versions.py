"""The API versions of a broker, and of each release of Kafka: a broker can act as any of these releases.

The versions are read from each release's own ``ApiKeys`` class. APIs between brokers are left out, except
WriteTxnMarkers (27), which admin clients use to abort hanging transactions, and those of the share coordinator (83 to
87), by which clients tell releases apart. The APIs of consumer groups are left out of 3.9, where they are a preview and
off by default.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...arguments import must_be
from ...errors import ConfigurationError, ErrorCode
from ...protocol.messages import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, ProduceRequest

VersionRanges = Mapping[int, tuple[int, int]]

_RELEASES = {
    "1.1.1": """
        0:0-5 1:0-7 2:0-2 3:0-5 8:0-3 9:0-3 10:0-1 11:0-2 12:0-1 13:0-1 14:0-1 15:0-1 16:0-1 17:0-1 18:0-1 19:0-2
        20:0-1 21:0-0 22:0-0 24:0-0 25:0-0 26:0-0 27:0-0 28:0-0 29:0-0 30:0-0 31:0-0 32:0-1 33:0-0 34:0-0 35:0-0 36:0-0
        37:0-0 38:0-0 39:0-0 40:0-0 41:0-0 42:0-0
    """,
    "2.4.1": """
        0:0-8 1:0-11 2:0-5 3:0-9 8:0-8 9:0-6 10:0-3 11:0-6 12:0-4 13:0-4 14:0-4 15:0-5 16:0-3 17:0-1 18:0-3 19:0-5
        20:0-4 21:0-1 22:0-2 23:0-3 24:0-1 25:0-1 26:0-1 27:0-0 28:0-2 29:0-1 30:0-1 31:0-1 32:0-2 33:0-1 34:0-1 35:0-1
        36:0-1 37:0-1 38:0-2 39:0-1 40:0-1 41:0-1 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0
    """,
    "2.8.2": """
        0:0-9 1:0-12 2:0-6 3:0-11 8:0-8 9:0-7 10:0-3 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 16:0-4 17:0-1 18:0-3 19:0-7
        20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-2 30:0-2 31:0-2 32:0-4 33:0-2 34:0-2 35:0-2
        36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0
        51:0-0 57:0-0 60:0-0 61:0-0
    """,
    "3.3.2": """
        0:0-9 1:0-13 2:0-7 3:0-12 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 16:0-4 17:0-1 18:0-3 19:0-7
        20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-3 30:0-3 31:0-3 32:0-4 33:0-2 34:0-2 35:0-4
        36:0-2 37:0-3 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 55:0-1 57:0-1 60:0-0 61:0-0 64:0-0 65:0-0
        66:0-0
    """,
    "3.9.1": """
        0:0-11 1:0-17 2:0-9 3:0-12 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 16:0-5 17:0-1 18:0-4 19:0-7
        20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4 29:0-3 30:0-3 31:0-3 32:0-4 33:0-2 34:0-2 35:0-4
        36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0
        51:0-0 55:0-2 57:0-1 60:0-1 61:0-0 64:0-0 65:0-0 66:0-1 71:0-0 72:0-0 74:0-0 75:0-0 80:0-0
        81:0-0
    """,
    "4.0.1": """
        0:3-12 1:4-17 2:1-10 3:0-13 8:2-9 9:1-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4
        19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-1 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2
        35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1
        50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-1 68:0-1 69:0-1 71:0-0 72:0-0 74:0-0 75:0-0
        80:0-0 81:0-0
    """,
    "4.1.1": """
        0:3-13 1:4-18 2:1-10 3:0-13 8:2-9 9:1-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4
        19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-1 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2
        35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1
        50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 71:0-0 72:0-0 74:0-1 75:0-0
        76:1-1 77:1-1 78:1-1 79:1-1 80:0-0 81:0-0 83:0-0 84:0-0 85:0-0 86:0-0 87:0-0 90:0-0 91:0-0 92:0-0
    """,
    "4.3.1": """
        0:3-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4
        19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2
        35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1
        50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 71:0-0 72:0-0 74:0-1 75:0-0
        76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0
    """,
}


def _parse(text: str) -> dict[int, tuple[int, int]]:
    ranges = {}
    for item in text.split():
        key, _, versions = item.partition(":")
        first, _, last = versions.partition("-")
        ranges[int(key)] = (int(first), int(last))
    return ranges


KAFKA_RELEASES = {release: _parse(text) for release, text in _RELEASES.items()}
"""The versions by release: {API key: (first, last version)}."""


class OfferedVersions(dict[int, tuple[int, int]]):
    """The versions of each API that one broker offers: {API key: (first, last)}."""

    def has(self, api_key: int, version: int) -> bool:
        offered = self.get(api_key)
        return offered is not None and offered[0] <= version <= offered[1]

    def advertised(self) -> list[ApiVersion]:
        """Return the content of an ApiVersions response."""
        ranges = []
        for key, (first, last) in sorted(self.items()):
            if key == ProduceRequest.api_key and last >= 12:
                # Kafka 4 claims version 0: librdkafka takes a higher minimum for a broker without Produce.
                first = 0
            ranges.append(ApiVersion(api_key=key, min_version=first, max_version=last))
        return ranges

    def refusal(self) -> ApiVersionsResponse:
        """Return the answer (v0) to an ApiVersions request that is too new; brokers before 2.4 list no API in it."""
        first, last = self[ApiVersionsRequest.api_key]
        keys = []
        if last >= ApiVersionsRequest.SOFTWARE_NAME:
            keys.append(ApiVersion(api_key=ApiVersionsRequest.api_key, min_version=first, max_version=last))
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)


def release_of(name: str) -> str:
    """Return the full name of a release: ``"2.8"`` and ``"2.8.2"`` are 2.8.2. Raises ConfigurationError."""
    for release in KAFKA_RELEASES:
        if release == name or release.startswith(f"{name}."):
            return release
    raise ConfigurationError(must_be("as_kafka", f"one of {', '.join(KAFKA_RELEASES)}", name))


def as_kafka(release: str, spoken: VersionRanges) -> dict[int, tuple[int, int]]:
    """Return the APIs and versions of ``spoken`` that a release such as ``"2.8"`` also has. Raises
    ConfigurationError."""
    return in_common(KAFKA_RELEASES[release_of(release)], spoken)


def in_common(theirs: VersionRanges, ours: VersionRanges) -> dict[int, tuple[int, int]]:
    """Return the APIs and versions that both sides speak."""
    common = {}
    for key, (first, last) in ours.items():
        if key in theirs:
            low, high = max(first, theirs[key][0]), min(last, theirs[key][1])
            if low <= high:
                common[key] = (low, high)
    return common

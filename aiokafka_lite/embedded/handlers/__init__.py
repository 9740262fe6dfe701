"""One module for each family of APIs. Each begins with the behaviour of its APIs, and their changes by version.

A new module needs a row here: the import registers its handlers.
"""

from __future__ import annotations

from ..request_context import HANDLERS
from ..settings.versions import KAFKA_RELEASES, as_kafka
from . import (  # noqa: F401
    acls,
    api_versions,
    cluster_admin,
    configs,
    consumer_groups,
    coordinator,
    delegation_tokens,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    leadership,
    logs,
    metadata,
    offsets,
    produce,
    quotas,
    sasl,
    scram_users,
    share_fetch,
    share_groups,
    share_offsets,
    streams_groups,
    telemetry,
    topics,
    transactions,
)

NEWEST = list(KAFKA_RELEASES)[-1]


def default_versions() -> dict[int, tuple[int, int]]:
    """Return every API that has a handler, in the versions of the newest Kafka: {API key: (first, last)}."""
    return versions_of(NEWEST)


def versions_of(release: str) -> dict[int, tuple[int, int]]:
    """Return every API that has a handler, in the versions of a release of Kafka: {API key: (first, last)}.

    Raises ConfigurationError for an unknown release.
    """
    return as_kafka(release, {cls.api_key: (cls.versions.first, cls.versions.last) for cls in HANDLERS})

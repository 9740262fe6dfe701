"""One module for each family of APIs. Each begins with the behaviour of its APIs, and their changes by version.

A new module needs a row here: the import registers its handlers.
"""

from __future__ import annotations

from ...protocol.messages import InitProducerIdRequest
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
    share_state,
    streams_groups,
    telemetry,
    topics,
    transactions,
)

NEWEST = list(KAFKA_RELEASES)[-1]


def default_versions() -> dict[int, tuple[int, int]]:
    """Return every API that has a handler, in the versions of the newest Kafka: {API key: (first, last)}."""
    return versions_of(NEWEST)


def versions_of(release: str, *, two_phase_commit: bool = False) -> dict[int, tuple[int, int]]:
    """Return every API that has a handler, in the versions of a release of Kafka: {API key: (first, last)}.

    With ``two_phase_commit``, the version for it is offered too, which Kafka counts as unstable. Raises
    ConfigurationError for an unknown release.
    """
    offered = as_kafka(release, {cls.api_key: (cls.versions.first, cls.versions.last) for cls in HANDLERS})
    first, last = offered[InitProducerIdRequest.api_key]
    if two_phase_commit and last == InitProducerIdRequest.TWO_PHASE_COMMIT - 1:
        offered[InitProducerIdRequest.api_key] = (first, last + 1)
    return offered

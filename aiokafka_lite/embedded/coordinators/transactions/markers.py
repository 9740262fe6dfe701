"""Appending a marker on the broker that leads its partition: for its own coordinators, and for WriteTxnMarkers."""

from __future__ import annotations

from ....errors import ErrorCode
from ...log.producer_state import Marker
from ...metadata.topics import PartitionKey
from ...request_context import BrokerParts
from ..groups.records import OFFSETS_TOPIC

MARKER_TIMEOUT = 30.0
"""Seconds that a marker waits for the replicas (request.timeout.ms)."""


async def append_marker(broker: BrokerParts, key: PartitionKey, marker: Marker) -> ErrorCode:
    """Append a marker, wait for the replicas, and end the transaction for the groups of an offsets partition."""
    error = await broker.replica_manager.append_marker(key, marker, broker.now_ms(), MARKER_TIMEOUT)
    # After an error the offsets stay pending: the marker is not in the log, or a new leader may not have it. The sender
    # writes it again.
    if error is ErrorCode.NONE and key[0] == OFFSETS_TOPIC:
        broker.groups.transactional.end(key[1], marker.producer_id, committed=marker.committed)
    return error

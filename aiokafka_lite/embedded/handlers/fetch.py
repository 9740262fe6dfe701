"""Fetch: read batches from the logs of the partitions that this node leads, or, from v11 on, follows.

A fetch waits until ``min_bytes`` are there, an error or a diverging epoch has to be told, or ``max_wait_ms`` is over.
The first batch found is given whole, however large, so that a reader always gets on; the rest is cut at the limits.

By version: v4 isolation level; v5 log start offset; v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320);
v11 preferred replica by rack (KIP-392); v12 flexible, diverging epochs (KIP-595); v13 topic ids in place of names;
v15 the replica's state in a tagged field; v16 leader hints (KIP-951); v17 directory ids; v18 a high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    FetchRequest,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponseLeader,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseTopic,
)
from ...protocol.schema import ZERO_UUID
from ..authoriser import Operation, Resource, ResourceType
from ..fetch_session import SessionPartition
from ..replica_manager import FetchedPartition, FetchParameters, FetchPartition
from ..topics import PartitionKey

if TYPE_CHECKING:
    from ..connection import RequestContext

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_ANY_REPLICA = 11
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_HINTS = 16
READ_COMMITTED = 1


async def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    node = context.node
    session = node.fetch_sessions.open(request, context.version)
    if session.error is not ErrorCode.NONE:
        return FetchResponse(throttle_time_ms=0, error_code=session.error, session_id=0, responses=[])
    wanted: dict[PartitionKey, FetchPartition] = {}
    slots: dict[PartitionKey, SessionPartition] = {}
    refused: list[tuple[SessionPartition, FetchedPartition]] = []
    for slot in session.partitions:
        name, error = _resolve(context, slot)
        key = (name, slot.index)
        if error is ErrorCode.NONE and node.partition_state(key) is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not ErrorCode.NONE:
            refused.append((slot, FetchedPartition(error, has_aborted=True)))
        else:
            wanted[key], slots[key] = slot.wanted, slot
    parameters = FetchParameters(
        max_wait=0.0 if refused else request.max_wait_ms / 1000,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(context, request),
        read_committed=request.isolation_level == READ_COMMITTED,
        from_any_replica=context.version >= FIRST_VERSION_WITH_ANY_REPLICA,
        rack=request.rack_id,
    )
    result = await node.replica_manager.fetch_messages(parameters, wanted)
    size = sum(len(each.records) for each in result.values())
    throttle = node.quotas.record_fetch(context, size)
    response = FetchResponse(throttle_time_ms=throttle, session_id=session.session_id, responses=[])
    if throttle:
        return response  # nothing is told, so that it is still news when the client comes back
    fetched = [*refused, *((slots[key], each) for key, each in result.items())]
    for slot, each in session.worth_telling(fetched):
        _add(context, response, slot, each)
    return response


def _max_bytes(context: RequestContext, request: FetchRequest) -> int:
    node = context.node
    limit = node.quotas.fetch_limit(context)
    return min(request.max_bytes, node.fetch_max_bytes, *(() if limit is None else (limit,)))


def _resolve(context: RequestContext, slot: SessionPartition) -> tuple[str, ErrorCode]:
    """A partition's topic, and why it may not be read, if so."""
    name = slot.topic
    if context.version >= FIRST_VERSION_WITH_IDS:
        known = context.node.topic_name(slot.topic_id)
        if known is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = known
    allowed = context.node.cluster.authoriser.allows(
        context.principal, Operation.READ, Resource(ResourceType.TOPIC, name)
    )
    return name, ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _add(context: RequestContext, response: FetchResponse, slot: SessionPartition, fetched: FetchedPartition) -> None:
    with_ids = context.version >= FIRST_VERSION_WITH_IDS
    topics = response.responses
    if not topics or (topics[-1].topic, topics[-1].topic_id) != (slot.topic, slot.topic_id):
        topics.append(
            FetchResponseTopic(topic=slot.topic, topic_id=slot.topic_id if with_ids else ZERO_UUID, partitions=[])
        )
    partition = FetchResponsePartition(
        partition_index=slot.index,
        error_code=fetched.error,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=[] if fetched.has_aborted else None,
        preferred_read_replica=fetched.preferred_read_replica
        if context.version >= FIRST_VERSION_WITH_ANY_REPLICA
        else -1,
        records=fetched.records,
    )
    if fetched.diverging_epoch is not None and context.version >= 12:
        partition.diverging_epoch = FetchResponseDivergingEpoch(
            epoch=fetched.diverging_epoch.epoch, end_offset=fetched.diverging_epoch.end_offset
        )
    topics[-1].partitions.append(partition)
    if context.version >= FIRST_VERSION_WITH_HINTS and fetched.error in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        _hint(context, response, partition, slot)


def _hint(
    context: RequestContext, response: FetchResponse, partition: FetchResponsePartition, slot: SessionPartition
) -> None:
    """Tell who leads instead, and where that is (KIP-951)."""
    name = context.node.topic_name(slot.topic_id) or slot.topic
    state = context.node.partition_state((name, slot.index))
    if state is None:
        return
    partition.current_leader = FetchResponseLeader(leader_id=state.leader, leader_epoch=state.leader_epoch)
    leader = context.node.endpoint(state.leader)
    if leader is not None and all(each.node_id != leader.node_id for each in response.node_endpoints):
        response.node_endpoints.append(
            FetchResponseNodeEndpoint(node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack)
        )


HANDLERS = {FetchRequest: fetch}

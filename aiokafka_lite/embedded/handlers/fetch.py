"""Fetch: read batches from the logs of the partitions that this node leads or, from v11 on, follows.

A fetch waits until there are ``min_bytes``, an error or a diverging epoch, or until ``max_wait_ms`` has passed. The
first batch is returned whole, however large, so that a reader always makes progress. The others are cut at the limits.

- v4: isolation level.
- v5: log start offset.
- v7: fetch sessions (KIP-227).
- v9: leader epochs (KIP-320).
- v11: preferred replica by rack (KIP-392).
- v12: flexible; diverging epochs (KIP-595).
- v13: topic ids in place of names.
- v15: the replica's state in a tagged field.
- v16: leader hints (KIP-951).
- v17: directory ids.
- v18: a high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...acls import AclOperation
from ...errors import NO_ERROR, ErrorCode
from ...protocol import messages as m
from ...protocol.schema import ZERO_UUID
from ..error_responses import error_response
from ..metadata.topics import PartitionKey
from ..replicas.fetch_session import SessionPartition
from ..replicas.manager import FetchedPartition, FetchParameters, FetchPartition
from ..request_context import RequestContext, handles

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
L = TypeVar("L", m.FetchResponseLeader, m.ProduceResponseLeader, m.ShareLeader)
E = TypeVar("E", m.FetchResponseNodeEndpoint, m.ProduceResponseNodeEndpoint, m.ShareNodeEndpoint)


@handles(m.FetchRequest)
async def fetch(context: RequestContext, request: m.FetchRequest) -> m.FetchResponse:
    broker = context.broker
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        failed = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.version)
        assert isinstance(failed, m.FetchResponse)
        failed.error_code = ErrorCode.UNKNOWN_SERVER_ERROR  # the request is wrong, not only its topics
        return failed
    session = broker.fetch_sessions.open(request, context.version)
    if session.error is not NO_ERROR:
        return m.FetchResponse(error_code=session.error, session_id=0, responses=[])
    positions: dict[PartitionKey, FetchPartition] = {}
    slots: dict[PartitionKey, SessionPartition] = {}
    refused: list[tuple[SessionPartition, FetchedPartition]] = []
    replica_id = _replica_id(context, request)
    for slot in session.partitions:
        key, error = _find(context, slot, replica_id)
        if error is not NO_ERROR:
            refused.append((slot, FetchedPartition(error, aborted=[])))
        else:
            positions[key], slots[key] = slot.requested, slot
    parameters = FetchParameters(
        # A refused partition is news, so the response does not wait.
        max_wait=0.0 if refused else request.max_wait_ms / 1000,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(context, request),
        read_committed=request.isolation_level == READ_COMMITTED,
        from_any_replica=context.version >= m.FetchRequest.ANY_REPLICA,
        rack=request.rack_id,
    )
    result = await broker.replica_manager.fetch_messages(parameters, positions)
    # As in Kafka, the counters of topics leave out the fetches of followers.
    if replica_id < 0:
        topics = broker.replica_manager.counters.topics
        for (name, _), partition in result.items():
            topics[name].fetched(len(partition.records), failed=partition.error is not NO_ERROR)
    size = sum(len(partition.records) for partition in result.values())
    throttle = broker.quotas.record_fetch(context.principal, context.client_id, size)
    response = m.FetchResponse(throttle_time_ms=throttle, session_id=session.session_id, responses=[])
    if throttle:
        # The session records nothing as sent, so the next fetch returns all of it. As in Kafka, a throttled request
        # opens no session.
        if not session.is_incremental:
            broker.fetch_sessions.end(session.session_id)
            response.session_id = 0
        return response
    fetched = [*refused, *((slots[key], partition) for key, partition in result.items())]
    for slot, partition in session.to_send(fetched):
        _add(context, response, slot, partition)
    return response


def _find(context: RequestContext, slot: SessionPartition, replica_id: int) -> tuple[PartitionKey, ErrorCode]:
    """Return a requested partition by the name of its topic, and its error: NONE if it can be fetched."""
    is_follower = replica_id >= 0
    name, error = context.topic(slot, AclOperation.READ, by_id=context.version >= m.FetchRequest.TOPIC_IDS)
    key = (name, slot.index)
    # A follower needs the right of a broker instead of READ on the topic.
    if is_follower and error is not ErrorCode.UNKNOWN_TOPIC_ID:
        is_allowed = context.allows(AclOperation.CLUSTER_ACTION)
        error = NO_ERROR if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if error is not NO_ERROR:
        return key, error
    state = context.broker.metadata.partition_state(key)
    if state is None:
        return key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Only another broker that has a replica of the partition copies it.
    if is_follower and (replica_id not in state.replicas or replica_id == context.broker.node_id):
        return key, ErrorCode.NOT_LEADER_OR_FOLLOWER
    return key, NO_ERROR


def _replica_id(context: RequestContext, request: m.FetchRequest) -> int:
    """Return the id of the broker that fetches as a follower; negative for a consumer."""
    in_state = context.version >= m.FetchRequest.REPLICA_STATE
    return request.replica_state.replica_id if in_state else request.replica_id


def _max_bytes(context: RequestContext, request: m.FetchRequest) -> int:
    limit = context.broker.quotas.fetch_limit(context.principal, context.client_id)
    largest = min(request.max_bytes, context.broker.fetch_max_bytes)
    return largest if limit is None else min(largest, limit)


def _add(context: RequestContext, response: m.FetchResponse, slot: SessionPartition, fetched: FetchedPartition) -> None:
    with_ids = context.version >= m.FetchRequest.TOPIC_IDS
    topics = response.responses
    # Only consecutive partitions share an entry, because the order of the partitions must stay.
    if not topics or (topics[-1].topic, topics[-1].topic_id) != (slot.name, slot.topic_id):
        topics.append(
            m.FetchResponseTopic(topic=slot.name, topic_id=slot.topic_id if with_ids else ZERO_UUID, partitions=[])
        )
    partition = m.FetchResponsePartition(
        partition_index=slot.index,
        error_code=fetched.error,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=None
        if fetched.aborted is None
        else [
            m.AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
            for transaction in fetched.aborted
        ],
        preferred_read_replica=fetched.preferred_read_replica if context.version >= m.FetchRequest.ANY_REPLICA else -1,
        records=fetched.records,
    )
    if fetched.diverging_epoch is not None and context.version >= m.FetchRequest.DIVERGING_EPOCHS:
        partition.diverging_epoch = m.FetchResponseDivergingEpoch(
            epoch=fetched.diverging_epoch.epoch, end_offset=fetched.diverging_epoch.end_offset
        )
    topics[-1].partitions.append(partition)
    if context.version >= m.FetchRequest.LEADER_HINTS and fetched.error in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        key = (context.broker.metadata.topic_name(slot.topic_id) or slot.name, slot.index)
        leader_types = (m.FetchResponseLeader, m.FetchResponseNodeEndpoint)
        partition.current_leader = add_leader_hint(context, key, leader_types, response.node_endpoints)


def add_leader_hint(
    context: RequestContext, key: PartitionKey, types: tuple[Callable[..., L], Callable[..., E]], endpoints: list[E]
) -> L:
    """Return the leader of a partition, and add its address to the ``endpoints`` of the response (KIP-951).

    ``types`` are the structs of the leader and of an address. The leader of an unknown partition is -1.
    """
    state = context.broker.metadata.partition_state(key)
    if state is None:
        return types[0]()
    leader = context.broker.metadata.brokers.get(state.leader)
    if leader is not None and all(endpoint.node_id != leader.node_id for endpoint in endpoints):
        port = context.port_of(leader)
        endpoints.append(types[1](node_id=leader.node_id, host=leader.host, port=port, rack=leader.rack))
    return types[0](leader_id=state.leader, leader_epoch=state.leader_epoch)

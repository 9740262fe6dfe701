"""Produce: append batches to the logs of the partitions that this node leads.

The way of a request, in the words of Kafka's ReplicaManager:

 1. Its partitions are split into those that may be written, those that the principal may not write
    (TOPIC_AUTHORIZATION_FAILED), those that nobody knows (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID), and those
    whose records cannot be taken in this version of the request.
 2. ``append_to_local_log`` gives a result for each partition of the first kind.
 3. ``delayed_produce_required``: acks=-1, something to append, at least one success. Then a ``DelayedProduce`` waits in
    the purgatory until the high watermark has passed everywhere, or its time is over. Else the answer is ready.
 4. ``send_response`` merges the results with the refusals. With acks=0 nothing is answered, and the connection is
    closed if anything failed, which is all that such a client can learn.

By version: v3 record batches v2 only and transactional ids; v5 log start offset; v7 zstd; v8 error messages and record
errors (KIP-467); v9 flexible; v10 leader hints (KIP-951); v13 topic ids in place of names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    ProduceRequest,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseLeader,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from ..authoriser import Operation, Resource, ResourceType
from ..connection_signals import CloseConnection
from ..replica_manager import PartitionResponse, ProducedBatch
from ..topics import PartitionKey
from ..validator import RecordsRejected, is_framed, is_transactional, parse_produced

if TYPE_CHECKING:
    from ..connection import RequestContext

FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_HINTS = 10


@dataclass(slots=True)
class _Split:
    """A request's partitions: what may be tried, and what is answered already."""

    entries: dict[PartitionKey, ProducedBatch] = field(default_factory=dict)
    refused: dict[tuple[bytes, str, int], PartitionResponse] = field(default_factory=dict)


async def produce(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    node = context.node
    if request.transactional_id is not None:
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    for data in (data for topic in request.topic_data for data in topic.partition_data):
        if not is_framed(data.records):
            return _refuse_all(request, ErrorCode.CORRUPT_MESSAGE)
        if is_transactional(data.records):
            return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    split = _split(context, request)
    size = sum(len(entry.records) for entry in split.entries.values())
    results: dict[PartitionKey, PartitionResponse] = {}
    if split.entries:
        results = await node.replica_manager.append_records(
            request.timeout_ms / 1000, request.acks, split.entries, node.now_ms()
        )
    throttle = context.throttle_ms = node.quotas.record_produce(context, size)
    return _send_response(context, request, split, results, throttle)


def _split(context: RequestContext, request: ProduceRequest) -> _Split:
    split = _Split()
    for topic in request.topic_data:
        name, error = _resolve(context, topic)
        for data in topic.partition_data:
            slot = (topic.topic_id, topic.name, data.index)
            if error is not ErrorCode.NONE:
                split.refused[slot] = PartitionResponse(error, message=error.description)
            elif context.node.partition_state((name, data.index)) is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                split.refused[slot] = PartitionResponse(unknown, message=unknown.description)
            else:
                try:
                    batch = parse_produced(data.records, context.version)
                except RecordsRejected as rejection:
                    split.refused[slot] = PartitionResponse(rejection.code, message=str(rejection))
                else:
                    assert data.records is not None
                    split.entries[name, data.index] = ProducedBatch(data.records[: batch.size], batch)
    return split


def _resolve(context: RequestContext, topic: ProduceRequestTopic) -> tuple[str, ErrorCode]:
    """A topic's name, and why it may not be written, if so."""
    name = topic.name
    if context.version >= FIRST_VERSION_WITH_IDS:
        known = context.node.topic_name(topic.topic_id)
        if known is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = known
    allowed = context.node.cluster.authoriser.allows(
        context.principal, Operation.WRITE, Resource(ResourceType.TOPIC, name)
    )
    return name, ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _send_response(
    context: RequestContext,
    request: ProduceRequest,
    split: _Split,
    results: dict[PartitionKey, PartitionResponse],
    throttle_time_ms: int,
) -> ProduceResponse | None:
    if request.acks == 0:
        outcomes = [*split.refused.values(), *results.values()]
        if any(outcome.error is not ErrorCode.NONE for outcome in outcomes):
            raise CloseConnection
        return None
    response = ProduceResponse(responses=[], throttle_time_ms=throttle_time_ms)
    for topic in request.topic_data:
        name = topic.name
        if context.version >= FIRST_VERSION_WITH_IDS:
            name = context.node.topic_name(topic.topic_id) or ""
        partitions = []
        for data in topic.partition_data:
            refused = split.refused.get((topic.topic_id, topic.name, data.index))
            outcome = refused or results.get((name, data.index)) or PartitionResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
            partitions.append(_partition(context, response, (name, data.index), outcome))
        response.responses.append(
            ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    return response


def _partition(
    context: RequestContext, response: ProduceResponse, key: PartitionKey, outcome: PartitionResponse
) -> ProduceResponsePartition:
    partition = ProduceResponsePartition(
        index=key[1],
        error_code=outcome.error,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time,
        log_start_offset=outcome.log_start_offset,
        error_message=outcome.message,
        record_errors=[
            ProduceResponseRecordError(batch_index=each.batch_index, batch_index_error_message=each.message)
            for each in outcome.record_errors
        ],
    )
    if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.version >= FIRST_VERSION_WITH_HINTS:
        _hint(context, response, partition, key)
    return partition


def _hint(
    context: RequestContext, response: ProduceResponse, partition: ProduceResponsePartition, key: PartitionKey
) -> None:
    """Tell who leads instead, and where that is (KIP-951)."""
    state = context.node.partition_state(key)
    if state is None:
        return
    partition.current_leader = ProduceResponseLeader(leader_id=state.leader, leader_epoch=state.leader_epoch)
    leader = context.node.endpoint(state.leader)
    if leader is not None and all(each.node_id != leader.node_id for each in response.node_endpoints):
        response.node_endpoints.append(
            ProduceResponseNodeEndpoint(node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack)
        )


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    if request.acks == 0:
        raise CloseConnection
    return ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponsePartition(
                        index=data.index, error_code=code, base_offset=-1, error_message=code.description
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


HANDLERS = {ProduceRequest: produce}

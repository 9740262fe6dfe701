"""TxnOffsetCommit: the offsets of a group as a part of a producer's transaction. The coordinator of the group gets it.

- v2 adds leader epochs, v3 the member of the group, which is fenced as in OffsetCommit (KIP-447).
- v5 is generation 2: it adds the offsets to the transaction, so there is no AddOffsetsToTxn (KIP-890).
- The offsets count when the transaction commits. Until then OffsetFetch v7 can say UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol.messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...protocol.records import encode_batch, single_batch
from ..coordinators.groups.log import CommittedOffset
from ..coordinators.groups.records import OFFSETS_TOPIC
from ..coordinators.transactions.verification import verify_partitions
from ..log.producer_state import Verification
from ..metadata.topics import PartitionKey
from ..request_context import RequestContext, handles
from .group_offsets import is_too_large

_FOR_MEMBERS = {ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE}


@handles(TxnOffsetCommitRequest)
async def txn_offset_commit(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    error = ErrorCode.NONE
    if not context.allows_transaction(AclOperation.WRITE, request.transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.allows_group(AclOperation.READ, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    results: dict[PartitionKey, ErrorCode] = {}
    offsets: dict[PartitionKey, CommittedOffset] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            results[key] = error or _check_partition(context, key)
            if results[key] is ErrorCode.NONE:
                offsets[key] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    context.broker.now_ms(),
                )
    if offsets:
        # As in Kafka, metadata that is too large is refused only if the group accepts the commit.
        too_large = {key for key, committed in offsets.items() if is_too_large(committed.metadata)}
        written = await _commit(
            context, request, {key: committed for key, committed in offsets.items() if key not in too_large}
        )
        results |= dict.fromkeys(offsets, written)
        if written is ErrorCode.NONE:
            results |= dict.fromkeys(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    return _response(request, results)


def _response(request: TxnOffsetCommitRequest, results: Mapping[PartitionKey, ErrorCode]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=results[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ],
    )


def _check_partition(context: RequestContext, key: PartitionKey) -> ErrorCode:
    if not context.allows_topic(AclOperation.READ, key[0]):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.broker.metadata.partition_state(key) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


async def _commit(
    context: RequestContext, request: TxnOffsetCommitRequest, offsets: dict[PartitionKey, CommittedOffset]
) -> ErrorCode:
    groups = context.broker.groups
    error = groups.check(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return error
    verification, error = await _verify(context, request)
    if error is not ErrorCode.NONE:
        return _FOR_MEMBERS.get(error, error)
    error = groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        list(offsets),
        transactional=True,
    )
    if error is not ErrorCode.NONE or not offsets:
        return error
    producer = (request.producer_id, request.producer_epoch)
    return await groups.transactional.commit(request.group_id, producer, offsets, verification)


async def _verify(context: RequestContext, request: TxnOffsetCommitRequest) -> tuple[Verification | None, ErrorCode]:
    """Ask the transaction coordinator about the partition of the group, as the leader of any partition does."""
    index = context.broker.groups.log.partition_for(request.group_id)
    assert index is not None
    key = (OFFSETS_TOPIC, index)
    # An empty batch: the verification needs only the producer in its header.
    header = encode_batch(
        [], producer_id=request.producer_id, producer_epoch=request.producer_epoch, transactional=True
    )
    answers = await verify_partitions(
        context.broker,
        request.transactional_id,
        {key: single_batch(header)},
        adds=context.version >= TxnOffsetCommitRequest.ADDS_GROUP,
        abortable=context.version >= TxnOffsetCommitRequest.TRANSACTION_ABORTABLE,
    )
    return answers[key].verification, answers[key].error

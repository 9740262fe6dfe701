"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups.

OffsetCommit:

- v0: commits for a group without members.
- v1: may give the time of the commit.
- v2 to v4: a retention time.
- v6: leader epochs.
- v10: topics by id.

TxnOffsetCommit, for the offsets of a group as a part of a producer's transaction:

- v2: leader epochs.
- v3: the member of the group, which is fenced as in OffsetCommit (KIP-447).
- v5: generation 2 adds the offsets to the transaction, so there is no AddOffsetsToTxn (KIP-890).
- The offsets count when the transaction commits. Until then OffsetFetch v7 can say UNSTABLE_OFFSET_COMMIT.

OffsetFetch:

- v0: a partition without a committed offset has the error UNKNOWN_TOPIC_OR_PARTITION. Later versions have the offset
  -1 and no error.
- v2: null means all topics; an error code for the response.
- v8: many groups.
- v10: topics by id.

OffsetDelete removes offsets of topics that the group is not subscribed to (KIP-496).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...acls import AclOperation
from ...arguments import by_topic
from ...errors import ErrorCode, ProtocolError
from ...protocol import messages as m
from ...protocol.codec import decode_message
from ...protocol.records import encode_batch
from ...protocol.records.produced import single_batch
from ...protocol.schema import ZERO_UUID
from ..coordinators.groups.group import Group
from ..coordinators.groups.hosted_groups import AnyGroup
from ..coordinators.groups.log import CommittedOffset
from ..coordinators.groups.records import OFFSETS_TOPIC
from ..coordinators.transactions.verification import verify_partitions
from ..log.producer_state import Verification
from ..metadata.topics import PartitionKey
from ..request_context import RequestContext, handles

MAX_METADATA = 4096
NO_OFFSET = CommittedOffset(-1, -1, "", -1)
Pending = Collection[PartitionKey]
_FOR_MEMBERS = {ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE}


@handles(m.OffsetCommitRequest)
async def offset_commit(context: RequestContext, request: m.OffsetCommitRequest) -> m.OffsetCommitResponse:
    groups = context.broker.groups
    offsets: dict[PartitionKey, CommittedOffset] = {}
    results: dict[tuple[str, bytes, int], ErrorCode] = {}
    partition_state = context.broker.metadata.partition_state
    error: ErrorCode | None = None  # the group is checked only if there is a partition to commit
    by_id = context.version >= m.OffsetCommitRequest.TOPIC_IDS
    may_commit = context.allows_group(AclOperation.READ, request.group_id)
    for topic in request.topics:
        name, topic_error = context.topic(topic, AclOperation.READ, by_id=by_id)
        if not may_commit:
            topic_error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        for partition in topic.partitions:
            refusal = topic_error
            if refusal is ErrorCode.NONE and partition_state((name, partition.partition_index)) is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if refusal is ErrorCode.NONE:
                error = _check_group(context, request) if error is None else error
                too_large = is_too_large(partition.committed_metadata)
                refusal = error or (ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE)
            results[topic.name, topic.topic_id, partition.partition_index] = refusal
            if refusal is ErrorCode.NONE:
                offsets[name, partition.partition_index] = _committed(context, request, partition)
    if offsets:
        written = await groups.commit(request.group_id, offsets)
        results = {key: refusal or written for key, refusal in results.items()}
    return _commit_response(request, results)


def _commit_response(
    request: m.OffsetCommitRequest, results: Mapping[tuple[str, bytes, int], ErrorCode]
) -> m.OffsetCommitResponse:
    """Return the response with these results, by name and id of the topic and number of the partition."""
    return m.OffsetCommitResponse(
        topics=[
            m.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    m.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=results[topic.name, topic.topic_id, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


def _check_group(context: RequestContext, request: m.OffsetCommitRequest) -> ErrorCode:
    if context.broker.share_groups.find(request.group_id) is not None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    by_id = context.version >= m.OffsetCommitRequest.TOPIC_IDS
    return context.broker.groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        [
            (context.topic(topic, AclOperation.READ, by_id=by_id)[0], partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ],
        knows_epochs=context.version >= m.OffsetCommitRequest.GROUP_ID_NOT_FOUND,
    )


def is_too_large(metadata: str | None) -> bool:
    """Return whether the metadata of an offset is too large. Kafka counts UTF-16 code units, as Java does."""
    return len((metadata or "").encode("utf-16-le")) // 2 > MAX_METADATA


def _committed(
    context: RequestContext, request: m.OffsetCommitRequest, partition: m.OffsetCommitRequestPartition
) -> CommittedOffset:
    now = partition.commit_timestamp if partition.commit_timestamp >= 0 else context.broker.now_ms()
    # Only versions 2 to 4 have a retention time.
    expires_at = now + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now,
        expires_at,
    )


@handles(m.TxnOffsetCommitRequest)
async def txn_offset_commit(context: RequestContext, request: m.TxnOffsetCommitRequest) -> m.TxnOffsetCommitResponse:
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
        written = await _commit_transactional(
            context, request, {key: committed for key, committed in offsets.items() if key not in too_large}
        )
        results |= dict.fromkeys(offsets, written)
        if written is ErrorCode.NONE:
            results |= dict.fromkeys(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    return _txn_response(request, results)


def _txn_response(
    request: m.TxnOffsetCommitRequest, results: Mapping[PartitionKey, ErrorCode]
) -> m.TxnOffsetCommitResponse:
    return m.TxnOffsetCommitResponse(
        topics=[
            m.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    m.TxnOffsetCommitResponsePartition(
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


async def _commit_transactional(
    context: RequestContext, request: m.TxnOffsetCommitRequest, offsets: dict[PartitionKey, CommittedOffset]
) -> ErrorCode:
    groups = context.broker.groups
    error = groups.check(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return error
    verification, error = await _verify(context, request)
    if error is not ErrorCode.NONE:
        return _FOR_MEMBERS.get(error, error)
    # After the verification, which waits: the member may have been fenced meanwhile.
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


async def _verify(context: RequestContext, request: m.TxnOffsetCommitRequest) -> tuple[Verification | None, ErrorCode]:
    """Ask the transaction coordinator about the partition of the group, as the leader of any partition does."""
    index = context.broker.groups.log.partition_for(request.group_id)
    assert index is not None, "the group is checked before"
    key = (OFFSETS_TOPIC, index)
    # An empty batch: the verification needs only the producer in its header.
    header = encode_batch(
        [], producer_id=request.producer_id, producer_epoch=request.producer_epoch, transactional=True
    )
    answers = await verify_partitions(
        context.broker,
        request.transactional_id,
        {key: single_batch(header)},
        adds=context.version >= m.TxnOffsetCommitRequest.ADDS_GROUP,
        abortable=context.version >= m.TxnOffsetCommitRequest.TRANSACTION_ABORTABLE,
    )
    return answers[key].verification, answers[key].error


@handles(m.OffsetFetchRequest)
def offset_fetch(context: RequestContext, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    if context.version >= m.OffsetFetchRequest.MANY_GROUPS:
        stable = request.require_stable
        return m.OffsetFetchResponse(groups=[_fetch_group(context, group, stable=stable) for group in request.groups])
    return _fetch_one_group(context, request)


def _fetch_one_group(context: RequestContext, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    """Return the response to a request before v8, which names one group."""
    error = _check_fetch(context, request.group_id)
    if error is not ErrorCode.NONE and context.version >= m.OffsetFetchRequest.TOP_LEVEL_ERROR:
        return m.OffsetFetchResponse(error_code=error)
    committed = context.broker.groups.committed(request.group_id) if error is ErrorCode.NONE else {}
    pending = _pending(context, request.group_id, stable=request.require_stable)
    is_first = context.version < m.OffsetFetchRequest.NO_OFFSET_IS_NO_ERROR
    without = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_first else ErrorCode.NONE
    topics = (
        _all_of(context, committed)
        if request.topics is None
        else [(topic.name, topic.partition_indexes) for topic in request.topics]
    )

    def partition(name: str, index: int, refusal: ErrorCode) -> m.OffsetFetchResponsePartition:
        offset, problem = _look_up({} if refusal else committed, pending, (name, index))
        return m.OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            error_code=refusal or problem or (without if offset is NO_OFFSET else ErrorCode.NONE),
        )

    refusals = {name: error or _denied(context, name) for name, _ in topics}
    return m.OffsetFetchResponse(
        topics=[
            m.OffsetFetchResponseTopic(
                name=name, partitions=[partition(name, index, refusals[name]) for index in indexes]
            )
            for name, indexes in topics
        ]
    )


def _denied(context: RequestContext, topic: str) -> ErrorCode:
    is_allowed = context.allows_topic(AclOperation.DESCRIBE, topic)
    return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _check_fetch(context: RequestContext, group_id: str) -> ErrorCode:
    if not context.allows_group(AclOperation.DESCRIBE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return context.broker.groups.check(group_id)


def _pending(context: RequestContext, group_id: str, *, stable: bool) -> Pending:
    """Return the partitions with offsets of open transactions, for a client that waits for their end (KIP-447)."""
    return context.broker.groups.transactional.pending(group_id) if stable else ()


def _look_up(
    committed: Mapping[PartitionKey, CommittedOffset], pending: Pending, key: PartitionKey
) -> tuple[CommittedOffset, ErrorCode]:
    if key in pending:
        return NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return committed.get(key, NO_OFFSET), ErrorCode.NONE


def _all_of(context: RequestContext, committed: Mapping[PartitionKey, CommittedOffset]) -> list[tuple[str, list[int]]]:
    """Return the partitions of each topic that the client may describe.

    As in Kafka, a partition whose first offset is still pending is missing, also for a client that waits for pending
    offsets.
    """
    topics = by_topic(sorted(committed))
    return [topic for topic in topics.items() if context.allows_topic(AclOperation.DESCRIBE, topic[0])]


def _fetch_group(
    context: RequestContext, group: m.OffsetFetchRequestGroup, *, stable: bool
) -> m.OffsetFetchResponseGroup:
    error = _check_fetch(context, group.group_id) or context.broker.groups.check_fetch(
        group.group_id, group.member_id, group.member_epoch
    )
    if error is not ErrorCode.NONE:
        return m.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
    committed = context.broker.groups.committed(group.group_id)
    pending = _pending(context, group.group_id, stable=stable)
    topics: list[tuple[str, bytes, Iterable[int], ErrorCode]] = []
    if group.topics is None:
        for name, indexes in _all_of(context, committed):
            registered = context.broker.metadata.topics.get(name)
            topics.append((name, ZERO_UUID if registered is None else registered.topic_id, indexes, ErrorCode.NONE))
    else:
        by_id = context.version >= m.OffsetFetchRequest.TOPIC_IDS
        for topic in group.topics:
            name, problem = context.topic(topic, AclOperation.DESCRIBE, by_id=by_id)
            topics.append((name, topic.topic_id, topic.partition_indexes, problem))
    return m.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            m.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[
                    m.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=problem or unstable,
                    )
                    for index in indexes
                    for offset, unstable in (_look_up({} if problem else committed, pending, (name, index)),)
                ],
            )
            for name, topic_id, indexes, problem in topics
        ],
    )


@handles(m.OffsetDeleteRequest)
async def offset_delete(context: RequestContext, request: m.OffsetDeleteRequest) -> m.OffsetDeleteResponse:
    groups = context.broker.groups
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if context.allows_group(AclOperation.DELETE, request.group_id):
        error = groups.check(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    group = groups.group(request.group_id)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if error is not ErrorCode.NONE or group is None:
        return m.OffsetDeleteResponse(error_code=error, topics=[])
    busy = _subscribed(group, {topic.name for topic in request.topics})
    if busy is None:
        return m.OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[])
    results = {
        (topic.name, partition.partition_index): _check_deletion(context, topic.name, partition.partition_index, busy)
        for topic in request.topics
        for partition in topic.partitions
    }
    await groups.delete_offsets(request.group_id, [key for key, problem in results.items() if not problem])
    return m.OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            m.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    m.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=results[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


_AFTER_VERSION = 2
"""The size of the version with which a subscription begins."""


def _check_deletion(context: RequestContext, topic: str, partition: int, busy: Collection[str]) -> ErrorCode:
    """Return NONE if the offset of a partition can be deleted. Members read the ``busy`` topics."""
    if not context.allows_topic(AclOperation.READ, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.broker.metadata.partition_state((topic, partition)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in busy else ErrorCode.NONE


def _subscribed(group: AnyGroup, requested: set[str]) -> set[str] | None:
    """Return the topics that members subscribe to; None if their topics are unknown.

    As in Kafka, only the fields of version 0 are read, because some clients claim v1 and write only these. If the
    fields cannot be read, every topic in ``requested`` counts.
    """
    if not isinstance(group, Group):
        return group.subscribed_topics()
    if group.is_empty:
        return set()
    if group.protocol_type != "consumer":
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            subscription = member.subscription(group.protocol)
            topics.update(decode_message(m.ConsumerProtocolSubscription, 0, subscription, _AFTER_VERSION)[0].topics)
        except ProtocolError:
            return requested
    return topics

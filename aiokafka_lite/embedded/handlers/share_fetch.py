"""ShareFetch and ShareAcknowledge: records of a share group (KIP-932), at the leaders of the partitions.

A fetch applies its acknowledgements first. Then it acquires records, or waits until there are ``min_bytes``, an error,
or until ``max_wait_ms`` has passed. A first request of a session cannot acknowledge. The last one does not read; it
releases the records that the member still has. An incremental response leaves out partitions without news.

v2 can limit the number of acquired records strictly (KIP-1206). It also renews acquisition locks (KIP-1222). A fetch
with renewals must not read, so all its limits are 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.assignors import TopicIdPartition
from ..coordinators.share.group import LONGEST_MEMBER_ID
from ..coordinators.share.partition import Acknowledgement, AcknowledgeType, BadAcknowledgement
from ..coordinators.share.partitions import ShareFetched, ShareFetchParameters, ShareKey
from ..coordinators.share.session import FINAL_EPOCH, INITIAL_EPOCH, SessionRefused, ShareSession
from ..metadata.features import SHARE_VERSION
from ..replicas.partition import NotLeader
from ..request_context import RequestContext, handles
from .fetch import add_leader_hint

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
"""The acquire modes: the second one limits the number of records strictly."""

Outcome = tuple[ErrorCode, str | None]
NONE: Outcome = (ErrorCode.NONE, None)


@handles(m.ShareFetchRequest, feature=SHARE_VERSION)
async def share_fetch(context: RequestContext, request: m.ShareFetchRequest) -> m.ShareFetchResponse:
    group_id, member_id = request.group_id, request.member_id
    batches = _batches(request)
    error = _refusal(context, group_id, member_id) or _wrong_request(request, batches)
    is_first, is_last = (request.share_session_epoch == epoch for epoch in (INITIAL_EPOCH, FINAL_EPOCH))
    if error is not ErrorCode.NONE or group_id is None or member_id is None:
        return _failed_fetch(error)
    try:
        # Before the acknowledgements: a request with a wrong epoch must change nothing.
        session = _session(context, (group_id, member_id), request.share_session_epoch)
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        context.broker.share_sessions.update(session, batches, forgotten)
    except SessionRefused as refused:
        return _failed_fetch(refused.code)
    outcomes = _acknowledge(context, group_id, member_id, batches, with_renewals=request.is_renew_ack)
    fetched: dict[TopicIdPartition, ShareFetched] = {}
    if is_last:
        context.broker.shares.release(group_id, member_id, session.partitions)
    elif not request.is_renew_ack:
        if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
            return _failed_fetch(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka, after the acknowledgements
        fetched = await _fetch(context, request, group_id, member_id, session)
    response = m.ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=context.broker.shares.lock_duration_ms(group_id),
        responses=[],
        node_endpoints=[],
    )
    for key in {**fetched, **outcomes}:
        partition = fetched.get(key, ShareFetched())
        # The result of an acknowledgement is always sent, because the member waits for it.
        has_news = partition.acquired or partition.error is not ErrorCode.NONE or key in outcomes
        if has_news or is_first or (key in fetched and key in session.unanswered):
            if key in fetched:
                session.unanswered.discard(key)
            _add_fetched(context, response, key, partition, outcomes.get(key, NONE))
    size = sum(len(partition.records) for partition in fetched.values())
    response.throttle_time_ms = context.broker.quotas.record_fetch(context.principal, context.client_id, size)
    return response


async def _fetch(
    context: RequestContext,
    request: m.ShareFetchRequest,
    group_id: str,
    member_id: str,
    session: ShareSession,
) -> dict[TopicIdPartition, ShareFetched]:
    broker = context.broker
    refused: dict[TopicIdPartition, ShareFetched] = {}
    keys: list[ShareKey] = []
    for partition in session.partitions:
        name = broker.metadata.topic_name(partition[0])
        if name is not None and not context.allows_topic(AclOperation.READ, name):
            refused[partition] = ShareFetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            keys.append(ShareKey(group_id, partition))
    parameters = ShareFetchParameters(
        member_id,
        max_wait=0.0 if refused or request.max_records <= 0 else request.max_wait_ms / 1000,
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, broker.fetch_max_bytes),
        max_records=request.max_records,
        batch_size=request.batch_size,
        strict=request.share_acquire_mode == RECORD_LIMIT,
    )
    result = await broker.shares.fetch(parameters, keys if request.max_records else [])
    fetched = refused | {key.partition: fetched_partition for key, fetched_partition in result.items()}
    for partition, fetched_partition in fetched.items():
        if fetched_partition.acquired:
            # Partitions without records come first in the next fetch, so that the limits do not always cut off the same
            # ones.
            session.move_to_end(partition)
    return fetched


@handles(m.ShareAcknowledgeRequest, feature=SHARE_VERSION)
def share_acknowledge(context: RequestContext, request: m.ShareAcknowledgeRequest) -> m.ShareAcknowledgeResponse:
    group_id, member_id = request.group_id, request.member_id
    error = _refusal(context, group_id, member_id)
    if error is not ErrorCode.NONE or group_id is None or member_id is None:
        return _failed_acknowledge(error)
    if request.share_session_epoch == INITIAL_EPOCH:
        return _failed_acknowledge(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    try:
        session = _session(context, (group_id, member_id), request.share_session_epoch)
    except SessionRefused as refused:
        return _failed_acknowledge(refused.code)
    outcomes = _acknowledge(context, group_id, member_id, _batches(request), with_renewals=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        context.broker.shares.release(group_id, member_id, session.partitions)
    response = m.ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=context.broker.shares.lock_duration_ms(group_id),
        responses=[],
        node_endpoints=[],
    )
    for (topic_id, index), (code, message) in outcomes.items():
        if not response.responses or response.responses[-1].topic_id != topic_id:
            response.responses.append(m.ShareAcknowledgeResponseTopic(topic_id=topic_id, partitions=[]))
        partition = m.ShareAcknowledgeResponsePartition(partition_index=index, error_code=code, error_message=message)
        partition.current_leader = _leader_hint(context, response.node_endpoints, (topic_id, index), code)
        response.responses[-1].partitions.append(partition)
    return response


# The common parts of both APIs.


def _refusal(context: RequestContext, group_id: str | None, member_id: str | None) -> ErrorCode:
    if group_id is None or not member_id or len(member_id) > LONGEST_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    if not context.allows_group(AclOperation.READ, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _failed_fetch(error: ErrorCode) -> m.ShareFetchResponse:
    return m.ShareFetchResponse(error_code=error, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[])


def _failed_acknowledge(error: ErrorCode) -> m.ShareAcknowledgeResponse:
    return m.ShareAcknowledgeResponse(error_code=error, responses=[], node_endpoints=[])


def _session(context: RequestContext, key: tuple[str, str], epoch: int) -> ShareSession:
    """Return the share session of a request. Raises SessionRefused."""
    sessions = context.broker.share_sessions
    if epoch == INITIAL_EPOCH:
        return sessions.open(key, context.client.connection_id)
    return sessions.resume(key, epoch)


def _wrong_request(
    request: m.ShareFetchRequest, batches: Mapping[TopicIdPartition, Sequence[m.ShareAcknowledgementBatch]]
) -> ErrorCode:
    """Return the error of the request as a whole; NONE if it is accepted."""
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    begins_with_acknowledgements = request.share_session_epoch == INITIAL_EPOCH and any(batches.values())
    if begins_with_acknowledgements or (request.is_renew_ack and any(limits)):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _batches(
    request: m.ShareFetchRequest | m.ShareAcknowledgeRequest,
) -> dict[TopicIdPartition, Sequence[m.ShareAcknowledgementBatch]]:
    return {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in request.topics
        for partition in topic.partitions
    }


def _acknowledge(
    context: RequestContext,
    group_id: str,
    member_id: str,
    batches: dict[TopicIdPartition, Sequence[m.ShareAcknowledgementBatch]],
    *,
    with_renewals: bool,
) -> dict[TopicIdPartition, Outcome]:
    """Apply the acknowledgements of a request. Returns the outcome of each partition that has any."""
    outcomes: dict[TopicIdPartition, Outcome] = {}
    for partition, acknowledgement_batches in batches.items():
        if not acknowledgement_batches:
            continue
        name = context.broker.metadata.topic_name(partition[0])
        if name is not None and not context.allows_topic(AclOperation.READ, name):
            outcomes[partition] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        elif name is None:
            outcomes[partition] = (ErrorCode.UNKNOWN_TOPIC_ID, None)
        elif not _are_valid(acknowledgement_batches, with_renewals=with_renewals):
            outcomes[partition] = (ErrorCode.INVALID_REQUEST, None)
        else:
            acknowledgements = [
                Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in acknowledgement_batches
            ]
            try:
                context.broker.shares.acknowledge(ShareKey(group_id, partition), member_id, acknowledgements)
                outcomes[partition] = NONE
            except BadAcknowledgement as refused:
                outcomes[partition] = (refused.code, str(refused))
            except NotLeader as refused:
                outcomes[partition] = (refused.code, None)
    return outcomes


def _are_valid(batches: Sequence[m.ShareAcknowledgementBatch], *, with_renewals: bool) -> bool:
    """Return whether the batches are in order, and each has known types: one, or one for each offset."""
    last = -1
    kinds = {kind for kind in AcknowledgeType if with_renewals or kind is not AcknowledgeType.RENEW}
    for batch in batches:
        count = batch.last_offset - batch.first_offset + 1
        if batch.first_offset < last or count < 1 or len(batch.acknowledge_types) not in (1, count):
            return False
        if not kinds.issuperset(batch.acknowledge_types):
            return False
        last = batch.last_offset
    return True


def _add_fetched(
    context: RequestContext,
    response: m.ShareFetchResponse,
    key: TopicIdPartition,
    fetched: ShareFetched,
    outcome: Outcome,
) -> None:
    if not response.responses or response.responses[-1].topic_id != key[0]:
        response.responses.append(m.ShareFetchResponseTopic(topic_id=key[0], partitions=[]))
    partition = m.ShareFetchResponsePartition(
        partition_index=key[1],
        error_code=fetched.error,
        error_message=fetched.message,
        acknowledge_error_code=outcome[0],
        acknowledge_error_message=outcome[1],
        records=fetched.records,
        acquired_records=[
            m.ShareAcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in fetched.acquired
        ],
    )
    partition.current_leader = _leader_hint(context, response.node_endpoints, key, fetched.error or outcome[0])
    response.responses[-1].partitions.append(partition)


def _leader_hint(
    context: RequestContext, endpoints: list[m.ShareNodeEndpoint], key: TopicIdPartition, error: int
) -> m.ShareLeader:
    """Return the leader for a member that asked the wrong broker, and add its address to the ``endpoints``."""
    if error != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return m.ShareLeader()
    name = context.broker.metadata.topic_name(key[0]) or ""
    return add_leader_hint(context, (name, key[1]), (m.ShareLeader, m.ShareNodeEndpoint), endpoints)

"""Transactions of producers: begin, add partitions and offsets, end; for administrators: describe, list, write markers.

- InitProducerId v3: the request may have the old id and epoch of a producer that continues after an error (KIP-360).
  v4: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH. v6: two-phase commit (KIP-939), if
  ``transaction.two.phase.commit.enable`` is true; as in Kafka 4.3, the flag that keeps the transaction is refused. An
  idempotent producer, which has no transactional id, gets a new producer id.
- The coordinator of the transactional id gets these requests. The leaders of the partitions get WriteTxnMarkers.
- Versions 0 and 1 say INVALID_PRODUCER_EPOCH where later ones say PRODUCER_FENCED.
- AddPartitionsToTxn: if one partition is refused, none is added, and the others get OPERATION_NOT_ATTEMPTED. v4 and
  later are for brokers and have many transactions.
- EndTxn v5 is generation 2: it returns the producer id and epoch of the next transaction (KIP-890).
- ListTransactions v1 filters by duration, v2 by a pattern that has to match the whole transactional id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...acls import AclOperation, AclResourceType
from ...arguments import by_topic
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.records import OFFSETS_TOPIC, partition_of
from ..coordinators.transactions.markers import append_marker
from ..coordinators.transactions.transaction import (
    GENERATION_1,
    GENERATION_2,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)
from ..log.producer_state import Marker
from ..metadata.topics import INTERNAL_TOPICS, PartitionKey
from ..request_context import RequestContext, handles
from ..settings.topic_patterns import InvalidPattern, matches, topic_pattern


def fenced(error: ErrorCode, *, says_fenced: bool) -> ErrorCode:
    """Return the error for a client whose version of the request may not know PRODUCER_FENCED."""
    is_unknown = error is ErrorCode.PRODUCER_FENCED and not says_fenced
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


@handles(m.InitProducerIdRequest)
async def init_producer_id(context: RequestContext, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
    old = (request.producer_id, request.producer_epoch)
    if refusal := _producer_refusal(context, request):
        return _producer_response(refusal)
    if (old[0] == NO_PRODUCER_ID) != (old[1] == NO_EPOCH) or request.transactional_id == "":
        return _producer_response(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        # As in Kafka: without a transactional id no epoch is stored, so the client gets a new producer id.
        return _producer_response(ErrorCode.NONE, context.broker.controller.next_producer_id(), 0)
    # As in Kafka: two-phase commit is off by default (KIP-939), and prepared transactions cannot be kept.
    if request.enable2_pc and not context.broker.transactions.allows_two_phase_commit:
        return _producer_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        return _producer_response(ErrorCode.UNSUPPORTED_VERSION)
    result = await context.broker.transactions.initialize(
        request.transactional_id,
        None if request.enable2_pc else request.transaction_timeout_ms,
        None if old[0] == NO_PRODUCER_ID else old,
    )
    if result.error is ErrorCode.NONE:
        return _producer_response(ErrorCode.NONE, result.producer_id, result.producer_epoch)
    return _producer_response(
        fenced(result.error, says_fenced=context.version >= m.InitProducerIdRequest.PRODUCER_FENCED)
    )


def _producer_refusal(context: RequestContext, request: m.InitProducerIdRequest) -> ErrorCode:
    """Return the error if access is denied. A client that may write to any topic may have a producer id."""
    if request.transactional_id is not None:
        operations = [AclOperation.WRITE, *([AclOperation.TWO_PHASE_COMMIT] if request.enable2_pc else [])]
        if all(context.allows_transaction(operation, request.transactional_id) for operation in operations):
            return ErrorCode.NONE
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.allows(AclOperation.IDEMPOTENT_WRITE) or context.allows_any(AclOperation.WRITE, AclResourceType.TOPIC):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _producer_response(
    code: ErrorCode, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_EPOCH
) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


@handles(m.AddPartitionsToTxnRequest)
async def add_partitions(context: RequestContext, request: m.AddPartitionsToTxnRequest) -> m.AddPartitionsToTxnResponse:
    # Only brokers use these versions: they ask on behalf of their clients (KIP-890).
    if context.version >= m.AddPartitionsToTxnRequest.MANY_TRANSACTIONS:
        if not context.allows(AclOperation.CLUSTER_ACTION):
            return m.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return m.AddPartitionsToTxnResponse(
            results_by_transaction=[await _add_for_broker(context, transaction) for transaction in request.transactions]
        )
    transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
    errors = _check_topics(context, topics, for_client=True)
    if not context.allows_transaction(AclOperation.WRITE, transactional_id):
        errors = dict.fromkeys(errors, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    # As in Kafka, one refused partition refuses all: the transaction gets all of them or none.
    elif any(errors.values()):
        errors = {key: error or ErrorCode.OPERATION_NOT_ATTEMPTED for key, error in errors.items()}
    else:
        producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        error = await context.broker.transactions.add_partitions(transactional_id, producer, errors, GENERATION_1)
        says_fenced = context.version >= m.AddPartitionsToTxnRequest.PRODUCER_FENCED
        errors = dict.fromkeys(errors, fenced(error, says_fenced=says_fenced))
    return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(topics, errors))


async def _add_for_broker(
    context: RequestContext, transaction: m.AddPartitionsToTxnTransaction
) -> m.AddPartitionsToTxnResult:
    errors = _check_topics(context, transaction.topics, for_client=False)
    if any(errors.values()):
        errors = {key: error or ErrorCode.OPERATION_NOT_ATTEMPTED for key, error in errors.items()}
    else:
        errors = await context.broker.transactions.confirm(
            transaction.transactional_id,
            (transaction.producer_id, transaction.producer_epoch),
            errors,
            verify_only=transaction.verify_only,
        )
    return m.AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_by_topic(transaction.topics, errors)
    )


def _check_topics(
    context: RequestContext, topics: Iterable[m.AddPartitionsToTxnTopic], *, for_client: bool
) -> dict[PartitionKey, ErrorCode]:
    """Return the error of each partition. A broker that asks for a client has authorized the client."""
    errors: dict[PartitionKey, ErrorCode] = {}
    for topic in topics:
        for index in topic.partitions:
            error = ErrorCode.NONE
            is_writable = topic.name not in INTERNAL_TOPICS and context.allows_topic(AclOperation.WRITE, topic.name)
            if for_client and not is_writable:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif context.broker.metadata.partition_state((topic.name, index)) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[topic.name, index] = error
    return errors


def _by_topic(
    topics: Iterable[m.AddPartitionsToTxnTopic], errors: dict[PartitionKey, ErrorCode]
) -> list[m.AddPartitionsToTxnTopicResult]:
    return [
        m.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                m.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


@handles(m.AddOffsetsToTxnRequest)
async def add_offsets(context: RequestContext, request: m.AddOffsetsToTxnRequest) -> m.AddOffsetsToTxnResponse:
    if not context.allows_transaction(AclOperation.WRITE, request.transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.allows_group(AclOperation.READ, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        index = context.broker.groups.log.partition_for(request.group_id)
        if index is None:  # as in Kafka, the topic need not exist yet
            index = partition_of(request.group_id, context.broker.settings.number("offsets.topic.num.partitions"))
        # The offsets of the group count when this partition gets the marker of the transaction.
        error = await context.broker.transactions.add_partitions(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            [(OFFSETS_TOPIC, index)],
            GENERATION_1,
        )
        error = fenced(error, says_fenced=context.version >= m.AddOffsetsToTxnRequest.PRODUCER_FENCED)
    return m.AddOffsetsToTxnResponse(error_code=error)


@handles(m.EndTxnRequest)
async def end_transaction(context: RequestContext, request: m.EndTxnRequest) -> m.EndTxnResponse:
    if not context.allows_transaction(AclOperation.WRITE, request.transactional_id):
        return m.EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bumps = context.version >= m.EndTxnRequest.EPOCH_BUMP
    result = await context.broker.transactions.end(
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        commit=request.committed,
        generation=GENERATION_2 if bumps else GENERATION_1,
    )
    error = fenced(result.error, says_fenced=context.version >= m.EndTxnRequest.PRODUCER_FENCED)
    return m.EndTxnResponse(error_code=error, producer_id=result.producer_id, producer_epoch=result.producer_epoch)


@handles(m.WriteTxnMarkersRequest)
async def write_markers(context: RequestContext, request: m.WriteTxnMarkersRequest) -> m.WriteTxnMarkersResponse:
    results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in request.markers:
        if marker.topics:
            await _write(context, marker, results.setdefault(marker.producer_id, {}))
    return m.WriteTxnMarkersResponse(
        markers=[
            m.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    m.WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            m.WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index, error in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )


async def _write(
    context: RequestContext, request: m.WritableTxnMarker, results: dict[str, dict[int, ErrorCode]]
) -> None:
    """Append a marker, and put the result of each partition into ``results``, over the results of earlier markers."""
    marker = Marker(
        request.producer_id,
        request.producer_epoch,
        request.transaction_result,
        request.coordinator_epoch,
        request.transaction_version,
    )
    # ALTER is for operators, who end hanging transactions.
    is_allowed = context.allows(AclOperation.CLUSTER_ACTION) or context.allows(AclOperation.ALTER)
    for topic in request.topics:
        partitions = results.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            key = (topic.name, index)
            if not is_allowed:
                error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            elif key not in context.broker.replica_manager.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif -1 in (marker.producer_id, marker.producer_epoch):
                error = ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka fails to build the batch
            else:
                error = await append_marker(context.broker, key, marker)
            partitions[index] = error


@handles(m.DescribeTransactionsRequest)
def describe(context: RequestContext, request: m.DescribeTransactionsRequest) -> m.DescribeTransactionsResponse:
    return m.DescribeTransactionsResponse(
        transaction_states=[_described(context, transactional_id) for transactional_id in request.transactional_ids]
    )


def _described(context: RequestContext, transactional_id: str) -> m.DescribedTransaction:
    coordinator = context.broker.transactions
    transaction = coordinator.get(transactional_id)
    error = coordinator.check(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
    # Whatever the coordinator says: a client without this right does not learn whether the id exists.
    if not context.allows_transaction(AclOperation.DESCRIBE, transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if error is ErrorCode.NONE and transaction is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if error is not ErrorCode.NONE or transaction is None:
        return m.DescribedTransaction(
            error_code=error,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    visible = [key for key in sorted(transaction.partitions) if context.allows_topic(AclOperation.DESCRIBE, key[0])]
    return m.DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.wire_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_at,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            m.DescribedTransactionTopic(topic=name, partitions=indexes) for name, indexes in by_topic(visible).items()
        ],
    )


@handles(m.ListTransactionsRequest)
def list_transactions(context: RequestContext, request: m.ListTransactionsRequest) -> m.ListTransactionsResponse:
    states = {state.wire_name for state in TransactionState}
    response = m.ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in states],
        transaction_states=[],
    )
    now = context.broker.now_ms()
    transactions = {
        transaction.transactional_id: transaction
        for transaction in context.broker.transactions.all()
        if _is_wanted(transaction, request, now)
    }
    names = list(transactions)
    if request.transactional_id_pattern:
        try:
            pattern = topic_pattern(request.transactional_id_pattern)
        except InvalidPattern:
            response.error_code, response.unknown_state_filters = ErrorCode.INVALID_REGULAR_EXPRESSION, []
            return response
        names = [name for name in names if matches(pattern, name)]
    response.transaction_states = [
        m.ListedTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.wire_name,
        )
        for transaction in map(transactions.__getitem__, names)
        if context.allows_transaction(AclOperation.DESCRIBE, transaction.transactional_id)
    ]
    return response


def _is_wanted(transaction: TransactionMetadata, request: m.ListTransactionsRequest, now_ms: int) -> bool:
    filters: Sequence[tuple[bool, bool]] = (
        (bool(request.state_filters), transaction.state.wire_name in request.state_filters),
        (bool(request.producer_id_filters), transaction.producer_id in request.producer_id_filters),
        (request.duration_filter >= 0, now_ms - transaction.started_at > request.duration_filter),
    )
    return all(matches for is_set, matches in filters if is_set)

"""Produce: append batches to the logs of the partitions that this node leads.

The steps, with the names of Kafka's ReplicaManager:

 0. ``validate_in_steps`` checks compressed and large batches, which may take long, before the handler.
 1. ``_split`` refuses partitions that the principal may not write (TOPIC_AUTHORIZATION_FAILED) and unknown ones
    (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID). It also refuses records that are not valid in this version.
 2. ``_verify`` asks the transaction coordinator about transactional batches (KIP-890).
 3. ``append_to_local_log`` appends to the other partitions, with one result for each.
 4. ``delayed_produce_required``: with acks=-1 and at least one success, a ``DelayedProduce`` waits in the purgatory. It
    ends when the high watermark has passed all new records, or at the timeout.
 5. ``_send_response`` merges the results and the refusals. If a partition is named twice, the last batch counts. A
    request with acks=0 has no response: if anything failed, the broker closes the connection, the only signal that such
    a client gets.

The versions:

- v3: only record batches of format v2; transactional ids.
- v5: log start offset.
- v7: zstd.
- v8: error messages and record errors (KIP-467).
- v9: flexible.
- v10: leader hints (KIP-951).
- v11: TRANSACTION_ABORTABLE.
- v12: adds the partitions to the transaction.
- v13: topic ids in place of names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.codec import Buffer
from ...types import printable
from ..coordinators.transactions.verification import verify_partitions
from ..error_responses import error_response
from ..log.validator import RecordsRejected, Validation, is_framed, is_transactional, may_take_long, parse_produced
from ..metadata.topics import INTERNAL_TOPICS, PartitionKey
from ..replicas.manager import PartitionResponse, ProducedBatch
from ..request_context import CloseConnection, LongWork, RequestContext, handles, prepares
from .fetch import add_leader_hint

logger = logging.getLogger(__name__)

MAX_PREPARED = 16 << 20
"""The bytes of batches that may be compressed again before the handler, for one request. They stay in memory until the
request is handled. The handler itself compresses one batch, appends it, and then compresses the next one."""


@dataclass(slots=True)
class _Split:
    """The partitions of a request: the batches to append, and the partitions already refused."""

    entries: dict[PartitionKey, ProducedBatch] = field(default_factory=dict)
    refused: dict[tuple[bytes, str, int], PartitionResponse] = field(default_factory=dict)
    unverified: dict[PartitionKey, PartitionResponse] = field(default_factory=dict)


@prepares(m.ProduceRequest)
def validate_in_steps(context: RequestContext, request: m.ProduceRequest) -> Iterator[LongWork]:
    """Check the batches that may take long, if this node leads their partitions.

    The handler uses the results, and checks the other batches itself.
    """
    prepared_size = 0
    for key, data in _last_batches(context, request).items():
        partition = context.broker.replica_manager.partitions.get(key)
        if partition is None or not partition.is_leader or not may_take_long(data.records):
            continue
        try:
            entry = _parsed(data.records, context.version)
        except RecordsRejected as rejection:
            # Kept for the handler without its traceback, which would keep this frame alive.
            context.prepared[id(data)] = rejection.with_traceback(None)
            continue
        validation = Validation(entry.batch, entry.records, partition.config, context.broker.now_ms())
        context.prepared[id(data)] = entry._replace(validation=validation)
        yield validation
        prepared_size += validation.new_size
        if prepared_size > MAX_PREPARED:
            return


def _last_batches(context: RequestContext, request: m.ProduceRequest) -> dict[PartitionKey, m.ProduceRequestPartition]:
    """Return the batch of each partition that the client may write. Empty if no batch may take long to check.

    If a request names a partition several times, only the last batch is in the result.
    """
    batches: dict[PartitionKey, m.ProduceRequestPartition] = {}
    if any(may_take_long(data.records) for topic in request.topic_data for data in topic.partition_data):
        for topic in request.topic_data:
            name, error = context.topic(topic, AclOperation.WRITE, by_id=context.version >= m.ProduceRequest.TOPIC_IDS)
            if error is ErrorCode.NONE and name not in INTERNAL_TOPICS:
                batches |= {(name, data.index): data for data in topic.partition_data}
    return batches


@handles(m.ProduceRequest)
async def produce(context: RequestContext, request: m.ProduceRequest) -> m.ProduceResponse | None:
    broker = context.broker
    for data in (data for topic in request.topic_data for data in topic.partition_data):
        if not is_framed(data.records):
            return _refuse_all(context, request, ErrorCode.CORRUPT_MESSAGE)
        if is_transactional(data.records) and not _may_write_transaction(context, request.transactional_id):
            return _refuse_all(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    split = _split(context, request)
    if request.transactional_id is not None:
        await _verify(context, request.transactional_id, split)
    results: dict[PartitionKey, PartitionResponse] = dict(split.unverified)
    if split.entries:
        results |= await broker.replica_manager.append_records(
            request.timeout_ms / 1000, request.acks, split.entries, broker.now_ms()
        )
    if logger.isEnabledFor(logging.DEBUG):
        _log(context, request.acks, split, results)
    # After the append: a client above its quota is throttled and not refused.
    throttle = broker.quotas.record_produce(context.principal, context.client_id, context.header.size)
    context.throttle_ms = throttle
    return _send_response(context, request, split, results, throttle)


def _log(context: RequestContext, acks: int, split: _Split, results: Mapping[PartitionKey, PartitionResponse]) -> None:
    """Log what a request has written: one line, with the records and the first offset, or the error, of each batch."""
    parts = []
    for (name, index), result in results.items():
        entry = split.entries.get((name, index))
        count = 0 if entry is None else entry.batch.count
        code = result.error
        outcome = f"{count} records at {result.base_offset}" if code is ErrorCode.NONE else code.name
        parts.append(f"{printable(name)}-{index}: {outcome}")
    who = printable(context.client_id or "")
    text = "node %d: Produce v%d of %r from %s, acks=%d, %d bytes: %s"
    arguments = (context.version, who, context.principal, acks, context.header.size, "; ".join(parts) or "no batch")
    logger.debug(text, context.broker.node_id, *arguments)


def _may_write_transaction(context: RequestContext, transactional_id: str | None) -> bool:
    return transactional_id is not None and context.allows_transaction(AclOperation.WRITE, transactional_id)


async def _verify(context: RequestContext, transactional_id: str, split: _Split) -> None:
    """Ask the coordinator about the transactional batches, and refuse batches that are not in its transaction."""
    transactional = {key: entry.batch for key, entry in split.entries.items() if entry.batch.is_transactional}
    answers = await verify_partitions(
        context.broker,
        transactional_id,
        transactional,
        adds=context.version >= m.ProduceRequest.ADDS_PARTITIONS,
        abortable=context.version >= m.ProduceRequest.TRANSACTION_ABORTABLE,
    )
    for key, answer in answers.items():
        if answer.error is ErrorCode.NONE:
            split.entries[key] = split.entries[key]._replace(verification=answer.verification)
        else:
            del split.entries[key]
            split.unverified[key] = PartitionResponse(answer.error, message=answer.error.description)


def _split(context: RequestContext, request: m.ProduceRequest) -> _Split:
    split = _Split()
    by_id = context.version >= m.ProduceRequest.TOPIC_IDS
    for topic in request.topic_data:
        name, error = context.topic(topic, AclOperation.WRITE, by_id=by_id)
        for data in topic.partition_data:
            slot = (topic.topic_id, topic.name, data.index)
            if error is not ErrorCode.NONE:
                split.refused[slot] = PartitionResponse(error, message=error.description)
            elif context.broker.metadata.partition_state((name, data.index)) is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                split.refused[slot] = PartitionResponse(unknown, message=unknown.description)
            else:
                try:
                    entry = context.prepared.get(id(data)) or _parsed(data.records, context.version)
                    if isinstance(entry, RecordsRejected):
                        raise entry
                except RecordsRejected as rejection:
                    split.refused[slot] = PartitionResponse(rejection.code, message=str(rejection))
                else:
                    split.entries[name, data.index] = entry
    return split


def _parsed(records: Buffer | None, version: int) -> ProducedBatch:
    batch = parse_produced(records, version)
    assert records is not None
    return ProducedBatch(records[: batch.size], batch)


def _send_response(
    context: RequestContext,
    request: m.ProduceRequest,
    split: _Split,
    results: dict[PartitionKey, PartitionResponse],
    throttle_time_ms: int,
) -> m.ProduceResponse | None:
    # There is no response in which to report an error. As in Kafka, the client sees it as a closed connection.
    if request.acks == 0:
        _close_after_failure(split, results)
        return None
    response = m.ProduceResponse(responses=[], throttle_time_ms=throttle_time_ms)
    answers: dict[tuple[bytes, str], dict[int, m.ProduceResponsePartition]] = {}
    for topic in request.topic_data:
        name = topic.name
        if context.version >= m.ProduceRequest.TOPIC_IDS:
            name = context.broker.metadata.topic_name(topic.topic_id) or ""
        partitions = answers.setdefault((topic.topic_id, topic.name), {})
        for data in topic.partition_data:
            refused = split.refused.get((topic.topic_id, topic.name, data.index))
            # A topic that was deleted during the request has neither a refusal nor a result.
            outcome = refused or results.get((name, data.index)) or PartitionResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
            partitions[data.index] = _partition(context, response, (name, data.index), outcome)
    response.responses = [
        m.ProduceResponseTopic(name=name, topic_id=topic_id, partition_responses=[*partitions.values()])
        for (topic_id, name), partitions in answers.items()
        if partitions
    ]
    return response


def _partition(
    context: RequestContext, response: m.ProduceResponse, key: PartitionKey, outcome: PartitionResponse
) -> m.ProduceResponsePartition:
    partition = m.ProduceResponsePartition(
        index=key[1],
        error_code=outcome.error,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time,
        log_start_offset=outcome.log_start_offset,
        error_message=outcome.message,
        record_errors=[
            m.ProduceResponseRecordError(batch_index=error.batch_index, batch_index_error_message=error.message)
            for error in outcome.record_errors
        ],
    )
    if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.version >= m.ProduceRequest.LEADER_HINTS:
        leader_types = (m.ProduceResponseLeader, m.ProduceResponseNodeEndpoint)
        partition.current_leader = add_leader_hint(context, key, leader_types, response.node_endpoints)
    return partition


def _close_after_failure(split: _Split, results: dict[PartitionKey, PartitionResponse]) -> None:
    """Raise CloseConnection if any partition failed."""
    refused = {(name or topic_id.hex(), index): refusal for (topic_id, name, index), refusal in split.refused.items()}
    for (name, index), outcome in {**refused, **results}.items():
        if outcome.error is not ErrorCode.NONE:
            raise CloseConnection(f"Produce with acks=0 to {name}-{index} failed: {outcome.error.name}")


def _refuse_all(context: RequestContext, request: m.ProduceRequest, code: ErrorCode) -> m.ProduceResponse:
    """Return a response in which all partitions failed. Raises CloseConnection for acks=0."""
    if request.acks == 0:
        raise CloseConnection(f"Produce with acks=0 failed: {code.name}")
    failure = error_response(request, code, context.version)
    assert isinstance(failure, m.ProduceResponse)
    return failure

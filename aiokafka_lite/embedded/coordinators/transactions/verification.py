"""The question of a leader to the transaction coordinator before the first batch of a transaction (KIP-890).

Without this question, a batch that was delayed on the network could be appended after its transaction has ended. No
marker would follow the batch, and readers of committed records would wait there: a hanging transaction.

Producers of generation 1 have added the partition before; the leader only verifies that. For producers of generation 2
the question adds the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ....errors import ErrorCode
from ....protocol.messages import AddPartitionsToTxnRequest
from ....protocol.records import RecordBatch
from ...log.producer_state import ONGOING, SequenceRejected, Verification
from ...metadata.topics import PartitionKey
from ...request_context import BrokerParts

CONCURRENT_PAUSE = 0.02
CONCURRENT_TIMEOUT = 0.1
"""Seconds between attempts, and for all attempts, while the previous transaction or another request is being completed
(add.partitions.to.txn.retry.backoff.ms and its maximum)."""

_UNREACHABLE = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class VerificationResult(NamedTuple):
    """The proof for the append, None if none is necessary, or the error for the producer."""

    error: ErrorCode
    verification: Verification | None = None


async def verify_partitions(
    broker: BrokerParts,
    transactional_id: str,
    batches: Mapping[PartitionKey, RecordBatch],
    *,
    adds: bool,
    abortable: bool,
) -> dict[PartitionKey, VerificationResult]:
    """Ask about the transactional batches of one request.

    With ``adds`` the producer has generation 2. With ``abortable`` it understands TRANSACTION_ABORTABLE.
    """
    if not adds and not _is_enabled(broker):
        return dict.fromkeys(batches, VerificationResult(ErrorCode.NONE))
    answers: dict[PartitionKey, VerificationResult] = {}
    unverified: dict[PartitionKey, Verification] = {}
    for key, batch in batches.items():
        partition = broker.replica_manager.partitions.get(key)
        verification = ONGOING  # no question is asked: without a leader on this node, the append fails
        if partition is not None and partition.is_leader:
            # The proof belongs to this leader and this epoch, so it is made before the question and checked by the
            # append: a marker that comes in between makes it void.
            producer_id, epoch = batch.producer_id, batch.producer_epoch
            try:
                partition.producers.check_epoch(producer_id, epoch)
            except SequenceRejected as refusal:
                answers[key] = VerificationResult(refusal.code)
                continue
            verification = partition.producers.start_verification(producer_id, epoch, batch.base_sequence, adds=adds)
        if verification is ONGOING:
            answers[key] = VerificationResult(ErrorCode.NONE, ONGOING)
        else:
            unverified[key] = verification
    if unverified:
        producer = next(
            (batch.producer_id, batch.producer_epoch) for key, batch in batches.items() if key in unverified
        )
        errors = await _ask(broker, transactional_id, producer, list(unverified), verify_only=not adds)
        for key, error in errors.items():
            answers[key] = VerificationResult(_for_producer(error, adds=adds, abortable=abortable), unverified[key])
    return answers


def _is_enabled(broker: BrokerParts) -> bool:
    offered = broker.versions.get(AddPartitionsToTxnRequest.api_key, (0, 0))
    is_known = offered[1] >= AddPartitionsToTxnRequest.MANY_TRANSACTIONS  # since Kafka 3.6
    return is_known and broker.settings.enabled("transaction.partition.verification.enable")


async def _ask(
    broker: BrokerParts,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: list[PartitionKey],
    *,
    verify_only: bool,
) -> dict[PartitionKey, ErrorCode]:
    loop = asyncio.get_running_loop()
    until = loop.time() + CONCURRENT_TIMEOUT
    while True:
        errors = await broker.transaction_requests.confirm_partitions(
            broker.node_id, transactional_id, producer, partitions, verify_only=verify_only
        )
        if verify_only or ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values() or loop.time() >= until:
            return errors
        await asyncio.sleep(CONCURRENT_PAUSE)


def _for_producer(error: ErrorCode, *, adds: bool, abortable: bool) -> ErrorCode:
    """Return the error that a producer expects. NOT_ENOUGH_REPLICAS makes an old one retry without new metadata."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _UNREACHABLE or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error

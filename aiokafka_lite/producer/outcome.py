"""Classifies a broker's answer to one batch. Pure: an error code goes in, an outcome comes out."""

from __future__ import annotations

import math
from enum import Enum

from ..errors import BrokerError, ErrorCode, error_for
from .batch import ProducerBatch


class BatchOutcome(Enum):
    """The action for a batch after its answer."""

    DELIVERED = "the broker has written the batch"
    RETRY = "send the batch again"
    UNKNOWN_SEQUENCE = "the broker refused the sequence numbers; send the batch again, with new numbers if necessary"
    UNUSABLE_ID = "the broker refuses the producer id or its epoch; send the batch again under another id"
    SPLIT = "the batch is too large; send its halves"
    SOME_REFUSED = "the broker named the invalid records; fail those and send the others again"
    REFUSED = "another attempt would fail in the same way"


_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_UNKNOWN_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
UNUSABLE_IDS = (*FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""The codes with which brokers refuse a producer id, or its epoch."""
FENCED_ADVICE = "abort the transaction, and close this producer if the abort raises ProducerFenced"

# Brokers find these errors before they append. NOT_ENOUGH_REPLICAS_AFTER_APPEND is found after it, so it is not here.
_NOT_APPENDED = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    *UNUSABLE_IDS,
    *_UNKNOWN_SEQUENCE,
)


def classify(
    code: ErrorCode, *, count: int, refused: int, idempotent: bool, transactional: bool = False
) -> BatchOutcome:
    """Classify the answer to a batch of ``count`` records. The answer names ``refused`` of them as invalid (KIP-467).

    Some answers are deliberately handled in a special way:

     - DUPLICATE_SEQUENCE_NUMBER is a success without an offset, as in Java's client. The broker wrote the batch long
       ago, and no longer knows its offset.
     - INVALID_PRODUCER_EPOCH, PRODUCER_FENCED and INVALID_PRODUCER_ID_MAPPING are not fatal. No other client writes
       under the id of a producer without transactions, so the broker has forgotten or confused the id, as managed
       services do after a restart. The producer continues under another id, as franz-go does. (Java's client ends for
       the last two codes.)

    In a transaction, these codes fail the batch. The coordinator has assigned the id and its epoch, and only a newer
    producer or the timeout of the transaction raises the epoch.
    """
    if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return BatchOutcome.DELIVERED
    if code in _TOO_LARGE:
        return BatchOutcome.SPLIT if count > 1 else BatchOutcome.REFUSED
    if idempotent and code in _UNKNOWN_SEQUENCE:
        return BatchOutcome.UNKNOWN_SEQUENCE
    if transactional and code in FENCED:
        return BatchOutcome.REFUSED
    if idempotent and not transactional and code in UNUSABLE_IDS:
        return BatchOutcome.UNUSABLE_ID
    if code.retriable:
        return BatchOutcome.RETRY
    # If all records are refused, no record remains to be sent again.
    if 0 < refused < count:
        return BatchOutcome.SOME_REFUSED
    return BatchOutcome.REFUSED


def may_be_written(error: BaseException) -> bool:
    """Return whether the broker may have written a batch although its request ended in this error.

    Only the codes in ``_NOT_APPENDED`` prove that it has not. NOT_LEADER_OR_FOLLOWER is not one of them: the broker may
    have appended the batch while it still led, and followers may have copied it.
    """
    return not (isinstance(error, BrokerError) and error.code in _NOT_APPENDED)


def frees_numbers(error: BaseException, batch: ProducerBatch) -> bool:
    """Return whether the leader expects the sequence numbers of a failed batch next, because it refused the batch."""
    if batch.may_be_written or not isinstance(error, BrokerError):
        return False
    return not error.code.retriable and error.code not in _UNKNOWN_SEQUENCE


def fenced_reason(transactional_id: str, transaction_timeout: float) -> str:
    """Return the possible reasons why brokers refuse the epoch of a transactional producer.

    ``transaction_timeout`` is infinite with two-phase commit, where no timeout applies.
    """
    started = f"another producer with transactional_id={transactional_id!r} has started"
    if transaction_timeout == math.inf:
        return f"{started}, or an administrator has aborted the transaction"
    return (
        f"{started}, or the transaction was open for longer than transaction_timeout={transaction_timeout:g} s and the"
        " coordinator aborted it"
    )


def write_refused(code: int, attempt: str, transactional_id: str, transaction_timeout: float) -> BrokerError:
    """Return the error of a batch whose epoch was refused. The answer to the abort decides whether it is final."""
    return error_for(code, f"{attempt}: {fenced_reason(transactional_id, transaction_timeout)}; {FENCED_ADVICE}")

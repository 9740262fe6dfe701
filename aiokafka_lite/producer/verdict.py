"""What a broker's answer for one batch means. Pure: a code in, a verdict out."""

from __future__ import annotations

from enum import Enum

from ..errors import AuthenticationError, BrokerError, ErrorCode, UnsupportedVersion


class Verdict(Enum):
    """What to do with a batch after its answer."""

    DELIVERED = "the broker has it"
    RETRY = "send it again"
    UNKNOWN_SEQUENCE = "the broker refused its sequence numbers; send it again, if need be with new ones"
    OUTDATED_EPOCH = "the broker has seen a newer epoch of the producer id; what is sent again needs another id"
    SPLIT = "too large as one: send its halves"
    PARTLY = "some records are to blame: fail those, and send the others again"
    REFUSED = "sending it again would not help"
    FATAL = "this producer can write no more"


_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_UNKNOWN_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_NOT_APPENDED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_PRODUCER_EPOCH, *_UNKNOWN_SEQUENCE)


def judge(code: ErrorCode, *, count: int, blamed: int, idempotent: bool) -> Verdict:
    """The verdict on a batch of ``count`` records, of which the answer blames ``blamed`` by name (KIP-467).

    Nobody else writes under the id of a producer without transactions. So an outdated epoch is a mishap and not a
    successor, and the producer goes on under another id (Java's client goes on as well, under a newer epoch); only
    PRODUCER_FENCED says in so many words that its time is over.
    """
    if code is ErrorCode.NONE:
        return Verdict.DELIVERED
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        # The broker has the batch, but it is too long ago to know where (Java's client takes it so, too).
        return Verdict.DELIVERED
    if code in _TOO_LARGE:
        return Verdict.SPLIT if count > 1 else Verdict.REFUSED
    if idempotent and code in _UNKNOWN_SEQUENCE:
        return Verdict.UNKNOWN_SEQUENCE
    if idempotent and code is ErrorCode.INVALID_PRODUCER_EPOCH:
        return Verdict.OUTDATED_EPOCH
    if idempotent and code is ErrorCode.PRODUCER_FENCED:
        return Verdict.FATAL
    if code.retriable:
        return Verdict.RETRY
    if 0 < blamed < count:
        return Verdict.PARTLY
    return Verdict.REFUSED


def is_retriable(error: BaseException) -> bool:
    """Whether a request that ended in this exception, without an answer, is worth sending again.

    Lost connections and timeouts are. So is a peer that breaks the protocol, on a fresh connection: the delivery
    timeout ends it if it goes on. A refused login is not, and a version that both lack is not.
    """
    return not isinstance(error, AuthenticationError | UnsupportedVersion)


def is_uncertain(error: BaseException) -> bool:
    """Whether a batch may have been written although its request ended in this error.

    Few answers rule it out. Even a broker that no longer leads may have appended it before, and others have copied it.
    """
    return not (isinstance(error, BrokerError) and error.code in _NOT_APPENDED)

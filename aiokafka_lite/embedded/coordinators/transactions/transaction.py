"""The coordinator's state of one transactional id: the state machine, and the decision about each request. Pure.

A ``TransactionMetadata`` is an immutable value. A function of this file takes the present value and returns the
next one, or raises ``TransactionRefused`` with Kafka's error code. The same value means that there is nothing to
write: the request repeats a request that succeeded. The coordinator writes the next value to the log before it
uses it.

Rules of this file:

 1. The epoch only grows. Each InitProducerId takes the next epoch, so it fences all older producers of the id.
 2. Generation 1 keeps the epoch for many transactions. Generation 2 takes the next epoch at the end of each
    transaction (KIP-890), so no late request of one transaction can reach the next one.
 3. The largest epoch of a client is 32766. After it, the id gets a new producer id with epoch 0. Epoch 32767 exists
    only in markers, to fence the last epoch.
 4. A producer continues after an error with its old id and epoch (KIP-360). The old epoch may be the present epoch or
    the previous one. With the previous one, the request is a repetition, and gets the same answer.
 5. Only PREPARE_COMMIT and PREPARE_ABORT decide a transaction. When one of them is in the log, its markers are written
    even if the coordinator fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from ....errors import ErrorCode
from ....state_machine import next_state
from ...metadata.topics import PartitionKey

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
NO_TIMEOUT = 2**31 - 1
"""The timeout of a transaction of two-phase commit, which only its client ends."""
MAX_EPOCH = 2**15 - 1
LAST_EPOCH = MAX_EPOCH - 1
"""The largest epoch that a client gets."""
GENERATION_1 = 0
GENERATION_2 = 2
"""The level of ``transaction.version`` with which clients use generation 2; levels below it are generation 1."""


class TransactionState(Enum):
    """The state of a transactional id.

    ``TransactionState`` of ``admin`` is this state as a client reads it.
    """

    EMPTY = "a producer has the id and an epoch; there has been no transaction in this epoch"
    ONGOING = "a transaction is open and has partitions"
    PREPARE_COMMIT = "the commit is decided; commit markers are being written to all partitions"
    PREPARE_ABORT = "the abort is decided; abort markers are being written to all partitions"
    COMPLETE_COMMIT = "all commit markers are written"
    COMPLETE_ABORT = "all abort markers are written"
    DEAD = "the id expired; its record is being deleted"
    PREPARE_EPOCH_FENCE = "the epoch was raised to fence the producer of an open transaction, which is aborted next"

    @property
    def wire_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")

    @property
    def status(self) -> int:
        """The number in the records of ``__transaction_state``."""
        return list(TransactionState).index(self)

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionEvent(Enum):
    """An event that moves a transactional id to another state."""

    INITIALIZE = "a producer got the id with a new epoch"
    ADD = "partitions were added"
    COMMIT = "the producer commits"
    ABORT = "the producer or the coordinator aborts the transaction"
    FENCE = "a new producer has the id, or the transaction timed out"
    MARKERS_WRITTEN = "every partition has its marker"
    EXPIRE = "the id was unused for transactional.id.expiration.ms"


_S, _E = TransactionState, TransactionEvent

_CLOSED = {
    _E.INITIALIZE: _S.EMPTY,
    _E.ADD: _S.ONGOING,
    _E.ABORT: _S.PREPARE_ABORT,  # only in generation 2, which aborts transactions without partitions too
    _E.EXPIRE: _S.DEAD,
}
TRANSITIONS: dict[TransactionState, dict[TransactionEvent, TransactionState]] = {
    _S.EMPTY: _CLOSED,
    _S.ONGOING: {
        _E.ADD: _S.ONGOING,
        _E.COMMIT: _S.PREPARE_COMMIT,
        _E.ABORT: _S.PREPARE_ABORT,
        _E.FENCE: _S.PREPARE_EPOCH_FENCE,
    },
    _S.PREPARE_EPOCH_FENCE: {_E.ABORT: _S.PREPARE_ABORT},
    _S.PREPARE_COMMIT: {_E.MARKERS_WRITTEN: _S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_E.MARKERS_WRITTEN: _S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: _CLOSED,
    _S.COMPLETE_ABORT: _CLOSED,
    _S.DEAD: {},
}


class TransactionRefused(Exception):
    """The coordinator refuses a request; ``code`` is Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.description)
        self.code = code


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id. Times are in milliseconds since the epoch, -1 is none.

    ``last_epoch`` is the epoch before the present one if its producer may continue (KIP-360), else -1.
    ``next_producer_id`` is set while a transaction ends with the last epoch of its producer id. ``generation`` is the
    level of ``transaction.version`` that the client used.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[PartitionKey] = frozenset()
    started_at: int = NO_TIME
    updated_at: int = NO_TIME
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    generation: int = GENERATION_1

    @property
    def is_exhausted(self) -> bool:
        """Whether no client may get a higher epoch of this producer id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def identity(self) -> tuple[int, int]:
        """The producer id and epoch of the next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def expired(self, now_ms: int, expiration_ms: int) -> bool:
        return _E.EXPIRE in TRANSITIONS[self.state] and self.updated_at + expiration_ms <= now_ms

    def advance(self, event: TransactionEvent, now_ms: int, **changes: object) -> TransactionMetadata:
        """Return the value after an event. Raises IllegalStateError if the state does not allow the event."""
        following = replace(self, state=next_state(TRANSITIONS, self.state, event), updated_at=now_ms, **changes)  # type: ignore[arg-type]
        same_producer = following.producer_id == self.producer_id
        assert not same_producer or following.producer_epoch >= self.producer_epoch, "the epoch only grows (rule 1)"
        assert following.producer_epoch <= MAX_EPOCH, "a new producer id follows the last epoch (rule 3)"
        return following


def initialize(
    transaction: TransactionMetadata,
    timeout_ms: int,
    old: tuple[int, int] | None,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """Decide an InitProducerId. ``old`` is the producer's id and epoch, None for a new producer.

    ``new_producer_id`` is used if the epoch is exhausted. While a transaction is open the next value is
    PREPARE_EPOCH_FENCE: the coordinator has to abort it, and the client has to ask again.
    """
    _check_ended(transaction)
    # Before the open transaction is looked at: a fenced producer must not abort the transaction of its successor.
    if old is not None and not _may_continue(transaction, old):
        raise TransactionRefused(ErrorCode.PRODUCER_FENCED)
    if transaction.state is _S.ONGOING:
        return fence(transaction, now_ms)
    changes: dict[str, object]
    epoch = transaction.producer_epoch
    # Each branch answers one case: no epoch is left, a new producer, a producer that continues, and a repeated request.
    if transaction.is_exhausted and (old is None or old[1] == epoch):
        changes = {
            "producer_id": new_producer_id(),
            "producer_epoch": 0,
            "last_epoch": NO_EPOCH if old is None else epoch,
            "previous_producer_id": transaction.producer_id,
        }
    elif old is None:
        changes = {"producer_epoch": epoch + 1, "last_epoch": NO_EPOCH}
    elif epoch == NO_EPOCH or old[1] == epoch:
        changes = {"producer_epoch": epoch + 1, "last_epoch": epoch}
    elif old[1] == transaction.last_epoch:
        changes = {}  # the answer to the same request was lost
    else:
        raise TransactionRefused(ErrorCode.PRODUCER_FENCED)
    return transaction.advance(
        _E.INITIALIZE,
        now_ms,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_at=NO_TIME,
        next_producer_id=NO_PRODUCER_ID,
        **changes,
    )


def _may_continue(transaction: TransactionMetadata, old: tuple[int, int]) -> bool:
    """Return whether a producer has the present producer id, or the previous producer id in its last epoch."""
    # Without an epoch, the coordinator has just created the id: there is no older producer to fence.
    if transaction.producer_epoch == NO_EPOCH or old[0] == transaction.producer_id:
        return True
    # The answer with the new producer id was lost, so the client repeats its request with the old id.
    return old[0] == transaction.previous_producer_id and old[1] >= LAST_EPOCH


def fence(transaction: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Begin to abort an open transaction without its producer. From now on the producer can do nothing more."""
    return transaction.advance(_E.FENCE, now_ms)


def abort_fenced(
    transaction: TransactionMetadata, generation: int, new_producer_id: Callable[[], int], now_ms: int
) -> TransactionMetadata:
    """Abort a transaction after ``fence``. The abort takes the next epoch, also in generation 1.

    In generation 2 the producer may continue with InitProducerId; in generation 1 it is fenced.
    """
    if generation >= GENERATION_2:
        return _decide(transaction, commit=False, new_producer_id=new_producer_id, now_ms=now_ms)
    return transaction.advance(
        _E.ABORT,
        now_ms,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        generation=GENERATION_1,
    )


def check_producer(transaction: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    """Raise TransactionRefused unless this is the present producer, and no transaction of it is ending."""
    if transaction.producer_id != producer_id:
        raise TransactionRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise TransactionRefused(ErrorCode.PRODUCER_FENCED)
    _check_ended(transaction)


def _check_ended(transaction: TransactionMetadata) -> None:
    """Refuse a request while markers are being written. As in Kafka, some requests check this before the epoch."""
    if transaction.state.is_ending:
        raise TransactionRefused(ErrorCode.CONCURRENT_TRANSACTIONS)


def add_partitions(
    transaction: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[PartitionKey],
    now_ms: int,
    generation: int,
) -> TransactionMetadata:
    """Decide an AddPartitionsToTxn or AddOffsetsToTxn. The first partitions begin the transaction."""
    _check_ended(transaction)
    check_producer(transaction, producer_id, producer_epoch)
    added = frozenset(partitions)
    is_open = transaction.state is _S.ONGOING
    if is_open and added <= transaction.partitions:
        return transaction
    return transaction.advance(
        _E.ADD,
        now_ms,
        partitions=transaction.partitions | added,
        started_at=transaction.started_at if is_open else now_ms,
        generation=generation,
    )


def end(
    transaction: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    generation: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """Decide an EndTxn. ``new_producer_id`` is for generation 2, if the epoch is exhausted."""
    if generation < GENERATION_2:
        check_producer(transaction, producer_id, producer_epoch)
        if transaction.state is _S.ONGOING:
            return transaction.advance(_E.COMMIT if commit else _E.ABORT, now_ms, generation=GENERATION_1)
        return _repeated(transaction, commit=commit)
    # In generation 2 each transaction has its own epoch, so the epoch shows whether the request is repeated.
    state, present = transaction.state, transaction.producer_epoch
    overflowed = transaction.previous_producer_id == producer_id and (producer_epoch, present) == (LAST_EPOCH, 0)
    is_repeated = overflowed or present == producer_epoch + 1
    if transaction.producer_id != producer_id and not overflowed:
        raise TransactionRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # The producer has its next epoch before the markers are written, and may use it at once (KAFKA-18464).
    _check_ended(transaction)
    if state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
        is_valid = is_repeated or present == producer_epoch
    else:
        is_valid = present == producer_epoch
    if not is_valid:
        raise TransactionRefused(ErrorCode.PRODUCER_FENCED)
    if state is not _S.ONGOING and (is_repeated or commit):
        if not is_repeated:
            raise TransactionRefused(ErrorCode.INVALID_TXN_STATE)  # a commit without a transaction
        return _repeated(transaction, commit=commit)
    # An abort is accepted without a transaction, too: the producer gets the next epoch.
    return _decide(transaction, commit=commit, new_producer_id=new_producer_id, now_ms=now_ms)


def _decide(
    transaction: TransactionMetadata, *, commit: bool, new_producer_id: Callable[[], int], now_ms: int
) -> TransactionMetadata:
    """Return the end of a transaction in generation 2, with the epoch of the next transaction."""
    return transaction.advance(
        _E.COMMIT if commit else _E.ABORT,
        now_ms,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        last_epoch=transaction.producer_epoch,
        next_producer_id=new_producer_id() if transaction.is_exhausted else NO_PRODUCER_ID,
        started_at=transaction.started_at if transaction.partitions else now_ms,
        generation=GENERATION_2,
    )


def _repeated(transaction: TransactionMetadata, *, commit: bool) -> TransactionMetadata:
    """Return the same value for a repeated request. Raises TransactionRefused if the transaction ended otherwise."""
    if transaction.state is not (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT):
        raise TransactionRefused(ErrorCode.INVALID_TXN_STATE)
    return transaction


def complete(transaction: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the value after all markers are written. Generation 2 may give the next transaction a new producer id."""
    changes: dict[str, object] = {}
    if transaction.next_producer_id != NO_PRODUCER_ID:
        changes = {
            "producer_id": transaction.next_producer_id,
            "producer_epoch": 0,
            "previous_producer_id": transaction.producer_id,
            "next_producer_id": NO_PRODUCER_ID,
        }
    return transaction.advance(_E.MARKERS_WRITTEN, now_ms, partitions=frozenset(), **changes)

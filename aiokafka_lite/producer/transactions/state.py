"""The state of a transactional producer (KIP-98, KIP-360, KIP-588, KIP-691). Pure: no I/O, no clock.

Rule 1: the first failure in a transaction is its cause. Later failures are its consequences, and not events.

Rule 2: a transaction that failed can only be aborted. Afterwards the producer is usable again.

Rule 3: only the coordinator ends a transaction. COMMITTING and ABORTING last until it has answered, even if the call
  that began them has timed out or was cancelled.

Rule 4: another system has decided about a prepared transaction. So if its commit fails, rule 2 does not apply: it is
  prepared again, and the user repeats the commit. After a final refusal, the transaction stays open at the coordinator,
  for the next start of the producer.
"""

from __future__ import annotations

import logging
from enum import Enum

from ...errors import IllegalStateError, KafkaError
from ...state_machine import next_state

logger = logging.getLogger(__name__)


class ProducerTransactionState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "the producer has not asked for the producer id of its transactional id yet"
    INITIALIZING = "InitProducerId is sent until the coordinator assigns a producer id and an epoch"
    READY = "no transaction is open, and records are refused"
    IN_TRANSACTION = "records and offsets are accepted as a part of the transaction"
    PREPARED = "two-phase commit: all records are written, and only the user ends the transaction"
    COMMITTING = "accepted records are flushed; then EndTxn is sent until the coordinator answers"
    ABORTING = "unwritten records fail; then EndTxn is sent until the coordinator answers"
    ABORTABLE_ERROR = "the transaction has failed and can only be aborted"
    FATAL_ERROR = "the producer is fenced, or refused finally; every call raises the error"

    __hash__ = object.__hash__  # that of an Enum runs in Python, for each transition


class ProducerTransactionEvent(Enum):
    """An event in the life of a transactional producer."""

    INITIALIZE = "the producer starts, or needs a new epoch"
    INITIALIZED = "the coordinator assigned a producer id and an epoch"
    BEGIN = "the user begins a transaction"
    PREPARE = "the records of a transaction of two-phase commit are flushed"
    COMMIT = "the user commits; with two-phase commit, the first phase begins"
    ABORT = "the user aborts, or the body of the transaction raised"
    ENDED = "the coordinator has ended the transaction"
    NOT_ENDED = "the commit of a prepared transaction has failed, and can be repeated"
    FAILED = "a record or an offset was not written, or the coordinator demands an abort"
    REFUSED = "the coordinator or a partition leader refuses this producer finally"

    __hash__ = object.__hash__


_S, _E = ProducerTransactionState, ProducerTransactionEvent

TRANSITIONS: dict[ProducerTransactionState, dict[ProducerTransactionEvent, ProducerTransactionState]] = {
    _S.UNINITIALIZED: {_E.INITIALIZE: _S.INITIALIZING},
    _S.INITIALIZING: {_E.INITIALIZED: _S.READY, _E.REFUSED: _S.FATAL_ERROR},
    _S.READY: {_E.BEGIN: _S.IN_TRANSACTION, _E.INITIALIZE: _S.INITIALIZING},
    _S.IN_TRANSACTION: {
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.FAILED: _S.ABORTABLE_ERROR,
        _E.REFUSED: _S.FATAL_ERROR,
    },
    _S.COMMITTING: {
        _E.PREPARE: _S.PREPARED,
        _E.ENDED: _S.READY,
        _E.NOT_ENDED: _S.PREPARED,
        _E.FAILED: _S.ABORTABLE_ERROR,
        _E.REFUSED: _S.FATAL_ERROR,
    },
    _S.PREPARED: {_E.COMMIT: _S.COMMITTING, _E.ABORT: _S.ABORTING},
    _S.ABORTABLE_ERROR: {_E.ABORT: _S.ABORTING},
    _S.ABORTING: {_E.ENDED: _S.READY, _E.REFUSED: _S.FATAL_ERROR},
    _S.FATAL_ERROR: {},
}
START = ProducerTransactionState.UNINITIALIZED

_CLOSED = {
    _S.UNINITIALIZED: "no transaction is open: the producer has not started",
    _S.INITIALIZING: "no transaction is open: the producer waits for a new epoch; begin a transaction first",
    _S.READY: (
        "no transaction is open: a producer with transactional_id sends only inside"
        " 'async with producer.transaction()', or between begin_transaction and commit_transaction"
    ),
    _S.PREPARED: "the transaction is prepared: it takes no more records, and has to be committed or aborted first",
    _S.COMMITTING: "the transaction is being committed: begin another one first",
    _S.ABORTING: "the transaction is being aborted: begin another one first",
}


class TransactionMachine:
    """The state, the cause of a failure, and the number of the present or last transaction."""

    def __init__(self) -> None:
        self.state: ProducerTransactionState = START
        self.cause: Exception | None = None
        self.number: int = 0

    @property
    def is_open(self) -> bool:
        """Whether records are accepted."""
        return self.state is ProducerTransactionState.IN_TRANSACTION

    @property
    def has_failed(self) -> bool:
        """Whether the transaction has failed, so that the next call has to raise ``cause``."""
        return self.state in (ProducerTransactionState.ABORTABLE_ERROR, ProducerTransactionState.FATAL_ERROR)

    def happened(self, event: ProducerTransactionEvent, cause: Exception | None = None) -> None:
        """Move to the next state. ``cause`` belongs to FAILED and REFUSED."""
        before, self.state = self.state, next_state(TRANSITIONS, self.state, event)
        if event is ProducerTransactionEvent.BEGIN:
            self.number += 1
        elif event is ProducerTransactionEvent.ENDED:
            self.cause = None
        elif cause is not None:
            self.cause = cause
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("transaction %d moved from %s to %s", self.number, before.name, self.state.name)

    def refusal(self) -> KafkaError | None:
        """Return the error with which a record or offset is refused; None while a transaction is open."""
        if self.is_open:
            return None
        if self.has_failed:
            return self.cause if isinstance(self.cause, KafkaError) else IllegalStateError(_failed_text(self.cause))
        return IllegalStateError(_CLOSED[self.state])


def _failed_text(cause: Exception | None) -> str:
    return f"the transaction has failed and can only be aborted: {cause!r}"

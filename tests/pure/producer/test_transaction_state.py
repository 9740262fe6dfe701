"""The state of a transactional producer: the calls that each state allows, and the errors of the others."""

from __future__ import annotations

from itertools import product

import pytest

from aiokafka_lite.errors import ErrorCode, IllegalStateError, KafkaTimeout, error_for
from aiokafka_lite.producer.transactions.state import (
    TRANSITIONS,
    ProducerTransactionEvent,
    ProducerTransactionState,
    TransactionMachine,
)

S, E = ProducerTransactionState, ProducerTransactionEvent
TO_STATE: dict[ProducerTransactionState, list[ProducerTransactionEvent]] = {
    S.UNINITIALIZED: [],
    S.INITIALIZING: [E.INITIALIZE],
    S.READY: [E.INITIALIZE, E.INITIALIZED],
    S.IN_TRANSACTION: [E.INITIALIZE, E.INITIALIZED, E.BEGIN],
    S.COMMITTING: [E.INITIALIZE, E.INITIALIZED, E.BEGIN, E.COMMIT],
    S.PREPARED: [E.INITIALIZE, E.INITIALIZED, E.BEGIN, E.COMMIT, E.PREPARE],
    S.ABORTING: [E.INITIALIZE, E.INITIALIZED, E.BEGIN, E.ABORT],
    S.ABORTABLE_ERROR: [E.INITIALIZE, E.INITIALIZED, E.BEGIN, E.FAILED],
    S.FATAL_ERROR: [E.INITIALIZE, E.INITIALIZED, E.BEGIN, E.REFUSED],
}
"""The shortest way to each state."""

CAUSE = KafkaTimeout("the first failure")


def machine_in(state: ProducerTransactionState) -> TransactionMachine:
    machine = TransactionMachine()
    for event in TO_STATE[state]:
        machine.happened(event, CAUSE if event in (E.FAILED, E.REFUSED) else None)
    assert machine.state is state
    return machine


@pytest.mark.parametrize(("state", "event"), list(product(S, E)))
def test_every_pair_of_state_and_event_follows_the_table_or_is_refused(
    state: ProducerTransactionState, event: ProducerTransactionEvent
) -> None:
    machine = machine_in(state)
    following = TRANSITIONS[state].get(event)
    if following is None:
        with pytest.raises(IllegalStateError, match=f"{event.name} is not possible in state {state.name}"):
            machine.happened(event)
        assert machine.state is state
    else:
        machine.happened(event, CAUSE)
        assert machine.state is following


@pytest.mark.parametrize("state", S)
def test_records_are_accepted_in_an_open_transaction_only(state: ProducerTransactionState) -> None:
    machine = machine_in(state)
    refusal = machine.refusal()
    assert (refusal is None) is (state is S.IN_TRANSACTION) is machine.is_open
    if machine.has_failed:
        assert refusal is CAUSE
    elif refusal is not None:
        assert isinstance(refusal, IllegalStateError)


def test_a_failed_transaction_can_only_be_aborted() -> None:
    assert set(TRANSITIONS[S.ABORTABLE_ERROR]) == {E.ABORT}
    machine = machine_in(S.ABORTABLE_ERROR)
    machine.happened(E.ABORT)
    machine.happened(E.ENDED)
    assert machine.state is S.READY
    assert machine.cause is None


def test_a_fatal_error_is_final() -> None:
    assert TRANSITIONS[S.FATAL_ERROR] == {}


def test_only_the_coordinator_ends_a_transaction() -> None:
    for state, row in TRANSITIONS.items():
        for event, following in row.items():
            if following is S.READY:
                assert (state, event) in {
                    (S.INITIALIZING, E.INITIALIZED),
                    (S.COMMITTING, E.ENDED),
                    (S.ABORTING, E.ENDED),
                }


def test_each_transaction_has_a_number_of_its_own_and_no_old_cause() -> None:
    machine = machine_in(S.ABORTABLE_ERROR)
    machine.happened(E.ABORT)
    machine.happened(E.ENDED)
    machine.happened(E.BEGIN)
    assert machine.number == 2
    assert machine.cause is None


def test_a_cause_that_is_not_kafkas_is_named() -> None:
    machine = machine_in(S.IN_TRANSACTION)
    machine.happened(E.FAILED, ZeroDivisionError("of a partitioner"))
    refusal = machine.refusal()
    assert isinstance(refusal, IllegalStateError)
    assert "of a partitioner" in str(refusal)


def test_a_refusal_during_an_abort_replaces_the_cause() -> None:
    machine = machine_in(S.ABORTABLE_ERROR)
    machine.happened(E.ABORT)
    fenced = error_for(ErrorCode.PRODUCER_FENCED)
    machine.happened(E.REFUSED, fenced)
    assert machine.refusal() is fenced

"""The decisions about a transactional id, and the transactions of a log."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace

import pytest

from aiokafka_lite.embedded.coordinators.transactions import transaction as decisions
from aiokafka_lite.embedded.coordinators.transactions.transaction import (
    TRANSITIONS,
    TransactionEvent,
    TransactionMetadata,
    TransactionRefused,
    TransactionState,
)
from aiokafka_lite.embedded.log.producer_state import Marker, ProducerStates, SequenceRejected
from aiokafka_lite.embedded.log.transaction_index import TransactionIndex
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.protocol.records.produced import single_batch
from tests.pure.embedded.batches import produced

NOW = 1000
FRESH = TransactionMetadata("id", 7, 3, 60_000)
OPEN = replace(FRESH, state=TransactionState.ONGOING, partitions=frozenset({("t", 0)}), started_at=NOW)


def another_id() -> int:
    return 99


def test_every_pair_of_state_and_event_is_allowed_or_refused() -> None:
    for state, event in itertools.product(TransactionState, TransactionEvent):
        value = replace(FRESH, state=state)
        if event in TRANSITIONS[state]:
            assert value.advance(event, NOW).state is TRANSITIONS[state][event]
        else:
            with pytest.raises(IllegalStateError):
                value.advance(event, NOW)


def test_states_have_kafkas_numbers_and_names() -> None:
    assert [(state.status, state.wire_name) for state in TransactionState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]


@pytest.mark.parametrize("generation", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", list(TransactionState)[:6])
def test_an_end_of_any_state_is_decided_refused_or_a_repetition(
    state: TransactionState, commit: bool, generation: int
) -> None:
    value = replace(OPEN, state=state)
    refused = (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
    code = None
    try:
        after = decisions.end(value, 7, 3, commit=commit, generation=generation, new_producer_id=another_id, now_ms=NOW)
    except TransactionRefused as refusal:
        code = refusal.code
    if code is not None:
        assert code in refused
    elif after is value:
        assert state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
        assert generation == 0
    else:
        assert after.state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
        assert after.producer_epoch == 3 + (generation == 2)


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [2, 3])
def test_a_producer_waits_for_the_markers_before_its_next_request(
    state: TransactionState, commit: bool, epoch: int
) -> None:
    """A producer of generation 2 has the next epoch before all markers are written (KAFKA-18464)."""
    ending = replace(OPEN, state=state)
    requests = [
        lambda: decisions.end(ending, 7, epoch, commit=commit, generation=2, new_producer_id=another_id, now_ms=NOW),
        lambda: decisions.end(ending, 7, 3, commit=commit, generation=1, new_producer_id=another_id, now_ms=NOW),
        lambda: decisions.add_partitions(ending, 7, epoch, [("t", 1)], NOW, generation=2),
        lambda: decisions.initialize(ending, 60_000, (8, epoch), another_id, NOW),
    ]
    for request in requests:
        with pytest.raises(TransactionRefused) as refused:
            request()
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_new_producer_of_an_open_transaction_fences_it_first() -> None:
    fenced = decisions.initialize(OPEN, 60_000, None, another_id, NOW)
    assert fenced.state is TransactionState.PREPARE_EPOCH_FENCE
    for generation, last_epoch in ((0, -1), (2, 3)):
        aborted = decisions.abort_fenced(fenced, generation, another_id, NOW)
        assert (aborted.state, aborted.producer_epoch) == (TransactionState.PREPARE_ABORT, 4)
        assert aborted.last_epoch == last_epoch


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    index = TransactionIndex()
    index.begin(1, 10)
    index.begin(2, 12)
    assert index.last_stable_offset(20) == 10
    index.end(1, 20, committed=True)
    assert index.last_stable_offset(20) == 10, "the marker at offset 20 can still be lost"
    assert index.last_stable_offset(21) == 12
    index.end(2, 21, committed=False)
    assert index.last_stable_offset(22) == 22


def test_aborted_transactions_are_found_by_the_offsets_that_they_cover() -> None:
    index = TransactionIndex()
    for producer_id, first, last in ((1, 0, 5), (2, 10, 15)):
        index.begin(producer_id, first)
        index.end(producer_id, last, committed=False)
    assert [transaction.producer_id for transaction in index.aborted_between(0, 100)] == [1, 2]
    assert [transaction.producer_id for transaction in index.aborted_between(6, 100)] == [2]
    assert [transaction.producer_id for transaction in index.aborted_between(0, 10)] == [1]
    index.delete_before(6)
    assert [transaction.producer_id for transaction in index.aborted] == [2]


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    states = ProducerStates()
    states.update(7, 0, 0, 0, 0, timestamp=100)
    states.transactions.begin(7, 0)
    states.expire(before_ms=200)
    assert 7 in states.entries
    states.transactions.end(7, 1, committed=True)
    states.expire(before_ms=200)
    assert 7 not in states.entries


def test_a_marker_between_question_and_answer_refuses_the_late_batch() -> None:
    states = ProducerStates()
    batch = single_batch(produced(b"v", producer_id=7, epoch=0, sequence=0, transactional=True))
    verification = states.start_verification(7, 0, 0, adds=False)
    states.check_verification(batch, verification)
    states._record_marker(Marker(7, 0, committed=False, coordinator_epoch=0), 0, 100)
    with pytest.raises(SequenceRejected) as refused:
        states.check_verification(batch, verification)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_the_first_batch_of_a_partition_is_the_lowest_that_was_asked_about() -> None:
    """Otherwise a later batch could be appended while an earlier one is tried again."""
    states = ProducerStates()
    states.start_verification(7, 0, 0, adds=False)
    states.start_verification(7, 0, 1, adds=False)
    with pytest.raises(SequenceRejected) as refused:
        states.check_sequence(7, 0, 1)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_generation_of_the_first_question_stays_as_in_kafka() -> None:
    """A transaction of generation 2 begins with sequence 0, but not after a question of generation 1."""
    states = ProducerStates()
    states.start_verification(7, 0, 0, adds=False)
    states.start_verification(7, 1, 1, adds=True)
    states.check_sequence(7, 1, 1)


def test_a_question_about_a_batch_counts_for_batches_outside_of_transactions_as_in_kafka() -> None:
    states = ProducerStates()
    states.start_verification(7, 0, 0, adds=False)
    states.update(7, 0, 0, 0, 0, timestamp=100)
    with pytest.raises(SequenceRejected) as refused:
        states.check_sequence(7, 0, 1)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("adds, epoch, counts", [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_in_generation_2_a_question_outlives_the_marker_of_its_own_epoch(adds: bool, epoch: int, counts: bool) -> None:
    states = ProducerStates()
    states.start_verification(7, 0, 0, adds=adds)
    states._record_marker(Marker(7, epoch, committed=True, coordinator_epoch=0), 0, 100)
    states.update(7, epoch, 0, 1, 1, timestamp=100)
    with pytest.raises(SequenceRejected) if counts else nullcontext():
        states.check_sequence(7, epoch, 1)


def test_an_epoch_that_a_marker_raised_starts_with_sequence_0() -> None:
    states = ProducerStates()
    states.update(7, 0, 0, 0, 4, timestamp=100)
    states._record_marker(Marker(7, 1, committed=True, coordinator_epoch=0, generation=2), 5, 100)
    states.check_sequence(7, 1, 0)
    with pytest.raises(SequenceRejected):
        states.check_sequence(7, 1, 5)


@pytest.mark.parametrize("epoch, is_open, accepted", [(0, True, False), (1, True, True), (0, False, True)])
def test_a_marker_of_generation_2_has_the_next_epoch_or_repeats_one(epoch: int, is_open: bool, accepted: bool) -> None:
    states = ProducerStates()
    states.update(7, 0, 0, 0, 0, timestamp=100)
    if is_open:
        states.transactions.begin(7, 0)
    marker = Marker(7, epoch, committed=True, coordinator_epoch=0, generation=2)
    if accepted:
        states.check_marker(marker)
    else:
        with pytest.raises(SequenceRejected) as refused:
            states.check_marker(marker)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

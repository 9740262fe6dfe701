"""The last five batches of a producer: which batches are new, retries, or refused."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aiokafka_lite.embedded.log.producer_state import (
    LAST_SEQUENCE,
    WINDOW,
    BatchMetadata,
    ProducerStates,
    SequenceRejected,
)
from aiokafka_lite.errors import ErrorCode


def with_batches(count: int, *, size: int = 2, epoch: int = 0, first: int = 0) -> ProducerStates:
    states = ProducerStates()
    for number in range(count):
        sequence = (first + number * size) & LAST_SEQUENCE
        states.update(7, epoch, sequence, number * size, number * size + size - 1, 1000)
    return states


def check(
    states: ProducerStates, producer_id: int, epoch: int, first_sequence: int, count: int
) -> BatchMetadata | None:
    duplicate = states.find_duplicate(producer_id, epoch, first_sequence, count)
    if duplicate is None:
        states.check_sequence(producer_id, epoch, first_sequence)
    return duplicate


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert check(ProducerStates(), 7, 0, 1234, 5) is None


def test_the_last_five_batches_are_recognized_and_older_ones_are_out_of_order() -> None:
    states = with_batches(7)
    for number in range(2, 7):
        repeated = check(states, 7, 0, number * 2, 2)
        assert repeated is not None
        assert repeated.first_offset == number * 2
    with pytest.raises(SequenceRejected) as caught:
        check(states, 7, 0, 2, 2)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order() -> None:
    with pytest.raises(SequenceRejected) as caught:
        check(with_batches(1), 7, 0, 3, 1)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_from_the_largest_number_to_zero() -> None:
    states = with_batches(1, size=4, first=LAST_SEQUENCE - 1)  # LAST-1, LAST, 0, 1
    assert check(states, 7, 0, 2, 1) is None
    repeated = check(states, 7, 0, LAST_SEQUENCE - 1, 4)
    assert repeated is not None


def test_an_older_epoch_is_refused_and_a_newer_one_begins_at_zero() -> None:
    states = with_batches(1, epoch=3)
    with pytest.raises(SequenceRejected) as caught:
        check(states, 7, 2, 0, 1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(SequenceRejected):
        check(states, 7, 4, 1, 1)
    assert check(states, 7, 4, 0, 1) is None


def test_an_expired_producer_may_continue() -> None:
    states = ProducerStates()
    states.update(7, 0, 0, 0, 0, 1000)
    states.expire(1001)
    assert check(states, 7, 0, 55, 1) is None


class WindowMachine(RuleBasedStateMachine):
    """One producer that sends and retries, with a list of its batches as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.sent: list[tuple[int, int, int, int]] = []  # epoch, sequence, count, offset
        self.epoch = 0
        self.sequence = LAST_SEQUENCE - 10
        self.end = 0

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        assert check(self.states, 1, self.epoch, self.sequence, count) is None
        self.states.update(1, self.epoch, self.sequence, self.end, self.end + count - 1, 1000)
        self.sent.append((self.epoch, self.sequence, count, self.end))
        self.end += count
        self.sequence = (self.sequence + count) & LAST_SEQUENCE

    @rule()
    def bump(self) -> None:
        self.epoch += 1
        self.sequence = 0

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        if not self.sent or self.sent[-1][0] != self.epoch:
            return
        epoch, sequence, count, offset = data.draw(st.sampled_from(self.sent))
        recent = [batch for batch in self.sent if batch[0] == self.epoch][-WINDOW:]
        if (epoch, sequence, count, offset) in recent:
            repeated = check(self.states, 1, epoch, sequence, count)
            assert repeated is not None
            assert repeated.first_offset == offset
        else:
            with pytest.raises(SequenceRejected):
                check(self.states, 1, epoch, sequence, count)

    @invariant()
    def the_window_is_bounded(self) -> None:
        assert all(len(entry.window) <= WINDOW for entry in self.states.entries.values())


WindowMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestWindowAgainstAList = WindowMachine.TestCase

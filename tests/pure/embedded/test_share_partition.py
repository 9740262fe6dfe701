"""A share partition: every acknowledgement in every state, and random histories against a simple model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokafka_lite.embedded.coordinators.share.partition import (
    Acknowledgement,
    AcknowledgeType,
    BadAcknowledgement,
    RecordState,
    SharePartition,
)
from aiokafka_lite.embedded.coordinators.share.partitions import duration_ms
from aiokafka_lite.errors import ErrorCode

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
MOST_DELIVERIES = 3
MOST_LOCKS = 12


def acquired_by(member: str = "me", *, records: int = 3, deliveries: int = 1) -> SharePartition:
    """Acquire records from offset 0 on. The member gets the last one for the last of so many deliveries."""
    share = SharePartition(0)
    for delivery in range(deliveries):
        assert share.acquire(member, [(0, records - 1)], 100, 100, 10.0)
        if delivery < deliveries - 1:
            share.release(member, 100)
    return share


def acknowledge(share: SharePartition, kind: int, first: int, last: int | None = None, member: str = "me") -> None:
    batch = Acknowledgement(first, first if last is None else last, [kind])
    share.acknowledge(member, [batch], MOST_DELIVERIES, 20.0)


def kept_state(share: SharePartition, offset: int) -> RecordState:
    """Return the state of a record that outlives the leader: an acquired record is available again."""
    return next((batch.state for batch in share.state() if batch.first <= offset <= batch.last), AVAILABLE)


@pytest.mark.parametrize(
    "kind, state, acquired",
    [
        (GAP, ARCHIVED, 2),
        (ACCEPT, ACKNOWLEDGED, 2),
        (RELEASE, AVAILABLE, 2),
        (REJECT, ARCHIVED, 2),
        (RENEW, AVAILABLE, 3),
    ],
)
def test_an_acknowledgement_changes_an_acquired_record(
    kind: AcknowledgeType, state: RecordState, acquired: int
) -> None:
    share = acquired_by()
    acknowledge(share, kind, 1)
    assert (kept_state(share, 1), share.acquired) == (state, acquired)


@pytest.mark.parametrize("kind", AcknowledgeType)
@pytest.mark.parametrize("before", [RELEASE, ACCEPT, REJECT])
def test_a_record_that_is_not_acquired_cannot_be_acknowledged(before: AcknowledgeType, kind: AcknowledgeType) -> None:
    share = acquired_by()
    acknowledge(share, before, 1)
    with pytest.raises(BadAcknowledgement) as refused:
        acknowledge(share, kind, 1)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("kind", AcknowledgeType)
def test_a_record_of_another_member_cannot_be_acknowledged(kind: AcknowledgeType) -> None:
    with pytest.raises(BadAcknowledgement) as refused:
        acknowledge(acquired_by(), kind, 1, member="another")
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("first, last", [(5, 6), (2, 3)])
def test_offsets_behind_those_in_flight_are_an_invalid_request(first: int, last: int) -> None:
    with pytest.raises(BadAcknowledgement) as refused:
        acknowledge(acquired_by(), ACCEPT, first, last)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_records_before_the_start_offset_are_acknowledged_without_effect() -> None:
    share = acquired_by()
    acknowledge(share, ACCEPT, 0, 1)
    acknowledge(share, RELEASE, 0, 1)
    acknowledge(share, ACCEPT, 0, 2)
    assert share.start_offset == 3


def test_a_refused_batch_undoes_the_others_of_the_request() -> None:
    share = acquired_by()
    acknowledge(share, ACCEPT, 2)
    batches = [Acknowledgement(0, 0, [ACCEPT]), Acknowledgement(1, 2, [ACCEPT, ACCEPT])]
    with pytest.raises(BadAcknowledgement):
        share.acknowledge("me", batches, MOST_DELIVERIES, 20.0)
    assert share.start_offset == 0
    assert share.acquired == 2


def test_an_offset_that_is_acknowledged_twice_in_a_request_is_refused() -> None:
    with pytest.raises(BadAcknowledgement):
        acquired_by().acknowledge("me", [Acknowledgement(0, 1, [1]), Acknowledgement(1, 2, [1])], 5, 20.0)


def test_the_last_delivery_ends_with_the_archive() -> None:
    share = acquired_by(deliveries=MOST_DELIVERIES)
    acknowledge(share, RELEASE, 2)
    assert kept_state(share, 2) is ARCHIVED


def test_whole_batches_are_acquired_unless_the_limit_is_strict() -> None:
    batches = [(0, 4), (5, 9), (10, 14)]
    assert SharePartition(0).acquire("me", batches, 6, 100, 1.0) == [(0, 9, 1)]
    assert SharePartition(0).acquire("me", batches, 6, 100, 1.0, strict=True) == [(0, 5, 1)]
    assert SharePartition(3).acquire("me", batches, 2, 100, 1.0) == [(3, 4, 1)]


@pytest.mark.parametrize(
    ("first", "batch_size", "ranges"),
    [
        (0, 2, [(0, 2), (3, 5), (6, 8)]),
        (0, 4, [(0, 5), (6, 8)]),
        (0, 9, [(0, 8)]),
        (1, 3, [(1, 5), (6, 8)]),
    ],
)
def test_acquired_records_come_in_ranges_of_whole_batches(
    first: int, batch_size: int, ranges: list[tuple[int, int]]
) -> None:
    """Kafka 4.3 returns the same ranges."""
    batches = [(0, 2), (3, 5), (6, 8)]
    acquired = SharePartition(first).acquire("me", batches, 100, 100, 1.0, batch_size=batch_size)
    assert [(item.first, item.last) for item in acquired] == ranges
    strict = SharePartition(first).acquire("me", batches, 100, 100, 1.0, strict=True, batch_size=batch_size)
    assert strict == [(first, 8, 1)]


def test_offsets_that_the_log_lacks_do_not_hold_the_start_offset_back() -> None:
    share = SharePartition(0)
    assert share.acquire("me", [(2, 3)], 10, 100, 1.0) == [(2, 3, 1)]
    assert share.acquire("me", [(7, 8)], 10, 100, 1.0) == [(7, 8, 1)]
    acknowledge(share, ACCEPT, 2, 3)
    assert share.start_offset == 7


def test_records_that_compaction_removed_are_done() -> None:
    share = acquired_by(records=6)
    acknowledge(share, RELEASE, 0, 5)
    assert share.acquire("me", [(3, 5)], 100, 100, 10.0) == [(3, 5, 2)]
    assert share.start_offset == 3


@pytest.mark.parametrize(
    "text, milliseconds", [("PT1H", 3_600_000), ("P1DT2M", 86_520_000), ("PT0.5S", 500), ("PT30M", 1_800_000)]
)
def test_durations_are_in_iso_8601(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "PT1", "PT-1H", "P1DT"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration must be an ISO 8601 duration"):
        duration_ms(text)


class Histories(RuleBasedStateMachine):
    """Two members, one log with batches of three records. The model has one tuple for each record."""

    def __init__(self) -> None:
        super().__init__()
        self.share = SharePartition(0)
        self.now = 0.0
        self.log_end = 0
        self.log_start = 0
        self.records: dict[int, tuple[RecordState, int, str, float]] = {}

    def is_done(self, offset: int) -> bool:
        return offset in self.records and self.records[offset][0] in (ACKNOWLEDGED, ARCHIVED)

    @rule()
    def write(self) -> None:
        self.log_end += 3

    @rule(member=st.sampled_from("ab"), most=st.integers(1, 7), strict=st.booleans())
    def acquire(self, member: str, most: int, *, strict: bool) -> None:
        first = self.share.next_fetch_offset // 3 * 3
        batches = [(base, base + 2) for base in range(first, self.log_end, 3)]
        got = self.share.acquire(member, batches, most, MOST_LOCKS, self.now + 5.0, strict=strict)
        for start, last, count in got:
            for offset in range(start, last + 1):
                state, before, _, _ = self.records.get(offset, (AVAILABLE, 0, "", 0.0))
                assert state is AVAILABLE
                assert offset >= self.log_start
                assert count == before + 1 <= MOST_DELIVERIES
                self.records[offset] = (ACQUIRED, count, member, self.now + 5.0)
        assert sum(last - start + 1 for start, last, _ in got) <= most + (0 if strict else 2)

    @rule(
        member=st.sampled_from("ab"),
        offset=st.integers(0, 40),
        size=st.integers(1, 3),
        kind=st.sampled_from([*AcknowledgeType]),
    )
    def acknowledge(self, member: str, offset: int, size: int, kind: AcknowledgeType) -> None:
        last = offset + size - 1
        offsets = [number for number in range(offset, last + 1) if number >= self.share.start_offset]
        allowed = all(
            number in self.records and self.records[number][0] is ACQUIRED and self.records[number][2] == member
            for number in offsets
        )
        try:
            self.share.acknowledge(member, [Acknowledgement(offset, last, [kind])], MOST_DELIVERIES, self.now + 5.0)
        except BadAcknowledgement:
            assert not allowed
            return
        assert allowed
        for number in offsets:
            self.settle(number, kind)

    def settle(self, offset: int, kind: AcknowledgeType) -> None:
        _, count, member, until = self.records[offset]
        state = {ACCEPT: ACKNOWLEDGED, REJECT: ARCHIVED, GAP: ARCHIVED, RENEW: ACQUIRED, RELEASE: AVAILABLE}[kind]
        if kind is RELEASE and count >= MOST_DELIVERIES:
            state = ARCHIVED
        until = self.now + 5.0 if kind is RENEW else until
        self.records[offset] = (state, count, member, until)

    @rule(seconds=st.sampled_from([1.0, 3.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        expired = [offset for offset, record in self.records.items() if record[0] is ACQUIRED and record[3] <= self.now]
        assert self.share.expire(self.now, MOST_DELIVERIES) == bool(expired)
        for offset in expired:
            self.settle(offset, RELEASE)

    @rule(member=st.sampled_from("ab"))
    def close_session(self, member: str) -> None:
        acquired = [offset for offset, record in self.records.items() if record[0] is ACQUIRED and record[2] == member]
        assert self.share.release(member, MOST_DELIVERIES) == bool(acquired)
        for offset in acquired:
            self.settle(offset, RELEASE)

    @precondition(lambda self: self.log_start < self.log_end)
    @rule(step=st.integers(1, 4))
    def delete_records(self, step: int) -> None:
        self.log_start = min(self.log_start + step, self.log_end)
        self.share.delete_before(self.log_start)
        for offset in range(self.log_start):
            self.records[offset] = (ARCHIVED, 0, "", 0.0)

    @rule()
    def move_leader(self) -> None:
        """Replace the leader. Acquired records are as before their acquisition."""
        self.share = SharePartition(self.share.start_offset, self.share.state())
        for offset, (state, count, _, _) in list(self.records.items()):
            if state is ACQUIRED:
                self.records[offset] = (AVAILABLE, count - 1, "", 0.0)

    @invariant()
    def everything_before_the_start_offset_is_done_and_nothing_is_lost(self) -> None:
        assert all(self.is_done(offset) for offset in range(self.share.start_offset))
        assert not self.is_done(self.share.start_offset)
        in_flight = range(self.share.start_offset, self.share.end_offset)
        assert self.share.acquired == sum(record[0] is ACQUIRED for record in self.records.values())
        assert self.share.delivery_complete_count == sum(self.is_done(offset) for offset in in_flight)
        assert len(in_flight) <= MOST_LOCKS + 2


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)

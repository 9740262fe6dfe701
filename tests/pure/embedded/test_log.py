"""The log: reads, lookups, truncation and retention, against a list of batches as the model."""

from __future__ import annotations

import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokafka_lite.embedded.log.log import EpochEnd, Log, OffsetOutsideLog, StoredBatch
from tests.pure.embedded.batches import stored


def filled(*counts: int, segment_bytes: int = 1 << 30) -> Log:
    log = Log(segment_bytes)
    for number, count in enumerate(counts):
        log.append(stored(log.end_offset, count, timestamp=1000 * (number + 1)))
    log.advance_high_watermark(log.end_offset)
    return log


def test_a_read_starts_with_the_batch_that_holds_the_offset() -> None:
    log = filled(3, 2, 4)
    batches = list(log.batches())
    assert log.read(4, 10**6, 9) == batches[1].data + batches[2].data
    assert log.read(9, 10**6, 9) == b""


def test_a_read_is_cut_at_the_limit_but_the_first_batch_may_be_whole() -> None:
    log = filled(1, 1)
    first, second = (batch.data for batch in log.batches())
    assert log.read(0, len(first) + 10, 2) == first + second[:10]
    assert log.read(0, 10, 2) == b""
    assert log.read(0, 10, 2, at_least_one=True) == first
    assert log.read(0, 0, 2) == b""


def test_a_read_ends_before_the_first_batch_that_passes_the_bound() -> None:
    log = filled(2, 2)
    first, _ = (batch.data for batch in log.batches())
    assert log.read(0, 10**6, 3) == first
    assert log.read(0, 10**6, 1, at_least_one=True) == b""


def test_a_read_outside_the_log_is_out_of_range() -> None:
    log = filled(2, 2)
    log.delete_before(2)
    for offset in (1, 5, -1):
        with pytest.raises(OffsetOutsideLog):
            log.read(offset, 100, 4)


def test_a_time_lookup_finds_single_records() -> None:
    log = filled(3, 3)
    record = log.offset_for_time(1002)
    assert record is not None
    assert (record.timestamp, record.offset) == (1002, 2)
    record = log.offset_for_time(1003)
    assert record is not None
    assert (record.timestamp, record.offset) == (2000, 3)
    assert log.offset_for_time(2003) is None
    highest = log.offset_of_max_timestamp()
    assert highest is not None
    assert highest.offset == 5


def test_the_highest_timestamp_may_be_that_of_a_deleted_record_as_in_kafka() -> None:
    log = filled(1)
    log.append(stored(1, 1, timestamp=5))
    log.delete_before(1)
    highest = log.offset_of_max_timestamp()
    assert highest is not None
    assert highest.offset == 0


def test_a_time_lookup_finds_no_record_before_the_start_of_the_log() -> None:
    log = filled(5)
    log.delete_before(3)
    record = log.offset_for_time(0)
    assert record is not None
    assert record.offset == 3


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    log = Log()
    for epoch, count in ((0, 5), (2, 3), (5, 1)):
        log.append(stored(log.end_offset, count, epoch=epoch))
    assert log.end_of_epoch(0) == EpochEnd(0, 5)
    assert log.end_of_epoch(1) == EpochEnd(0, 5)
    assert log.end_of_epoch(2) == EpochEnd(2, 8)
    assert log.end_of_epoch(5) == EpochEnd(5, 9)
    assert log.end_of_epoch(6) == EpochEnd(-1, -1)
    assert [log.epoch_at(offset) for offset in (0, 4, 5, 8)] == [0, 0, 2, 5]
    log.truncate_to(5)
    assert log.end_of_epoch(0) == EpochEnd(0, 5)
    assert log.last_epoch == 0


def test_retention_drops_whole_segments_below_the_high_watermark_only() -> None:
    log = filled(1, 1, 1, segment_bytes=1)
    log.high_watermark = 2
    assert log.apply_retention(10**9, 1, -1)
    assert (log.start_offset, log.end_offset) == (2, 3)
    log.high_watermark = 3
    assert log.apply_retention(10**9, 1, -1)
    assert (log.start_offset, log.end_offset, log.size) == (3, 3, 0)


def test_retention_by_size_keeps_the_newest_segments() -> None:
    log = filled(1, 1, 1, segment_bytes=1)
    one = log.size // 3
    log.apply_retention(0, -1, 2 * one)
    assert log.start_offset == 1
    log.apply_retention(0, -1, 2 * one)
    assert log.start_offset == 1


class LogMachine(RuleBasedStateMachine):
    """A log beside a plain list of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log(segment_bytes=400)
        self.model: list[StoredBatch] = []
        self.start = self.end = self.high_watermark = self.epoch = 0

    @rule(count=st.integers(1, 4), size=st.integers(1, 200), elected=st.booleans())
    def append(self, count: int, size: int, elected: bool) -> None:
        self.epoch += elected
        batch = stored(self.end, count, epoch=self.epoch, size=size, timestamp=1000 + self.end)
        self.log.append(batch)
        self.model.append(batch)
        self.end = batch.next_offset

    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        assert self.log.advance_high_watermark(offset) == (offset > self.high_watermark)
        self.high_watermark = max(self.high_watermark, offset)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        boundaries = [b.base_offset for b in self.model if b.base_offset >= self.start] or [self.end]
        offset = data.draw(st.sampled_from(boundaries))
        self.log.truncate_to(offset)
        self.model = [batch for batch in self.model if batch.base_offset < offset]
        self.end = min(self.end, offset)
        self.high_watermark = min(self.high_watermark, self.end)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, max(self.start, self.high_watermark)))
        self.log.delete_before(offset)
        self.start = offset

    @precondition(lambda self: self.model)
    @rule(data=st.data(), room=st.integers(0, 1000), at_least_one=st.booleans())
    def read(self, data: st.DataObject, room: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        bound = data.draw(st.integers(offset, self.end))
        visible = [b.data for b in self.model if b.last_offset >= offset and b.last_offset < bound]
        whole = b"".join(visible)
        expected = whole[:room]
        if visible and len(visible[0]) > room:
            expected = visible[0] if at_least_one else b""
        assert self.log.read(offset, room, bound, at_least_one=at_least_one) == expected

    @invariant()
    def bounds_agree(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset, log.high_watermark) == (self.start, self.end, self.high_watermark)
        assert log.bytes_between(self.start, self.end) == sum(
            len(b.data) for b in self.model if b.last_offset >= self.start
        )

    @invariant()
    def every_epoch_is_known(self) -> None:
        for batch in self.model:
            if batch.base_offset >= self.start:
                assert self.log.epoch_at(batch.base_offset) == batch.leader_epoch


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLogAgainstAList = LogMachine.TestCase


def test_a_read_from_a_long_log_takes_no_longer() -> None:
    """Each read once copied the rest of the segment, so the longer the segment, the slower were readers of small
    batches."""

    def fastest_read(batches: int) -> float:
        log = Log()
        for offset in range(batches):
            log.append(StoredBatch(offset, offset, 0, 0, b"x" * 100))

        def seconds() -> float:
            began = time.process_time()
            for _ in range(20):
                log.read(1, 100, log.end_offset)
            return time.process_time() - began

        return min(seconds() for _ in range(5))

    assert fastest_read(100_000) < 20 * fastest_read(10)

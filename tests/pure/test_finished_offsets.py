"""The metadata of a commit that tells which later offsets are finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.group.commit_attempt import CommitAttempt, CommitOutcome, classify_commit
from aiokafka_lite.group.finished_offsets import MAX_LENGTH, decode, encode, finished_runs
from aiokafka_lite.types import OffsetAndMetadata, TopicPartition

PARTITION, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


BROKEN = ["finished:1:A", "finished:1:gA", "finished:1:AAE", "finished:1:é"]


@given(st.lists(st.booleans(), min_size=1, max_size=300), st.integers(0, 2**40))
def test_what_is_written_is_read_again(finished: list[bool], committed: int) -> None:
    finished[0] = False
    records = [(committed + number, done) for number, done in enumerate(finished)]
    runs = finished_runs(records)
    assert decode(committed, encode(committed, runs)) == runs
    inside = {offset for start, end in runs for offset in range(start, end)}
    assert inside == {offset for offset, done in records if done}


def test_the_text_of_the_documentation() -> None:
    assert encode(10, [(11, 13), (20, 320)]) == "finished:1:AQIHrAI"
    assert encode(10, []) == ""


def test_runs_without_room_are_left_out() -> None:
    runs = [(number, number + 1) for number in range(1, 20_000, 2)]
    text = encode(0, runs)
    assert MAX_LENGTH - 4 <= len(text) <= MAX_LENGTH
    assert decode(0, text) == runs[: len(decode(0, text))]


@pytest.mark.parametrize(
    "text",
    ["", "of another client", "finished:2:AQI", "finished:1:A", "finished:1:gA", "finished:1:AAE", "finished:1:é"],
)
def test_other_text_says_nothing(text: str) -> None:
    assert decode(0, text) == []


@given(st.text(max_size=50))
def test_no_text_raises(text: str) -> None:
    decode(0, "finished:1:" + text)


def test_metadata_that_is_too_long_for_the_broker_is_left_out() -> None:
    offset = OffsetAndMetadata(1, encode(1, [(2, 3)]))
    attempt = CommitAttempt({PARTITION: offset, OTHER: OffsetAndMetadata(1, "of the program")})
    for has_annotation, outcome in ((True, CommitOutcome.REFUSED_ANNOTATION), (False, CommitOutcome.REFUSED)):
        assert outcome is classify_commit(
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            is_member=True,
            is_outdated=False,
            is_revoking=False,
            by_name=False,
            has_epoch=False,
            has_annotation=has_annotation,
        )
    attempt.without_metadata.add(PARTITION)
    assert attempt.to_send() == {PARTITION: OffsetAndMetadata(1), OTHER: OffsetAndMetadata(1, "of the program")}

"""The check of a chain finds each kind of broken promise, and nothing in a history that keeps them."""

from __future__ import annotations

import pytest

from aiokafka_lite import TopicPartition
from tests.simulation.chain_journal import StableOffset, StageJournal, stage_anomalies

SOURCE = {0: [(0, b"a"), (2, b"b")], 1: [(0, b"c")]}
HERE = TopicPartition("in", 0)


def stage() -> StageJournal:
    """Return a stage that has worked on ``a`` until 1.0 s, on ``b`` until 2.0 s, and on ``c`` until 3.0 s."""
    journal = StageJournal("g", "in", "out")
    for partition, offset, value, at in ((0, 0, b"a", 1.0), (0, 2, b"b", 2.0), (1, 0, b"c", 3.0), (0, 0, b"a", 9.0)):
        journal.note_done(TopicPartition("in", partition), offset, value, at)
    return journal


@pytest.mark.parametrize(
    "here, reads, answers, committed, expected",
    [
        ([b"a", b"b"], [(1.0, b"a"), (9.0, b"c")], [(2.0, "g", HERE, 3)], {0: 3, 1: 1}, ""),
        ([b"a", b"b"], [], [(0.5, "other", HERE, 3), (0.5, "g", HERE, 0)], {0: 4, 1: 1}, ""),
        ([b"a"], [], [], {0: 3, 1: 1}, "missing [b'b'], too many []"),
        ([b"a", b"b", b"b"], [], [], {0: 3, 1: 1}, "missing [], too many [b'b']"),
        ([b"b", b"a"], [], [], {0: 3, 1: 1}, "in another order"),
        ([b"a", b"b"], [(1.9, b"b")], [], {0: 3, 1: 1}, "before its commit began"),
        ([b"a", b"b"], [], [(1.9, "g", HERE, 3)], {0: 3, 1: 1}, "before the commit of the records [2] began"),
        ([b"a", b"b"], [], [(1.9, "g", HERE, 2)], {0: 2, 1: 1}, "its offset is 2"),
        ([b"a", b"b"], [], [], {0: 3}, "its offset is None"),
    ],
)
def test_each_broken_promise_of_a_stage_is_found(
    here: list[bytes],
    reads: list[tuple[float, bytes]],
    answers: list[StableOffset],
    committed: dict[int, int],
    expected: str,
) -> None:
    target = {0: list(enumerate(here)), 1: [(0, b"c")]}
    anomalies = list(stage_anomalies(stage(), SOURCE, target, reads, answers, committed))
    assert len(anomalies) == bool(expected)
    assert all(expected in anomaly for anomaly in anomalies)

"""The check of transactions finds each kind of broken promise, and nothing in a history that keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiokafka_lite import TopicPartition
from tests.simulation.ledger import Outcome, Transaction, copy_anomalies, early_anomalies, ledger_anomalies

HERE, THERE = TopicPartition("ledger", 0), TopicPartition("ledger", 1)


def transactions(*outcomes: Outcome) -> list[Transaction]:
    """Return transactions that write ``a0`` here and ``b0`` there, then ``a1`` and ``b1``, and so on."""
    return [
        Transaction(number, {b"a%d" % number: HERE, b"b%d" % number: THERE}, outcome, number + 1)
        for number, outcome in enumerate(outcomes)
    ]


A, U, C = Outcome.ABORTED, Outcome.UNKNOWN, Outcome.COMMITTED


@pytest.mark.parametrize(
    "outcomes, here, there, offsets, expected",
    [
        ([C, A, C], [b"a0", b"a2"], [b"b0", b"b2"], [3], ""),
        ([C, U, C], [b"a0", b"a2"], [b"b0", b"b2"], [3], ""),
        ([C, U], [b"a0", b"a1"], [b"b0", b"b1"], [2], ""),
        ([C, U], [b"a0"], [b"b0"], [1], ""),
        ([A], [], [], [], ""),
        ([C, U], [b"a0", b"a1"], [b"b0"], [1], "read in part"),
        ([C, C], [b"a0"], [b"b0", b"b1"], [2], "lost records"),
        ([C, A], [b"a0", b"a1"], [b"b0"], [1], "was read"),
        ([C], [b"a0", b"a0"], [b"b0"], [1], "written twice"),
        ([C], [b"a0", b"x"], [b"b0"], [1], "never sent"),
        ([C, C], [b"a1", b"a0"], [b"b0", b"b1"], [2], "out of order"),
        ([C, A], [b"a0"], [b"b0"], [2], "the group's offset"),
        ([C, C], [b"a0", b"a1"], [b"b0", b"b1"], [1], "the group's offset"),
        ([C, A, C], [b"a0", b"a2"], [b"b0", b"b2"], [1, 3], ""),
        ([C, A, C], [b"a0", b"a2"], [b"b0", b"b2"], [1, 2, 3], "the group's offsets"),
        ([C, C, C], [b"a0", b"a1", b"a2"], [b"b0", b"b1", b"b2"], [2, 1, 3], "the group's offsets"),
    ],
)
def test_each_broken_promise_of_transactions_is_found(
    outcomes: Sequence[Outcome], here: list[bytes], there: list[bytes], offsets: list[int], expected: str
) -> None:
    seen = {HERE: here, THERE: there}
    anomalies = list(ledger_anomalies(transactions(*outcomes), seen, {"live": seen}, offsets))
    assert len(anomalies) == bool(expected)
    assert all(expected in anomaly for anomaly in anomalies)


@pytest.mark.parametrize("live", [[], [b"a0", b"a1"]])
def test_a_reader_that_saw_something_else_meanwhile_is_found(live: list[bytes]) -> None:
    whole = {HERE: [b"a0"], THERE: [b"b0"]}
    others = {"live": {HERE: live, THERE: [b"b0"]}}
    anomalies = list(ledger_anomalies(transactions(C, A), whole, others, [1]))
    assert len(anomalies) == 1
    assert "the live reader of" in anomalies[0]


@pytest.mark.parametrize(
    "reads, offsets, expected",
    [
        ([(5.0, b"a0"), (6.0, b"b0")], [(5.0, 1), (7.0, 99)], ""),
        ([(4.9, b"a0")], [], "was read at 4.900 s"),
        ([], [(4.9, 1)], "its offset was read at 4.900 s"),
        ([(9.0, b"a1")], [], "transaction 1, ABORTED"),
        ([], [(9.0, 2)], "transaction 1, ABORTED"),
    ],
)
def test_records_and_offsets_that_were_visible_before_their_commit_are_found(
    reads: list[tuple[float, bytes]], offsets: list[tuple[float, int]], expected: str
) -> None:
    ledger = transactions(C, A)
    ledger[0].ended_at = 5.0
    anomalies = list(early_anomalies(ledger, reads, offsets))
    assert len(anomalies) == bool(expected)
    assert all(expected in anomaly for anomaly in anomalies)


@pytest.mark.parametrize(
    "copies, expected",
    [([b"b", b"a"], ""), ([b"a"], "not copied"), ([b"a", b"b", b"b"], "a second time"), ([b"a", b"b", b"x"], "of no")],
)
def test_a_copy_that_is_missing_or_too_many_is_found(copies: list[bytes], expected: str) -> None:
    anomalies = list(copy_anomalies({HERE: [b"a"], THERE: [b"b"]}, {HERE: copies}))
    assert len(anomalies) == bool(expected)
    assert all(expected in anomaly for anomaly in anomalies)

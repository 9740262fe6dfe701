"""The check of histories finds each kind of bad history, and nothing in a good one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokafka_lite import KafkaTimeout, TopicPartition
from aiokafka_lite.errors import BufferFull
from tests.end_to_end.send_history import Finding, Found, History, Outcome, Promises, Violation, violations

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
LOOSE = Promises(lossless=False, once=False)


def sent(*values: bytes, start: int = 0) -> History:
    """Return the history of values that were sent and acknowledged at successive offsets."""
    history = History()
    for offset, value in enumerate(values, start):
        history.invoke(HERE, value).acknowledged(HERE, offset)
    return history


def log(*values: bytes, where: TopicPartition = HERE) -> list[Found]:
    return [Found(where, offset, value) for offset, value in enumerate(values)]


def kinds(findings: list[Finding]) -> set[Violation]:
    return {finding.violation for finding in findings}


def test_a_good_history_breaks_no_promise() -> None:
    history = sent(b"a", b"b")
    history.invoke(THERE, b"c").acknowledged(THERE, 0)
    history.invoke(HERE, b"never written").failed(KafkaTimeout("?"))
    history.invoke(HERE, b"written").failed(KafkaTimeout("?"))
    history.invoke(HERE, b"refused").failed(BufferFull("full"))
    assert violations(history, [*log(b"a", b"b", b"written"), *log(b"c", where=THERE)]) == []


def test_the_error_of_a_send_determines_its_outcome() -> None:
    history = History()
    pending = history.invoke(HERE, b"a")
    assert pending.outcome is Outcome.PENDING
    pending.failed(KafkaTimeout("no answer"))
    assert history.of(Outcome.UNKNOWN) == [pending]
    pending.failed(BufferFull("full"))
    assert history.of(Outcome.REFUSED) == [pending]


def unsettled() -> tuple[History, list[Found]]:
    history = History()
    history.invoke(HERE, b"a")
    return history, []


def lost() -> tuple[History, list[Found]]:
    return sent(b"a", b"b"), [Found(HERE, 0, b"a")]


def misplaced() -> tuple[History, list[Found]]:
    return sent(b"a", start=5), log(b"a")


def duplicated() -> tuple[History, list[Found]]:
    return sent(b"a"), log(b"a", b"a")


def duplicate_of_unknown_outcome() -> tuple[History, list[Found]]:
    history = History()
    history.invoke(HERE, b"a").failed(KafkaTimeout("?"))
    return history, log(b"a", b"a")


def reordered_in_the_log() -> tuple[History, list[Found]]:
    history = History()
    for value in (b"a", b"b"):
        history.invoke(HERE, value).acknowledged(HERE, -1)
    return history, log(b"b", b"a")


def reordered_by_acknowledgements() -> tuple[History, list[Found]]:
    history = History()
    history.invoke(HERE, b"a").acknowledged(HERE, 1)
    history.invoke(HERE, b"b").acknowledged(HERE, 0)
    return history, log(b"b", b"a")


def written_late_after_it_failed() -> tuple[History, list[Found]]:
    history = History()
    history.invoke(HERE, b"a").failed(KafkaTimeout("?"))
    history.invoke(HERE, b"b").acknowledged(HERE, 0)
    return history, log(b"b", b"a")


def resurrected() -> tuple[History, list[Found]]:
    history = History()
    history.invoke(HERE, b"a").failed(BufferFull("full"))
    return history, log(b"a")


def invented() -> tuple[History, list[Found]]:
    return sent(b"a"), log(b"a", b"x")


def in_another_partition() -> tuple[History, list[Found]]:
    return sent(b"a"), [*log(b"a"), Found(THERE, 0, b"a")]


def repeated() -> tuple[History, list[Found]]:
    return sent(b"a", b"b"), [*log(b"a", b"b"), Found(HERE, 1, b"b")]


@pytest.mark.parametrize(
    "case, expected",
    [
        (unsettled, {Violation.UNSETTLED}),
        (lost, {Violation.LOST}),
        (misplaced, {Violation.MISPLACED}),
        (duplicated, {Violation.DUPLICATED}),
        (duplicate_of_unknown_outcome, {Violation.DUPLICATED}),
        (reordered_in_the_log, {Violation.REORDERED}),
        (reordered_by_acknowledgements, {Violation.REORDERED}),
        (written_late_after_it_failed, {Violation.REORDERED}),
        (resurrected, {Violation.RESURRECTED}),
        (invented, {Violation.INVENTED}),
        (in_another_partition, {Violation.INVENTED, Violation.DUPLICATED}),
        (repeated, {Violation.REPEATED}),
    ],
    ids=lambda parameter: getattr(parameter, "__name__", ""),
)
def test_each_kind_of_bad_history_is_found(
    case: Callable[[], tuple[History, list[Found]]], expected: set[Violation]
) -> None:
    assert kinds(violations(*case())) == expected


@pytest.mark.parametrize("case", [lost, misplaced, duplicated, written_late_after_it_failed])
def test_a_promise_that_was_not_made_is_not_broken(case: Callable[[], tuple[History, list[Found]]]) -> None:
    assert violations(*case(), LOOSE) == []


@pytest.mark.parametrize("case", [reordered_in_the_log, resurrected, invented, repeated, unsettled])
def test_some_promises_always_hold(case: Callable[[], tuple[History, list[Found]]]) -> None:
    assert violations(*case(), LOOSE) != []


def test_a_second_copy_does_not_count_as_reordered() -> None:
    assert violations(sent(b"a", b"b"), log(b"a", b"b", b"a"), Promises(once=False)) == []


def test_one_record_out_of_place_is_one_finding() -> None:
    history = sent(b"a", b"b", b"c", b"d")
    for send in history.sends:
        send.offset = -1
    findings = violations(history, log(b"b", b"c", b"a", b"d"))
    assert [finding.violation for finding in findings] == [Violation.REORDERED]
    assert findings[0].evidence.startswith("a of t-0")


def test_unique_values_are_insisted_on() -> None:
    with pytest.raises(AssertionError, match="unique"):
        violations(sent(b"a", b"a"), [])

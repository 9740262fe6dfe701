"""The check of the share group of ``make soak-real`` finds each broken promise, and none in a good history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiokafka_lite import TopicPartition
from tests.end_to_end.send_history import Found
from tests.real.soak import GROUPS, TOPIC
from tests.real.soak_sharing import GROUP, LIMIT, LOCK, Sharing

HERE = TopicPartition(TOPIC, 0)


def delivered(at: float, count: int = 1) -> dict[str, Any]:
    return {"event": "delivered", "partition": 0, "offset": 7, "count": count, "at": at}


def done(kind: str, count: int = 1) -> dict[str, Any]:
    return {"event": kind, "partition": 0, "offset": 7, "count": count, "at": 2.0}


CONFIRMED = {"event": "confirmed", "partition": 0, "offsets": [7], "at": 3.0}


@pytest.mark.parametrize(
    "reports, promise",
    [
        ([("a", delivered(1)), ("a", done("accept")), ("a", CONFIRMED)], ""),
        ([("a", delivered(1)), ("a", done("release")), ("a", CONFIRMED)], "never accepted"),
        ([("a", delivered(1, LIMIT)), ("a", done("release"))], ""),
        ([("a", delivered(1, LIMIT + 1)), ("a", done("accept"))], "more than"),
        ([("a", delivered(1)), ("a", done("accept")), ("a", CONFIRMED), ("b", delivered(4))], ""),
        ([("a", delivered(1)), ("a", done("accept")), ("a", CONFIRMED), ("b", delivered(4, 2))], "came again"),
        ([("a", delivered(1)), ("a", done("accept")), ("a", CONFIRMED), ("b", delivered(4 + LOCK))], "came again"),
        ([("a", delivered(1)), ("b", delivered(1, 2)), ("a", done("accept")), ("b", done("accept", 2)),
          ("a", CONFIRMED), ("b", CONFIRMED)], "accepted twice"),
    ],
)  # fmt: skip
def test_each_broken_promise_is_found(reports: Sequence[tuple[str, dict[str, Any]]], promise: str) -> None:
    assert GROUP not in GROUPS
    sharing = Sharing("localhost:1", TOPIC, 2)
    for process, event in reports:
        sharing.hear(process, event)
    problems = list(sharing.problems({HERE: [Found(HERE, 7, b"value")]}))
    assert len(problems) == bool(promise)
    assert all(promise in problem for problem in problems)

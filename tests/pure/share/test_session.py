"""The client's half of a share session."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.share.session import EPOCH_MAX, LOST_BY, ShareSession, TopicIdPartition

A, B, C = (TopicIdPartition(b"t" * 16, number) for number in range(3))


def test_the_first_request_opens_the_session_and_names_every_partition() -> None:
    assert ShareSession().fetch([A, B]) == (0, (A, B), ())


def test_later_requests_name_only_what_changed() -> None:
    session = ShareSession()
    session.fetch([A, B])
    session.answered(ErrorCode.NONE)
    assert session.fetch([A, B]) == (1, (), ())
    session.answered(ErrorCode.NONE)
    assert session.fetch([B, C]) == (2, (C,), (A,))


def test_fetches_and_acknowledgements_share_the_epochs() -> None:
    session = ShareSession()
    session.fetch([A])
    session.answered(ErrorCode.NONE)
    assert session.acknowledge() == 1
    session.answered(ErrorCode.NONE)
    assert session.fetch([A]).epoch == 2


def test_a_request_that_is_refused_for_another_reason_counts_too() -> None:
    session = ShareSession()
    session.fetch([A])
    assert session.answered(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert session.epoch == 1


@pytest.mark.parametrize("code", LOST_BY, ids=lambda code: code.name)
def test_a_lost_session_is_opened_again_with_every_partition(code: ErrorCode) -> None:
    session = ShareSession()
    session.fetch([A])
    session.answered(ErrorCode.NONE)
    session.fetch([A])
    assert not session.answered(code)
    assert not session.is_open
    assert session.fetch([A]) == (0, (A,), ())


def test_a_request_without_an_answer_ends_the_session() -> None:
    session = ShareSession()
    session.fetch([A])
    session.answered(ErrorCode.NONE)
    session.lost()
    assert session.fetch([A, B]) == (0, (A, B), ())


def test_the_epoch_after_the_last_one_is_one() -> None:
    session = ShareSession(epoch=EPOCH_MAX)
    session.answered(ErrorCode.NONE)
    assert session.epoch == 1

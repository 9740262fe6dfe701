"""What an answer means for a batch."""

from __future__ import annotations

from itertools import product

import pytest

from aiokafka_lite.errors import AuthenticationError, ConnectionLost, ErrorCode, ProtocolError, UnsupportedVersion
from aiokafka_lite.producer.verdict import Verdict, is_retriable, judge
from tests.cases import case


def test_exactly_the_retriable_codes_are_retried() -> None:
    for code, idempotent in product(ErrorCode, (True, False)):
        with case(code, idempotent):
            verdict = judge(code, count=2, blamed=0, idempotent=idempotent)
            assert (verdict is Verdict.RETRY) == code.retriable


@pytest.mark.parametrize(
    "code, count, blamed, idempotent, verdict",
    [
        (ErrorCode.NONE, 1, 0, True, Verdict.DELIVERED),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 1, 0, True, Verdict.DELIVERED),
        (ErrorCode.MESSAGE_TOO_LARGE, 2, 0, True, Verdict.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, 1, 0, True, Verdict.REFUSED),
        (ErrorCode.RECORD_LIST_TOO_LARGE, 9, 0, False, Verdict.SPLIT),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 0, True, Verdict.UNKNOWN_SEQUENCE),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 1, 0, True, Verdict.UNKNOWN_SEQUENCE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 0, False, Verdict.REFUSED),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 1, 0, True, Verdict.OUTDATED_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 1, 0, False, Verdict.REFUSED),
        (ErrorCode.PRODUCER_FENCED, 1, 0, True, Verdict.FATAL),
        (ErrorCode.INVALID_RECORD, 5, 2, True, Verdict.PARTLY),
        (ErrorCode.INVALID_RECORD, 5, 5, True, Verdict.REFUSED),
        (ErrorCode.INVALID_RECORD, 5, 0, True, Verdict.REFUSED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, 0, True, Verdict.REFUSED),
    ],
)
def test_the_verdict(code: ErrorCode, count: int, blamed: int, idempotent: bool, verdict: Verdict) -> None:
    assert judge(code, count=count, blamed=blamed, idempotent=idempotent) is verdict


def test_a_lost_request_is_retried_unless_it_can_never_work() -> None:
    assert is_retriable(ConnectionLost("gone", sent=True))
    assert is_retriable(ProtocolError("garbage"))
    assert not is_retriable(AuthenticationError("no"))
    assert not is_retriable(UnsupportedVersion("no"))

"""The classification of an answer for a batch."""

from __future__ import annotations

from itertools import product

import pytest

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.producer.outcome import BatchOutcome, classify
from tests.case_notes import case


def test_exactly_the_retriable_codes_are_retried() -> None:
    for code, idempotent in product(ErrorCode, (True, False)):
        with case(code, idempotent):
            outcome = classify(code, count=2, refused=0, idempotent=idempotent)
            assert (outcome is BatchOutcome.RETRY) == code.retriable


@pytest.mark.parametrize(
    "code, count, refused, idempotent, outcome",
    [
        (ErrorCode.NONE, 1, 0, True, BatchOutcome.DELIVERED),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 1, 0, True, BatchOutcome.DELIVERED),
        (ErrorCode.MESSAGE_TOO_LARGE, 2, 0, True, BatchOutcome.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, 1, 0, True, BatchOutcome.REFUSED),
        (ErrorCode.RECORD_LIST_TOO_LARGE, 9, 0, False, BatchOutcome.SPLIT),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 0, True, BatchOutcome.UNKNOWN_SEQUENCE),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 1, 0, True, BatchOutcome.UNKNOWN_SEQUENCE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 0, False, BatchOutcome.REFUSED),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 1, 0, True, BatchOutcome.UNUSABLE_ID),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 1, 0, False, BatchOutcome.REFUSED),
        (ErrorCode.PRODUCER_FENCED, 1, 0, True, BatchOutcome.UNUSABLE_ID),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 1, 0, True, BatchOutcome.UNUSABLE_ID),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 1, 0, False, BatchOutcome.REFUSED),
        (ErrorCode.INVALID_RECORD, 5, 2, True, BatchOutcome.SOME_REFUSED),
        (ErrorCode.INVALID_RECORD, 5, 5, True, BatchOutcome.REFUSED),
        (ErrorCode.INVALID_RECORD, 5, 0, True, BatchOutcome.REFUSED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, 0, True, BatchOutcome.REFUSED),
    ],
)
def test_the_outcome(code: ErrorCode, count: int, refused: int, idempotent: bool, outcome: BatchOutcome) -> None:
    assert classify(code, count=count, refused=refused, idempotent=idempotent) is outcome

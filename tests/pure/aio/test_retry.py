"""The one rule for "may it be tried again". The table is Kafka's, with what this client raises itself."""

from __future__ import annotations

from aiokafka_lite.aio.retry import is_retriable
from aiokafka_lite.errors import (
    AuthenticationError,
    ConnectionLost,
    ErrorCode,
    KafkaTimeout,
    ProtocolError,
    UnsupportedVersion,
    error_for,
)


def test_failures_of_the_network_are_retriable() -> None:
    assert is_retriable(ConnectionLost("cut", sent=True))
    assert is_retriable(KafkaTimeout("silent"))
    assert is_retriable(ProtocolError("garbage"))


def test_refused_logins_missing_versions_and_wrong_calls_are_not() -> None:
    assert not is_retriable(AuthenticationError("password"))
    assert not is_retriable(UnsupportedVersion("too old"))
    assert not is_retriable(ValueError("wrong"))


def test_answers_are_retriable_as_kafka_says_and_for_a_broker_that_has_left() -> None:
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            assert is_retriable(error_for(code)) == (code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE), code

"""``is_retriable``: Kafka's table, and the errors that this client raises itself."""

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


def test_refused_logins_missing_versions_and_wrong_arguments_are_not_retriable() -> None:
    assert not is_retriable(AuthenticationError("password"))
    assert not is_retriable(UnsupportedVersion("too old"))
    assert not is_retriable(ValueError("wrong"))


def test_broker_errors_are_retriable_as_in_kafka_and_for_a_broker_that_left() -> None:
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            assert is_retriable(error_for(code)) == (code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE), code

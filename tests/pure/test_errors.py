"""The table of error codes, and the exceptions made from it."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiokafka_lite.errors import (
    AcknowledgementFailed,
    AuthorizationError,
    BrokerError,
    CommitFailed,
    ConnectionLost,
    CorruptRecord,
    DeserializationError,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    UnknownTopic,
    error_for,
)
from aiokafka_lite.types import TopicPartition


def test_the_table_has_every_code_of_kafka_4_3_without_a_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


@pytest.mark.parametrize(
    ("code", "retriable", "stale_metadata"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True, True),
        (ErrorCode.REQUEST_TIMED_OUT, True, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True, False),
        (ErrorCode.MESSAGE_TOO_LARGE, False, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False, False),
    ],
)
def test_flags_are_those_of_kafkas_exception_classes(code: ErrorCode, retriable: bool, stale_metadata: bool) -> None:
    assert (code.retriable, code.stale_metadata) == (retriable, stale_metadata)


def test_stale_metadata_is_always_retriable() -> None:
    assert all(code.retriable for code in ErrorCode if code.stale_metadata)


def test_an_error_names_what_was_done_the_code_and_its_meaning() -> None:
    error = error_for(3, "fetching orders-1 from broker 2")
    assert isinstance(error, UnknownTopic)
    assert str(error).startswith("fetching orders-1 from broker 2: UNKNOWN_TOPIC_OR_PARTITION (")


def test_a_meaning_that_the_broker_has_sent_is_not_said_twice() -> None:
    for code in ErrorCode:
        if code.description:
            text = str(error_for(code, f"writing 1 record to t-0: {code.description}"))
            assert text == f"writing 1 record to t-0: {code.description}: {code.name}"


def test_a_partition_in_the_error_of_a_commit_is_not_said_twice() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    refused: dict[TopicPartition, KafkaError] = {
        first: KafkaError("committing offset 5 of orders-0"),
        second: KafkaError("it has no leader"),
    }
    text = "committing offset 5 of orders-0; orders-1: it has no leader"
    assert str(CommitFailed(refused)) == str(AcknowledgementFailed(refused)) == text


def test_a_code_newer_than_the_table_keeps_its_number() -> None:
    error = error_for(999)
    assert (error.code, error.wire_code) == (ErrorCode.UNKNOWN_SERVER_ERROR, 999)
    assert "999" in str(error)


def test_authorization_errors_have_their_own_class() -> None:
    assert isinstance(error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED), AuthorizationError)
    assert type(error_for(ErrorCode.INVALID_REQUEST)) is BrokerError


def test_text_of_a_broker_cannot_forge_or_fill_a_log() -> None:
    text = str(error_for(ErrorCode.INVALID_CONFIG, "no:\r\n2026-01-01 INFO recovered \x1b[2J\u2028" + "x" * 10_000))
    assert text.isprintable()
    assert text.startswith("no:\ufffd\ufffd2026")
    assert len(text) < 1200


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'", topic="t", partition=3),
        error_for(12345, "odd"),
        DeserializationError("no", topic="t", partition=1, offset=2),
        CorruptRecord("bad", topic="t", partition=1, offset=2, next_offset=3),
        ConnectionLost("gone", sent=False),
        KafkaTimeout("late"),
        CommitFailed({TopicPartition("t", 0): BrokerError(ErrorCode.ILLEGAL_GENERATION)}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled_and_copied(error: KafkaError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert {name: repr(value) for name, value in vars(again).items()} == {
            name: repr(value) for name, value in vars(error).items()
        }

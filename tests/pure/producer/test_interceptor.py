"""Interceptors see records in their order, and cannot break them."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from aiokafka_lite.errors import ConfigurationError, KafkaTimeout
from aiokafka_lite.producer.interceptor import Interceptors, ProducerRecord
from aiokafka_lite.types import RecordMetadata

METADATA = RecordMetadata("t", 0, 5, 1_000, -1, 1)


class Appending:
    """Adds its mark to the value, and notes what it is told."""

    def __init__(self, mark: str, told: list[object]) -> None:
        self.mark, self.told = mark, told

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, value=f"{record.value}{self.mark}")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.told.append((self.mark, metadata, error))


class Failing:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError if record.value == "zero" else ValueError("broken")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("broken as well")


class Forgetful(Failing):
    def on_send(self, record: ProducerRecord) -> Any:
        return None


def test_each_is_given_what_the_one_before_made_of_the_record() -> None:
    told: list[object] = []
    chain = Interceptors([Appending("a", told), Appending("b", told)])
    assert chain.on_send(ProducerRecord("t", "v")) == ProducerRecord("t", "vab")
    chain.on_acknowledgement(METADATA, None)
    assert told == [("a", METADATA, None), ("b", METADATA, None)]


@pytest.mark.parametrize("broken", [Failing(), Forgetful()])
def test_one_that_fails_is_skipped(broken: Failing) -> None:
    told: list[object] = []
    chain = Interceptors([Appending("a", told), broken, Appending("b", told)])
    assert chain.on_send(ProducerRecord("t", "v")).value == "vab"
    error = KafkaTimeout("too late")
    chain.refused("t", None, error)
    nowhere = RecordMetadata("t", -1, -1, -1, -1, -1)
    assert told == [("a", nowhere, error), ("b", nowhere, error)]


def test_each_kind_of_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    chain = Interceptors([Failing()])
    with caplog.at_level(logging.ERROR):
        for value in ("v", "zero") * 10:
            chain.on_send(ProducerRecord("orders", value))
            chain.on_acknowledgement(METADATA, None)
    assert sorted(record.getMessage().split(" failed")[0] for record in caplog.records) == [
        "Failing.on_acknowledgement",
        "Failing.on_send",
        "Failing.on_send",
    ]
    assert "orders" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_something_else_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="no method on_send"):
        Interceptors([object()])  # type: ignore[list-item]

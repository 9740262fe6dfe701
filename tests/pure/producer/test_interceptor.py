"""Interceptors see records in their order, and cannot break them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from aiokafka_lite.errors import ConfigurationError, KafkaTimeout
from aiokafka_lite.producer.accept.interceptor import Interceptors, ProducerRecord
from aiokafka_lite.types import Header, RecordMetadata

METADATA = RecordMetadata("t", 0, 5, 1_000, -1, 1)


class Appending:
    """Adds its mark to the value, and notes what it is notified."""

    def __init__(self, mark: str, notified: list[object]) -> None:
        self.mark, self.notified = mark, notified

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, value=f"{record.value}{self.mark}")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        self.notified.append((self.mark, metadata, error))


class Failing:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError if record.value == "zero" else ValueError("broken")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        raise ValueError("broken as well")


class ReturningNothing(Failing):
    def on_send(self, record: ProducerRecord) -> Any:
        return None


def test_each_interceptor_receives_the_record_of_the_one_before() -> None:
    notified: list[object] = []
    chain = Interceptors([Appending("a", notified), Appending("b", notified)])
    assert chain.on_send(ProducerRecord("t", "v")) == ProducerRecord("t", "vab")
    chain.on_acknowledgement((), METADATA, None)
    assert notified == [("a", METADATA, None), ("b", METADATA, None)]


@pytest.mark.parametrize("broken", [Failing(), ReturningNothing()])
def test_an_interceptor_that_fails_is_skipped(broken: Failing) -> None:
    notified: list[object] = []
    chain = Interceptors([Appending("a", notified), broken, Appending("b", notified)])
    assert chain.on_send(ProducerRecord("t", "v")).value == "vab"
    error = KafkaTimeout("too late")
    chain.refused("t", None, (), error)
    nowhere = RecordMetadata("t", -1, -1, -1, -1, -1)
    assert notified == [("a", nowhere, error), ("b", nowhere, error)]


def test_each_kind_of_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    chain = Interceptors([Failing()])
    with caplog.at_level(logging.ERROR):
        for value in ("v", "zero") * 10:
            chain.on_send(ProducerRecord("orders", value))
            chain.on_acknowledgement((), METADATA, None)
    assert sorted(record.getMessage().split(" failed")[0] for record in caplog.records) == [
        "Failing.on_acknowledgement",
        "Failing.on_send",
        "Failing.on_send",
    ]
    assert "orders" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_an_object_without_the_methods_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"interceptor must be an object with on_send\(\)"):
        Interceptors([object()])  # type: ignore[list-item]


def test_an_acknowledgement_has_the_headers_that_an_interceptor_added() -> None:
    seen: list[Sequence[Header]] = []

    class Noting(Appending):
        def on_acknowledgement(
            self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]
        ) -> None:
            seen.append(headers)

    added = Header("origin", b"web-1")
    Interceptors([Noting("a", [])]).refused("t", None, {"a": b"1"}, KafkaTimeout("too late"))
    Interceptors([Noting("a", [])]).refused("t", None, [("a", b"1"), added], KafkaTimeout("too late"))
    Interceptors([Noting("a", [])]).refused("t", None, 5, KafkaTimeout("too late"))  # type: ignore[arg-type]
    assert seen == [(Header("a", b"1"),), (Header("a", b"1"), added), ()]
    assert seen[1][1] is added


def test_an_interceptor_that_takes_no_headers_is_refused() -> None:
    class Older(Failing):
        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:  # type: ignore[override]
            """Take no headers, as interceptors of earlier builds."""

    with pytest.raises(ConfigurationError, match=r"Older.on_acknowledgement must accept \(metadata, error, headers\)"):
        Interceptors([Older()])

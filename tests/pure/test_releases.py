"""The releases of Kafka that a test runs on."""

from __future__ import annotations

import pytest

from tests.real.releases import MATRIX, wanted


@pytest.mark.parametrize(
    "first, expected",
    [("0", ["embedded", "4.3.1", "1.1.1"]), ("2.5", ["embedded", "4.3.1", "2.8.2"]), ("3.0", ["embedded", "4.3.1"])],
)
def test_a_usual_run_has_the_newest_release_and_the_oldest_one_that_can_run_the_test(
    first: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    assert wanted("default", first) == expected


def test_the_matrix_has_every_release() -> None:
    assert wanted("all", "2.5") == ["embedded", *MATRIX]

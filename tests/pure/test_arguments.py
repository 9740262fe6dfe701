"""Checks of arguments that many calls share."""

from __future__ import annotations

import pytest

from aiokafka_lite.arguments import INT32_MAX, in_seconds, whole


def test_a_number_above_the_limit_of_the_protocol_is_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match=rf"max_records must be a whole number >= 1 and <= {INT32_MAX}, got {2**40}"):
        whole("max_records", 2**40, 1)
    with pytest.raises(ValueError, match=r"max_records must be a whole number >= 1, got 0"):
        whole("max_records", 0, 1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.549609, "0.55 s"), (0.5, "0.5 s"), (7, "7 s"), (99.96, "100 s"), (3599.5678, "3600 s")]
)
def test_a_duration_in_an_error_is_short_and_has_no_exponent(seconds: float, text: str) -> None:
    assert in_seconds(seconds) == text

"""Counters and percentiles."""

from __future__ import annotations

import pytest

from aiokafka_lite.net.traffic import RECENT, Latencies
from aiokafka_lite.producer.metrics import average


def test_percentiles_are_of_the_last_answers() -> None:
    latencies = Latencies()
    assert latencies.at(0.5, 1.0) == [None, None]
    for _ in range(10):
        latencies.add(1_000.0)
    for number in range(RECENT):
        latencies.add(float(number))
    assert latencies.at(0.0, 0.5, 0.99, 1.0) == [0.0, RECENT * 0.5, RECENT * 0.99, RECENT - 1]


def test_an_average_without_samples_is_none() -> None:
    assert average(0, 0) is None
    assert average(3, 2) == pytest.approx(1.5)

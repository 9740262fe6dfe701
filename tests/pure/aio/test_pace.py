from __future__ import annotations

import math

import pytest

from aiokafka_lite.aio.pace import Pace

FIRST, LOCK, WINDOW, LIMIT = 16, 30.0, 300.0, 500


def after_reads(*reads: tuple[int, float]) -> tuple[Pace, float]:
    """Return a pace after reads that returned so many records, each followed by so many seconds of work."""
    pace, now = Pace(FIRST), 100.0
    for count, seconds in reads:
        pace.begin_read(now, WINDOW)
        pace.returned(count, now)
        now += seconds
    pace.begin_read(now, WINDOW)
    return pace, now


def test_the_first_read_is_small() -> None:
    pace = Pace(FIRST)
    assert (pace.most_returned(500), pace.most_acquired(1, LOCK, LIMIT)) == (FIRST, FIRST)
    assert math.isinf(pace.taken_within(LOCK, 0.0, 1))


@pytest.mark.parametrize(("seconds", "acquired"), [(0.001, 500), (0.1, 150), (1.0, 15), (40.0, 1)])
def test_a_program_that_reads_one_by_one_acquires_what_it_takes_in_half_a_lock(seconds: float, acquired: int) -> None:
    pace, _ = after_reads(*[(1, seconds)] * 10)
    assert pace.most_acquired(1, LOCK, LIMIT) == acquired


def test_a_program_that_needs_too_long_for_a_read_gets_what_it_needs_half_of_the_time_for() -> None:
    pace, _ = after_reads((16, 16 * 30.0))
    assert pace.most_returned(500) == 5


def test_a_program_with_time_to_spare_gets_more() -> None:
    pace, _ = after_reads((16, 16 * 1.0))
    assert pace.most_returned(500) == 150


@pytest.mark.parametrize("seconds", [160.0, 220.0])
def test_a_program_that_is_about_in_time_gets_as_many_as_before(seconds: float) -> None:
    pace, _ = after_reads((16, seconds))
    assert pace.most_returned(500) == 16


def test_the_record_in_work_counts() -> None:
    pace, now = after_reads((1, 0.1), (1, 0.1))
    pace.returned(1, now)
    assert pace.taken_within(LOCK, now, 1) == pytest.approx(300.0)
    assert pace.taken_within(LOCK, now + 60.0, 1) == 0.5


def test_records_that_were_not_processed_measure_nothing() -> None:
    pace = Pace(1)
    pace.returned(1, 0.0)
    pace.abandoned()
    pace.begin_read(0.1, WINDOW)
    assert pace.most_returned(500) == 1


def test_a_read_without_records_measures_nothing() -> None:
    pace, _ = after_reads((1, 1.0), (0, 1_000.0))
    assert pace.most_acquired(1, LOCK, LIMIT) == 15

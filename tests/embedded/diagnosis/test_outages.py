"""An outage is logged once when it begins and once when it ends. Failures in between are counted."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokafka_lite.aio.outages import MAX_PLACES, Outages

logger = logging.getLogger(__name__)


async def test_the_first_failure_of_an_outage_differs_from_later_ones() -> None:
    outages = Outages()
    assert not outages
    assert outages.failed("here", OSError("one"))
    await asyncio.sleep(5.0)
    assert not outages.failed("here", OSError("two"))
    assert outages
    await asyncio.sleep(0.0)
    assert str(outages.over("here")) == "2 failed attempts in 5.0 s"
    assert outages.over("here") is None
    assert not outages


async def test_counts_outlast_the_outage() -> None:
    outages = Outages()
    began = asyncio.get_running_loop().time()
    outages.failed("here", OSError("one"))
    outages.over("here")
    await asyncio.sleep(10.0)
    assert outages.failed("here", OSError("two"))
    assert str(outages.over("here")) == "1 failed attempt in 0.0 s"
    (outage,) = outages.all()
    assert (outage.count, outage.error) == (2, "OSError: two")
    assert (outage.first, outage.last) == pytest.approx((began, began + 10), abs=1e-3)


async def test_places_are_counted_apart_and_the_latest_failure_comes_first() -> None:
    outages = Outages()
    outages.failed("here", OSError("one"))
    assert outages.failed("there", OSError("two"))
    assert outages.over("there") is not None
    assert [(outage.place, outage.began is None) for outage in outages.all()] == [("there", True), ("here", False)]


async def test_a_place_that_no_longer_exists_neither_fails_nor_recovers() -> None:
    outages = Outages()
    outages.failed("here", OSError("one"))
    outages.forget("here")
    assert not outages
    assert outages.over("here") is None


async def test_ongoing_outages_are_remembered_when_there_are_too_many_places() -> None:
    outages = Outages()
    outages.failed("lasting", OSError("one"))
    for number in range(2 * MAX_PLACES):
        outages.failed(f"place {number}", OSError("x"))
        outages.over(f"place {number}")
    assert len(outages.all()) == MAX_PLACES
    assert outages.over("lasting") is not None


async def test_an_outage_is_two_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outages = Outages()
    for _ in range(3):
        outages.report(logger, "producer id", OSError("refused"), "no producer id yet: %s", "refused")
    await asyncio.sleep(2.0)
    assert outages.recovered(logger, "producer id", "obtained a producer id")
    assert not outages.recovered(logger, "producer id", "obtained a producer id")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "no producer id yet: refused"),
        ("INFO", "obtained a producer id after 3 failed attempts in 2.0 s"),
    ]

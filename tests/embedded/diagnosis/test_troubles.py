"""Troubles are news once when they begin and once when they are over."""

from __future__ import annotations

import asyncio

from aiokafka_lite.aio.troubles import MOST_PLACES, Troubles


async def test_only_the_first_failure_and_the_first_success_are_news() -> None:
    troubles = Troubles()
    assert not troubles
    assert troubles.failed("here", OSError("one"))
    await asyncio.sleep(2)
    assert not troubles.failed("here", OSError("two"))
    assert troubles
    await asyncio.sleep(3)
    assert str(troubles.over("here")) == "2 failures in 5.0 s"
    assert troubles.over("here") is None
    assert not troubles


async def test_a_second_spell_counts_anew_but_all_is_remembered() -> None:
    troubles = Troubles()
    began = asyncio.get_running_loop().time()
    troubles.failed("here", OSError("one"))
    troubles.over("here")
    await asyncio.sleep(10)
    assert troubles.failed("here", OSError("two"))
    assert str(troubles.over("here")) == "1 failure in 0.0 s"
    (trouble,) = troubles.all()
    assert (trouble.count, trouble.error) == (2, "OSError: two")
    assert (trouble.first, trouble.last) == (began, began + 10)


async def test_places_do_not_mix() -> None:
    troubles = Troubles()
    troubles.failed("here", OSError("one"))
    assert troubles.failed("there", OSError("two"))
    assert troubles.over("there") is not None
    assert [(each.place, each.began is None) for each in troubles.all()] == [("there", True), ("here", False)]


async def test_a_place_that_is_no_more_is_neither_in_trouble_nor_well() -> None:
    troubles = Troubles()
    troubles.failed("here", OSError("one"))
    troubles.forget("here")
    assert not troubles
    assert troubles.over("here") is None


async def test_what_is_remembered_is_bounded_and_what_lasts_goes_last() -> None:
    troubles = Troubles()
    troubles.failed("lasting", OSError("one"))
    for number in range(2 * MOST_PLACES):
        troubles.failed(f"place {number}", OSError("x"))
        troubles.over(f"place {number}")
    assert len(troubles.all()) == MOST_PLACES
    assert troubles.over("lasting") is not None

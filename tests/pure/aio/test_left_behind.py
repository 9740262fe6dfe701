"""The check after a test lists all that the test left behind, also if the test fails. Decorators keep marks."""

from __future__ import annotations

import asyncio

import pytest

from tests.virtual import in_virtual_time, run_clean


async def leave(error: Exception | None = None) -> None:
    task = asyncio.create_task(asyncio.sleep(1000), name="left task")
    assert not task.done()
    asyncio.get_running_loop().call_exception_handler({"message": "a complaint"})
    if error is not None:
        raise error


def test_a_task_and_an_error_that_are_left_behind_are_listed_together() -> None:
    with pytest.raises(AssertionError, match=r"(?s)left task.*a complaint"):
        run_clean(leave())


def test_the_findings_after_a_failed_test_are_a_note_of_its_error() -> None:
    with pytest.raises(KeyError, match="body") as failed:
        run_clean(leave(KeyError("body")))
    (note,) = failed.value.__notes__
    assert "left task" in note
    assert "a complaint" in note


def test_a_mark_below_the_decorator_stays() -> None:
    @in_virtual_time
    @pytest.mark.long
    async def test() -> None:
        pass

    assert [mark.name for mark in test.pytestmark] == ["long"]  # type: ignore[attr-defined]
    assert test.__module__ == __name__

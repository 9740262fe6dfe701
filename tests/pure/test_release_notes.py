"""The notes of a release: a section of the changelog."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "release_notes.py"
TEXT = "# Changes\n\n## 0.2.0 (2027-01-01)\n\n- two\n\n## 0.1.0 (not released)\n\n- one\n"


@pytest.fixture
def notes() -> Callable[[str, str], str]:
    function: Callable[[str, str], str] = runpy.run_path(str(SCRIPT))["notes"]
    return function


def test_the_notes_are_the_section_of_the_version(notes: Callable[[str, str], str]) -> None:
    assert notes(TEXT, "0.2.0") == "- two\n"


@pytest.mark.parametrize(("version", "reason"), [("0.1.0", "give it a date"), ("0.3.0", "has no section 0.3.0")])
def test_a_version_that_is_not_ready_has_no_notes(notes: Callable[[str, str], str], version: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        notes(TEXT, version)

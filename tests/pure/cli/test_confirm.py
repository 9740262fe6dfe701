"""A command in a script deletes without a question. ``tests/end_to_end`` tests the questions on a terminal."""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.confirm import confirmed, listed, say_done


async def test_a_script_is_not_asked_and_gets_no_notes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert await confirmed("Delete orders?", False)
    say_done(["orders"], "deleted")
    assert capsys.readouterr().err == ""


def test_many_names_are_shortened() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"

"""The public API changes only with an entry in the changelog."""

from __future__ import annotations

import pytest

from tests.public_api import CHANGELOG, SNAPSHOT, current, unannounced


def test_a_changed_name_parameter_or_default_is_in_the_changelog() -> None:
    before = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    missing = unannounced(before, current(), CHANGELOG.read_text(encoding="utf-8"))
    assert missing == [], (
        "The public API has changed (docs/stability.md). Name each change in code marks in the first section of "
        "CHANGELOG.md. Before the first release it is enough to run: python -m tests.public_api"
    )


BEFORE = ["a.Producer.send: function", "a.Producer.send(timeout): keyword-only = None"]


@pytest.mark.parametrize(
    "after, entry, missing",
    [
        (BEFORE, "nothing", 0),
        ([*BEFORE, "a.Producer.send(key): keyword-only = None"], "`Producer.send`", 1),
        ([*BEFORE, "a.Producer.send(key): keyword-only = None"], "`Producer.send(key)`", 0),
        (["a.Producer.send: function", "a.Producer.send(timeout): keyword-only = 3.0"], "a timeout of `send`", 2),
        (["a.Producer.send: function", "a.Producer.send(timeout): keyword-only = 3.0"], "`timeout` of `send`", 0),
        ([], "`send` is gone", 1),
        ([*BEFORE, "a.Producer.receive: function"], "receives", 1),
    ],
)
def test_an_entry_names_what_changed(after: list[str], entry: str, missing: int) -> None:
    changelog = f"# Changes\n\n## 0.2 (not released)\n\n- **Producer**: {entry}.\n\n## 0.1\n\n- `key` `receive` `send`"
    assert len(unannounced(BEFORE, after, changelog)) == missing

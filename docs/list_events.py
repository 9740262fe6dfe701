"""Write the table in ``docs/logging.md`` from the events of ``on_event``: ``python docs/list_events.py``."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from aiokafka_lite.events import ClientEvent  # noqa: E402

PAGE = ROOT / "docs" / "logging.md"
BEGIN = "<!-- events: begin (docs/list_events.py writes them) -->"
END = "<!-- events: end -->"


def page() -> str:
    """Return the page with a current table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


def table() -> str:
    return "\n".join(["| event | fields | meaning |", "|---|---|---|", *map(_row, get_args(ClientEvent))])


def _row(event: type) -> str:
    names = ", ".join(f"`{field.name}`" for field in fields(event))
    meaning = " ".join((inspect.getdoc(event) or "").split()).replace("``", "`")
    return f"| `{event.__name__}` | {names} | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

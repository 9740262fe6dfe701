"""Write the table in ``docs/metrics.md`` from the instruments of the exporters: ``python docs/list_metrics.py``."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from aiokafka_lite.metrics.instruments import INSTRUMENTS, Instrument  # noqa: E402

PAGE = ROOT / "docs" / "metrics.md"
BEGIN = "<!-- instruments: begin (docs/list_metrics.py writes them) -->"
END = "<!-- instruments: end -->"


def page() -> str:
    """Return the page with a current table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"


def tables() -> str:
    lines = []
    for (kind, labels), group in groupby(
        INSTRUMENTS, lambda instrument: (instrument.name.split(".")[0], instrument.labels)
    ):
        names = ", ".join(f"`{label}`" for label in labels)
        lines += [f"**{kind.capitalize()}**, labels {names}:", "", "| Prometheus | OpenTelemetry | meaning |"]
        lines += ["|---|---|---|", *map(_row, group), ""]
    return "\n".join(lines)


def _row(instrument: Instrument) -> str:
    return f"| `{instrument.prometheus_name}` | `{instrument.opentelemetry_name}` | {instrument.description} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

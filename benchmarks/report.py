"""The report of ``make bench``: tables in RESULTS.md, between two marks, and JSON. ``charts.py`` draws the tables.

``python -m benchmarks.report`` writes them again from ``benchmarks/results.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.charts import fill
from benchmarks.worker import SETTINGS

BEGIN = "<!-- make bench: begin (benchmarks/report.py writes it) -->"

Cell = dict[str, Any]
Row = list[str]


def write_report(results: dict[str, Any], directory: Path, *, whole: bool) -> None:
    """Print the tables. For a whole run, write them into RESULTS.md, and the figures into results.json."""
    text = report(results)
    print(text)
    if not whole:
        return
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    fill(directory / "RESULTS.md", text, BEGIN)


def report(results: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    setup = results["setup"]
    lines = [
        "## Beside other clients: `make bench`",
        "",
        f"{setup['date']}, aiokafka_lite {setup['build']}, {setup['python']}, {setup['kafka']}, {setup['machine']}. "
        f"{setup['peers']}. {setup['partitions']} partitions; each candidate in a process of its own, "
        f"{setup['rounds']} rounds in turn. Medians, and in brackets the smallest and the largest value. CPU is that "
        "of the client's process. The ratios are to the first row, medians of the ratios within a round: a throughput "
        "above 1 is faster, CPU above 1 costs more.",
        "",
        SETTINGS.rstrip("\n"),
        "",
    ]
    cells = results["cells"]
    for kind, title in (("produce", "Producing"), ("consume", "Consuming")):
        chosen = [cell for cell in cells if cell["kind"] == kind]
        if chosen:
            lines += [f"### {title}", ""]
        for cell in chosen:
            lines += [f"**{cell['title']}** ({cell['count']:,} records)", "", *_throughput_table(cell), ""]
    chosen = [cell for cell in cells if cell["kind"] == "senders"]
    if chosen:
        lines += ["### Tasks that each await their sends", ""]
    for cell in chosen:
        lines += [f"**{cell['title']}** ({cell['count']:,} sends)", "", *_senders_table(cell), ""]
    return "\n".join(lines)


def _measured(cell: Cell) -> dict[str, list[dict[str, float]]]:
    """Return the results of each candidate, without failed rounds."""
    return {label: [round_ for round_ in rounds if round_] for label, rounds in cell["results"].items()}


def _table(head: Sequence[str], rows: Iterable[Row]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def _spread(values: list[float], form: Callable[[float], str]) -> str:
    return f"{form(median(values))} ({form(min(values))} – {form(max(values))})"


def _ratio(cell: Cell, label: str, figure: str, *, inverse: bool = False) -> str:
    """Return the median over the rounds in which both the candidate and the first one have a result."""
    first = cell["results"][next(iter(cell["results"]))]
    pairs = [(own[figure], base[figure]) for own, base in zip(cell["results"][label], first) if own and base]
    if not pairs:
        return ""
    return f"{median(base / own if inverse else own / base for own, base in pairs):.2f}"


def _throughput_table(cell: Cell) -> list[str]:
    count, size = cell["count"], cell["size"]
    rows: list[Row] = []
    for label, measured in _measured(cell).items():
        if not measured:
            rows.append([label, f"failed: {cell['problems'].get(label, '')}", "", "", "", ""])
            continue
        rates = [count / run["wall"] for run in measured]
        costs = [run["cpu"] / count * 1e6 for run in measured]
        rows.append(
            [
                label,
                _spread(rates, lambda rate: f"{rate:,.0f}"),
                f"{median(rates) * size / 1e6:,.0f}",
                _spread(costs, _microseconds),
                _ratio(cell, label, "wall", inverse=True),
                _ratio(cell, label, "cpu"),
            ]
        )
    return _table(("", "records/s", "MB/s", "µs of CPU per record", "throughput ratio", "CPU ratio"), rows)


def _senders_table(cell: Cell) -> list[str]:
    rows: list[Row] = []
    for label, measured in _measured(cell).items():
        if not measured:
            rows.append([label, f"failed: {cell['problems'].get(label, '')}", "", "", "", "", ""])
            continue
        p50, p99 = ([run[figure] * 1000 for run in measured] for figure in ("p50", "p99"))
        rows.append(
            [
                label,
                _spread(p50, lambda ms: f"{ms:.2f}"),
                _spread(p99, lambda ms: f"{ms:.2f}"),
                _spread([run["cpu"] / cell["count"] * 1e6 for run in measured], _microseconds),
                *(_ratio(cell, label, figure) for figure in ("p50", "p99", "cpu")),
            ]
        )
    return _table(("", "p50 ms", "p99 ms", "µs of CPU per send", "p50 ratio", "p99 ratio", "CPU ratio"), rows)


def _microseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main() -> None:
    here = Path(__file__).parent
    write_report(json.loads((here / "results.json").read_text()), here, whole=True)


if __name__ == "__main__":
    main()

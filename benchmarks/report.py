"""The report of ``make bench``: tables in RESULTS.md, between two marks, and JSON. ``charts.py`` draws the tables.

``python -m benchmarks.report`` writes them again from ``benchmarks/results.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.charts import fill
from benchmarks.job import SETTINGS

BEGIN = "<!-- make bench: begin (benchmarks/report.py writes it) -->"

Cell = dict[str, Any]
Run = dict[str, float]
Row = list[str]


@dataclass(frozen=True, slots=True)
class Figure:
    """A column: the median over the rounds, and with ``has_spread`` the smallest and the largest value."""

    head: str
    value: Callable[[Cell, Run], float]
    form: Callable[[float], str]
    has_spread: bool = True


@dataclass(frozen=True, slots=True)
class Ratio:
    """A column: the median of the ratios to the first row within a round."""

    head: str
    figure: str
    inverse: bool = False


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _hundredths(value: float) -> str:
    return f"{value:.2f}"


def _rate(unit: str) -> Figure:
    return Figure(f"{unit}s/s", lambda cell, run: cell["count"] / run["wall"], _digits)


def _cpu(unit: str) -> Figure:
    return Figure(f"µs of CPU per {unit}", lambda cell, run: run["cpu"] / cell["count"] * 1e6, _digits)


def _milliseconds(figure: str) -> Figure:
    return Figure(f"{figure} ms", lambda cell, run: run[figure] * 1000, _hundredths)


MEGABYTES = Figure("MB/s", lambda cell, run: cell["count"] * cell["size"] / run["wall"] / 1e6, _whole, False)
MEMORY = Figure("MB of memory", lambda cell, run: run["memory"] / 1e6, _whole, False)
MS_OF_CPU = Figure("ms of CPU", lambda cell, run: run["cpu"] * 1000, _whole)
THROUGHPUT, CPU = Ratio("throughput ratio", "wall", inverse=True), Ratio("CPU ratio", "cpu")
P50, P99 = Ratio("p50 ratio", "p50"), Ratio("p99 ratio", "p99")


def columns(cell: Cell) -> list[Figure | Ratio]:
    """Return the columns of the table of a cell."""
    unit = cell.get("unit", "record")
    match cell["kind"]:
        case "senders":
            return [_milliseconds("p50"), _milliseconds("p99"), _cpu(unit), P50, P99, CPU, MEMORY]
        case "times":
            return [_milliseconds("p50"), _rate(unit), _cpu(unit), P50, THROUGHPUT, CPU, MEMORY]
        case "web":
            return [_rate(unit), _milliseconds("p50"), _milliseconds("p99"), _cpu(unit), THROUGHPUT, P99, CPU, MEMORY]
        case "idle":
            seconds = Figure(
                "ms of CPU a second", lambda cell, run: run["cpu"] / run["wall"] / cell["count"] * 1000, _digits
            )
            memory = Figure("kB of memory", lambda cell, run: run["memory"] / cell["count"] / 1e3, _whole)
            return [seconds, memory, CPU, Ratio("memory ratio", "memory")]
        case "spark rows":
            return [_rate(unit), _cpu(unit), THROUGHPUT, CPU]
        case "spark batches":
            phases = [_milliseconds(phase) for phase in ("latestOffset", "queryPlanning", "addBatch", "logs")]
            return [_milliseconds("p50"), *(replace(phase, has_spread=False) for phase in phases), MS_OF_CPU, P50, CPU]
        case "spark plans":
            return [_milliseconds("p50"), MS_OF_CPU, P50, CPU]
        case "start":
            wall = Figure("ms", lambda cell, run: run["wall"] * 1000, _whole)
            return [wall, MS_OF_CPU, Ratio("time ratio", "wall"), CPU, MEMORY]
    return [_rate(unit), MEGABYTES, _cpu(unit), THROUGHPUT, CPU, MEMORY]


SECTIONS = (
    ("Producing", "produce"),
    ("Consuming", "consume"),
    ("Tasks that each await their sends", "senders"),
    ("Transactions, and members that join a group", "times"),
    ("A web service", "web"),
    ("A client that does nothing", "idle"),
    ("A start", "start"),
    ("Spark, beside its own connector", "spark rows"),
    ("Spark's micro-batches, one directly after the other", "spark batches"),
    ("Spark's planning", "spark plans"),
)
"""Headings, and the kinds of the cells below them."""


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
        f"{setup['rounds']} rounds in turn{_load(setup)}. Medians, and in brackets the smallest and the largest "
        "value. CPU is that of the client's process. The ratios are to the first row, medians of the ratios within a "
        "round: a throughput above 1 is faster, CPU above 1 costs more. Memory is the largest resident size of the "
        "process; of idle clients, what one more takes.",
        "",
        SETTINGS.rstrip("\n"),
        "",
    ]
    if missing := setup.get("missing"):
        lines[-1:] = [f"- The rows of {program} are left out: {problem}." for program, problem in missing.items()] + [
            ""
        ]
    for title, kind in SECTIONS:
        chosen = [cell for cell in results["cells"] if cell["kind"] == kind]
        if chosen:
            lines += [f"### {title}", ""]
        for cell in chosen:
            count = cell["count"]
            unit = f"{cell.get('unit', 'record')}{'s' * (count != 1)}"
            lines += [f"**{cell['title']}** ({count:,} {unit})", "", *_cell_table(cell), ""]
    return "\n".join(lines)


def _load(setup: dict[str, Any]) -> str:
    """Say how many other processes wanted to run, if there were some."""
    load = setup.get("load", "0")
    return f", with a load of {load} when the run began" if int(load) > 0 else ""


def _measured(cell: Cell) -> dict[str, list[Run]]:
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


def _cell_table(cell: Cell) -> list[str]:
    of_kind = columns(cell)
    rows: list[Row] = []
    for label, measured in _measured(cell).items():
        if not measured:
            rows.append([label, f"failed: {cell['problems'].get(label, '')}", *[""] * (len(of_kind) - 1)])
            continue
        rows.append([label, *(_text(cell, label, measured, column) for column in of_kind)])
    return _table(("", *(column.head for column in of_kind)), rows)


def _text(cell: Cell, label: str, measured: list[Run], column: Figure | Ratio) -> str:
    if isinstance(column, Ratio):
        return _ratio(cell, label, column.figure, inverse=column.inverse)
    values = [column.value(cell, run) for run in measured]
    return _spread(values, column.form) if column.has_spread else column.form(median(values))


def main() -> None:
    here = Path(__file__).parent
    write_report(json.loads((here / "results.json").read_text()), here, whole=True)


if __name__ == "__main__":
    main()

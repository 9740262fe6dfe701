"""The report of ``make bench``: tables in RESULTS.md and charts in the README, each between two marks, and JSON.

``python -m benchmarks.report`` writes them again from ``benchmarks/results.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.worker import SETTINGS

BEGIN = "<!-- make bench: begin (benchmarks/report.py writes it) -->"
END = "<!-- make bench: end -->"

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
    _fill(directory / "RESULTS.md", text)
    _fill(directory.parent / "README.md", _charts(results["setup"]))


def _fill(page: Path, text: str) -> None:
    """Replace the text between the marks of a page. Makes the page if it does not exist, as in another directory."""
    before = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    head, rest = before.split(BEGIN, 1)
    page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}")


def _charts(setup: dict[str, str]) -> str:
    names = {"produce": "writing", "consume": "reading", "latency": "the time of an awaited send"}
    charts = "\n".join(
        f"![Beside other clients: {what}](docs/images/bench-{name}.png)\n" for name, what in names.items()
    )
    return (
        "## How fast it is\n\n"
        f"{charts}\n"
        f"One run of `make bench` on {setup['date']}, {setup['build']}, {setup['kafka']}, {setup['machine']};\n"
        f"{setup['peers']}. [All figures](benchmarks/RESULTS.md), [where the time goes](docs/performance.md).\n"
    )


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


# Charts.

OURS, PLAIN, THEIRS = "#1f6f54", "#7fb8a4", "#b9bdc5"


def write_charts(results: dict[str, Any], directory: Path) -> None:
    """Write the charts as PNG files. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    cells = {cell["title"]: cell for cell in results["cells"]}
    produce = [cells[title] for title in cells if "each record acknowledged" in title]
    consume = [cells["consume 100 B"]]
    _bars(produce, "Writing records of 100 bytes: µs of CPU per acknowledged record", directory / "bench-produce.png")
    _bars(consume, "Reading records of 100 bytes: µs of CPU per record", directory / "bench-consume.png")
    _latency([cell for cell in results["cells"] if cell["kind"] == "senders"], directory / "bench-latency.png")


def _colour(label: str) -> str:
    if not label.startswith("aiokafka_lite"):
        return THEIRS
    return PLAIN if "plain" in label else OURS


def _bars(cells: list[Cell], title: str, path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(cells), figsize=(5.2 * len(cells) + 3, 3.6), squeeze=False, sharex=True)
    for axis, cell in zip(axes[0], cells):
        measured = {label: runs for label, runs in _measured(cell).items() if runs}
        costs = [[run["cpu"] / cell["count"] * 1e6 for run in runs] for runs in measured.values()]
        middles = [median(cost) for cost in costs]
        errors = [[m - min(c) for m, c in zip(middles, costs)], [max(c) - m for m, c in zip(middles, costs)]]
        places = range(len(measured))
        axis.barh(places, middles, xerr=errors, color=[_colour(label) for label in measured], ecolor="#555", capsize=2)
        axis.set_yticks(places, list(measured), fontsize=8)
        axis.invert_yaxis()
        for place, (middle, error) in enumerate(zip(middles, errors[1])):
            axis.text(middle + error, place, f" {middle:.2f}", va="center", fontsize=8)
        axis.set_title(cell["title"], fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.12)
    figure.suptitle(title + " (less is better)", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _latency(cells: list[Cell], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    labels = list(cells[0]["results"])
    for axis, name in zip(axes, ("p50", "p99")):
        for label in labels:
            points = [
                (cell["senders"], median(run[name] for run in runs) * 1000)
                for cell in cells
                if (runs := _measured(cell)[label])
            ]
            if points:
                style = "-" if label.startswith("aiokafka_lite") else "--"
                axis.plot(*zip(*points), style, marker="o", markersize=3, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("tasks that each await their sends")
        axis.set_title(f"{name} of an awaited send, ms", fontsize=10)
        axis.grid(True, alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    here = Path(__file__).parent
    results = json.loads((here / "results.json").read_text())
    write_report(results, here, whole=True)
    write_charts(results, here.parent / "docs" / "images")


if __name__ == "__main__":
    main()

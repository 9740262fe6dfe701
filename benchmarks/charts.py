"""The charts of the documentation and the README's figures, from the tables of RESULTS.md.

``python -m benchmarks.charts`` writes them. A chart is one panel of bars: an SVG file whose text stays text, and is
large enough for a phone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- make bench: begin (benchmarks/charts.py writes it) -->"
END = "<!-- make bench: end -->"

OURS, PLAIN, THEIRS = "#1f6f54", "#7fb8a4", "#b9bdc5"


@dataclass(frozen=True)
class Chart:
    """Which column of which table a chart shows."""

    file: str
    table: str
    column: str
    title: str
    without: str = ""


WRITING, READING, SENDING = CHARTS = (
    Chart(
        "bench-produce",
        "produce 100 B, each record acknowledged",
        "µs of CPU per record",
        "Writing: µs of CPU per acknowledged record",
        without=" send_nowait, deliveries awaited",
    ),
    Chart("bench-consume", "consume 100 B", "µs of CPU per record", "Reading: µs of CPU per record"),
    Chart(
        "bench-latency",
        "awaited sends by 1,000 tasks, 100 B",
        "p99 ms",
        "1,000 tasks that await their sends: p99 in ms",
    ),
)


@dataclass(frozen=True)
class Figure:
    """A median, with the smallest and the largest value, as printed."""

    median: str
    least: str
    most: str

    @property
    def values(self) -> tuple[float, float, float]:
        median, least, most = (float(text.replace(",", "")) for text in (self.median, self.least, self.most))
        return median, least, most


def figures(report: str, chart: Chart) -> dict[str, Figure]:
    """Return the figures of a chart by candidate. Candidates that failed are left out. Raises ValueError."""
    match = re.search(rf"^\*\*{re.escape(chart.table)}\*\* .*\n\n((?:\|.*\n)+)", report, re.MULTILINE)
    if match is None:
        raise ValueError(f"RESULTS.md has no table {chart.table!r}")
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in match[1].splitlines())
    column = head.index(chart.column)
    cells = {row[0]: re.fullmatch(r"(\S+) \((\S+) – (\S+)\)", row[column]) for row in rows}
    return {name: Figure(*cell.groups()) for name, cell in cells.items() if cell is not None}


def label(name: str, chart: Chart) -> str:
    """Return the words beside the bar of a candidate."""
    return name.replace(chart.without, "") if chart.without else name


def draw(report: str, chart: Chart, images: Path) -> None:
    """Write a chart into a directory. Needs matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    rows = figures(report, chart)
    # With these, the same figures are the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.file, "font.family": "sans-serif"}):
        drawing = Drawing(figsize=(5.5, 0.6 + 0.5 * len(rows)))
        axes = drawing.add_axes((0.03, 0.02, 0.94, 0.98 - 0.4 / drawing.get_figheight()))
        longest = max(figure.values[2] for figure in rows.values())
        for place, (name, figure) in enumerate(rows.items()):
            median, least, most = figure.values
            ours = name.startswith("aiokafka_lite")
            colour = PLAIN if "plain" in name else OURS if ours else THEIRS
            axes.barh(place, median, height=0.42, color=colour)
            axes.plot([least, most], [place, place], color="#555", linewidth=1)
            axes.text(0, place - 0.28, label(name, chart), fontsize=11, va="bottom")
            axes.text(most + longest / 60, place, figure.median, fontsize=11, va="center", weight="bold")
        axes.set_ylim(len(rows) - 0.6, -0.9)
        axes.set_xlim(0, longest * 1.16)
        axes.set_axis_off()
        drawing.text(0.03, 1 - 0.12 / drawing.get_figheight(), f"{chart.title} (less is better)", fontsize=12, va="top")
        drawing.savefig(images / f"{chart.file}.svg", metadata={"Date": None, "Creator": None})


def readme(report: str) -> str:
    """Return the README's chart and its line of figures."""
    setup = re.search(r"^(\d{4}-\d\d-\d\d), aiokafka_lite (.*?)\. (.*?)\. \d+ partitions", report, re.MULTILINE)
    if setup is None:
        raise ValueError("RESULTS.md does not say when and on what it was measured")
    date, machine, peers = setup.groups()
    name = "aiokafka_lite send_nowait, deliveries awaited"
    written, plainly, theirs, other = (
        figures(report, WRITING)[candidate].median
        for candidate in (name, f"{name}, plain Python", "confluent-kafka, delivery callback", "aiokafka")
    )
    name = "aiokafka_lite async for"
    read = [
        figures(report, READING)[candidate].median
        for candidate in (name, f"{name}, plain Python", "confluent-kafka consume(5000)", "aiokafka getmany")
    ]
    return (
        f"![{WRITING.title}: aiokafka_lite {written}, confluent-kafka {theirs}, aiokafka {other}]"
        f"(docs/images/{WRITING.file}.svg)\n\n"
        f"**{written} µs of CPU** for each acknowledged record of 100 bytes (plain Python {plainly}); "
        f"confluent-kafka {theirs}, aiokafka {other}.\n"
        f"**{read[0]} µs** to read one with `async for` (plain Python {read[1]}); confluent-kafka `consume` {read[2]}, "
        f"aiokafka `getmany` {read[3]}.\n\n"
        f"One run of `make bench` on {date}:\n{machine};\n{peers}.\n"
        "[Benchmarks](docs/benchmarks.md) · [All figures](benchmarks/RESULTS.md) · "
        "[Where the time goes](docs/performance.md)\n"
    )


def fill(page: Path, text: str, begin: str = BEGIN) -> None:
    """Replace the text between the marks of a page. Makes the page if it does not exist, as in another directory."""
    before = page.read_text(encoding="utf-8") if page.exists() else f"{begin}\n{END}\n"
    head, rest = before.split(begin, 1)
    page.write_text(f"{head}{begin}\n\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def write(root: Path) -> None:
    """Write the charts and the README's figures of a checkout from its RESULTS.md."""
    report = (root / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    images = root / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    for chart in CHARTS:
        draw(report, chart, images)
    fill(root / "README.md", readme(report))


if __name__ == "__main__":
    write(Path(__file__).parents[1])

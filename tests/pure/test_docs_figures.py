"""The charts and the README have the figures of benchmarks/RESULTS.md."""

from __future__ import annotations

import re

import pytest

from benchmarks import charts
from tests.pure.documents import ROOT

REPORT = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("chart", charts.CHARTS, ids=lambda chart: chart.file)
def test_a_chart_has_each_candidate_and_its_median(chart: charts.Chart) -> None:
    drawn = (ROOT / "docs" / "images" / f"{chart.file}.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    rows = charts.figures(REPORT, chart)
    assert len(rows) >= 6
    expected = [text for name, figure in rows.items() for text in (charts.label(name, chart), figure.median)]
    assert sorted(texts) == sorted([f"{chart.title} (less is better)", *expected]), "run: python -m benchmarks.charts"


def test_the_readme_has_the_figures_of_the_last_run() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert charts.readme(REPORT) in readme, "run: python -m benchmarks.charts"


def test_a_report_without_the_table_of_a_chart_is_refused() -> None:
    with pytest.raises(ValueError, match="no table 'consume 100 B'"):
        charts.figures("# Figures\n", charts.READING)

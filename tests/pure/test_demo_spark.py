"""The checks of the demo's Spark part detect every kind of wrong window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("typer")

from demo_spark import CITIES, FIRST, SPAN, WINDOW, Row, draw, expected, faults, order

COUNT = 2_000
EXPECTED = expected(COUNT)
Rows = list[Row]


def test_right_windows_have_no_fault() -> None:
    assert faults("topic", EXPECTED, EXPECTED) == []


def changed(rows: Rows) -> Rows:
    first, *rest = rows
    return [first._replace(cents=first.cents + 1), *rest]


WRONG: dict[str, tuple[Callable[[Rows], Rows], list[str]]] = {
    "missing": (lambda rows: rows[1:], ["is missing"]),
    "repeated": (lambda rows: [*rows, rows[0]], ["must not be"]),
    "changed": (changed, ["must not be", "is missing"]),
    "invented": (lambda rows: [*rows, Row(FIRST + SPAN, CITIES[0], 1, 1)], ["must not be"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_fault_is_detected(kind: str) -> None:
    change, complaints = WRONG[kind]
    messages = faults("Parquet", change(EXPECTED), EXPECTED)
    assert len(messages) == len(complaints)
    assert all(complaint in message for message, complaint in zip(messages, complaints))


def test_all_orders_are_in_the_windows_of_one_hour() -> None:
    assert sum(row.orders for row in EXPECTED) == COUNT
    assert {row.city for row in EXPECTED} == set(CITIES)
    assert {row.window for row in EXPECTED} == {FIRST + WINDOW * number for number in range(SPAN // WINDOW)}
    times = [order(number, COUNT)[2] for number in range(COUNT)]
    assert times == sorted(times)


def test_the_chart_is_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw(EXPECTED, tmp_path / "chart.png", source="2,000 orders").read_bytes().startswith(b"\x89PNG")

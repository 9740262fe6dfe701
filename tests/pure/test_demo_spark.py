"""The checks of the demo's Spark part detect every kind of wrong window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.demo_spark import CITIES, FIRST, SPAN, WINDOW, Row, draw, expected, faults, order

COUNT = 2_000
WANTED = expected(COUNT)
Found = list[Row]


def test_right_windows_have_no_fault() -> None:
    assert faults("topic", WANTED, WANTED) == []


def changed(found: Found) -> Found:
    first, *rest = found
    return [first._replace(cents=first.cents + 1), *rest]


WRONG: dict[str, tuple[Callable[[Found], Found], list[str]]] = {
    "missing": (lambda found: found[1:], ["is missing"]),
    "repeated": (lambda found: [*found, found[0]], ["must not be"]),
    "changed": (changed, ["must not be", "is missing"]),
    "invented": (lambda found: [*found, Row(FIRST + SPAN, CITIES[0], 1, 1)], ["must not be"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_fault_is_detected(kind: str) -> None:
    change, complaints = WRONG[kind]
    found = faults("Parquet", change(WANTED), WANTED)
    assert len(found) == len(complaints)
    assert all(complaint in fault for fault, complaint in zip(found, complaints))


def test_all_orders_are_in_the_windows_of_one_hour() -> None:
    assert sum(each.orders for each in WANTED) == COUNT
    assert {each.city for each in WANTED} == set(CITIES)
    assert {each.window for each in WANTED} == {FIRST + WINDOW * number for number in range(SPAN // WINDOW)}
    times = [order(number, COUNT)[2] for number in range(COUNT)]
    assert times == sorted(times)


def test_the_chart_is_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw(WANTED, tmp_path / "chart.png", source="2,000 orders").read_bytes().startswith(b"\x89PNG")

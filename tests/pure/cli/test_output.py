"""One table in three forms: for a terminal, for a pipe, and as JSON."""

from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("rich")

from rich.console import Console

from aiokafka_lite.cli.groups import LAG_HEADINGS
from aiokafka_lite.cli.lag import TREND_HEADINGS
from aiokafka_lite.cli.terminal.output import Facts, Output, Table, rich_table, show_errors, text_of

TABLE = Table(
    ("TOPIC", "LOG-END-OFFSET", "REPLICAS", "INTERNAL"),
    [("orders", 5, [1, 2], False), ("with\ttab\n", None, [], True)],
)


def test_plain_text_has_a_line_for_each_row_and_a_column_for_each_heading(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show(TABLE)
    assert capsys.readouterr().out == (
        "TOPIC\tLOG-END-OFFSET\tREPLICAS\tINTERNAL\norders\t5\t1,2\tno\nwith\\ttab\\n\t-\t-\tyes\n"
    )


def test_headings_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Output(headings=False).show(Table(("A",), [(1,)]))
    assert capsys.readouterr().out == "1\n"


def test_json_has_the_headings_as_names_and_the_cells_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).show(TABLE)
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "orders", "log_end_offset": 5, "replicas": [1, 2], "internal": False},
        {"topic": "with\ttab\n", "log_end_offset": None, "replicas": [], "internal": True},
    ]


def test_parts_are_one_object_in_json_and_separate_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"cluster": Facts({"cluster_id": "x"}), "brokers": Table(("BROKER",), [(1,)])}
    Output(as_json=True).show_all(parts)
    assert json.loads(capsys.readouterr().out) == {"cluster_id": "x", "brokers": [{"broker": 1}]}
    Output().show_all(parts)
    assert capsys.readouterr().out == "cluster id\tx\n\nBROKER\n1\n"


def test_a_terminal_gets_a_table_whose_cells_are_no_markup() -> None:
    screen = io.StringIO()
    Console(file=screen, width=60).print(rich_table(Table(("NAME",), [("[red]x",)]), 60))
    assert "[red]x" in screen.getvalue()
    assert "─" in screen.getvalue()


def test_the_table_of_lag_watch_fits_a_terminal_of_80_columns() -> None:
    screen = io.StringIO()
    row = ("shipping", "Stable", "orders", 12, 123456, 12345, -1192.3, 1050)
    Console(file=screen, width=80).print(rich_table(Table(TREND_HEADINGS, [row]), 80))
    words = screen.getvalue().split()
    assert [*words[:4], *words[-8:]] == ["LAG-PER-", "CATCH-UP-", "GROUP", "STATE", *map(str, row)]
    assert {"TOPIC", "PARTITIONS", "LAG", "HIGHEST", "SECOND", "SECONDS"} < set(words)


def test_a_folded_cell_begins_on_the_line_of_its_row() -> None:
    screen = io.StringIO()
    table = Table(("NAME", "LOG-END-OFFSET"), [("x" * 30 + "y" * 10, 7), ("z", 8)])
    Console(file=screen, width=40).print(rich_table(table, 40))
    lines = [line.split() for line in screen.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["LOG-END-"]
    assert lines[1] == ["NAME", "OFFSET"]
    first, second = lines[3:5]
    assert first[-1] == "7"
    assert first[0].startswith("x")
    assert len(second) == 1
    assert second[0].endswith("y")


@pytest.mark.parametrize("width", [40, 80])
def test_rows_that_do_not_fit_the_terminal_are_lists_with_whole_words(width: int) -> None:
    row = ("shipping", "orders", 0, None, 17, None, "client-0dd69659", "/127.0.0.1", "client")
    screen = io.StringIO()
    Console(file=screen, width=width).print(rich_table(Table(LAG_HEADINGS, [row, row]), width))
    lines = [line.split() for line in screen.getvalue().splitlines()]
    as_list = [[heading, text_of(cell)] for heading, cell in zip(LAG_HEADINGS, row)]
    assert lines == [*as_list, [], *as_list]
    assert "─" in str(list(Console(width=200).render(rich_table(Table(LAG_HEADINGS, [row]), 100))))


def test_each_error_is_a_line_and_makes_the_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_errors([]) == 0
    assert show_errors([ValueError("first\nof two"), ValueError("second")]) == 1
    assert capsys.readouterr().err == "aiokafka-lite: first of two\naiokafka-lite: second\n"


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    table = rich_table(Table(("GROUP", "STATE", "LAG"), [("g", "Stable", 7)]), 60)

    def printed() -> str:
        screen = io.StringIO()
        Console(file=screen, width=60, force_terminal=True, color_system="standard").print(table)
        return screen.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[33m  7" in printed()
    assert "\x1b[32mStable" in printed()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in printed()

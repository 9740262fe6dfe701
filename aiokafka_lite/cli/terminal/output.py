"""The output of commands: tables on a terminal, lines with tabs into a pipe, or JSON.

All forms have the same content. A row of JSON is an object whose names are the headings in lower case. A line of plain
text has a column per heading, ``-`` for a missing value, and lists joined by commas. A command that changes something
prints one JSON object, with the changed items and the errors of the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .refusals import explained_refusal
from .run import FAILED, say, with_options

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table as RichTable

Cell = str | int | float | bool | None | Sequence[object]
NOTHING = "-"
LEGIBLE = 16
"""Columns of a terminal to which a longer text may be folded in a table."""

VALIDATED = "nothing was changed; remove --validate-only to make the change"
"""The note of a command that only checked a change."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, written as in Kafka's tools: LOG-END-OFFSET."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    def as_objects(self) -> list[dict[str, Cell]]:
        """Return the rows with names, for JSON."""
        return [self.as_object(row) for row in self.rows]

    def as_object(self, row: Iterable[Cell]) -> dict[str, Cell]:
        """Return a row, or its first cells, with names."""
        return {heading.lower().replace("-", "_"): cell for heading, cell in zip(self.headings, row)}


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    values: Mapping[str, Cell]


Part = Table | Facts


class Output:
    """Prints to stdout: for a terminal, for a pipe, or as JSON."""

    def __init__(self, *, as_json: bool = False, headings: bool = True) -> None:
        self.as_json = as_json
        self.headings = headings

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return sys.stdout.isatty()

    def show(self, part: Part) -> None:
        """Print a table or facts."""
        if self.as_json:
            self.print_json(_plain(part))
        else:
            self._print(part)

    def show_all(self, parts: Mapping[str, Part]) -> None:
        """Print several parts one after the other. As JSON, they are one object; facts become members of it."""
        if self.as_json:
            merged: dict[str, object] = {}
            for name, part in parts.items():
                merged.update(part.values if isinstance(part, Facts) else {name: _plain(part)})
            self.print_json(merged)
            return
        for number, part in enumerate(parts.values()):
            if number and not self.is_terminal:
                print()
            self._print(part)

    def print_json(self, value: object) -> None:
        """Print a JSON document, indented on a terminal, else on one line."""
        import json

        print(json.dumps(value, indent=2 if self.is_terminal else None, default=str, ensure_ascii=False))

    def flush(self) -> None:
        """Flush stdout. Raises BrokenPipeError if the reader has closed the pipe."""
        sys.stdout.flush()

    def _print(self, part: Part) -> None:
        if self.is_terminal:
            from rich.console import Console

            console = Console()
            console.print(rich_table(part, console.width))
            return
        if isinstance(part, Facts):
            rows = [(name.replace("_", " "), value) for name, value in part.values.items()]
        else:
            rows = list(part.rows)  # type: ignore[arg-type]
            if self.headings:
                rows.insert(0, part.headings)  # type: ignore[arg-type]
        sys.stdout.write("".join("\t".join(map(_line_text, row)) + "\n" for row in rows))


def show_found(output: Output, table: Table, errors: Iterable[Exception]) -> int:
    """Print what a command found, and its errors; return the exit status. An empty table is only printed as JSON."""
    if table.rows or output.as_json:
        output.show(table)
    return show_errors(errors)


def show_changes(
    output: Output,
    changed: Table,
    failed: Mapping[Any, Exception],
    *,
    as_table: bool = False,
    dry_run: str = "",
) -> int:
    """Print the result of a command that changes something; return the exit status.

    ``failed`` has the errors by item: the first cell of a row of ``changed``, or a tuple of its first cells. Without
    ``as_table``, only JSON names the changed items. ``dry_run`` is a note for a command that changed nothing.
    """
    if output.as_json:
        errors = [
            {
                **changed.as_object(item if isinstance(item, tuple) else (item,)),
                "error": with_options(explained_refusal(error)),
            }
            for item, error in failed.items()
        ]
        output.print_json({"executed": not dry_run, "done": changed.as_objects(), "failed": errors})
    elif as_table and changed.rows:
        output.show(changed)
    if changed.rows and dry_run:
        say(dry_run)
    return show_errors(failed.values())


def show_errors(errors: Iterable[Exception]) -> int:
    """Print each error as a line on stderr; return the exit status."""
    status = 0
    for error in errors:
        say(with_options(explained_refusal(error)))
        status = FAILED
    return status


def rich_table(part: Part, width: int) -> RichTable:
    """Make a table of rich, or a list of names and values for each row if the columns do not fit the width."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    lists = RichTable(box=None, show_header=False, padding=(0, 2, 0, 1))
    lists.add_column(style="bold")
    lists.add_column(overflow="fold")
    if isinstance(part, Facts):
        for name, value in part.values.items():
            lists.add_row(Text(name.replace("_", " ")), Text(text_of(value)))
        return lists
    table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    needed = 2 * len(part.headings) + 1  # the margins
    for index, heading in enumerate(part.headings):
        column = [row[index] for row in part.rows]
        numbers = bool(column) and all(isinstance(cell, int | float | None) for cell in column)
        longest = max((len(text_of(cell)) for cell in column), default=0)
        folded = _folded(heading, longest)
        needed += max(longest if numbers else min(longest, LEGIBLE), *map(len, folded.split("\n")))
        justify: JustifyMethod = "right" if numbers else "left"
        # rich puts headings at the bottom by itself. With ``vertical="bottom"``, a folded cell began above its row.
        table.add_column(folded, justify=justify, overflow="fold", no_wrap=numbers)
    for number, row in enumerate(part.rows):
        cells = [Text(text_of(cell), style=style_of(heading, cell)) for heading, cell in zip(part.headings, row)]
        table.add_row(*cells)
        if number:
            lists.add_row()
        for heading, text in zip(part.headings, cells):
            lists.add_row(Text(heading), text)
    return lists if part.rows and needed > width else table


def _folded(heading: str, width: int) -> str:
    """Fold a heading that is wider than its column, so that a table of many columns fits a terminal."""
    return heading if len(heading) <= width else "-\n".join(heading.rsplit("-", 1))


def style_of(heading: str, cell: Cell) -> str:
    """Return the colour of a cell: what needs attention stands out. rich leaves colours out for NO_COLOR."""
    if heading in ("LAG", "HIGHEST", "LAG-PER-SECOND") and isinstance(cell, int | float):
        return "red" if cell > 0 and heading == "LAG-PER-SECOND" else "yellow" if cell > 0 else "green"
    if heading == "STATE":
        return {"Stable": "green", "Dead": "red", "Empty": "dim"}.get(str(cell), "yellow")
    if heading in ("ERROR", "OFFLINE") and cell:
        return "red"
    return ""


def text_of(cell: Cell) -> str:
    if cell is None or cell == "":
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Sequence):
        return ",".join(map(str, cell)) or NOTHING
    return str(cell)


def _line_text(cell: Cell) -> str:
    """Return the text of a cell with tabs and line breaks escaped: the cell stays one column of one line."""
    return text_of(cell).replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _plain(part: Part) -> object:
    return dict(part.values) if isinstance(part, Facts) else part.as_objects()

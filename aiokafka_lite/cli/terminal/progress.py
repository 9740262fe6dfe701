"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """Shows how much of the work is done."""

    def advance(self, amount: int, records: int) -> None:
        """Add ``amount`` to the processed part of the total. ``records`` counts all records so far."""


class _NoBar:
    def advance(self, amount: int, records: int) -> None:
        pass


@contextmanager
def progress(what: str, total: int | None, *, in_bytes: bool = True, is_wanted: bool = True) -> Iterator[Bar]:
    """Show a bar while the body runs, but nothing unless stderr is a terminal and ``is_wanted`` is true."""
    if not (is_wanted and sys.stderr.isatty()):
        yield _NoBar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TextColumn("{task.fields[records]:,} records"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total, records=0)

        class Shown:
            def advance(self, amount: int, records: int) -> None:
                shown.update(task, advance=amount, records=records)

        yield Shown()

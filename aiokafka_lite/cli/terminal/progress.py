"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol


class Bar(Protocol):
    """Shows how much of the work is done."""

    def advance(self, amount: int, records: int) -> None:
        """Add ``amount`` to the processed part of the total. ``records`` counts all records so far."""

    def hidden(self) -> AbstractContextManager[None]:
        """Hide the bar while the body writes to the same terminal."""


class _NoBar:
    def advance(self, amount: int, records: int) -> None:
        pass

    def hidden(self) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def progress(
    what: str, total: int | None, *, in_bytes: bool = True, is_wanted: bool = True, has_rate: bool = False
) -> Iterator[Bar]:
    """Show a bar while the body runs, but nothing unless stderr is a terminal and ``is_wanted`` is true.

    ``has_rate`` adds the rate per second, and the remaining time instead of the time that has passed.
    """
    if not (is_wanted and sys.stderr.isatty()):
        yield _NoBar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    counted = TextColumn("{task.fields[records]:,} records")

    class Rate(ProgressColumn):
        """The amount per second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.finished_speed or task.speed or 0:,.0f}/s")

    timing = [Rate(), TimeRemainingColumn()] if has_rate else [TimeElapsedColumn()]
    columns = (TextColumn("{task.description}"), BarColumn(), amount, counted, *timing)
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total, records=0)

        class Shown:
            def advance(self, amount: int, records: int) -> None:
                shown.update(task, advance=amount, records=records)

            @contextmanager
            def hidden(self) -> Iterator[None]:
                shown.stop()
                try:
                    yield
                finally:
                    shown.start()

        yield Shown()

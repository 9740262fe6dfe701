"""``aiokafka-lite lag``: the lag of groups, once or repeatedly."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..admin import Admin, GroupLag
from ..errors import KafkaError
from .terminal.completion import every_group
from .terminal.connection import ConnectionOptions
from .terminal.output import Cell, Output, Table, rich_table, show_errors
from .terminal.run import log_warnings, say, with_options
from .terminal.topic_names import explained_groups

HEADINGS = ("GROUP", "STATE", "TOPIC", "PARTITIONS", "LAG", "HIGHEST")
_GROUP, _TOPIC, _LAG = map(HEADINGS.index, ("GROUP", "TOPIC", "LAG"))

TREND_HEADINGS = (*HEADINGS, "LAG-PER-SECOND", "CATCH-UP-SECONDS")

TREND_LENGTH = 10
"""Number of lookups over which the trend is measured. A difference between only two is too random."""

LookUp = Callable[[], Awaitable[tuple[Table, Sequence[KafkaError]]]]


@dataclass(frozen=True, slots=True)
class View:
    """The groups to show (all if empty), and how. The isolation level chooses the end up to which the lag counts."""

    groups: Sequence[str]
    isolation_level: str
    only_behind: bool
    by_lag: bool


async def lag(connection: ConnectionOptions, output: Output, view: View, every: float | None) -> int:
    """Show a row for each group and topic once or, with the trend, ``every`` so many seconds until a signal."""
    async with connection.admin() as admin:
        trend = Trend()

        async def look_up() -> tuple[Table, Sequence[KafkaError]]:
            table, failed = await _look_up(admin, view)
            measured = trend.add(table, asyncio.get_running_loop().time())  # includes the rows that are not shown
            return Table(TREND_HEADINGS, selected(measured.rows, view)), failed

        if every is None:
            table, failed = await _look_up(admin, view)
            if table.rows or not failed or output.as_json:
                output.show(Table(HEADINGS, selected(table.rows, view)))
            return show_errors(failed)
        log_warnings()
        if output.is_terminal and not output.as_json:
            await _watch_live(look_up, every)
        else:
            await _watch_lines(look_up, output, every)
    return 0


async def _look_up(admin: Admin, view: View) -> tuple[Table, Sequence[KafkaError]]:
    answered = await admin.groups.lag(view.groups or await every_group(admin), isolation_level=view.isolation_level)
    rows = [row for name in sorted(answered.done) for row in topic_rows(answered[name])]
    return Table(HEADINGS, rows), list((await explained_groups(admin, answered.failed)).values())


def selected(rows: Sequence[tuple[Cell, ...]], view: View) -> list[tuple[Cell, ...]]:
    """Return the rows that the options select, in their order. A row without a known lag counts as not behind."""

    def lag_of(row: tuple[Cell, ...]) -> int:
        lag = row[_LAG]
        return lag if isinstance(lag, int) else -1

    selected_rows = [row for row in rows if not view.only_behind or lag_of(row) > 0]
    return sorted(selected_rows, key=lag_of, reverse=True) if view.by_lag else selected_rows


class Trend:
    """How the lag of each group and topic changes from one lookup to the next."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Cell, Cell], deque[tuple[float, int]]] = {}

    def add(self, table: Table, at: float) -> Table:
        """Add to the rows their change per second and, where the lag shrinks, the seconds until it is 0.

        ``at`` is the time of the lookup in seconds.
        """
        return Table(TREND_HEADINGS, [(*row, *self._measure(row, at)) for row in table.rows])

    def _measure(self, row: tuple[Cell, ...], at: float) -> tuple[float | None, int | None]:
        lag = row[_LAG]
        if not isinstance(lag, int):
            return None, None
        seen = self._seen.setdefault((row[_GROUP], row[_TOPIC]), deque(maxlen=TREND_LENGTH))
        rate = None
        if seen and at > seen[0][0]:
            # A lag that does not change may have the rate -0.0. Adding 0.0 removes the sign.
            rate = round((lag - seen[0][1]) / (at - seen[0][0]), 1) + 0.0
        seen.append((at, lag))
        if not lag:
            return rate, 0
        return rate, math.ceil(lag / -rate) if rate is not None and rate < 0 else None


def topic_rows(group: GroupLag) -> list[tuple[Cell, ...]]:
    """Return a row for each topic: number of partitions, sum of their lags, and the highest lag of a partition."""
    by_topic: dict[str, list[int | None]] = {}
    for partition in group.partitions:
        by_topic.setdefault(partition.partition.topic, []).append(partition.lag)
    if not by_topic:
        return [(group.group_id, group.state.value, None, 0, None, None)]
    rows: list[tuple[Cell, ...]] = []
    for topic, lags in by_topic.items():
        known_lags = [lag for lag in lags if lag is not None]
        total, highest = (sum(known_lags), max(known_lags)) if known_lags else (None, None)
        rows.append((group.group_id, group.state.value, topic, len(lags), total, highest))
    return rows


async def _watch_live(look_up: LookUp, every: float) -> None:
    """Redraw a table in place."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            at = datetime.now().strftime("%H:%M:%S")
            try:
                table, failed = await look_up()
                notes = [Text(str(error), style="red") for error in failed]
                shown = rich_table(table, live.console.width)
                live.update(Group(shown, *notes, Text(f" {at}, every {every:g} s; press Ctrl-C to stop")))
            except KafkaError as error:
                live.update(Text(f"{at} {with_options(str(error))}", style="red"))
            live.refresh()
            await asyncio.sleep(every)


async def _watch_lines(look_up: LookUp, output: Output, every: float) -> None:
    """Print rows that begin with the time, or a JSON object per line."""
    headings = output.headings
    while True:
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            table, failed = await look_up()
            if output.as_json:
                output.print_json({"time": at, "lag": table.as_objects()})
            else:
                timed = Table(("TIME", *table.headings), [(at, *row) for row in table.rows])
                Output(headings=headings).show(timed)
                headings = False
            show_errors(failed)
        except KafkaError as error:
            say(with_options(str(error)))
        output.flush()
        await asyncio.sleep(every)

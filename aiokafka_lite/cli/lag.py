"""``aiokafka-lite lag``: the lag of groups, once or repeatedly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from ..admin import Admin, GroupLag
from ..errors import KafkaError
from .connection import Connection
from .groups import every_group
from .output import Cell, Output, Table, rich_table, show_errors
from .running import log_warnings, say

HEADINGS = ("GROUP", "STATE", "TOPIC", "PARTITIONS", "LAG", "HIGHEST")


LookUp = Callable[[], Awaitable[tuple[Table, Sequence[KafkaError]]]]


async def lag(
    connection: Connection, output: Output, groups: Sequence[str], every: float | None, isolation_level: str
) -> int:
    """Show a row for each group and topic: once, or every ``every`` seconds until a signal."""
    async with connection.admin() as admin:

        async def look_up() -> tuple[Table, Sequence[KafkaError]]:
            return await _look_up(admin, groups, isolation_level)

        if every is None:
            table, failed = await look_up()
            output.show(table)
            return show_errors(failed)
        log_warnings()
        if output.is_terminal and not output.as_json:
            await _watch_live(look_up, every)
        else:
            await _watch_lines(look_up, output, every)
    return 0


async def _look_up(admin: Admin, groups: Sequence[str], isolation_level: str) -> tuple[Table, Sequence[KafkaError]]:
    answered = await admin.groups.lag(groups or await every_group(admin), isolation_level=isolation_level)
    rows = [row for name in sorted(answered.done) for row in topic_rows(answered[name])]
    return Table(HEADINGS, rows), list(answered.failed.values())


def topic_rows(group: GroupLag) -> list[tuple[Cell, ...]]:
    """A row for each topic: number of partitions, lag of all together, and the highest lag of one. Pure."""
    by_topic: dict[str, list[int | None]] = {}
    for each in group.partitions:
        by_topic.setdefault(each.partition.topic, []).append(each.lag)
    if not by_topic:
        return [(group.group_id, group.state.value, None, 0, None, None)]
    rows: list[tuple[Cell, ...]] = []
    for topic, lags in by_topic.items():
        known = [each for each in lags if each is not None]
        total, highest = (sum(known), max(known)) if known else (None, None)
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
                live.update(Group(rich_table(table), *notes, Text(f" {at}, every {every:g} s; press Ctrl-C to stop")))
            except KafkaError as error:
                live.update(Text(f"{at} {error}", style="red"))
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
                timed = Table(("TIME", *HEADINGS), [(at, *row) for row in table.rows])
                Output(headings=headings).show(timed)
                headings = False
            show_errors(failed)
        except KafkaError as error:
            say(str(error))
        output.flush()
        await asyncio.sleep(every)

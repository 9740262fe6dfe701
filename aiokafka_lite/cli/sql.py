"""``aiokafka-lite sql``: queries topics with DuckDB."""

from __future__ import annotations

import base64
import math
import time
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime
from datetime import time as clock_time
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal.options import Shared
from .terminal.output import Cell, Table
from .terminal.registry import Raw, RegistryOption, has_registry, new_registry
from .terminal.run import log_warnings, say

if TYPE_CHECKING:
    import duckdb

    from ..queries import Bound
    from .terminal.connection import ConnectionOptions

EXAMPLES = """
aiokafka-lite sql 'select city, count(*) from orders group by 1'
aiokafka-lite sql 'select * from orders o join customers c on o.customer = c.id' --from 2h --json
aiokafka-lite sql 'select _partition, max(_offset) from "orders.v2" group by all' --from -1000
"""


async def sql(
    shared: Shared,
    query: Annotated[str, typer.Argument(help='The query. A table is a topic; quote a name such as "orders.v2".')],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where reading begins: an offset, the last records of each partition (-1000), a time, or a time ago"
            " (2h); the earliest record by default.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="Stop before the first record at or after this time; at the end by default."
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", min=0, help="Read only this partition. May be repeated.")
    ] = None,
    registry: RegistryOption = None,
    raw: Raw = False,
) -> int:
    """Query topics with SQL: the records of a range are copied into DuckDB, in memory.

    A table has a column for each field of the values, which are JSON or decoded by a schema registry, and the columns
    _key, _value, _partition, _offset and _timestamp.
    """
    from ..errors import ConfigurationError, KafkaError
    from ..queries import TopicRange, decoded_by, run_in_thread, tables_of, to_duckdb
    from .terminal.progress import progress
    from .terminal.read_range import parse_start, parse_stop
    from .terminal.start import started
    from .terminal.topic_names import check_topics

    now = time.time()
    first = None if start is None else parse_start(start, now)
    last = None if until is None else parse_stop(until, now)
    topics = tables_of(query)
    if not topics:
        raise ConfigurationError("the query reads no topic; name one, as in: select count(*) from orders")
    begin: Bound = None
    if first is not None:
        if first.policy == "latest":
            raise ConfigurationError("--from latest reads nothing; give an offset, a time, or the last records (-1000)")
        ago = None if first.last is None else -first.last
        begin = _moment(first.time) if first.time is not None else ago if ago is not None else first.offset
    end = None if last is None or last.time is None else _moment(last.time)
    ranges = [TopicRange(topic, begin, end, tuple(partition) if partition else None) for topic in topics]
    await check_topics(shared.connection, topics, may_create=False)
    async with AsyncExitStack() as stack:
        decode = None
        if not raw and has_registry(shared.connection, registry):
            from ..schemas.json_forms import JsonForms

            decode = decoded_by(JsonForms(await stack.enter_async_context(new_registry(shared.connection, registry))))
        consumer = await stack.enter_async_context(started(_consumer(shared.connection)))
        log_warnings()
        bar = stack.enter_context(progress("read", None, in_bytes=False, has_rate=True))
        read = 0

        def advanced(offsets: int, total: int) -> None:
            nonlocal read
            bar.advance(offsets - read, offsets)
            read = offsets

        database = await to_duckdb(consumer, ranges, decode=decode, progress=advanced)
    with database:
        try:
            names, rows = await run_in_thread(database, lambda: _result(database, query))
        except KafkaError as error:
            raise ConfigurationError(_marked(query, str(error))) from error
    _show(shared, names, rows)
    return 0


def _consumer(connection: ConnectionOptions) -> Any:
    return connection.consumer(None)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _result(database: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    result = database.execute(query)
    try:
        return [column[0] for column in result.description or ()], result.fetchall()
    except OverflowError as error:  # of timedelta, which holds less than DuckDB's interval
        from ..errors import ConfigurationError

        what = f"a result is too large for Python ({error}); cast it in the query, as in value::text"
        raise ConfigurationError(what) from error


def _show(shared: Shared, names: list[str], rows: list[tuple[Any, ...]]) -> None:
    if shared.output.as_json:
        members = _members(names)
        shared.output.print_json([dict(zip(members, map(_json_form, row))) for row in rows])
    else:
        shared.output.show(Table(tuple(names), [tuple(map(_cell, row)) for row in rows]))
    if not rows and not shared.output.as_json:
        say("no rows")


def _members(names: list[str]) -> list[str]:
    """Return the names of JSON's members. A repeated name gets a number, as in a table that DuckDB makes: ``id_1``."""
    members: list[str] = []
    for name in names:
        member, number = name, 0
        while member in members or (number and member in names):
            number += 1
            member = f"{name}_{number}"
        members.append(member)
    return members


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    form = _json_form(value)
    return form if isinstance(form, str | list) else str(form)


def _json_form(value: Any) -> Any:
    """Return a value of DuckDB as JSON has it: times by ISO 8601, bytes as base64, and null for what is no number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, date | clock_time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _json_form(item) for name, item in value.items()}
    return [_json_form(item) for item in value] if isinstance(value, list | tuple) else value


def _marked(query: str, message: str) -> str:
    """Return an error of DuckDB on one line, with a mark before the place that its caret shows."""
    lines = message.splitlines()
    text = f"the query is wrong: {lines[0]}"
    for shown, caret in pairwise(lines):
        head, colon, line = shown.partition(": ")
        if head.startswith("LINE ") and colon and caret.strip() and set(caret.strip()) <= {"^"}:
            column = len(caret) - len(caret.lstrip()) - len(head) - len(colon)
            text += f"; here: {line[:column]} >>>{line[column:]}"
            break
    return text

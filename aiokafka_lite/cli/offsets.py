"""``aiokafka-lite offsets``: the first and last offsets of partitions, and the offsets at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.arguments import Isolation
from .terminal.options import Shared
from .terminal.output import Cell, Table, show_found
from .terminal.partitions import Partitions, partitions_of
from .terminal.read_range import TIMES, iso_time, parse_time

if TYPE_CHECKING:
    from ..admin import Admin, FoundOffset, OffsetSpec, Results
    from ..types import TopicPartition

EXAMPLES = """
aiokafka-lite offsets orders audit
aiokafka-lite offsets orders:0,1 --at 2h --json
"""


async def offsets(
    shared: Shared,
    partitions: Partitions,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="WHERE",
            help="earliest, latest, max-timestamp (the record with the greatest timestamp), a time (ISO 8601, or @ and"
            " milliseconds), or a time ago (2h).",
        ),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation-level", help="With read_committed, latest is the last stable offset.")
    ] = Isolation.READ_UNCOMMITTED,
) -> int:
    """Show the first and the last offset of partitions, or with --at another offset.

    The offset of a time is the offset of the first record of this time or later. It is missing if all are older.
    """
    from ..admin import OffsetSpec

    spec = None if at is None else parse_spec(at, time.time())

    async def find(admin: Admin, spec: OffsetSpec | int) -> Results[TopicPartition, FoundOffset | None]:
        return await admin.offsets.list(dict.fromkeys(targets, spec), isolation_level=isolation.value)

    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions)
        # EARLIEST is looked up first: if records are deleted in between, the difference is too large, but never
        # negative.
        firsts = await find(admin, OffsetSpec.EARLIEST) if spec is None else None
        result = await find(admin, OffsetSpec.LATEST if spec is None else spec)
    if firsts is None:
        table = Table(("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"), place_rows(result.done))
    else:
        table = Table(("TOPIC", "PARTITION", "EARLIEST", "LATEST", "OFFSETS"), range_rows(firsts.done, result.done))
    return show_found(shared.output, table, {**result.failed, **({} if firsts is None else firsts.failed)}.values())


def parse_spec(text: str, now: float) -> OffsetSpec | int:
    """Parse a special offset, or a time as milliseconds. Raises ValueError for any other form."""
    from ..admin import OffsetSpec

    names = {spec.name.lower().replace("_", "-"): spec for spec in OffsetSpec}
    spec = names.get(text.lower())
    if spec is not None:
        return spec
    milliseconds = parse_time(text, now)
    if milliseconds is None:
        raise ValueError(f"--at must be earliest, latest, max-timestamp, {TIMES}, got {text!r}")
    return milliseconds


def place_rows(offsets: Mapping[TopicPartition, FoundOffset | None]) -> list[tuple[Cell, ...]]:
    """Return a row for each partition: the offset of a place, and the time of its record."""
    return [
        (*partition, None if offset is None else offset.offset, None if offset is None else _time(offset))
        for partition, offset in sorted(offsets.items())
    ]


def range_rows(
    firsts: Mapping[TopicPartition, FoundOffset | None], ends: Mapping[TopicPartition, FoundOffset | None]
) -> list[tuple[Cell, ...]]:
    """Return a row for each partition: its first offset, its end, and their difference."""
    return [
        (*partition, first.offset, end.offset, end.offset - first.offset)
        for partition, end in sorted(ends.items())
        if end is not None and (first := firsts.get(partition)) is not None
    ]


def _time(offset: FoundOffset) -> str | None:
    return None if offset.timestamp is None else iso_time(offset.timestamp)

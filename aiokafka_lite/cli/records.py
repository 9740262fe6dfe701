"""``aiokafka-lite records``: deletes records from the beginning of partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.confirm import Yes, confirmed, listed
from .terminal.options import Shared, command
from .terminal.output import Table, show_changes
from .terminal.partitions import Partitions, partitions_of
from .terminal.read_range import TIMES, parse_time
from .terminal.run import FAILED

if TYPE_CHECKING:
    from ..admin import Admin
    from ..errors import KafkaError
    from ..types import TopicPartition

application = typer.Typer(no_args_is_help=True, help="Delete records from the beginning of partitions.")


@application.callback()
def _group() -> None:
    """Keeps ``records delete`` two words. Without a callback, Typer drops the name of a group's only command."""


@command(
    application,
    examples="""
    aiokafka-lite records delete orders:0 --before 4217
    aiokafka-lite records delete orders audit --before 7d --yes
    """,
)
async def delete(
    shared: Shared,
    partitions: Partitions,
    before: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="end, an offset, a time (ISO 8601, or @ and milliseconds), or a time ago (7d).",
        ),
    ],
    yes: Yes = False,
) -> int:
    """Delete the records before an offset or a time, and show the first offsets that remain."""
    offset, milliseconds = parse_before(before, time.time())
    if not await confirmed(f"Delete the records of {listed(partitions)} before {before}?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions)
        if milliseconds is None:
            limits = dict.fromkeys(targets, offset)
        else:
            limits = await _before_time(admin, targets, milliseconds)
        deleted = await admin.records.delete(limits)
        failed = await _explained(admin, deleted.failed, limits)
    rows = [(*partition, first) for partition, first in sorted(deleted.done.items())]
    table = Table(("TOPIC", "PARTITION", "FIRST-OFFSET"), rows)
    return show_changes(shared.output, table, failed, as_table=True)


async def _explained(
    admin: Admin, failed: Mapping[TopicPartition, KafkaError], limits: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, KafkaError]:
    """Name the end in the errors of offsets after the end."""
    from ..admin import OffsetSpec
    from ..errors import KafkaError, OffsetOutOfRange

    outside = [partition for partition, error in failed.items() if isinstance(error, OffsetOutOfRange)]
    ends = (await admin.offsets.list(dict.fromkeys(outside, OffsetSpec.LATEST))).done if outside else {}
    errors = dict(failed)
    for partition in outside:
        text, end = f"{partition} has no offset {limits[partition]} to delete before", ends.get(partition)
        if end is not None:
            text += f"; it ends at offset {end.offset}; --before end deletes all records"
        errors[partition] = KafkaError(text)
    return errors


async def _before_time(
    admin: Admin, partitions: Sequence[TopicPartition], time: int
) -> dict[TopicPartition, int | None]:
    """Look up the offset of the first record at this time or later; the end if all records are older.

    The end is looked up first: a record that is written during the command is younger than the time, and must stay.
    """
    from ..admin import OffsetSpec

    ends = (await admin.offsets.list(dict.fromkeys(partitions, OffsetSpec.LATEST))).raise_for_errors()
    first_offsets = (await admin.offsets.list(dict.fromkeys(partitions, time))).raise_for_errors()
    limits = {partition: first_offsets[partition] or ends[partition] for partition in partitions}
    return {partition: limit.offset for partition, limit in limits.items() if limit is not None}


def parse_before(text: str, now: float) -> tuple[int | None, int | None]:
    """Parse an offset, or a time as milliseconds; both None for ``end``. Raises ValueError for any other form."""
    if text.lower() == "end":
        return None, None
    if text.isdecimal():
        return int(text), None
    milliseconds = parse_time(text, now)
    if milliseconds is None:
        raise ValueError(f"--before must be end, an offset (42), {TIMES}, got {text!r}")
    return None, milliseconds

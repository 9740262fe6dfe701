"""``aiokafka-lite elect-leaders`` and ``reassign``: leaders of partitions, and the brokers of their replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.confirm import Yes, confirmed, say_done
from .terminal.options import Shared, command
from .terminal.output import Table, show_changes
from .terminal.partitions import Partitions, SomePartitions, partitions_of
from .terminal.run import FAILED, say

if TYPE_CHECKING:
    from ..types import TopicPartition

ELECTION_EXAMPLES = """
aiokafka-lite elect-leaders
aiokafka-lite elect-leaders orders audit:0,1
"""


async def elect_leaders(
    shared: Shared,
    partitions: SomePartitions = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Without a leader, elect a replica that is not in sync. Records may be lost."),
    ] = False,
    yes: Yes = False,
) -> int:
    """Make the first replica of each partition its leader again, if it is in sync.

    Run it after brokers have restarted, so that the leaders are spread as planned.
    """
    from ..admin import Election

    question = "Elect replicas that are not in sync? Records that they do not have are lost."
    if unclean and not await confirmed(question, yes):
        return FAILED
    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions) if partitions else None
        elected = await admin.leaders.elect(targets, election=Election.UNCLEAN if unclean else Election.PREFERRED)
    rows = [(*partition, is_new) for partition, is_new in sorted(elected.done.items())]
    if not elected:
        say("no partition needs an election")
    table = Table(("TOPIC", "PARTITION", "ELECTED"), rows)
    return show_changes(shared.output, table, elected.failed, as_table=True)


application = typer.Typer(no_args_is_help=True, help="Move replicas of partitions to other brokers.")


@command(
    application,
    examples="""
    aiokafka-lite reassign start orders --brokers 1,2,3
    aiokafka-lite reassign start --file plan.json
    """,
    prints_tables=False,
)
async def start(
    shared: Shared,
    partitions: SomePartitions = None,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="1,2,3", help="The brokers of every partition. They take turns as the preferred leader."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A plan as JSON, in the form of kafka-reassign-partitions."),
    ] = None,
) -> int:
    """Start to move partitions to brokers. The command does not wait for the end; reassign list shows the moves."""
    if (file is None) != bool(partitions and brokers) or (file is not None and (partitions or brokers)):
        raise ValueError("reassign start requires topics with --brokers, or --file")
    plan = {} if file is None else parse_plan(file.read_text(encoding="utf-8"))
    async with shared.connection.admin() as admin:
        if brokers is not None:
            plan = spread(await partitions_of(admin, partitions or ()), parse_brokers(brokers))
        started = await admin.reassignments.alter(plan)
    say_done(started.done, "began to move")
    table = Table(("TOPIC", "PARTITION", "REPLICAS"), [(*partition, plan[partition]) for partition in started.done])
    return show_changes(shared.output, table, started.failed)


@command(application, "list", examples="aiokafka-lite reassign list orders")
async def list_(shared: Shared, partitions: SomePartitions = None) -> int:
    """List the partitions whose replicas move at present."""
    async with shared.connection.admin() as admin:
        targets = await partitions_of(admin, partitions) if partitions else None
        moving = await admin.reassignments.list(targets)
    rows = [
        (*partition, reassignment.replicas, reassignment.adding, reassignment.removing)
        for partition, reassignment in sorted(moving.items())
    ]
    shared.output.show(Table(("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows))
    return 0


@command(application, examples="aiokafka-lite reassign cancel orders:0,1", prints_tables=False)
async def cancel(shared: Shared, partitions: Partitions) -> int:
    """Cancel moves: the partitions keep the replicas that they had."""
    async with shared.connection.admin() as admin:
        cancelled = await admin.reassignments.alter(dict.fromkeys(await partitions_of(admin, partitions)))
    say_done(cancelled.done, "cancelled the move of")
    return show_changes(shared.output, Table(("TOPIC", "PARTITION"), list(cancelled.done)), cancelled.failed)


def parse_brokers(text: str) -> list[int]:
    """Parse the broker ids in ``1,2,3``. Raises ValueError for any other form."""
    numbers = text.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise ValueError(f"--brokers must be broker ids with commas, as in 1,2,3, got {text!r}")
    return [int(number) for number in numbers]


def spread(partitions: Iterable[TopicPartition], brokers: Sequence[int]) -> dict[TopicPartition, Sequence[int] | None]:
    """Return all brokers for each partition, rotated so that each broker in turn is the preferred leader."""
    return {
        partition: [*brokers[index % len(brokers) :], *brokers[: index % len(brokers)]]
        for index, partition in enumerate(partitions)
    }


def parse_plan(text: str) -> dict[TopicPartition, Sequence[int] | None]:
    """Parse the brokers of partitions in the JSON of Kafka's own tool. Raises ValueError for any other form.

    Also raises ValueError for a partition that is listed twice, and for directories: brokers choose these.
    """
    from .. import arguments

    try:
        entries = json.loads(text)["partitions"]
        moves = [
            (arguments.partition((entry["topic"], entry["partition"])), arguments.broker_ids(entry["replicas"]))
            for entry in entries
        ]
        directories = [name for entry in entries for name in entry.get("log_dirs") or () if name != "any"]
    except (ValueError, KeyError, TypeError, RecursionError):
        form = '{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
        raise ValueError(f"--file must be JSON in the form {form}") from None
    if not moves:
        raise ValueError("--file must have at least one partition, got []")
    if directories:
        raise ValueError(arguments.must_be("log_dirs", '"any", since brokers choose the directory', directories[0]))
    plan: dict[TopicPartition, Sequence[int] | None] = {}
    for partition, brokers in moves:
        if partition in plan:
            raise ValueError(f"--file must have each partition once, got {partition} twice")
        plan[partition] = brokers
    return plan

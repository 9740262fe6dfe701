"""``aiokafka-lite groups``: list, describe, move and delete consumer groups, their offsets and their members."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import completion
from .terminal.confirm import Yes, confirmed, listed, say_done
from .terminal.options import Shared, command
from .terminal.output import Cell, Output, Table, show_changes, show_found
from .terminal.partitions import Partitions, parse_topics, partitions_of
from .terminal.read_range import FORMS, parse_time
from .terminal.run import FAILED, say

if TYPE_CHECKING:
    from ..admin import GroupDescription, GroupLag, Reset, ResetOffset, Results, StreamsTasks
    from ..types import TopicPartition

application = typer.Typer(no_args_is_help=True, help="List, describe, move and delete consumer groups.")

GroupArgument = Annotated[str, typer.Argument(autocompletion=completion.groups, help="Name of the group.")]
States = Annotated[list[str] | None, typer.Option(metavar="STATE", help="Only groups in this state.")]
Members = Annotated[bool, typer.Option("--members", help="Show the members and their partitions.")]
Execute = Annotated[bool, typer.Option("--execute", help="Move the group; else only show the offsets.")]

LAG_HEADINGS = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"),
    *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
)
"""The headings of Kafka's own tool."""


@command(application, "list", examples="aiokafka-lite groups list --state stable --state empty")
async def list_(
    shared: Shared,
    state: States = None,
    kind: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only groups of this type.")] = None,
) -> int:
    """List groups with their states."""
    async with shared.connection.admin() as admin:
        groups = await admin.groups.list(states=state or (), types=kind or ())
    rows = [(group.group_id, group.state.value, group.type.value, group.protocol_type) for group in groups]
    shared.output.show(Table(("GROUP", "STATE", "TYPE", "PROTOCOL"), rows))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite groups describe billing
    aiokafka-lite groups describe billing shipping --members
    aiokafka-lite groups describe --all --state
    """,
)
async def describe(
    shared: Shared,
    groups: Annotated[
        list[str] | None, typer.Argument(autocompletion=completion.groups, help="Names of groups.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Describe all groups.")] = False,
    members: Members = False,
    state: Annotated[bool, typer.Option("--state", help="Show state, coordinator and strategy.")] = False,
) -> int:
    """Show the offsets and the lag of groups, their members, or their states."""
    from .terminal.topic_names import explained_groups

    check_describe("groups describe", groups, every, members, state)
    async with shared.connection.admin() as admin:
        result = await admin.groups.describe(groups or await completion.every_group(admin))
        failed = list((await explained_groups(admin, result.failed)).values())
        if members:
            headings: tuple[str, ...] = (
                *("GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID"),
                *("PARTITIONS", "ASSIGNMENT", "EPOCH", "TARGET-ASSIGNMENT"),
            )
            rows = [row for group in result.done.values() for row in member_rows(group)]
        elif state:
            headings = (
                *("GROUP", "COORDINATOR", "STRATEGY", "STATE", "TYPE", "MEMBERS"),
                *("EPOCH", "ASSIGNMENT-EPOCH"),
            )
            rows = [_state_row(group) for group in result.done.values()]
        else:
            lags = await admin.groups.lag(result.done)
            failed += lags.failed.values()
            headings = LAG_HEADINGS
            rows = [row for name, lag in lags.done.items() for row in lag_rows(lag, result[name])]
    for group in result.done.values():
        if not group.members and not state:
            say(f"group {group.group_id!r} has no members")
    return show_found(shared.output, Table(headings, rows), failed)


@command(
    application,
    "reset-offsets",
    examples="""
    aiokafka-lite groups reset-offsets billing --topic orders --to earliest
    aiokafka-lite groups reset-offsets billing --topic orders:0,1 --to 2h --execute
    aiokafka-lite groups reset-offsets billing --shift -100 --execute
    """,
)
async def reset_offsets(
    shared: Shared,
    group: GroupArgument,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="earliest, latest, current, an offset, a time (ISO 8601, or @ and milliseconds), or a time ago (2h).",
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option(metavar="RECORDS", help="Number of records to move forward, or back if negative.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="File with lines of topic,partition,offset."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[:0,1]",
            autocompletion=completion.partitions,
            help="Topic, or partitions of a topic; by default all with a committed offset.",
        ),
    ] = None,
    execute: Execute = False,
) -> int:
    """Move a group that has no members to other offsets. Without --execute, only show them."""
    reset = parse_reset(to, shift, file, time.time())
    async with shared.connection.admin() as admin:
        partitions = await partitions_of(admin, topic) if topic else None
        moved = await admin.groups.reset_offsets(group, reset, partitions=partitions, dry_run=not execute)
    nothing = f"group {group!r} has no committed offsets; name topics with --topic"
    return show_moves(shared.output, group, moved, before="CURRENT-OFFSET", executed=execute, nothing=nothing)


@command(application, examples="aiokafka-lite groups delete billing")
async def delete(
    shared: Shared,
    groups: Annotated[list[str], typer.Argument(autocompletion=completion.groups, help="Names of groups.")],
    yes: Yes = False,
) -> int:
    """Delete groups that have no members, with their offsets."""
    return await delete_groups(shared, "groups", groups, yes)


@command(
    application,
    "delete-offsets",
    examples="aiokafka-lite groups delete-offsets billing audit orders:0,1",
    prints_tables=False,
)
async def delete_offsets(
    shared: Shared,
    group: GroupArgument,
    partitions: Partitions,
    yes: Yes = False,
) -> int:
    """Delete the offsets that a group has committed in topics to which no member subscribes."""
    if not await confirmed(f"Delete the offsets of group {group!r} in {listed(partitions)}?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        whole, targets = parse_topics(partitions)
        if whole:  # the group names the partitions, because the topic itself may be deleted
            committed = (await admin.groups.offsets(group))[group]
            targets += [partition for partition in committed if partition.topic in whole]
        if not targets:
            from ..errors import KafkaError

            raise KafkaError(f"group {group!r} has no committed offsets in {listed(partitions)}")
        deleted = await admin.groups.delete_offsets(group, targets)
    say_done(deleted.done, "deleted the offsets of")
    return show_changes(shared.output, Table(("TOPIC", "PARTITION"), list(deleted.done)), deleted.failed)


@command(
    application,
    "remove-member",
    examples="""
    aiokafka-lite groups remove-member billing --member rdkafka-61e0 --member rdkafka-77b2
    aiokafka-lite groups remove-member billing --instance worker-3
    """,
    prints_tables=False,
)
async def remove_member(
    shared: Shared,
    group: GroupArgument,
    member: Annotated[list[str] | None, typer.Option(metavar="ID", help="A member id. May be repeated.")] = None,
    instance: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="The instance id of a static member. May be repeated.")
    ] = None,
    yes: Yes = False,
) -> int:
    """Remove members from a group, so that others get their partitions. A member that still runs joins again.

    groups describe --members shows the ids.
    """
    if not member and not instance:
        raise ValueError("groups remove-member requires --member or --instance")
    if not await confirmed(f"Remove {listed([*(member or ()), *(instance or ())])} from group {group!r}?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        removed = await admin.groups.remove_members(group, member or (), instances=instance or ())
    say_done(removed.done, "removed")
    return show_changes(shared.output, Table(("MEMBER",), [(member_id,) for member_id in removed.done]), removed.failed)


def check_describe(command: str, groups: list[str] | None, every: bool, members: bool, state: bool) -> None:
    """Raise ValueError unless the command has groups or ``--all``, and at most one of ``--members`` and ``--state``."""
    if bool(groups) == every:
        raise ValueError(f"{command} requires groups or --all; see aiokafka-lite {command} --help")
    if members and state:
        raise ValueError(f"{command} shows --members or --state, not both")


def show_moves(
    output: Output,
    group: str,
    moved: Results[TopicPartition, ResetOffset],
    *,
    before: str,
    executed: bool,
    nothing: str,
) -> int:
    """Show the old offsets of a group, under the heading ``before``, and the new ones; return the exit status.

    ``nothing`` is the error for a group without offsets to move.
    """
    rows = [(group, *partition, move.before, move.after) for partition, move in sorted(moved.done.items())]
    from ..errors import KafkaError

    if not moved:
        raise KafkaError(nothing)
    table = Table(("GROUP", "TOPIC", "PARTITION", before, "NEW-OFFSET"), rows)
    failed = {(group, *partition): error for partition, error in moved.failed.items()}
    note = "" if executed else "nothing was moved; add --execute to move the group"
    return show_changes(output, table, failed, as_table=True, dry_run=note)


async def delete_groups(shared: Shared, what: str, groups: list[str], yes: bool) -> int:
    """Delete groups of any type; return the exit status. The question calls the groups ``what``."""
    from .terminal.topic_names import explained_groups

    if not await confirmed(f"Delete the {what} {listed(groups)} and their offsets?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        deleted = await admin.groups.delete(groups)
        failed = await explained_groups(admin, deleted.failed)
    say_done(deleted.done, "deleted")
    return show_changes(shared.output, Table(("GROUP",), [(name,) for name in deleted.done]), failed)


def lag_rows(lag: GroupLag, group: GroupDescription) -> list[tuple[Cell, ...]]:
    """Return a row for each partition, then one for each member without partitions."""
    rows: list[tuple[Cell, ...]] = []
    reading = set()
    for partition in lag.partitions:
        owner: tuple[Cell, ...] = (None, None, None)
        if partition.member is not None:
            reading.add(partition.member.member_id)
            owner = (partition.member.member_id, partition.member.host, partition.member.client_id)
        rows.append((lag.group_id, *partition.partition, partition.committed, partition.end, partition.lag, *owner))
    rows += [
        (lag.group_id, None, None, None, None, None, member.member_id, member.host, member.client_id)
        for member in group.members
        if member.member_id not in reading
    ]
    return rows


def member_rows(group: GroupDescription) -> list[tuple[Cell, ...]]:
    """Return a row for each member, with its partitions, or with its tasks in a streams group."""
    return [
        (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            *_assigned(member.assignment, member.tasks),
            member.epoch,
            _assigned(member.target, member.target_tasks)[1],
        )
        for member in group.members
    ]


def _assigned(
    partitions: tuple[TopicPartition, ...] | None, tasks: StreamsTasks | None
) -> tuple[int | None, str | None]:
    """Return the number of partitions or active tasks, and their text."""
    if tasks is not None:
        return sum(map(len, tasks.active.values())), format_tasks(tasks)
    if partitions is None:
        return None, None
    return len(partitions), format_assignment(partitions)


def format_tasks(tasks: StreamsTasks) -> str:
    """Format tasks as ``0(0,1) standby 1(2)``: subtopologies with the numbers of their partitions."""
    parts = []
    for kind, tasks_by_name in (("", tasks.active), ("standby ", tasks.standby), ("warmup ", tasks.warmup)):
        if tasks_by_name:
            parts.append(
                kind + " ".join(f"{name}({','.join(map(str, numbers))})" for name, numbers in tasks_by_name.items())
            )
    return " ".join(parts)


def format_assignment(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as ``orders(0,1) audit(0)``."""
    from ..arguments import by_topic

    return " ".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in by_topic(partitions).items())


def _state_row(group: GroupDescription) -> tuple[Cell, ...]:
    return (
        *(group.group_id, str(group.coordinator), group.strategy, group.state.value, group.type.value),
        *(len(group.members), group.epoch, group.assignment_epoch),
    )


def parse_reset(to: str | None, shift: int | None, file: Path | None, now: float) -> Reset:
    """Parse the reset that ``--to``, ``--shift`` or ``--file`` requests.

    Raises ValueError unless exactly one of them is given, and is valid.
    """
    from ..admin import Reset

    if sum(option is not None for option in (to, shift, file)) != 1:
        raise ValueError("groups reset-offsets requires one of --to, --shift and --file")
    if shift is not None:
        return Reset.shift_by(shift)
    if file is not None:
        return Reset.from_file(file)
    assert to is not None
    special = {"earliest": Reset.to_earliest, "latest": Reset.to_latest, "current": Reset.to_current}.get(to.lower())
    if special is not None:
        return special()
    if to.isdecimal():
        return Reset.to_offset(int(to))
    milliseconds = parse_time(to, now)
    if milliseconds is None:
        raise ValueError(f"--to must be current, {FORMS}, got {to!r}")
    return Reset.to_timestamp(milliseconds)

"""``aiokafka-lite share-groups``: list, describe, move and delete share groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from .groups import (
    Execute,
    Members,
    States,
    check_describe,
    delete_groups,
    format_assignment,
    parse_reset,
    show_moves,
)
from .terminal import completion
from .terminal.confirm import Yes
from .terminal.options import Shared, command
from .terminal.output import Cell, Table, show_found
from .terminal.run import say

if TYPE_CHECKING:
    from ..admin import ShareGroupDescription

application = typer.Typer(no_args_is_help=True, help="List, describe, move and delete share groups.")


@command(application, "list", examples="aiokafka-lite share-groups list --state stable")
async def list_(
    shared: Shared,
    state: States = None,
) -> int:
    """List share groups with their states."""
    async with shared.connection.admin() as admin:
        groups = await admin.share_groups.list(states=state or ())
    shared.output.show(Table(("GROUP", "STATE"), [(group.group_id, group.state.value) for group in groups]))
    return 0


@command(
    application,
    examples="""
    aiokafka-lite share-groups describe billing
    aiokafka-lite share-groups describe billing shipping --members
    aiokafka-lite share-groups describe --all --state
    """,
)
async def describe(
    shared: Shared,
    groups: Annotated[
        list[str] | None, typer.Argument(autocompletion=completion.share_groups, help="Names of groups.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Describe all share groups.")] = False,
    members: Members = False,
    state: Annotated[bool, typer.Option("--state", help="Show state, epochs, coordinator and assignor.")] = False,
) -> int:
    """Show the start offsets and the lag of share groups, their members, or their states."""
    from .terminal.topic_names import explained_groups

    check_describe("share-groups describe", groups, every, members, state)
    async with shared.connection.admin() as admin:
        names = groups or [group.group_id for group in await admin.share_groups.list()]
        result = await admin.share_groups.describe(names)
        failed = list((await explained_groups(admin, result.failed)).values())
        if members:
            headings: tuple[str, ...] = (
                *("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "MEMBER-EPOCH"),
                *("PARTITIONS", "ASSIGNMENT"),
            )
            rows = [row for group in result.done.values() for row in _member_rows(group)]
        elif state:
            headings = ("GROUP", "COORDINATOR", "ASSIGNOR", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "MEMBERS")
            rows = [_state_row(group) for group in result.done.values()]
        else:
            offsets = await admin.share_groups.offsets(result.done)
            failed += offsets.failed.values()
            headings = ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG")
            rows = [
                (name, *partition, offset.offset, offset.lag)
                for name, group_offsets in offsets.done.items()
                for partition, offset in group_offsets.items()
            ]
    for group in result.done.values():
        if not group.members and not state:
            say(f"share group {group.group_id!r} has no members")
    return show_found(shared.output, Table(headings, rows), failed)


@command(
    application,
    "reset-offsets",
    examples="""
    aiokafka-lite share-groups reset-offsets billing --topic orders --to earliest
    aiokafka-lite share-groups reset-offsets billing --to 2h --execute
    """,
)
async def reset_offsets(
    shared: Shared,
    group: Annotated[str, typer.Argument(autocompletion=completion.share_groups, help="Name of the group.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="earliest, latest, an offset, a time (ISO 8601, or @ and milliseconds), or a time ago (2h).",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC", autocompletion=completion.topics, help="Topic; by default all topics that it has read."
        ),
    ] = None,
    execute: Execute = False,
) -> int:
    """Move a share group that has no members to other offsets. Without --execute, only show them."""
    reset = parse_reset(to, None, None, time.time())
    async with shared.connection.admin() as admin:
        moved = await admin.share_groups.reset_offsets(group, reset, topics=topic or None, dry_run=not execute)
    nothing = f"share group {group!r} has read no topic; name topics with --topic"
    return show_moves(shared.output, group, moved, before="START-OFFSET", executed=execute, nothing=nothing)


@command(application, examples="aiokafka-lite share-groups delete billing")
async def delete(
    shared: Shared,
    groups: Annotated[list[str], typer.Argument(autocompletion=completion.share_groups, help="Names of groups.")],
    yes: Yes = False,
) -> int:
    """Delete share groups that have no members, with their offsets."""
    return await delete_groups(shared, "share groups", groups, yes)


def _member_rows(group: ShareGroupDescription) -> list[tuple[Cell, ...]]:
    return [
        (
            *(group.group_id, member.member_id, member.host, member.client_id, member.epoch),
            *(len(member.assignment), format_assignment(member.assignment)),
        )
        for member in group.members
    ]


def _state_row(group: ShareGroupDescription) -> tuple[Cell, ...]:
    return (
        *(group.group_id, str(group.coordinator), group.assignor, group.state.value),
        *(group.epoch, group.assignment_epoch, len(group.members)),
    )

"""``aiokafka-lite groups``: the commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Shared, command

application = typer.Typer(no_args_is_help=True, help="List, describe, move and delete consumer groups.")


@command(application, "list", examples="aiokafka-lite groups list --state stable --state empty")
async def list_(
    shared: Shared,
    state: Annotated[list[str] | None, typer.Option(metavar="STATE", help="Only those in this state.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only those of this type.")] = None,
) -> int:
    """List groups with their states."""
    from .groups import list_groups

    return await list_groups(shared.connection, shared.output, state or [], kind or [])


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
    groups: Annotated[list[str] | None, typer.Argument(help="Which.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All groups.")] = False,
    members: Annotated[bool, typer.Option("--members", help="The members, and what each of them has.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, coordinator and strategy.")] = False,
) -> int:
    """Where groups are, how far they are behind, and who reads what."""
    from .groups import describe as run_describe

    if bool(groups) == every:
        raise ValueError("groups describe needs groups, or --all; see aiokafka-lite groups describe --help")
    if members and state:
        raise ValueError("groups describe shows --members or --state, one at a time")
    view = "members" if members else "state" if state else "offsets"
    return await run_describe(shared.connection, shared.output, groups or [], view)


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
    group: Annotated[str, typer.Argument(help="Which.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="earliest, latest, current, an offset, a time (ISO 8601, or @ and milliseconds) or how long ago (2h).",
        ),
    ] = None,
    shift: Annotated[int | None, typer.Option(metavar="RECORDS", help="So many on, or back if below zero.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="To offsets from lines topic,partition,offset."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[:0,1]", help="Only this topic, or partitions of it; all committed ones if not given."
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only show where it would go.")] = False,
) -> int:
    """Move a group that has no members; without --execute only show where to."""
    from .groups import reset_offsets as run_reset

    return await run_reset(shared.connection, shared.output, group, to, shift, file, topic or [], execute)


@command(application, examples="aiokafka-lite groups delete billing")
async def delete(shared: Shared, groups: Annotated[list[str], typer.Argument(help="Which.")]) -> int:
    """Delete groups that have no members, with their offsets."""
    from .groups import delete as run_delete

    return await run_delete(shared.connection, groups)

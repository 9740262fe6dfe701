"""``aiokafka-lite topics``: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Shared, command

application = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Topics = Annotated[list[str], typer.Argument(help="Their names.")]
ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Only ask whether it could be done.")]


@command(
    application,
    examples="""
    aiokafka-lite topics create orders --partitions 12 --replicas 3
    aiokafka-lite topics create audit --set cleanup.policy=compact --set retention.ms=86400000
    aiokafka-lite topics create pinned --assignment 1,2/2,3
    """,
)
async def create(
    shared: Shared,
    topics: Topics,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The broker's default if not given.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", min=1, help="The broker's default if not given.")
    ] = None,
    assignment: Annotated[
        str | None, typer.Option(metavar="1,2/2,3", help="The brokers of each partition, the first of them to lead.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topic.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="One that exists is all right.")] = False,
    validate_only: ValidateOnly = False,
) -> int:
    """Create topics."""
    from .topics import Wanted
    from .topics import create as run_create

    wanted = Wanted(topics, partitions, replicas, assignment, settings or [], if_not_exists, validate_only)
    return await run_create(shared.connection, shared.output, wanted)


@command(application, "list", examples="aiokafka-lite topics list --json")
async def list_(
    shared: Shared,
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own as well.")] = False,
) -> int:
    """List topics."""
    from .topics import list_topics

    return await list_topics(shared.connection, shared.output, internal)


@command(application, examples="aiokafka-lite topics describe orders")
async def describe(shared: Shared, topics: Topics) -> int:
    """Describe topics: leader, replicas and in-sync replicas of each partition."""
    from .topics import describe as run_describe

    return await run_describe(shared.connection, shared.output, topics)


@command(
    application,
    examples="""
    aiokafka-lite topics alter orders --partitions 24
    aiokafka-lite topics alter orders --set retention.ms=3600000 --unset cleanup.policy
    """,
)
async def alter(
    shared: Shared,
    topics: Topics,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many in all; keys will be placed anew.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting.")] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Take a setting back to its default.")] = None,
    validate_only: ValidateOnly = False,
) -> int:
    """Give topics more partitions, or change their settings."""
    from .topics import alter as run_alter

    return await run_alter(shared.connection, topics, partitions, settings or [], unset or [], validate_only)


@command(application, examples="aiokafka-lite topics delete orders audit")
async def delete(
    shared: Shared,
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="One that does not exist is all right.")] = False,
) -> int:
    """Delete topics, and all that is in them."""
    from .topics import delete as run_delete

    return await run_delete(shared.connection, topics, if_exists)

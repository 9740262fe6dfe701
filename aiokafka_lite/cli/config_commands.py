"""``aiokafka-lite configs``: the commands and their options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .options import Shared, command

application = typer.Typer(no_args_is_help=True, help="Show and change settings of topics, brokers and groups.")


class Kind(StrEnum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKERS = "brokers"
    BROKER_LOGGER = "broker-logger"
    GROUP = "group"


KindArgument = Annotated[Kind, typer.Argument(help="Of what; brokers are all of them together.")]
NameArgument = Annotated[str | None, typer.Argument(help="Its name, or a broker's id.")]


@command(
    application,
    examples="""
    aiokafka-lite configs describe topic orders
    aiokafka-lite configs describe broker 1 --all
    """,
)
async def describe(
    shared: Shared,
    kind: KindArgument,
    name: NameArgument = None,
    every: Annotated[bool, typer.Option("--all", help="Defaults as well, not only what somebody has set.")] = False,
    documentation: Annotated[bool, typer.Option("--documentation", help="With what each setting does.")] = False,
) -> int:
    """Show settings, their values, and where these come from. Secret values are never told."""
    from .configs import describe as run_describe

    return await run_describe(shared.connection, shared.output, kind.value, name, every, documentation)


@command(
    application,
    examples="""
    aiokafka-lite configs alter topic orders --set retention.ms=3600000
    aiokafka-lite configs alter topic orders --append cleanup.policy=compact --unset segment.ms
    """,
)
async def alter(
    shared: Shared,
    kind: KindArgument,
    name: NameArgument = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set this.")] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Take it back to its default.")] = None,
    append: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Add to a list.")] = None,
    subtract: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Take from a list.")] = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only ask whether it could be done.")] = False,
) -> int:
    """Change settings and leave all others as they are."""
    from .configs import alter as run_alter
    from .configs import changes

    wanted = changes(settings or [], unset or [], append or [], subtract or [])
    return await run_alter(shared.connection, kind.value, name, wanted, validate_only)

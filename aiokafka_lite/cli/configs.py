"""``aiokafka-lite configs``: describe and alter settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import completion
from .terminal.arguments import names_and_values, setting_changes
from .terminal.confirm import say_done
from .terminal.options import Shared, ValidateOnly, command
from .terminal.output import VALIDATED, Cell, Table, show_changes, show_errors
from .terminal.setting_names import explained_settings

if TYPE_CHECKING:
    from ..admin import ConfigChange, ConfigResource

application = typer.Typer(no_args_is_help=True, help="Show and change settings of topics, brokers and groups.")


class ConfigTarget(StrEnum):
    """The kinds of resources that have settings."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKERS = "brokers"
    BROKER_LOGGER = "broker-logger"
    GROUP = "group"


KindArgument = Annotated[ConfigTarget, typer.Argument(help="Kind of the resource; brokers means all brokers together.")]
NameArgument = Annotated[
    str | None, typer.Argument(autocompletion=completion.resources, help="Name of the resource, or id of the broker.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", autocompletion=completion.assignments, help="Set a setting."),
]
Unset = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", autocompletion=completion.settings, help="Reset a setting to its default."),
]
Append = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", autocompletion=completion.assignments, help="Add values to a list."),
]
Subtract = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", autocompletion=completion.assignments, help="Remove values from a list."),
]


@command(
    application,
    examples="""
    aiokafka-lite configs describe topic orders
    aiokafka-lite configs describe broker 1 --all
    """,
    asks_controllers=True,
)
async def describe(
    shared: Shared,
    kind: KindArgument,
    name: NameArgument = None,
    every: Annotated[bool, typer.Option("--all", help="Show settings with default values as well.")] = False,
    documentation: Annotated[bool, typer.Option("--documentation", help="Show what each setting does.")] = False,
) -> int:
    """Show settings with their values and the source of each value. Secret values are not shown."""
    from .terminal.topic_names import explained

    config_resource = resource(kind, name)
    async with shared.connection.admin() as admin:
        result = await admin.configs.describe(config_resource, documentation=documentation)
        failed = await explained(admin, result.failed)
    headings = ("NAME", "VALUE", "SOURCE", "READ-ONLY", "SENSITIVE", *(["DOCUMENTATION"] if documentation else []))
    rows: list[tuple[Cell, ...]] = [
        (
            setting.name,
            setting.value,
            setting.source.name.lower().replace("_", "-"),
            setting.read_only,
            setting.sensitive,
            *([setting.documentation] if documentation else []),
        )
        for settings in result.done.values()
        for setting in sorted(settings.values(), key=lambda setting: setting.name)
        if every or not setting.is_default
    ]
    if not failed:
        shared.output.show(Table(headings, rows))
    return show_errors(failed.values())


@command(
    application,
    examples="""
    aiokafka-lite configs alter topic orders --set retention.ms=3600000
    aiokafka-lite configs alter topic orders --append cleanup.policy=compact --unset segment.ms
    """,
    asks_controllers=True,
)
async def alter(
    shared: Shared,
    kind: KindArgument,
    name: NameArgument = None,
    settings: Set = None,
    unset: Unset = None,
    append: Append = None,
    subtract: Subtract = None,
    validate_only: ValidateOnly = False,
) -> int:
    """Change settings. Settings that are not named keep their values."""
    from .terminal.topic_names import explained

    config_changes = changes(settings or [], unset or [], append or [], subtract or [])
    changed = resource(kind, name)
    async with shared.connection.admin() as admin:
        answered = await admin.configs.alter({changed: config_changes}, validate_only=validate_only)
        failed = await explained(admin, answered.failed)
    failed = explained_settings(failed, kind.value, [change.name for change in config_changes])
    if not validate_only:
        say_done(answered.done, "changed the settings of")
    item = (kind.value, name)
    table = Table(
        ("TYPE", "NAME", "SETTINGS"), [(*item, [change.name for change in config_changes]) for _ in answered.done]
    )
    errors = dict(zip([item], failed.values()))
    return show_changes(shared.output, table, errors, dry_run=VALIDATED if validate_only else "")


def changes(
    settings: Sequence[str], unset: Sequence[str], append: Sequence[str], subtract: Sequence[str]
) -> list[ConfigChange]:
    """Return the changes that the options request. Raises ValueError if there is none."""
    from ..admin import ConfigChange, ConfigOperation

    config_changes = [
        ConfigChange(name, value, operation)
        for option, texts, operation in (
            ("set", settings, ConfigOperation.SET),
            ("append", append, ConfigOperation.APPEND),
            ("subtract", subtract, ConfigOperation.SUBTRACT),
        )
        for name, value in names_and_values(option, texts).items()
    ]
    setting_changes(settings, unset)  # raises for a name that is in both
    config_changes += [ConfigChange(name, operation=ConfigOperation.DELETE) for name in unset]
    if not config_changes:
        raise ValueError("configs alter requires --set, --unset, --append or --subtract")
    return config_changes


def resource(kind: str, name: str | None) -> ConfigResource:
    """Return the resource of a kind and a name. Raises ValueError if the name is missing or wrong."""
    from ..admin import ConfigResource, ConfigResourceType

    if kind == ConfigTarget.BROKERS:
        if name is not None:
            raise ValueError(f"brokers means all brokers and takes no name; for one broker write: broker {name}")
        return ConfigResource.all_brokers()
    is_broker = kind in (ConfigTarget.BROKER, ConfigTarget.BROKER_LOGGER)
    if name is None:
        raise ValueError(f"{kind} requires {'the id of a broker' if is_broker else 'a name'}")
    if is_broker and not name.isdecimal():
        raise ValueError(f"{kind} must be the id of a broker, a number, got {name!r}")
    return ConfigResource(ConfigResourceType[kind.upper().replace("-", "_")], name)

"""``aiokafka-lite configs``: what the commands do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aiokafka_lite.admin import ConfigChange, ConfigResource, Operation, ResourceType

from .connection import Connection
from .output import Cell, Output, Table, show_errors

_KINDS = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "broker-logger": ResourceType.BROKER_LOGGER,
    "group": ResourceType.GROUP,
}


def parse_settings(option: str, texts: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` each; raises ValueError naming the option."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(f"{option}={text!r}: use NAME=VALUE")
        settings[name] = value
    return settings


def changes(
    settings: Sequence[str], unset: Sequence[str], append: Sequence[str], subtract: Sequence[str]
) -> list[ConfigChange]:
    """The changes that the options ask for; raises ValueError for none."""
    wanted = [
        ConfigChange(name, value, operation)
        for option, texts, operation in (
            ("set", settings, Operation.SET),
            ("append", append, Operation.APPEND),
            ("subtract", subtract, Operation.SUBTRACT),
        )
        for name, value in parse_settings(option, texts).items()
    ]
    wanted += [ConfigChange(name, operation=Operation.DELETE) for name in unset]
    if not wanted:
        raise ValueError("configs alter needs --set, --unset, --append or --subtract")
    return wanted


def resource(kind: str, name: str | None) -> ConfigResource:
    """The thing with settings; raises ValueError."""
    if kind == "brokers":
        if name is not None:
            raise ValueError(f"brokers are all of them, and have no name; for one of them, broker {name}")
        return ConfigResource.all_brokers()
    if name is None:
        raise ValueError(f"{kind} needs a name" if "broker" not in kind else f"{kind} needs a broker's id")
    if "broker" in kind and not name.isdecimal():
        raise ValueError(f"{kind}={name!r}: the id of a broker is a number")
    return ConfigResource(_KINDS[kind], name)


async def describe(
    connection: Connection, output: Output, kind: str, name: str | None, every: bool, documentation: bool
) -> int:
    """Show settings."""
    wanted = resource(kind, name)
    async with connection.admin() as admin:
        described = await admin.configs.describe(wanted, documentation=documentation)
    headings = ["NAME", "VALUE", "SOURCE", "READ-ONLY", "SENSITIVE", *(["DOCUMENTATION"] if documentation else [])]
    rows: list[tuple[Cell, ...]] = [
        (
            setting.name,
            setting.value,
            setting.source.name.lower().replace("_", "-"),
            setting.read_only,
            setting.sensitive,
            *([setting.documentation] if documentation else []),
        )
        for settings in described.done.values()
        for setting in sorted(settings.values(), key=lambda each: each.name)
        if every or not setting.is_default
    ]
    if not described.failed:
        output.show(Table(tuple(headings), rows))
    return show_errors(described.failed.values())


async def alter(
    connection: Connection, kind: str, name: str | None, wanted: Sequence[ConfigChange], validate_only: bool
) -> int:
    """Change settings."""
    changed = resource(kind, name)
    async with connection.admin() as admin:
        answered = await admin.configs.alter({changed: wanted}, validate_only=validate_only)
    return show_errors(answered.failed.values())

"""Options of Kafka's own tools that have another name here. The error about an unknown option suggests that name."""

from __future__ import annotations

from collections.abc import Collection, Mapping

_ARGUMENT = "give the name without an option, as in the examples"

_COUNTERPARTS: Mapping[str, tuple[str, ...]] = {
    "--to-earliest": ("--to earliest",),
    "--to-latest": ("--to latest",),
    "--to-offset": ("--to 42",),
    "--to-datetime": ("--to 2026-01-31T12:00:00Z",),
    "--by-duration": ("--to 2h",),
    "--shift-by": ("--shift",),
    "--from-file": ("--file",),
    "--from-beginning": ("--from earliest",),
    "--offset": ("--from", "--to", "--before"),
    "--whitelist": ("--regex",),
    "--include": ("--regex",),
    "--replication-factor": ("--replicas",),
    "--replica-assignment": ("--assignment",),
    "--add-config": ("--set",),
    "--delete-config": ("--unset",),
    "--allow-principal": ("--principal",),
    "--deny-principal": ("--deny",),
    "--bootstrap-servers": ("--bootstrap-server",),
    "--broker-list": ("--bootstrap-server",),
    "--command-config": ("--config",),
    "--producer.config": ("--config",),
    "--consumer.config": ("--config",),
    "--producer-property": ("--property",),
    "--consumer-property": ("--property",),
    "--all-groups": ("--all",),
}
"""Options of Kafka's tools, and the options to use instead. A command has at most one option to use instead."""

_ARGUMENTS = ("--topic", "--group", "--entity-name")
"""Options of Kafka's tools that are arguments here, in the commands that take names."""


def counterpart(option: str, options: Collection[str], *, takes_names: bool) -> str:
    """Return advice about an option that the command does not have; empty if there is none.

    ``options`` are the options of the command. ``takes_names`` says whether the command has an argument.
    """
    for advice in _COUNTERPARTS.get(option, ()):
        if advice.partition(" ")[0] in options:
            return f"use {advice}"
    return _ARGUMENT if takes_names and option in _ARGUMENTS else ""

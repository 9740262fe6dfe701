"""Tab completion of names that are in the cluster. It has a time limit, and no error if the cluster does not answer."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import typer

from .connection import ConnectionOptions

if TYPE_CHECKING:
    from ...admin import Admin, ConfigResource

LIMIT = 1.0
"""The seconds to wait for the cluster, because a person waits at the prompt."""


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with the typed text."""
    return _names(context, incomplete, _topics)


def partitions(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with the typed text; after a colon, partitions of a topic: ``orders:0``."""
    topic, colon, _ = incomplete.partition(":")

    async def ask(admin: Admin) -> list[str]:
        if not colon:
            return await _topics(admin)
        return [
            f"{topic}:{partition.partition}" for partition in (await admin.topics.describe(topic))[topic].partitions
        ]

    return _names(context, incomplete, ask)


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the consumer groups that begin with the typed text."""
    return _names(context, incomplete, every_group)


def share_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the share groups that begin with the typed text."""
    return _names(context, incomplete, _share_groups)


def resources(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of resources. The previous argument is their type."""

    async def ask(admin: Admin) -> list[str]:
        kind = str(context.params.get("kind") or "")
        if kind.startswith("broker"):
            return [str(broker.node_id) for broker in (await admin.cluster.describe()).brokers]
        return await {"topic": _topics, "group": every_group}[kind](admin)

    return _names(context, incomplete, ask)


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """Return the settings of the topic or other resource that the arguments name, for ``--unset``."""
    return _names(context, incomplete, lambda admin: _settings(admin, context))


def assignments(context: typer.Context, incomplete: str) -> list[str]:
    """Return the settings of ``settings`` with an equals sign, for ``--set``."""

    async def ask(admin: Admin) -> list[str]:
        return [f"{name}=" for name in await _settings(admin, context)]

    return _names(context, incomplete, ask)


def properties(incomplete: str) -> list[str]:
    """Return the client properties that begin with the typed text."""
    from ...settings.properties import MEANINGS

    return [f"{name}=" for name in sorted(MEANINGS) if name.startswith(incomplete)]


async def every_group(admin: Admin) -> list[str]:
    """List the names of all groups except share groups, which have commands of their own."""
    # Without a filter of types, because a broker may refuse a type that it does not know.
    return [group.group_id for group in await admin.groups.list() if group.type.value != "Share"]


async def _topics(admin: Admin) -> list[str]:
    return [topic.name for topic in await admin.topics.list()]


async def _share_groups(admin: Admin) -> list[str]:
    return [group.group_id for group in await admin.share_groups.list()]


async def _settings(admin: Admin, context: typer.Context) -> list[str]:
    result = await admin.configs.describe(await _resource(admin, context))
    return sorted({name for settings in result.done.values() for name in settings})


async def _resource(admin: Admin, context: typer.Context) -> ConfigResource:
    """Return the resource that the arguments name. All topics have the same settings, and so have all brokers."""
    from ...admin import ConfigResource, ConfigResourceType

    # The arguments before an option that has no value yet are only in ``args``.
    arguments = [str(value) for name in ("kind", "name") if (value := context.params.get(name))] or context.args
    has_kind = any(param.name == "kind" for param in context.command.params)
    kind, *names = arguments if has_kind else ["topic", *(context.params.get("topics") or arguments)]
    if kind == "brokers":
        return ConfigResource.broker((await admin.cluster.describe()).brokers[0].node_id)
    name = names[0] if names else (await _topics(admin))[0]
    return ConfigResource(ConfigResourceType[kind.upper().replace("-", "_")], name)


def _names(context: typer.Context, incomplete: str, ask: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    import asyncio
    import logging

    import anyio

    from ...errors import KafkaError

    async def look_up() -> list[str]:
        admin = connection.new_admin()  # imports most of the client, which takes a part of a second
        with anyio.fail_after(LIMIT):
            async with admin:
                return await ask(admin)

    parameters = context.params
    connection = ConnectionOptions(
        parameters.get("bootstrap_server"),
        parameters.get("config"),
        parameters.get("properties") or (),
        LIMIT,
        context.find_root().params.get("cluster"),
    )
    logger = logging.getLogger("aiokafka_lite")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        names = asyncio.run(look_up())
    except (KafkaError, OSError, ValueError, LookupError):  # TimeoutError is an OSError
        return []
    finally:
        logger.setLevel(level)
    return [name for name in names if name.startswith(incomplete)]


@contextmanager
def pieces_of_bash(variables: MutableMapping[str, str]) -> Iterator[None]:
    """Let bash complete words with colons and equals signs, such as ``orders:0``, which it divides into pieces.

    The pieces are joined before the completion, so that ``-b localhost:9092`` is one word. Bash replaces only the last
    piece, so the others are removed from the printed words.
    """
    words, prefix = join_pieces(variables["COMP_WORDS"].split("\n")[: int(variables["COMP_CWORD"]) + 1])
    variables.update({"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)})
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        print("\n".join(line.removeprefix(prefix) for line in printed.getvalue().splitlines()))


def join_pieces(pieces: Iterable[str]) -> tuple[list[str], str]:
    """Return the words that bash has divided, and the pieces of the last word without the last one.

    A colon after an option is a word of its own, as in ``-k :``.
    """
    words: list[str] = []
    kept, joins = "", False
    for piece in pieces:
        is_sign = bool(piece) and not piece.strip(":=")
        if words and (joins or (is_sign and not (words[-1].startswith("-") and ":" in piece))):
            kept = words[-1] + (piece if is_sign else "")
            words[-1] += piece
            joins = is_sign
        else:
            kept, joins = "", False
            words.append(piece)
    return words, kept

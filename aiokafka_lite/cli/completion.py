"""Tab completion of names that are in the cluster. It has a time limit, and no error if the cluster does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from .connection import Connection

if TYPE_CHECKING:
    from ..admin import Admin

LIMIT = 1.0
"""The time limit in seconds, because a person waits at the prompt."""


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with the typed text. Of ``orders:0,1``, only the name is completed."""
    return _names(context, incomplete, _topics)


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """The consumer groups that begin with the typed text."""
    return _names(context, incomplete, every_group)


def share_groups(context: typer.Context, incomplete: str) -> list[str]:
    """The share groups that begin with the typed text."""
    return _names(context, incomplete, _share_groups)


async def every_group(admin: Admin) -> list[str]:
    """The names of all groups except share groups, which have commands of their own."""
    # Without a filter of types, because a broker may refuse a type that it does not know.
    return [each.group_id for each in await admin.groups.list() if each.type.value != "Share"]


async def _topics(admin: Admin) -> list[str]:
    return [each.name for each in await admin.topics.list()]


async def _share_groups(admin: Admin) -> list[str]:
    return [each.group_id for each in await admin.share_groups.list()]


def _names(context: typer.Context, incomplete: str, ask: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    import asyncio
    import logging

    import anyio

    from ..errors import KafkaError

    async def look_up() -> list[str]:
        with anyio.fail_after(LIMIT):
            async with connection.admin() as admin:
                return await ask(admin)

    given = context.params
    connection = Connection(given.get("bootstrap_server"), given.get("config"), given.get("properties") or (), LIMIT)
    logger = logging.getLogger("aiokafka_lite")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        names = asyncio.run(look_up())
    except (KafkaError, OSError, ValueError):  # TimeoutError is an OSError
        return []
    finally:
        logger.setLevel(level)
    return [name for name in names if name.startswith(incomplete)]

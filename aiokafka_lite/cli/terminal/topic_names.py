"""Checks before a command begins that its topics exist, and suggests the nearest name for a missing topic or group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ...errors import BrokerError, ErrorCode, KafkaError, UnknownTopic
from .run import say

if TYPE_CHECKING:
    from ...admin import Admin
    from .connection import ConnectionOptions

GRACE = 1.0
"""Seconds in which a topic may still appear: a broker knows a new topic a moment after it was created."""


async def check_topics(
    connection: ConnectionOptions, names: Iterable[str], *, may_create: bool, max_partitions: int = 0
) -> None:
    """Report the topics that do not exist even after ``GRACE`` seconds.

    A missing topic is a KafkaError, or with ``may_create`` a line on stderr. Other errors of topics, such as
    AuthorizationError, are raised. A name with a colon is a ValueError. For a single name, its text recommends up to
    ``max_partitions`` options ``--partition``.
    """
    topics = list(dict.fromkeys(names))
    for name in topics:
        if ":" in name:
            remedy = _with_options(name, max_partitions) if len(topics) == 1 else ""
            raise ValueError(f"topic must be a name without a colon, got {name!r}{remedy}")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GRACE
    async with connection.admin() as admin:
        # By name, because the list of all topics lacks topics that the user may not see.
        missing = (await admin.topics.describe(topics)).failed
        while missing and loop.time() < deadline and all(isinstance(error, UnknownTopic) for error in missing.values()):
            missing = (await admin.topics.describe(topics)).failed
        existing = [topic.name for topic in await admin.topics.list()] if missing else []
    for error in missing.values():
        if not isinstance(error, UnknownTopic):
            raise error
    for name in map(str, missing):
        if not may_create:
            raise KafkaError(f"{no_topic(name)}{hint(name, existing)}")
        say(f"{no_topic(name)}; the cluster creates it, if its settings allow it{hint(name, existing)}")


async def explained(admin: Admin, failed: Mapping[Any, KafkaError]) -> dict[Any, KafkaError]:
    """Suggest the nearest existing name in the error of each topic that does not exist.

    If the names cannot be listed, the errors are returned as they are: the command has its result already.
    """
    errors = dict(failed)
    if any(isinstance(error, UnknownTopic) for error in failed.values()):
        try:
            existing = [topic.name for topic in await admin.topics.list()]
        except KafkaError:
            return errors
        for key, error in failed.items():
            name = key if isinstance(key, str) else str(key.name)
            if isinstance(error, UnknownTopic) and name not in existing:
                errors[key] = KafkaError(f"{no_topic(name)}{hint(name, existing)}")
    return errors


async def explained_groups(admin: Admin, failed: Mapping[str, KafkaError]) -> dict[str, KafkaError]:
    """Suggest the nearest existing name in the error of each group that does not exist.

    If the groups cannot be listed, the errors stay as they are.
    """
    missing = {
        name
        for name, error in failed.items()
        if isinstance(error, BrokerError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND
    }
    try:
        existing = [group.group_id for group in await admin.groups.list()] if missing else []
    except KafkaError:
        return dict(failed)
    return {
        name: KafkaError(f"there is no group {name!r}{hint(name, existing)}") if name in missing else error
        for name, error in failed.items()
    }


def _with_options(name: str, max_partitions: int) -> str:
    """Return the end of an error: advice to write ``topic:0,1`` as options. Empty if the command does not take them."""
    topic, _, numbers = name.partition(":")
    partitions = numbers.split(",")
    if len(partitions) > max_partitions or not all(number.isdecimal() for number in partitions):
        return ""
    return f"; instead write: {topic} {' '.join(f'--partition {number}' for number in partitions)}"


def no_topic(name: str) -> str:
    return f"there is no topic {name!r}"


def hint(name: str, names: Iterable[str]) -> str:
    """Return the end of an error, with the most similar known name; empty if no name is similar."""
    near = get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""

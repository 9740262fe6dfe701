"""``aiokafka-lite topics``: what the commands do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiokafka_lite.admin import ConfigResource, NewTopic
from aiokafka_lite.errors import BrokerError, ErrorCode, KafkaError

from .configs import parse_settings
from .connection import Connection
from .output import Output, Table, show_errors


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to create."""

    names: Sequence[str]
    partitions: int | None
    replicas: int | None
    assignment: str | None
    settings: Sequence[str]
    if_not_exists: bool
    validate_only: bool


def parse_assignment(text: str) -> list[list[int]]:
    """Brokers of each partition from ``1,2/2,3``; raises ValueError."""
    try:
        return [[int(number) for number in part.split(",")] for part in text.split("/")]
    except ValueError:
        form = "broker ids with commas, partitions with slashes, as in 1,2/2,3"
        raise ValueError(f"assignment={text!r}: {form}") from None


async def create(connection: Connection, output: Output, wanted: Wanted) -> int:
    """Create topics and show what they are like."""
    assignments = None if wanted.assignment is None else parse_assignment(wanted.assignment)
    configs = parse_settings("set", wanted.settings)
    topics = [
        NewTopic(name, wanted.partitions, wanted.replicas, assignments, configs) for name in dict.fromkeys(wanted.names)
    ]
    async with connection.admin() as admin:
        created = await admin.topics.create(topics, validate_only=wanted.validate_only)
    rows = [
        (each.name, each.partitions, each.replication_factor, None if each.topic_id is None else str(each.topic_id))
        for each in created.done.values()
    ]
    if rows or output.as_json:
        output.show(Table(("TOPIC", "PARTITIONS", "REPLICAS", "TOPIC-ID"), rows))
    return show_errors(_without(created.failed.values(), ErrorCode.TOPIC_ALREADY_EXISTS, wanted.if_not_exists))


async def list_topics(connection: Connection, output: Output, internal: bool) -> int:
    """Show all topics."""
    async with connection.admin() as admin:
        topics = await admin.topics.list(internal=internal)
    rows = [
        (each.name, each.partitions, each.is_internal, None if each.topic_id is None else str(each.topic_id))
        for each in topics
    ]
    output.show(Table(("TOPIC", "PARTITIONS", "INTERNAL", "TOPIC-ID"), rows))
    return 0


async def describe(connection: Connection, output: Output, names: Sequence[str]) -> int:
    """Show the partitions of topics."""
    async with connection.admin() as admin:
        described = await admin.topics.describe(names)
    rows = [
        (topic.name, each.partition, each.leader, each.leader_epoch, each.replicas, each.in_sync, each.offline)
        for topic in described.done.values()
        for each in topic.partitions
    ]
    if rows or output.as_json:
        headings = ("TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "IN-SYNC", "OFFLINE")
        output.show(Table(headings, rows))
    return show_errors(described.failed.values())


async def alter(
    connection: Connection,
    names: Sequence[str],
    partitions: int | None,
    settings: Sequence[str],
    unset: Sequence[str],
    validate_only: bool,
) -> int:
    """Add partitions, change settings."""
    changes: dict[str, str | None] = {**parse_settings("set", settings), **dict.fromkeys(unset)}
    if partitions is None and not changes:
        raise ValueError("topics alter needs --partitions, --set or --unset")
    failed: list[KafkaError] = []
    async with connection.admin() as admin:
        if partitions is not None:
            totals = dict.fromkeys(names, partitions)
            failed += (await admin.topics.add_partitions(totals, validate_only=validate_only)).failed.values()
        if changes:
            wanted = {ConfigResource.topic(name): changes for name in names}
            failed += (await admin.configs.alter(wanted, validate_only=validate_only)).failed.values()
    return show_errors(failed)


async def delete(connection: Connection, names: Sequence[str], if_exists: bool) -> int:
    """Delete topics."""
    async with connection.admin() as admin:
        deleted = await admin.topics.delete(names)
    return show_errors(_without(deleted.failed.values(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_exists))


def _without(errors: Iterable[KafkaError], code: ErrorCode, is_fine: bool) -> list[KafkaError]:
    """The errors but those that are all right with the user."""
    return [each for each in errors if not (is_fine and isinstance(each, BrokerError) and each.code is code)]

"""``aiokafka-lite groups``: what the commands do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from aiokafka_lite.admin import Admin, GroupDescription, GroupLag, Reset
from aiokafka_lite.types import TopicPartition

from .connection import Connection
from .output import Cell, Output, Table, show_errors
from .running import FAILED, say
from .starts import FORMS, parse_time

LAG_HEADINGS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
"""As Kafka's own tool has them."""


async def list_groups(connection: Connection, output: Output, states: Sequence[str], types: Sequence[str]) -> int:
    """Show groups."""
    async with connection.admin() as admin:
        groups = await admin.groups.list(states=states, types=types)
    rows = [(each.group_id, each.state.value, each.type.value, each.protocol_type) for each in groups]
    output.show(Table(("GROUP", "STATE", "TYPE", "PROTOCOL"), rows))
    return 0


async def describe(connection: Connection, output: Output, groups: Sequence[str], view: str) -> int:
    """Show offsets, members or states of groups, or of all."""
    async with connection.admin() as admin:
        wanted = groups or await every_group(admin)
        described = await admin.groups.describe(wanted)
        failed = list(described.failed.values())
        if view == "offsets":
            lags = await admin.groups.lag(described.done)
            failed += lags.failed.values()
            headings: tuple[str, ...] = LAG_HEADINGS
            rows = [row for name, lag in lags.done.items() for row in lag_rows(lag, described[name])]
        elif view == "members":
            headings = ("GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "PARTITIONS", "ASSIGNMENT")
            rows = [row for group in described.done.values() for row in _member_rows(group)]
        else:
            headings = ("GROUP", "COORDINATOR", "STRATEGY", "STATE", "TYPE", "MEMBERS")
            rows = [_state_row(group) for group in described.done.values()]
    for group in described.done.values():
        if not group.members and view != "state":
            say(f"group {group.group_id!r} has no members")
    if rows or output.as_json:
        output.show(Table(headings, rows))
    return show_errors(failed)


async def every_group(admin: Admin) -> list[str]:
    """The names of all groups that can be described here."""
    return [each.group_id for each in await admin.groups.list(types=("classic", "consumer"))]


def lag_rows(lag: GroupLag, group: GroupDescription) -> list[tuple[Cell, ...]]:
    """A row for each partition, then one for each member that has none. Pure."""
    rows: list[tuple[Cell, ...]] = []
    busy = set()
    for each in lag.partitions:
        member = each.member
        who: tuple[Cell, ...] = (None, None, None)
        if member is not None:
            busy.add(member.member_id)
            who = (member.member_id, member.host, member.client_id)
        rows.append((lag.group_id, *each.partition, each.committed, each.end, each.lag, *who))
    rows += [
        (lag.group_id, None, None, None, None, None, member.member_id, member.host, member.client_id)
        for member in group.members
        if member.member_id not in busy
    ]
    return rows


def _member_rows(group: GroupDescription) -> list[tuple[Cell, ...]]:
    return [
        (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            None if member.assignment is None else len(member.assignment),
            None if member.assignment is None else _assignment(member.assignment),
        )
        for member in group.members
    ]


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    """``orders(0,1) audit(0)``."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}({','.join(numbers)})" for topic, numbers in by_topic.items())


def _state_row(group: GroupDescription) -> tuple[Cell, ...]:
    coordinator = str(group.coordinator)
    return (group.group_id, coordinator, group.strategy, group.state.value, group.type.value, len(group.members))


async def reset_offsets(
    connection: Connection,
    output: Output,
    group: str,
    to: str | None,
    shift: int | None,
    file: Path | None,
    topics: Sequence[str],
    execute: bool,
) -> int:
    """Show where a group would go, or move it."""
    reset = parse_reset(to, shift, file, time.time())
    whole, partitions = parse_topics(topics)
    async with connection.admin() as admin:
        moved = await admin.groups.reset_offsets(
            group,
            reset,
            partitions=partitions if topics else None,
            topics=whole if topics else None,
            dry_run=not execute,
        )
    rows = [(group, *partition, move.before, move.after) for partition, move in sorted(moved.done.items())]
    if rows or output.as_json:
        output.show(Table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows))
    if not execute and rows:
        say("nothing has been moved; --execute does it")
    if not rows and not moved.failed:
        say(f"group {group!r} has committed nothing; name topics by --topic")
        return FAILED
    return show_errors(moved.failed.values())


def parse_reset(to: str | None, shift: int | None, file: Path | None, now: float) -> Reset:
    """What ``--to``, ``--shift`` or ``--file`` ask for; raises ValueError."""
    if sum(each is not None for each in (to, shift, file)) != 1:
        raise ValueError("groups reset-offsets needs one of --to, --shift and --file")
    if shift is not None:
        return Reset.shift_by(shift)
    if file is not None:
        return Reset.from_file(file)
    assert to is not None
    named = {"earliest": Reset.to_earliest, "latest": Reset.to_latest, "current": Reset.to_current}.get(to.lower())
    if named is not None:
        return named()
    if to.isdecimal():
        return Reset.to_offset(int(to))
    moment = parse_time(to, now)
    if moment is None:
        raise ValueError(f"to={to!r}: {FORMS}; or current")
    return Reset.to_timestamp(max(0, round(moment * 1000)))


def parse_topics(texts: Iterable[str]) -> tuple[list[str], list[TopicPartition]]:
    """Whole topics, and single partitions given as ``orders:0,1``; raises ValueError."""
    whole, partitions = [], []
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            whole.append(name)
            continue
        listed = numbers.split(",")
        if not all(number.isdecimal() for number in listed):
            raise ValueError(f"topic={text!r}: use TOPIC, or TOPIC:0,1 for some of its partitions")
        partitions += [TopicPartition(name, int(number)) for number in listed]
    return whole, partitions


async def delete(connection: Connection, groups: Sequence[str]) -> int:
    """Delete groups."""
    async with connection.admin() as admin:
        deleted = await admin.groups.delete(groups)
    return show_errors(deleted.failed.values())

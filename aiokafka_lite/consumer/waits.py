"""What a consumer waits for: its part of the table of ``Client.standstill``. Pure: times are passed in.

``group/waits.py`` has the part of a membership.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ..arguments import plural
from ..cluster.client import Client
from ..cluster.standstill import Wait
from ..errors import ErrorCode
from ..types import IsolationLevel
from .fetch.position_keeper import place_of_lookups, why_unknown
from .partition import AssignedPartition
from .position import PauseReason
from .subscription import Subscription

SLICE = 20_000
"""Partitions that are checked in one turn of the event loop."""

SHOWN = 3
"""The number of partitions in one text."""


def unread_partitions(subscription: Subscription, client: Client) -> Iterator[Wait | None]:
    """Yield the partitions that have no leader or no position, with the reason of the first one."""
    waiting: list[AssignedPartition] = []
    partitions = list(subscription)
    for start in range(0, len(partitions), SLICE):
        if start:
            yield None
        waiting += [assigned for assigned in partitions[start : start + SLICE] if _waits(assigned, client)]
    if not waiting:
        return
    first = waiting[0]
    others = ""
    if len(waiting) > 1:
        shown = ", ".join(str(assigned.partition) for assigned in waiting[1 : 1 + SHOWN])
        others = f"; so do {shown}" if len(waiting) <= 1 + SHOWN else f"; so do {len(waiting) - 1} others: {shown}, ..."
    yield Wait(
        "partitions",
        f"{first.partition} is not read: {why_unknown(first, client.view)}{others}",
        is_partial=len(waiting) < len(subscription.partitions),
        is_logged=_is_logged(first, client),
    )


def _waits(assigned: AssignedPartition, client: Client) -> bool:
    is_known = assigned.position.is_known
    if is_known and assigned.source is not None:
        return False  # first, because it is so for most of the partitions
    # The next read raises a failure. The user has paused a partition. The membership names the two other reasons.
    if assigned.failure is not None or assigned.paused or assigned.pause_reason is PauseReason.REVOKING:
        return False
    if assigned.pause_reason is PauseReason.ASSIGNING and is_known:
        return False
    return not is_known or client.view.leader_of(assigned.partition) is None


def _is_logged(assigned: AssignedPartition, client: Client) -> bool:
    """Return whether the failure that is retried, or the missing topic, has a line in the log already."""
    leader = client.view.leader_of(assigned.partition)
    places = [str(assigned.partition)]
    if leader is not None:
        places.append(place_of_lookups(leader.node_id))
    topic = client.view.topics.get(assigned.partition.topic)
    is_missing = topic is not None and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_missing or any(map(client.outages.is_ongoing, places))


def open_transactions(subscription: Subscription, isolation: IsolationLevel) -> Iterator[Wait]:
    """Yield a partition whose next records wait for the end of a transaction, which a program may have forgotten."""
    if isolation is not IsolationLevel.READ_COMMITTED:
        return
    waiting = [assigned for assigned in subscription if _waits_for_transaction(assigned)]
    if waiting:
        first = waiting[0]
        stable, end = first.last_stable_offset, first.high_watermark
        yield Wait(
            "transactions",
            f"{first.partition} is read up to offset {stable}, where an open transaction begins, and its end is {end}: "
            "the records behind it are returned when the transaction ends; to find a transaction that nobody ends, run "
            "aiokafka-lite transactions find-hanging",
            is_partial=True,
            progress=stable or 0,
        )


def _waits_for_transaction(assigned: AssignedPartition) -> bool:
    stable, end = assigned.last_stable_offset, assigned.high_watermark
    if stable == end:
        return False  # first, because it is so for most of the partitions
    if stable is None or end is None or assigned.paused:
        return False
    return assigned.offset is not None and assigned.offset >= stable and stable < end


def paused_partitions(subscription: Subscription, why: str) -> Iterator[Wait]:
    """Yield the pause of all partitions by the program: a read returns nothing then, as the program wants it."""
    partitions = subscription.partitions
    if partitions and all(assigned.paused for assigned in partitions.values()):
        text = f"{why} ({plural(len(partitions), 'partition')})"
        yield Wait("paused", text, is_partial=True, level=logging.INFO)

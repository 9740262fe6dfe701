"""Assigns very many partitions in slices, between which other tasks of the event loop run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..arguments import partitions as checked_partitions
from ..cluster.topics import check_topic_name
from ..errors import IllegalStateError
from ..types import TopicPartition

if TYPE_CHECKING:
    from .consumer_core import ConsumerCore

T = TypeVar("T")

SLICE = 1_000
"""Partitions that are assigned in one turn of the event loop, in some milliseconds."""


async def assign_gradually(core: ConsumerCore, partitions: Iterable[TopicPartition]) -> None:
    """Do what ``core.assign`` does, with turns for other tasks. Nothing changes before all arguments are checked."""
    core.check_assignable()
    assignment = await _checked(partitions)
    subscription = core.subscription
    topics, revision = subscription.topics, subscription.revision
    removed = [partition for partition in subscription.partitions if partition not in assignment]
    changes = [(_remove, part) for part in _slices(removed)] + [(_add, part) for part in _slices(list(assignment))]
    try:
        for change, part in changes:
            core.check_assignable()
            if subscription.revision != revision:
                raise IllegalStateError("another call changed the assignment while assign_gradually() was waiting")
            change(core, part)
            revision = subscription.revision
            await asyncio.sleep(0)
    finally:
        core.assigned(topics)


def _remove(core: ConsumerCore, part: Sequence[TopicPartition]) -> None:
    core.subscription.remove(part)


def _add(core: ConsumerCore, part: Sequence[TopicPartition]) -> None:
    new = [partition for partition in part if partition not in core.subscription.partitions]
    core.subscription.extend(new, pause_reason=core.first_pause, was_listed=False)


async def _checked(partitions: object) -> dict[TopicPartition, None]:
    if isinstance(partitions, str | bytes | TopicPartition) or not isinstance(partitions, Iterable):
        return dict.fromkeys(checked_partitions(partitions))  # raises the error for this type
    checked: dict[TopicPartition, None] = {}
    names: set[str] = set()
    for part in map(checked_partitions, _slices(list(partitions))):
        checked.update(dict.fromkeys(part))
        for name in {partition.topic for partition in part} - names:
            check_topic_name(name)
            names.add(name)
        await asyncio.sleep(0)
    return checked


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + SLICE] for start in range(0, len(items), SLICE))

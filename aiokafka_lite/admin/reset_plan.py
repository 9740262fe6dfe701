"""Looks up the partitions and the offsets that a reset of a group needs, and computes the new offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..errors import KafkaError
from ..types import IsolationLevel, TopicPartition
from .calls import Calls
from .offsets import OffsetsOfPartitions, OffsetSpec
from .peer import Deadline
from .resets import Reset, ResetOffset, bounded, needs_lookup
from .results import Results
from .topics import Topics


async def partitions_of(calls: Calls, topics: Sequence[str], deadline: Deadline) -> list[TopicPartition]:
    """Look up all partitions of topics. Raises the error of a topic that cannot be described."""
    descriptions = (await Topics(calls).describe(topics, timeout=max(deadline.left, 0.001))).raise_for_errors()
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in descriptions.values()
        for partition in topic.partitions
    ]


async def plan_reset(
    offsets: OffsetsOfPartitions,
    to: Reset,
    partitions: Iterable[TopicPartition],
    before: Mapping[TopicPartition, int],
    deadline: Deadline,
) -> Results[TopicPartition, ResetOffset]:
    """Look up the ranges of partitions, and compute new offsets in them. ``before`` has the present offsets."""
    isolation = IsolationLevel.READ_UNCOMMITTED
    items = list(partitions)
    part = deadline.first_part
    starts = await offsets.look_up(dict.fromkeys(items, OffsetSpec.EARLIEST), isolation, part())
    ends = await offsets.look_up(dict.fromkeys(starts.done, OffsetSpec.LATEST), isolation, part())
    time = needs_lookup(to)
    at_time = None
    if time is not None:
        at_time = await offsets.look_up(dict.fromkeys(ends.done, time), isolation, part())
    done: dict[TopicPartition, ResetOffset] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for item in items:
        try:
            start, end = starts[item], ends[item]
            first = 0 if start is None else start.offset
            last = first if end is None else end.offset
            by_time = None if at_time is None else at_time[item]
            old = before.get(item)
            after = to.target(item, old, first, last, None if by_time is None else by_time.offset)
            done[item] = ResetOffset(old, bounded(after, first, last))
        except KafkaError as error:
            failed[item] = error
    return Results(done, failed)

"""Ranges of offsets: the end of a trigger, and the division of its ranges into tasks. Pure.

Rule: the plan of a batch depends only on the two offsets in the checkpoint and on the options. A query that is
restarted in the middle of a batch plans that batch again, and must get the same rows in the same tasks. So nothing here
uses the cluster or a clock.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import ConfigurationError
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition

PartitionOffsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, bytes]
"""The ids of topics by name. Topics without an id, before Kafka 2.8, are left out."""

OffsetJson = dict[str, dict[str, int]]
"""Offsets in a checkpoint, in the form of Spark's own Kafka connector: ``{"topic":{"0":23}}``."""

START = "$start:"
"""The beginning of a key with the start of a query's first batch, as JSON, in the end offset of that batch. No topic
can have such a name.

Spark does not log the start of a query. Without this key, a first batch that was killed could begin at another offset
after the restart. The value is an empty object, as with the ids of topics.
"""

TOPIC_ID = "$id"
"""The first part of a key ``$id:topic:id``, which says to which topic id the offsets of a topic belong.

The value is an empty object. Spark's own connector reads the key as a topic without partitions, and ignores it. So it
continues from this source's checkpoints.
"""


# Checkpoints.


def to_json(offsets: PartitionOffsets, topic_ids: TopicIds | None = None) -> OffsetJson:
    """Return offsets in the checkpoint's form, sorted by topic and partition: Spark compares offsets as text."""
    checkpoint: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        checkpoint.setdefault(topic, {})[str(partition)] = offset
    for topic in tuple(checkpoint):
        if topic_ids and topic in topic_ids:
            checkpoint[f"{TOPIC_ID}:{topic}:{id_text(topic_ids[topic])}"] = {}
    return checkpoint


def id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def with_start(end: OffsetJson, start: PartitionOffsets) -> dict[str, object]:
    """Return the end offset of a query's first batch, with the start of this batch."""
    return {**end, START + json.dumps(to_json(start), separators=(",", ":")): {}}


def from_json(checkpoint: Mapping[str, object]) -> dict[TopicPartition, int]:
    """Parse the offsets of a checkpoint. Raises ConfigurationError unless this or Spark's connector wrote it."""
    if not isinstance(checkpoint, dict):  # the source "rate" has a number
        raise _strange(checkpoint)
    offsets: dict[TopicPartition, int] = {}
    for topic, by_partition in checkpoint.items():
        if topic.startswith((START, f"{TOPIC_ID}:")):
            continue
        if not isinstance(by_partition, dict):
            raise _strange(checkpoint)
        # Hot: runs for each partition in each trigger.
        for partition, offset in by_partition.items():
            text = str(partition)
            if not (text.isascii() and text.isdigit() and len(text) <= 10) or type(offset) is not int or offset < 0:
                raise _strange(checkpoint)
            offsets[TopicPartition(topic, int(text))] = offset
    return offsets


def topic_ids_of(checkpoint: Mapping[str, object]) -> dict[str, bytes]:
    """Return the topic ids in a checkpoint's offset. There are none with Spark's own connector, or with old brokers."""
    topic_ids: dict[str, bytes] = {}
    for key in checkpoint:
        if not key.startswith(f"{TOPIC_ID}:"):
            continue
        topic, _, text = key.removeprefix(f"{TOPIC_ID}:").partition(":")
        try:
            topic_id = base64.urlsafe_b64decode(f"{text}==")
        except ValueError:  # binascii.Error is a ValueError
            topic_id = b""
        if len(topic_id) != len(ZERO_UUID):
            raise _strange(checkpoint)
        topic_ids[topic] = topic_id
    return topic_ids


def recreated(before: TopicIds, now: TopicIds) -> dict[str, str]:
    """Return the topics that were deleted and created again, since their id has changed. The values are error texts."""
    return {
        topic: f"topic {topic!r} was deleted and created again (its id was {id_text(before[topic])}, and is "
        f"{id_text(topic_id)})"
        for topic, topic_id in sorted(now.items())
        if before.get(topic, topic_id) != topic_id
    }


def start_of(checkpoint: Mapping[str, object]) -> dict[TopicPartition, int] | None:
    """Return the start that an end offset contains, if any."""
    text = next((key.removeprefix(START) for key in checkpoint if key.startswith(START)), None)
    if text is None:
        return None
    try:
        start = json.loads(text)
    except ValueError:
        start = None
    if not isinstance(start, dict):
        raise _strange(checkpoint)
    return from_json(start)


def _strange(checkpoint: object) -> ConfigurationError:
    return ConfigurationError(
        f'an offset of the checkpoint must have the form {{"topic":{{"0":23}}}}, got {checkpoint!r}: the checkpoint '
        "belongs to another source, or is damaged; begin with a new checkpointLocation, and set startingOffsets"
    )


# Limits of a trigger.


def backlog(start: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return the number of offsets from ``start`` to ``end`` by partition, without partitions that have none to read.

    A partition that is not in ``start`` is new, and begins at 0.
    """
    sizes = {partition: offset - start.get(partition, 0) for partition, offset in end.items()}
    return {partition: size for partition, size in sizes.items() if size > 0}


def rate_limited(start: PartitionOffsets, end: PartitionOffsets, limit: int) -> dict[TopicPartition, int]:
    """Return the end of a trigger that may read ``limit`` offsets, each partition in proportion to its backlog.

    Each partition gets at least one offset, as in Spark's own connector. So a small backlog is read too.
    """
    sizes = backlog(start, end)
    total = sum(sizes.values())
    reached: dict[TopicPartition, int] = {}
    for partition, offset in end.items():
        size = sizes.get(partition)
        if size is None:
            reached[partition] = offset
        else:
            share = max(1, limit * size // total)
            reached[partition] = min(offset, start.get(partition, 0) + share)
            assert start.get(partition, 0) < reached[partition] <= offset, "a trigger reads at least one offset"
    return reached


def byte_limited(
    start: PartitionOffsets, end: PartitionOffsets, sizes: Mapping[TopicPartition, float], limit: int
) -> dict[TopicPartition, int]:
    """Return the end of a trigger that may read about ``limit`` bytes.

    ``sizes`` are the mean bytes of an offset of some partitions; others have the average of these. Each partition gets
    the same part of its backlog, and at least one offset.
    """
    unread = backlog(start, end)
    average = sum(sizes.values()) / len(sizes) if sizes else 0.0
    total = sum(size * sizes.get(partition, average) for partition, size in unread.items())
    if total <= limit:
        return dict(end)
    reached = dict(end)
    for partition, size in unread.items():
        reached[partition] = start.get(partition, 0) + max(1, int(size * limit / total))
        assert start.get(partition, 0) < reached[partition] <= end[partition], "a trigger reads at least one offset"
    return reached


# Tasks.


@dataclass(frozen=True, slots=True)
class Range:
    """The records of a partition from offset ``start`` up to, and without, offset ``end``.

    There may be fewer records than offsets: compaction and transactions leave gaps. ``topic_id`` is the id of the topic
    in the driver's plan; ZERO_UUID if the id is not known.
    """

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = ZERO_UUID

    @property
    def size(self) -> int:
        return self.end - self.start


Task = tuple[Range, ...]
"""The ranges that one Spark task reads."""


def ranges(start: PartitionOffsets, end: PartitionOffsets, topic_ids: TopicIds | None = None) -> list[Range]:
    """Return the ranges between two offsets, sorted by topic and partition, without empty ranges."""
    ids = topic_ids or {}
    return [
        Range(partition, start.get(partition, 0), offset, ids.get(partition.topic, ZERO_UUID))
        for partition, offset in sorted(end.items())
        if offset > start.get(partition, 0)
    ]


def tasks(
    unsplit: Iterable[Range],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    records_per_task: int,
) -> list[Task]:
    """Split large ranges and combine small ones, because a task has a fixed cost.

    A task gets at most ``max_records_per_partition`` offsets. With ``min_partitions`` there are at least that many
    tasks of about equal size, if there are that many offsets. Small ranges are combined up to ``records_per_task``
    offsets. The ranges of a partition stay in order.
    """
    # Splitting comes before combining: a task that combines pieces must not exceed the limit of one piece either.
    pieces = [piece for piece in unsplit if piece.size > 0]
    total = sum(piece.size for piece in pieces)
    if max_records_per_partition is not None:
        most = max_records_per_partition
        pieces = [part for piece in pieces for part in _split(piece, -(-piece.size // most))]
        records_per_task = min(records_per_task, most)
    if min_partitions is not None and pieces:
        pieces = _split_to(pieces, min_partitions)
        records_per_task = min(records_per_task, -(-total // min_partitions))
    planned = _coalesce(pieces, records_per_task, min_partitions or 1)
    assert sum(piece.size for task in planned for piece in task) == total, "the tasks read each offset once"
    return planned


def _split(whole: Range, parts: int) -> list[Range]:
    """Split a range into parts of nearly equal size, none of them empty."""
    parts = max(1, min(parts, whole.size))
    edges = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    assert edges[-1] == whole.end, "the parts have no gap"
    return [replace(whole, start=low, end=high) for low, high in pairwise(edges)]


def _split_to(pieces: Sequence[Range], count: int) -> list[Range]:
    """Split the ranges that are larger than a ``count``-th of all, so that there are ``count`` parts or more."""
    total = sum(piece.size for piece in pieces)
    return [part for piece in pieces for part in _split(piece, -(-piece.size * count // total))]


def _coalesce(pieces: Sequence[Range], records_per_task: int, min_tasks: int) -> list[Task]:
    groups: list[list[Range]] = []
    room = 0
    merges = len(pieces) - min_tasks  # more merges would leave too few tasks
    for piece in pieces:
        if groups and piece.size <= room and merges > 0:
            _append(groups[-1], piece)
            room -= piece.size
            merges -= 1
        else:
            groups.append([piece])
            room = records_per_task - piece.size
    return [tuple(task) for task in groups]


def _append(task: list[Range], piece: Range) -> None:
    """Add a piece to a task. A piece that continues the last one is merged with it."""
    last = task[-1]
    if last.partition == piece.partition and last.end == piece.start:
        task[-1] = replace(last, end=piece.end)
    else:
        task.append(piece)

"""Ranges of offsets: how a trigger's share is found, and how it is cut into tasks. Pure: the same in, the same out.

What a batch reads must not depend on when it is asked: a query that is restarted in the middle of a batch plans that
batch again, from the two offsets in its checkpoint, and has to get the same rows in the same tasks. So nothing here
asks the cluster, or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import ConfigurationError
from ..types import TopicPartition

PartitionOffsets = Mapping[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]
"""Offsets as Spark keeps them in a checkpoint: ``{"topic":{"0":23}}``, the form of Spark's own Kafka connector."""

START = "$start"
"""In the end of a query's first batch: where that batch begins. No topic can have this name.

Spark does not log where a query began, so that a first batch which is killed would be begun anew somewhere else.
"""


# Checkpoints.


def to_json(offsets: PartitionOffsets) -> OffsetJson:
    """The checkpoint's form, in the order of topics and partitions: Spark compares offsets as text."""
    made: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def with_start(end: OffsetJson, start: PartitionOffsets) -> dict[str, object]:
    """The end of a query's first batch, which says where the batch begins."""
    return {**end, START: to_json(start)}


def from_json(json: Mapping[str, object]) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint. ConfigurationError for what neither this source nor Spark's connector writes."""
    offsets: dict[TopicPartition, int] = {}
    for topic, by_partition in json.items():
        if topic == START:
            continue
        if not isinstance(by_partition, dict):
            raise _strange(json)
        for partition, offset in by_partition.items():
            if not re.fullmatch(r"\d{1,10}", str(partition)) or type(offset) is not int or offset < 0:
                raise _strange(json)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def start_of(json: Mapping[str, object]) -> dict[TopicPartition, int] | None:
    """Where the batch begins whose end this is, if it says so."""
    given = json.get(START)
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _strange(json)
    return from_json(given)


def _strange(json: object) -> ConfigurationError:
    return ConfigurationError(
        f'the checkpoint has the offset {json!r}, which is not of the form {{"topic":{{"0":23}}}}: '
        "it is of another source, or damaged; begin with a new checkpointLocation, and startingOffsets to say where"
    )


# How much a trigger reads.


def backlog(start: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, int]:
    """How many offsets each partition has between the two; those that have none are left out.

    A partition that is not in ``start`` is new, and begins at 0.
    """
    sizes = {partition: offset - start.get(partition, 0) for partition, offset in end.items()}
    return {partition: size for partition, size in sizes.items() if size > 0}


def rate_limited(start: PartitionOffsets, end: PartitionOffsets, limit: int) -> dict[TopicPartition, int]:
    """How far a trigger gets that may read ``limit`` offsets: each partition in proportion to its backlog.

    As in Spark's own connector, at least one offset each, so that a small partition does not starve beside large ones.
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
    return reached


# Tasks.


@dataclass(frozen=True, slots=True)
class Range:
    """The records of a partition from ``start`` up to ``end``, which it does not include.

    There may be fewer records than offsets: compaction and transactions leave gaps.
    """

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


Task = tuple[Range, ...]
"""What one Spark task reads."""


def ranges(start: PartitionOffsets, end: PartitionOffsets) -> list[Range]:
    """What lies between two offsets, in the order of topics and partitions; empty ranges are left out."""
    return [
        Range(partition, start.get(partition, 0), offset)
        for partition, offset in sorted(end.items())
        if offset > start.get(partition, 0)
    ]


def tasks(
    wanted: Iterable[Range],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    records_per_task: int,
) -> list[Task]:
    """Cut ranges that are too large, and put small ones together, as a task has a price of its own.

    A task gets at most ``max_records_per_partition`` offsets. There are about ``min_partitions`` tasks or more, where
    there are as many offsets. Otherwise ranges are put together up to ``records_per_task`` offsets. The ranges of a
    partition stay in order.
    """
    pieces = [each for each in wanted if each.size > 0]
    if max_records_per_partition is not None:
        most = max_records_per_partition
        pieces = [part for each in pieces for part in _split(each, -(-each.size // most))]
        records_per_task = min(records_per_task, most)
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split_to(pieces, min_partitions)
    return _coalesce(pieces, records_per_task, min_partitions or 1)


def _split(whole: Range, parts: int) -> list[Range]:
    """Equal parts, as nearly as may be; never an empty one."""
    parts = max(1, min(parts, whole.size))
    edges = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [replace(whole, start=low, end=high) for low, high in pairwise(edges)]


def _split_to(pieces: Sequence[Range], count: int) -> list[Range]:
    """About ``count`` parts, more of the larger ranges."""
    total = sum(piece.size for piece in pieces)
    return [part for piece in pieces for part in _split(piece, -(-piece.size * count // total))]


def _coalesce(pieces: Sequence[Range], records_per_task: int, min_tasks: int) -> list[Task]:
    made: list[list[Range]] = []
    room = 0
    merges = len(pieces) - min_tasks  # as many may go without leaving too few tasks
    for piece in pieces:
        if made and piece.size <= room and merges > 0:
            _append(made[-1], piece)
            room -= piece.size
            merges -= 1
        else:
            made.append([piece])
            room = records_per_task - piece.size
    return [tuple(task) for task in made]


def _append(task: list[Range], piece: Range) -> None:
    """A piece that goes on where the one before it ends becomes part of it."""
    last = task[-1]
    if last.partition == piece.partition and last.end == piece.start:
        task[-1] = replace(last, end=piece.end)
    else:
        task.append(piece)

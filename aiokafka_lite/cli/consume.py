"""``aiokafka-lite consume``: records in, lines out."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from aiokafka_lite.consumer import Consumer, RebalanceHandle, RebalanceListener
from aiokafka_lite.consumer.columns import Batch
from aiokafka_lite.errors import ConfigurationError, ErrorCode, UnknownTopic
from aiokafka_lite.group import MemberState
from aiokafka_lite.types import TopicPartition

from .connection import Connection
from .descriptors import Writer
from .formats import Line, formatter
from .progress import Bar, progress
from .running import log_warnings
from .starts import Start, parse_start

BATCH = 10_000

GLANCE = 0.1
"""Seconds after which a reader that is to stop at the end looks whether it is there: the last offsets of a log may
belong to no record."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read, from where to where, and what to make of it."""

    topics: tuple[str, ...]
    is_pattern: bool
    partitions: tuple[int, ...]
    group: str | None
    start: str | None
    until_end: bool
    most: int | None
    line: Line
    settings: dict[str, object]


async def consume(connection: Connection, wanted: Wanted) -> int:
    """Print records until there are enough, until the end, or for ever; what was printed is committed then."""
    start = Start() if wanted.start is None else parse_start(wanted.start, time.time())
    wanted = replace(wanted, group=connection.group(wanted.group))
    _check(wanted)
    topics = await _topics(connection, wanted)
    settings = dict(wanted.settings)
    if start.policy is not None:
        settings["auto_offset_reset"] = start.policy
    bounds = _Bounds(start, wanted.until_end)
    if wanted.group is not None:
        settings["listener"] = bounds
    consumer = connection.consumer(wanted.group, topics=() if wanted.partitions else topics, **settings)
    if wanted.partitions and not isinstance(topics, re.Pattern):
        consumer.assign([TopicPartition(topic, number) for topic in topics for number in wanted.partitions])
    bounds.consumer = consumer
    async with consumer:
        log_warnings()
        if wanted.group is None:
            await bounds.seek(consumer, consumer.assignment)
            await bounds.find_ends(consumer.assignment)
        with ExitStack() as stack:
            shown = stack.enter_context(
                progress("consumed", wanted.most, in_bytes=False, is_wanted=not sys.stdout.isatty())
            )
            await _Reading(consumer, wanted, bounds.ends, Writer(sys.stdout.fileno()), shown).run()
    return 0


def _check(wanted: Wanted) -> None:
    if wanted.group is not None and wanted.partitions:
        raise ConfigurationError("partition and group: the members of a group share all partitions")
    if wanted.is_pattern and len(wanted.topics) != 1:
        raise ConfigurationError("regex: one pattern, and no topics besides it")


async def _topics(connection: Connection, wanted: Wanted) -> Sequence[str] | re.Pattern[str]:
    """The topics by name, or for a group the pattern, as its members follow what comes to match it."""
    if not wanted.is_pattern:
        return wanted.topics
    try:
        pattern = re.compile(wanted.topics[0])
    except re.error as error:
        raise ConfigurationError(f"regex={wanted.topics[0]!r}: {error}") from None
    if wanted.group is not None:
        return pattern
    async with connection.admin() as admin:
        matching = [each.name for each in await admin.topics.list() if pattern.fullmatch(each.name)]
    if not matching:
        raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {pattern.pattern!r}")
    return matching


class _Bounds(RebalanceListener):
    """Where partitions are read from, and up to where, looked up before anything is read of them.

    In a group they are read from an offset or a time on only where it has committed nothing.
    """

    consumer: Consumer

    def __init__(self, start: Start, until_end: bool) -> None:
        self._start = start
        self._until_end = until_end
        self.ends: dict[TopicPartition, int] = {}

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if self._start.offset is not None or self._start.time is not None:
            committed = await self.consumer.committed(partitions)
            await self.seek(handle, [each for each, found in committed.items() if found is None])
        await self.find_ends(partitions)

    async def find_ends(self, partitions: Sequence[TopicPartition]) -> None:
        """Note where partitions end; one that comes back is read up to where it ended when it was first here."""
        new = [each for each in partitions if each not in self.ends]
        if self._until_end and new:
            self.ends.update(await self.consumer.end_offsets(new))

    async def seek(self, reader: Consumer | RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Begin at the offset, or in a partition that does not have it at the nearest that it has; or at the time."""
        if self._start.offset is not None:
            firsts = await self.consumer.beginning_offsets(partitions)
            ends = await self.consumer.end_offsets(partitions)
            for partition, first in firsts.items():
                reader.seek(partition, min(max(self._start.offset, first), ends[partition]))
        elif self._start.time is not None:
            found = await self.consumer.offsets_for_times(dict.fromkeys(partitions, self._start.time))
            ends = await self.consumer.end_offsets(partitions)
            for partition, at in found.items():
                reader.seek(partition, ends[partition] if at is None else at.offset)


class _Reading:
    """Batches from the consumer to the output, until it is enough."""

    def __init__(
        self, consumer: Consumer, wanted: Wanted, ends: Mapping[TopicPartition, int], writer: Writer, bar: Bar
    ) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._writer = writer
        self._bar = bar
        self._format = formatter(wanted.line)
        self._ends = ends
        self._count = 0

    async def run(self) -> None:
        while (left := self._left()) > 0 and not await self._is_at_end():
            batch = await self._next(min(left, BATCH))
            if batch is None:
                continue
            if self._wanted.until_end:
                self._cut(batch)
            if not batch.offsets:
                continue
            try:
                await self._writer.write(self._format(batch))
            except asyncio.CancelledError:
                if not self._writer.is_stuck:
                    self._printed(batch)
                raise
            self._printed(batch)

    def _left(self) -> int:
        return BATCH if self._wanted.most is None else self._wanted.most - self._count

    def _printed(self, batch: Batch) -> None:
        """It is out, so that it may be committed, though the next one may never be asked for."""
        self._count += len(batch)
        self._bar.advance(len(batch), self._count)
        if self._wanted.group is not None:
            partition = TopicPartition(batch.topic, batch.partition)
            self._consumer.offsets.mark(partition, batch.offsets[-1] + 1, leader_epoch=batch.leader_epoch)

    async def _next(self, most: int) -> Batch | None:
        """The next batch; None after a moment without one, if there is an end to look for."""
        batches = self._consumer.batches(most)
        if not self._wanted.until_end:
            return await anext(batches)
        try:
            async with asyncio.timeout(GLANCE) as scope:
                return await anext(batches)
        except TimeoutError:
            if not scope.expired():
                raise
            return None

    # ---- the end

    def _cut(self, batch: Batch) -> None:
        """Drop what came after the end that is to be read to, and read no more of a partition that is there."""
        partition = TopicPartition(batch.topic, batch.partition)
        end = self._ends.get(partition)
        if end is None or batch.offsets[-1] + 1 < end:
            return
        kept = bisect_left(batch.offsets, end)
        if kept < len(batch):
            self._consumer.seek(partition, end)  # or asking for the next batch would commit what is dropped here
        for column in ("offsets", "timestamps", "keys", "values", "headers"):
            setattr(batch, column, getattr(batch, column)[:kept])
        self._consumer.pause([partition])

    async def _is_at_end(self) -> bool:
        """Whether all that is assigned has been read as far as it reached when it was first seen."""
        if not self._wanted.until_end:
            return False
        if self._wanted.group is not None and self._consumer.membership is not MemberState.STABLE:
            return False
        for partition in self._consumer.assignment:
            end = self._ends.get(partition)
            if end is None or await self._consumer.position(partition) < end:
                return False
        return True

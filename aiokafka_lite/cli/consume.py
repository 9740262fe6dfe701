"""``aiokafka-lite consume``: prints records as lines."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio

from ..aio.service import ServiceState
from ..arguments import must_be
from ..consumer import Consumer, RebalanceHandle, RebalanceListener
from ..consumer.columns import Batch
from ..errors import ConfigurationError, IllegalStateError, KafkaError
from ..group import MemberState
from ..types import TopicPartition
from .terminal.connection import ConnectionOptions
from .terminal.descriptors import Writer, while_read
from .terminal.formats import Format, Line, formatter
from .terminal.progress import Bar, progress
from .terminal.read_range import Start, Stop, parse_start, parse_stop
from .terminal.registry import has_registry, new_registry
from .terminal.run import log_warnings, say
from .terminal.search import Search, SearchOptions
from .terminal.start import started
from .terminal.topic_names import check_topics

if TYPE_CHECKING:
    from .terminal.decoding import Columns, Decoder

BATCH = 10_000

LARGE = 10**12
"""An offset above this is probably a time in milliseconds: it is after September 2001."""

END_CHECK_INTERVAL = 0.1
"""Seconds without records after which ``--until`` compares positions with the end. The last offsets of a log may have
no record, so the command cannot wait for a last record."""


@dataclass(frozen=True, slots=True)
class ConsumeJob:
    """The topics to read, the bounds of reading, and the form in which records are printed."""

    topics: tuple[str, ...]
    regex: str | None
    partitions: tuple[int, ...]
    group: str | None
    start: str | None
    until: str | None
    max_records: int | None
    line: Line
    settings: dict[str, object]
    registry: str | None = None
    """The address of a schema registry, if an option gives it."""
    is_raw: bool = False
    """Whether bytes are printed as they are, although there is a registry."""
    search: SearchOptions = field(default_factory=SearchOptions)
    """Which records are printed; all of them without a search."""


async def consume(connection: ConnectionOptions, job: ConsumeJob) -> int:
    """Print records until a limit, the end, or a signal. The printed records of a group are committed at the end."""
    now = time.time()
    start = Start() if job.start is None else parse_start(job.start, now)
    stop = None if job.until is None else parse_stop(job.until, now)
    if start.time is not None and stop is not None and stop.time is not None and start.time >= stop.time:
        raise ConfigurationError(f"--from must be before --until, got {job.start!r} and {job.until!r}")
    job = replace(job, group=connection.group(job.group))
    _check(job)
    search = Search(job.search) if job.search else None
    topics = await _topics(connection, job)
    settings = dict(job.settings)
    if start.policy is not None:
        settings["auto_offset_reset"] = start.policy
    bounds = _Bounds(start, stop)
    if job.group is not None:
        settings["listener"] = bounds
    async with decoder_of(connection, job) as decoder:
        try:
            return await _consume(connection, job, topics, settings, bounds, _Selection(decoder, search))
        finally:
            if search is not None:
                search.report()


@asynccontextmanager
async def decoder_of(connection: ConnectionOptions, job: ConsumeJob) -> AsyncIterator[Decoder | None]:
    """Open the registry that the job or the properties name; None without one. The end reports what was not decoded."""
    if job.is_raw or not has_registry(connection, job.registry):
        yield None
        return
    from .terminal.decoding import Decoder

    async with new_registry(connection, job.registry) as registry:
        decoder = Decoder(registry)
        try:
            yield decoder
        finally:
            decoder.report()


async def _consume(
    connection: ConnectionOptions,
    job: ConsumeJob,
    topics: Sequence[str] | re.Pattern[str],
    settings: dict[str, Any],
    bounds: _Bounds,
    selection: _Selection,
) -> int:
    consumer = connection.consumer(job.group, topics=() if job.partitions else topics, **settings)
    if job.partitions and not isinstance(topics, re.Pattern):
        consumer.assign([TopicPartition(topic, number) for topic in topics for number in job.partitions])
    bounds.consumer = consumer
    async with started(consumer):
        log_warnings()
        if job.group is None:
            await bounds.seek(consumer, consumer.assignment)
            await bounds.find_ends(consumer.assignment)
        with ExitStack() as stack:
            shown = stack.enter_context(await _progress(job, bounds, consumer))
            stack.enter_context(while_read(sys.stdout.fileno()))
            await _Reading(consumer, job, bounds.ends, Writer(sys.stdout.fileno()), shown, selection).run()
    return 0


async def _progress(job: ConsumeJob, bounds: _Bounds, consumer: Consumer) -> AbstractContextManager[Bar]:
    """Return the bar: of a search, over the offsets to read; otherwise over the records to print."""
    if not job.search:
        return progress("consumed", job.max_records, in_bytes=False, is_wanted=not sys.stdout.isatty())
    total = None
    if bounds.ends and job.group is None:
        total = 0
        for partition, end in bounds.ends.items():
            total += max(0, end - await consumer.position(partition))
    return progress("searched", total, in_bytes=False, has_rate=True)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Decodes batches, and selects the records to print."""

    decoder: Decoder | None = None
    search: Search | None = None

    async def of(self, batch: Batch, limit: int) -> tuple[Batch, Columns | None]:
        decoded = None if self.decoder is None else await self.decoder.decode(batch)
        if self.search is None:
            return batch, decoded
        return self.search.select(batch, decoded, limit)


def _check(job: ConsumeJob) -> None:
    if bool(job.topics) == bool(job.regex):
        both = ", not both" if job.regex else ""
        raise ConfigurationError(f"consume requires topics or --regex{both}; see aiokafka-lite consume --help")
    if job.group is not None and job.partitions:
        raise ConfigurationError(
            "--partition and --group exclude each other: a group shares all partitions of its topics"
        )
    check_line(job.line)


def check_line(line: Line) -> None:
    """Raise ConfigurationError for a format string together with options for the other formats."""
    if not isinstance(line.format, Format) and (line.timestamps or line.offsets or line.headers):
        raise ConfigurationError(
            "a format string has its own fields: write %D %t-%p:%o %h for --timestamps --offsets --headers"
        )


async def _topics(connection: ConnectionOptions, job: ConsumeJob) -> Sequence[str] | re.Pattern[str]:
    """Look up the names of the topics. A group gets the pattern: members also read topics that match later."""
    if not job.regex:
        limit = sys.maxsize if job.group is None else 0
        await check_topics(connection, job.topics, may_create=False, max_partitions=limit)
        return job.topics
    try:
        pattern = re.compile(job.regex)
    except re.error as error:
        what = must_be("--regex", "a regular expression", job.regex)
        raise ConfigurationError(f"{what}: {error}") from None
    if job.group is not None:
        return pattern
    async with connection.admin() as admin:
        matching = [topic.name for topic in await admin.topics.list() if pattern.fullmatch(topic.name)]
    if not matching:
        raise KafkaError(f"no topic matches {pattern.pattern!r}")
    return matching


class _Bounds(RebalanceListener):
    """The offsets where partitions begin and end, looked up before any of their records is read.

    In a group, a ``--from`` that is looked up applies only to partitions without a committed offset.
    """

    consumer: Consumer

    def __init__(self, start: Start, until: Stop | None) -> None:
        self._start = start
        self._until = until
        self.ends: dict[TopicPartition, int] = {}

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        try:
            if self._start.is_lookup:
                committed = await self.consumer.committed(partitions)
                await self.seek(handle, [partition for partition, offset in committed.items() if offset is None])
            await self.find_ends(partitions)
        except IllegalStateError:
            if self.consumer.state is not ServiceState.CLOSING:
                raise  # otherwise the command is being stopped, and does not need the offsets

    async def find_ends(self, partitions: Sequence[TopicPartition]) -> None:
        """Look up the ends of new partitions. A partition that returns keeps the end from its first assignment."""
        new = [partition for partition in partitions if partition not in self.ends]
        if self._until is None or not new:
            return
        ends = dict(await self.consumer.end_offsets(new))
        if self._until.time is not None:
            ends |= await self._at_time(self._until.time, ends)
        self.ends.update(ends)

    async def seek(self, reader: Consumer | RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Seek to the start that the user gave, limited to the offsets that the partition has."""
        if not self._start.is_lookup or not partitions:
            return
        ends = await self.consumer.end_offsets(partitions)
        if self._start.time is not None:
            offsets = await self._at_time(self._start.time, ends)
        elif self._start.last is not None:
            offsets = {partition: end - self._start.last for partition, end in ends.items()}
        else:
            offsets = dict.fromkeys(partitions, self._start.offset or 0)
        firsts = await self.consumer.beginning_offsets(partitions)
        self._warn_of_ends(offsets, ends)
        for partition, offset in offsets.items():
            reader.seek(partition, max(firsts[partition], min(offset, ends[partition])))

    def _warn_of_ends(self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Say that an offset does not exist yet, because the command would wait for it silently.

        With ``--until``, the command does not wait.
        """
        if self._until is not None:
            return
        offset = self._start.offset
        behind = [partition for partition in offsets if offset is not None and offset > ends[partition]]
        if not behind:
            return
        end = max(ends[partition] for partition in behind)
        hint = f"; for a time in milliseconds, write --from @{offset}" if offset is not None and offset > LARGE else ""
        say(f"no partition has the offset {offset} yet (the largest end is {end}): waiting for new records{hint}")

    async def _at_time(self, time: int, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Look up the offset of the first record at this time or later; the end if all records are older."""
        times = await self.consumer.offsets_for_times(dict.fromkeys(ends, time))
        return {
            partition: ends[partition] if at is None else min(at.offset, ends[partition])
            for partition, at in times.items()
        }


class _Reading:
    """Prints batches until a limit or the end."""

    def __init__(
        self,
        consumer: Consumer,
        job: ConsumeJob,
        ends: Mapping[TopicPartition, int],
        writer: Writer,
        bar: Bar,
        selection: _Selection,
    ) -> None:
        self._selection = selection
        self._consumer = consumer
        self._job = job
        self._writer = writer
        self._bar = bar
        self._format = formatter(job.line)
        self._ends = ends
        self._count = 0

    async def run(self) -> None:
        while (room := self._room()) > 0 and not await self._is_at_end():
            batch = await self._next(BATCH if self._job.search else min(room, BATCH))
            if batch is None:
                continue
            if self._job.until is not None:
                self._cut(batch)
            if not batch.offsets:
                continue
            selected, decoded = await self._selection.of(batch, room)
            if self._job.search and len(selected) == room:
                # The rest of the batch is not examined, so a group must not commit it.
                self._end_with(batch, selected.offsets[-1])
            if not selected.offsets:
                self._printed(batch, 0)
                await asyncio.sleep(0)  # a search may find nothing for a long time, and must stop at a signal
                continue
            try:
                with self._bar.hidden() if sys.stdout.isatty() else nullcontext():
                    await self._writer.write(self._format(selected, decoded))
            except asyncio.CancelledError:
                if not self._writer.is_stuck:
                    self._printed(batch, len(selected))
                raise
            self._printed(batch, len(selected))
        if self._job.group is not None:
            # Also marks offsets after the last printed record that have no record, such as transaction markers.
            self._consumer.mark()

    def _room(self) -> int:
        return BATCH if self._job.max_records is None else self._job.max_records - self._count

    def _end_with(self, batch: Batch, offset: int) -> None:
        """Drop the records of a batch after an offset, and read them again if reading goes on."""
        if batch.offsets[-1] > offset:
            self._consumer.seek(TopicPartition(batch.topic, batch.partition), offset + 1)
            _shorten(batch, bisect_left(batch.offsets, offset + 1))

    def _printed(self, batch: Batch, count: int) -> None:
        """Mark a batch of which ``count`` records were printed: it is committed even if no further one is requested."""
        self._count += count
        self._bar.advance(len(batch), self._count)
        if self._job.group is not None:
            partition = TopicPartition(batch.topic, batch.partition)
            self._consumer.offsets.mark(partition, batch.offsets[-1] + 1, leader_epoch=batch.leader_epoch)

    async def _next(self, max_records: int) -> Batch | None:
        """Wait for the next batch. With ``--until``, None after ``END_CHECK_INTERVAL`` without a batch."""
        batches = self._consumer.batches(max_records)
        if self._job.until is None:
            return await anext(batches)
        with anyio.move_on_after(END_CHECK_INTERVAL):
            return await anext(batches)
        return None

    def _cut(self, batch: Batch) -> None:
        """Drop the records after the end, and pause a partition that has reached it."""
        partition = TopicPartition(batch.topic, batch.partition)
        end = self._ends.get(partition)
        if end is None or batch.offsets[-1] + 1 < end:
            return
        count = bisect_left(batch.offsets, end)
        if count < len(batch):
            # Otherwise the request for the next batch would commit the dropped records.
            self._consumer.seek(partition, end)
        _shorten(batch, count)
        self._consumer.pause([partition])

    async def _is_at_end(self) -> bool:
        """Return whether all assigned partitions are read up to the ends that were found at their first assignment."""
        if self._job.until is None:
            return False
        # A member without partitions is not at the end: it may have none yet, and would stop before it reads.
        if self._job.group is not None and not self._has_assignment():
            return False
        for partition in self._consumer.assignment:
            end = self._ends.get(partition)
            if end is None:
                return False
            try:
                if await self._consumer.position(partition) < end:
                    return False
            except IllegalStateError:
                if partition in self._consumer.assignment:
                    raise
                return False  # a rebalance revoked the partition during the wait
        return True

    def _has_assignment(self) -> bool:
        """Return whether the last rebalance is complete here. A member is STABLE before it has its partitions."""
        group = self._consumer.diagnose().group
        return (
            group is not None
            and group.state == MemberState.STABLE.name
            and group.owned == len(self._consumer.assignment)
        )


def _shorten(batch: Batch, count: int) -> None:
    """Keep the first ``count`` records of a batch."""
    for column in ("offsets", "timestamps", "keys", "values", "headers"):
        setattr(batch, column, getattr(batch, column)[:count])

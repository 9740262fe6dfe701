"""The readers that Spark calls: on the driver to plan, on executors to read.

Spark pickles a reader for the executors, so a reader holds options and no connection. Only the planning calls use the
state of a stream reader, and all of them come from one process of the driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ..cluster.client import Client
from ..errors import ConfigurationError, ErrorCode, error_for
from ..types import TopicPartition
from .bounds import ExplicitOffsets, Timestamps, option
from .connection import consumer_config, leased_client
from .offsets import (
    PartitionOffsets,
    Range,
    Task,
    TopicIds,
    backlog,
    byte_limited,
    from_json,
    ranges,
    rate_limited,
    recreated,
    start_of,
    tasks,
    to_json,
    topic_ids_of,
    with_start,
)
from .options import BatchRead, Read, StreamRead
from .planning import Planner
from .schema import columns_of
from .short_errors import short_errors
from .worker_loop import WorkerLoop, freeze_gc, worker_loop

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

SMALLEST_FETCH = 64 * 1024
LARGEST_FETCH = 8 * 1024 * 1024
"""The default limits of fetched bytes that wait for the decoder, for each partition."""


class TaskPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task

    def __repr__(self) -> str:
        return f"<TaskPartition {' '.join(f'{range_.partition}:{range_.start}-{range_.end}' for range_ in self.task)}>"


def input_partitions(unread: list[Range], read: Read) -> list[InputPartition]:
    """Return the tasks that read these ranges."""
    return [
        TaskPartition(task)
        for task in tasks(
            unread,
            min_partitions=read.min_partitions,
            max_records_per_partition=read.max_records_per_partition,
            records_per_task=read.records_per_task,
        )
    ]


def read_task(read: Read, columns: tuple[str, ...], partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """Read the rows of a task as Arrow record batches, in an executor's worker."""
    if not isinstance(partition, TaskPartition):
        return  # for a batch without records, Spark passes an empty partition of its own
    loop = worker_loop()
    with leased_client(loop, read.properties) as client:
        yield from _read_with(loop, client, read, columns, partition.task)


def _read_with(
    loop: WorkerLoop, client: Client, read: Read, columns: tuple[str, ...], task: Task
) -> Iterator[pyarrow.RecordBatch]:
    from .decoding import Decoder
    from .reading import RangeReader

    if read.freeze_gc:
        freeze_gc()  # all imports are done
    config = consumer_config(
        read.properties,
        fetch_max_bytes=read.prefetch_bytes,
        max_partition_fetch_bytes=min(LARGEST_FETCH, max(SMALLEST_FETCH, read.prefetch_bytes // len(task))),
    )
    decoder = Decoder(columns, check_crcs=config.check_crcs, max_decompressed_size=read.max_decompressed_size)
    reader = RangeReader(client, config, task, fail_on_data_loss=read.fail_on_data_loss, poll_timeout=read.poll_timeout)
    try:
        loop.run(reader.start())
        while fetched := loop.run(reader.take()):
            yield from decoder.decode(fetched)
        yield from decoder.rest()
    finally:
        loop.run(reader.close())


class BatchReader(DataSourceReader):
    """For ``spark.read``."""

    def __init__(self, read: BatchRead, schema: StructType) -> None:
        self._read = read
        self._columns = columns_of(schema, include_headers=read.include_headers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._read.selection}>"

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Plan the tasks of the query, once."""
        return input_partitions(self._ranges(), self._read)

    def _ranges(self) -> list[Range]:
        planner = Planner(self._read)
        partitions, topic_ids = planner.partitions()
        start = planner.resolve(self._read.starting, partitions, option("starting", self._read.starting))
        end = planner.resolve(self._read.ending, partitions, option("ending", self._read.ending))
        if isinstance(self._read.ending, ExplicitOffsets):
            self._check_end(planner, start, end)
        elif isinstance(self._read.starting, ExplicitOffsets):
            self._check_start(planner, start, end)
        return ranges(start, end, topic_ids)

    def _check_start(self, planner: Planner, start: PartitionOffsets, end: PartitionOffsets) -> None:
        """Check the starting offsets. If one is after the end of the log, it is wrong, or its records were lost."""
        latest = planner.latest(partition for partition, offset in end.items() if offset < start[partition])
        for partition, offset in latest.items():
            if start[partition] <= offset:
                continue
            what = f"option startingOffsets: {partition} ends at offset {offset}, before {start[partition]}"
            if self._read.fail_on_data_loss:
                raise ConfigurationError(
                    f"{what}; give an offset of the log, or set failOnDataLoss=false to skip the partition"
                )
            logger.warning("%s; the partition is skipped", what)

    def _check_end(self, planner: Planner, start: PartitionOffsets, end: PartitionOffsets) -> None:
        """Check the user's ending offsets. An offset after the end of the log would never be reached."""
        latest = planner.latest(end)
        for partition, offset in end.items():
            if offset > latest[partition]:
                raise ConfigurationError(
                    f"option endingOffsets: {partition} ends at offset {latest[partition]}, before {offset}; give -1 "
                    "for its end"
                )
            if offset < start[partition]:
                raise ConfigurationError(
                    f"option endingOffsets: {partition} must not end at {offset}, before its start {start[partition]}"
                )

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the rows of one task."""
        return read_task(self._read, self._columns, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """For ``spark.readStream``. One instance on the driver lives as long as the query.

    ``clock`` returns seconds; only differences count.
    """

    def __init__(self, read: StreamRead, schema: StructType, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._columns = columns_of(schema, include_headers=read.include_headers)
        self._planner = Planner(read, clock=clock)
        self._initial: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] | None = None
        self._start: tuple[dict[str, Any], dict[TopicPartition, int]] = {}, {}
        self._reported: tuple[dict[TopicPartition, int], dict[str, Any]] = {}, {}
        self._target: dict[TopicPartition, int] | None = None
        self._target_ids: TopicIds = {}
        self._warned: set[str] = set()
        self._clock = clock
        self._last_trigger: float | None = None

    def __repr__(self) -> str:
        return f"<StreamReader {self._read.selection}>"

    # Offsets of the query.

    @short_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the first offsets of a new query.

        Every call returns the same offsets. Spark calls twice, and the latest offsets change between the calls.
        """
        if self._initial is None:
            partitions = self._planner.partitions().partitions
            starting = self._read.starting
            name = option("starting", starting)
            initial = self._planner.resolve(starting, partitions, name, latest=self._target)
            if self._target is not None and isinstance(starting, Timestamps):
                # The lookup of a time came after the lookup of the target, so it may have found a later offset.
                initial = {
                    partition: min(offset, self._target.get(partition, offset)) for partition, offset in initial.items()
                }
            self._initial = initial
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Return the limit that the options give. Spark passes a limit of the trigger to ``latestOffset``.

        Spark takes one limit. If there are limits of offsets and of bytes, that of bytes stands for both.
        """
        if self._read.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._read.max_bytes_per_trigger)
        if self._read.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._read.max_offsets_per_trigger)
        if self._read.min_offsets_per_trigger is not None:
            return ReadMinRows(self._read.min_offsets_per_trigger)
        return ReadAllAvailable()

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Store the present ends of the logs as the target: the query reads up to them, and stops there."""
        partitions, self._target_ids = self._planner.partitions(must_exist=False)
        self._target = self._planner.latest(partitions)

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the offsets at which the next batch ends; ``start`` unchanged if there is no batch yet."""
        begin = self._parsed(start)
        end, topic_ids = self._end_for(begin, topic_ids_of(start))
        if isinstance(limit, ReadMinRows | ReadMaxRows | ReadMaxBytes) and self._has_to_wait(begin, end):
            return start
        if isinstance(limit, ReadMaxRows | ReadMaxBytes):
            end = self._limited(self._skip_deleted(begin, end), end, limit)
        if end == begin:
            return start
        self._last_trigger = self._clock()
        if begin == self._initial:
            return with_start(to_json(end, topic_ids), begin)
        return to_json(end, topic_ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """Return the ends of the logs when the last batch was planned. Spark reports them for ``LagListener``."""
        if self._latest is None:
            return None
        reported, json = self._reported
        if reported != self._latest:
            json = to_json(self._latest)
            self._reported = self._latest, json
        return json

    def _parsed(self, start: dict[str, Any]) -> dict[TopicPartition, int]:
        """Parse the start of a trigger. Without new records, it is the same in every trigger."""
        json, offsets = self._start
        if json != start:
            offsets = from_json(start)
            self._start = start, offsets
        return offsets

    def _end_for(self, begin: PartitionOffsets, begin_ids: TopicIds) -> tuple[dict[TopicPartition, int], TopicIds]:
        """Look up the present end of the readable records, and the topic ids. Check that no records were lost.

        A selected topic that metadata lacks keeps its offset (``failOnDataLoss=false``). If it was missing only for a
        moment, the query would otherwise take it for a new topic, and read it again.
        """
        if self._target is None:
            partitions, topic_ids = self._planner.partitions(must_exist=False, checkpoint=begin)
            end = self._planner.latest_from(partitions, begin)
        else:
            unknown = [
                partition for partition in begin if partition not in self._target and self._planner.selects(partition)
            ]
            if unknown:  # metadata may have lacked them when the target was set
                partitions, topic_ids = self._planner.partitions(must_exist=False, checkpoint=begin)
                ends = self._planner.latest(set(unknown).intersection(partitions))
                self._target, self._target_ids = {**self._target, **ends}, {**topic_ids, **self._target_ids}
            end, topic_ids = self._target, self._target_ids
        self._latest = end
        self._check_nothing_lost(begin, end, recreated(begin_ids, topic_ids))
        topics = {partition.topic for partition in end}
        absent = {
            partition: offset
            for partition, offset in begin.items()
            if partition.topic not in topics and self._planner.selects(partition)
        }
        absent_ids = {topic: begin_ids[topic] for topic, _ in absent if topic in begin_ids}
        return {**end, **absent}, {**topic_ids, **absent_ids}

    def _check_nothing_lost(
        self, begin: PartitionOffsets, end: PartitionOffsets, other_topics: Mapping[str, str]
    ) -> None:
        """Raise an error or log a warning (``failOnDataLoss``) if records were lost.

        ``other_topics`` has the topics that were deleted and created again, each with an error text.
        """
        for what in other_topics.values():
            self._lost(what)
        for partition, offset in begin.items():
            if partition.topic in other_topics:
                continue
            if partition not in end:
                self._lost(
                    f"{partition}, which was read up to offset {offset}, does not exist any more, or the options no "
                    "longer select it"
                )
            elif end[partition] < offset:
                self._lost(f"{partition} was read up to offset {offset}, and now ends at offset {end[partition]}")

    def _lost(self, what: str) -> None:
        if self._read.fail_on_data_loss:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{what}; records may be lost. Set failOnDataLoss=false to continue with the existing records, or "
                "begin with a new checkpointLocation",
            )
        if what not in self._warned:  # every trigger finds the same loss until a batch has passed it
            self._warned.add(what)
            logger.warning("%s; the query continues (failOnDataLoss=false)", what)

    def _skip_deleted(self, begin: PartitionOffsets, end: PartitionOffsets) -> PartitionOffsets:
        """Return ``begin``, moved past deleted records to the start of each log (``failOnDataLoss=false`` only).

        Without this, a limited trigger would use its limit for deleted records, batch after batch.
        """
        if self._read.fail_on_data_loss:
            return begin
        unread = set(backlog(begin, end))  # without the topics that are absent, which keep their offsets
        starts: dict[TopicPartition, int] = {}
        if self._target is not None:  # a topic may have been deleted since the target was set
            existing = set(self._planner.partitions(must_exist=False, checkpoint=begin).partitions)
            starts = {partition: end[partition] for partition in unread - existing}
            unread &= existing
        for partition, earliest in self._planner.earliest(unread).items():
            starts[partition] = max(begin.get(partition, 0), min(earliest, end[partition]))
        return {**begin, **starts}

    def _limited(
        self, begin: PartitionOffsets, end: dict[TopicPartition, int], limit: ReadMaxRows | ReadMaxBytes
    ) -> dict[TopicPartition, int]:
        """Return the end of a trigger that keeps its limits."""
        most_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._read.max_offsets_per_trigger
        if most_rows is not None:
            end = rate_limited(begin, end, most_rows)
        if isinstance(limit, ReadMaxBytes):
            end = byte_limited(begin, end, self._planner.bytes_per_offset(begin, end), limit.max_bytes)
        return end

    def _has_to_wait(self, begin: PartitionOffsets, end: PartitionOffsets) -> bool:
        """Return whether offsets are fewer than ``minOffsetsPerTrigger``, and ``maxTriggerDelay`` has not passed."""
        least = self._read.min_offsets_per_trigger
        if least is None or self._target is not None or self._last_trigger is None:
            return False  # availableNow gets no further records; the first trigger never waits
        waited = self._clock() - self._last_trigger
        return sum(backlog(begin, end).values()) < least and waited < self._read.max_trigger_delay

    # Tasks of a batch.

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of one batch: a pure function of both offsets and the options."""
        begin, until = from_json(start), from_json(end)
        if start_of(start) is None:
            # The first batch: its end contains its start. After a restart, ``start`` is the result of a new lookup.
            logged = start_of(end)
            if logged is not None:
                begin = logged
            elif begin == self._initial:
                # A first batch whose end lacks its start was empty: Spark runs an empty batch if the first trigger
                # finds no records. The new lookup of the start may have new partitions, which the next batch reads
                # from 0. With "latest", it may be after that end.
                begin = {partition: offset for partition, offset in begin.items() if partition in until}
                if any(offset > until[partition] for partition, offset in begin.items()):
                    begin = until
        topic_ids = topic_ids_of(end)
        self._check_nothing_lost(begin, until, recreated(topic_ids_of(start), topic_ids))
        return input_partitions(ranges(begin, until, topic_ids), self._read)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the rows of one task, in an executor's worker."""
        return read_task(self._read, self._columns, partition)


class RefusedStreamReader(DataSourceStreamReader):
    """A reader for wrong options: Spark's first call of any method raises their error.

    If ``DataSource.streamReader`` raised it, Spark would hide it behind an UnboundLocalError of its own.
    """

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def __repr__(self) -> str:
        return f"<RefusedStreamReader {self._error}>"

    @short_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Raises the error."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Raises the error."""
        raise self._error

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Raises the error."""
        raise self._error

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Raises the error."""
        raise self._error

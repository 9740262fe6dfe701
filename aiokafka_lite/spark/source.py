"""The readers that Spark calls: on the driver to plan, on executors to read.

A reader is pickled on its way to the executors, so it holds options and no connection; what it remembers between calls
on the driver stays in the one process that makes them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import ArrayType, DataType, StructType

from ..cluster.client import Client
from ..errors import ConfigurationError, ErrorCode, error_for
from ..types import TopicPartition
from . import pushdown
from .bounds import Offsets, Timestamps, option
from .connection import consumer_config, leased_client
from .data_source import COLUMNS
from .offsets import (
    PartitionOffsets,
    Range,
    Task,
    backlog,
    from_json,
    ranges,
    rate_limited,
    start_of,
    tasks,
    to_json,
    with_start,
)
from .options import BatchRead, Read, StreamRead
from .planning import Planner
from .runtime import Runtime, freeze_gc, runtime

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import Filter

logger = logging.getLogger(__name__)

SMALLEST_FETCH = 64 * 1024
LARGEST_FETCH = 8 * 1024 * 1024
"""Bounds of what one partition may have fetched and not decoded, in bytes, where the user has not said it."""


class TaskPartition(InputPartition):
    """What one task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task

    def __repr__(self) -> str:
        return f"<TaskPartition {' '.join(f'{each.partition}:{each.start}-{each.end}' for each in self.task)}>"


def input_partitions(wanted: list[Range], read: Read) -> list[InputPartition]:
    """The tasks that read these ranges."""
    return [
        TaskPartition(task)
        for task in tasks(
            wanted,
            min_partitions=read.min_partitions,
            max_records_per_partition=read.max_records_per_partition,
            records_per_task=read.records_per_task,
        )
    ]


def columns_of(schema: StructType, read: Read) -> tuple[str, ...]:
    """The columns to produce; ConfigurationError unless they are some of this source's, with its types."""
    if not schema.fields:
        raise ConfigurationError("the schema has no columns: leave it out, or name at least one")
    names: list[str] = schema.fieldNames()
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise ConfigurationError(f"schema: there is no column {field.name!r}; there are {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != kind:
            raise ConfigurationError(
                f"schema: the column {field.name} is {kind}, not {field.dataType.simpleString()}; cast it in the query"
            )
        if not (field.nullable and _takes_nulls(field.dataType)):
            raise ConfigurationError(f"schema: the column {field.name} must not be NOT NULL: write {field.name} {kind}")
        if names.count(field.name) > 1:
            raise ConfigurationError(f"schema: the column {field.name} is there twice: name it once")
        if field.name == "headers" and not read.include_headers:
            raise ConfigurationError("schema: the column headers needs the option includeHeaders=true")
    return tuple(names)


def _takes_nulls(kind: DataType) -> bool:
    """Whether null is allowed everywhere within a type, as Spark wants it to be said of the rows that come."""
    if isinstance(kind, ArrayType):
        return kind.containsNull and _takes_nulls(kind.elementType)
    if isinstance(kind, StructType):
        return all(field.nullable and _takes_nulls(field.dataType) for field in kind.fields)
    return True


def read_task(read: Read, columns: tuple[str, ...], partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a task as Arrow record batches; in an executor's worker."""
    if not isinstance(partition, TaskPartition):
        return  # what Spark makes up when there is nothing to read
    here = runtime()
    with leased_client(here, read.properties) as client:
        yield from _read_with(here, client, read, columns, partition.task)


def _read_with(
    here: Runtime, client: Client, read: Read, columns: tuple[str, ...], task: Task
) -> Iterator[pyarrow.RecordBatch]:
    from .decoding import Decoder
    from .reading import RangeReader

    if read.freeze_gc:
        freeze_gc()  # now that everything is imported
    config = consumer_config(
        read.properties,
        fetch_max_bytes=read.prefetch_bytes,
        max_partition_fetch_bytes=min(LARGEST_FETCH, max(SMALLEST_FETCH, read.prefetch_bytes // len(task))),
    )
    decoder = Decoder(columns, check_crcs=config.check_crcs, max_decompressed_size=config.max_decompressed_size)
    reader = RangeReader(client, config, task, fail_on_data_loss=read.fail_on_data_loss, poll_timeout=read.poll_timeout)
    try:
        here.run(reader.start())
        while fetched := here.run(reader.take()):
            yield from decoder.decode(fetched)
        yield from decoder.rest()
    finally:
        here.run(reader.close())


class BatchReader(DataSourceReader):
    """For ``spark.read``."""

    def __init__(self, read: BatchRead, schema: StructType) -> None:
        self._read = read
        self._columns = columns_of(schema, read)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._read.selection}>"

    def partitions(self) -> list[InputPartition]:
        """The tasks of the query, planned once."""
        return input_partitions(self._ranges(), self._read)

    def _ranges(self) -> list[Range]:
        planner = Planner(self._read)
        partitions = planner.partitions()
        start = planner.resolve(self._read.starting, partitions, option("starting", self._read.starting))
        end = planner.resolve(self._read.ending, partitions, option("ending", self._read.ending))
        if isinstance(self._read.ending, Offsets):
            self._check_end(planner, start, end)
        elif isinstance(self._read.starting, Offsets):
            self._check_start(planner, start, end)
        return ranges(start, end)

    def _check_start(self, planner: Planner, start: PartitionOffsets, end: PartitionOffsets) -> None:
        """Offsets that the user gave: what begins after the log's end was read before, and is gone, or is a mistake."""
        latest = planner.latest(each for each, offset in end.items() if offset < start[each])
        for partition, offset in latest.items():
            if start[partition] <= offset:
                continue
            what = f"option startingOffsets: {partition} ends at {offset}, before {start[partition]}"
            if self._read.fail_on_data_loss:
                raise ConfigurationError(f"{what}; write an offset that it has, or failOnDataLoss=false to go on")
            logger.warning("%s; nothing is read of it", what)

    def _check_end(self, planner: Planner, start: PartitionOffsets, end: PartitionOffsets) -> None:
        """Offsets that the user gave: an end that is never reached would end in a timeout."""
        latest = planner.latest(end)
        for partition, offset in end.items():
            if offset > latest[partition]:
                raise ConfigurationError(
                    f"option endingOffsets: {partition} ends at {latest[partition]}, before {offset}; write -1 for its "
                    "end"
                )
            if offset < start[partition] and isinstance(self._read.starting, Offsets):
                raise ConfigurationError(
                    f"option endingOffsets: {partition} would end at {offset}, before it begins at {start[partition]}"
                )

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one task."""
        return read_task(self._read, self._columns, partition)


class PushdownReader(BatchReader):
    """As ``BatchReader``, with filters of partitions, offsets, topics and times taken over from Spark.

    A class of its own, as Spark refuses every read of a reader that has ``pushFilters`` unless
    ``spark.sql.python.filterPushdown.enabled`` is set, which it is not by default.
    """

    def __init__(self, read: BatchRead, schema: StructType) -> None:
        super().__init__(read, schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 — Spark's name
        """Take what narrows the ranges down; Spark still applies those that do so only roughly."""
        self._filters = list(filters)
        return (each for each in filters if not pushdown.is_exact(each))

    def _ranges(self) -> list[Range]:
        wanted = super()._ranges()
        planner = Planner(self._read)
        return pushdown.narrowed(wanted, self._filters, planner.offsets_from)


def batch_reader(read: BatchRead, schema: StructType) -> BatchReader:
    """The reader for these options."""
    return PushdownReader(read, schema) if read.pushdown else BatchReader(read, schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """For ``spark.readStream``. On the driver, one instance lives as long as the query runs.

    ``clock`` gives seconds, of which only differences count.
    """

    def __init__(self, read: StreamRead, schema: StructType, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._columns = columns_of(schema, read)
        self._planner = Planner(read)
        self._initial: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._clock = clock
        self._last_trigger: float | None = None

    def __repr__(self) -> str:
        return f"<StreamReader {self._read.selection}>"

    # ---- where the query is, and how far it may go

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Where a new query begins. The same at each call: Spark asks twice, and "latest" moves."""
        if self._initial is None:
            partitions = self._planner.partitions()
            starting = self._read.starting
            name = option("starting", starting)
            initial = self._planner.resolve(starting, partitions, name, latest=self._target)
            if self._target is not None and isinstance(starting, Timestamps):
                # Found just now, and so perhaps after what was decided to be the end.
                initial = {each: min(offset, self._target.get(each, offset)) for each, offset in initial.items()}
            self._initial = initial
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """A limit that is not "all": Spark says that one when it means it, and then no option counts."""
        if self._read.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._read.max_offsets_per_trigger)
        if self._read.min_offsets_per_trigger is not None:
            return ReadMinRows(self._read.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Everything up to here will be read and nothing that comes later."""
        self._target = self._planner.latest(self._planner.partitions(gone_is_wrong=False))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Where the next batch ends; ``start`` as it came, if there is to be none yet."""
        begin = from_json(start)
        end = self._end_for(begin)
        if isinstance(limit, ReadMinRows | ReadMaxRows) and self._has_to_wait(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = rate_limited(self._where_logs_begin(begin, end), end, limit.max_rows)
        if end == begin:
            return start
        self._last_trigger = self._clock()
        if begin == self._initial:
            return with_start(to_json(end), begin)
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """The ends of the logs when the last batch was planned, for the progress; lag is counted from them."""
        return None if self._latest is None else to_json(self._latest)

    def _end_for(self, begin: PartitionOffsets) -> dict[TopicPartition, int]:
        """How far there is anything to read. Raises for what is lost, or says it and goes on."""
        if self._target is not None:
            end = self._latest = self._target
        else:
            end = self._latest = self._planner.latest_from(self._planner.partitions(gone_is_wrong=False), begin)
        self._check_nothing_lost(begin, end)
        return end

    def _check_nothing_lost(self, begin: PartitionOffsets, end: PartitionOffsets) -> None:
        for partition, offset in begin.items():
            if partition not in end:
                self._lost(f"{partition} is gone, which was read up to {offset}")
            elif end[partition] < offset:
                self._lost(f"{partition} was read up to {offset}, and now ends at {end[partition]}")

    def _lost(self, what: str) -> None:
        if self._read.fail_on_data_loss:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{what}; records may be lost. Set failOnDataLoss=false to go on with what there is, or begin with a "
                "new checkpointLocation",
            )
        logger.warning("%s; the query goes on (failOnDataLoss=false)", what)

    def _where_logs_begin(self, begin: PartitionOffsets, end: PartitionOffsets) -> PartitionOffsets:
        """``begin``, moved up to where there is something to read, where it is allowed that records are gone.

        Else a limited trigger would take its share of records that no longer exist, again and again.
        """
        if self._read.fail_on_data_loss:
            return begin
        earliest = self._planner.earliest(end)
        return {each: max(begin.get(each, 0), min(earliest[each], offset)) for each, offset in end.items()}

    def _has_to_wait(self, begin: PartitionOffsets, end: PartitionOffsets) -> bool:
        """Whether there is too little yet (``minOffsetsPerTrigger``), and ``maxTriggerDelay`` is not over."""
        least = self._read.min_offsets_per_trigger
        if least is None or self._target is not None or self._last_trigger is None:
            return False  # with availableNow nothing more will come; the first trigger waits for nothing
        waited = self._clock() - self._last_trigger
        return sum(backlog(begin, end).values()) < least and waited < self._read.max_trigger_delay

    # ---- what a batch reads

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch: a pure function of both offsets and the options."""
        begin, until = from_json(start), from_json(end)
        if start_of(start) is None:
            # The first batch: where it began is in its end. After a restart ``start`` has been looked up anew.
            begin = start_of(end) or begin
        self._check_nothing_lost(begin, until)
        return input_partitions(ranges(begin, until), self._read)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one task; in an executor's worker."""
        return read_task(self._read, self._columns, partition)

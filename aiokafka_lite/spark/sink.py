"""The writers that Spark calls: made in a planner worker, pickled for the tasks, and committed on the driver.

They write at least once. Spark repeats a task that failed, and a stream's batch that was not committed when the query
ended. Then the topic has their rows twice. Within one run of a task, the rows of a partition stay in their order.

The option ``delivery`` of a stream selects a writer that writes exactly once, in transactions.
"""

from __future__ import annotations

import difflib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from ..arguments import plural
from ..errors import ConfigurationError
from . import exactly_once
from .exactly_once import Place, Prepared
from .options import EXACTLY_ONCE, Write
from .routing import ORIGIN, REASON, RECORD_COLUMNS, TOPIC
from .short_errors import short_errors
from .writing import Target, TaskOutput, check_topic, make_producer, write_rows

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)


@dataclass
class Finished(WriterCommitMessage):
    """The message of a task to the driver: the records that the task has written."""

    outcome: TaskOutput


class BatchWriter(DataSourceArrowWriter):
    """For ``df.write``."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @short_errors
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Finished:
        """Write the rows of a task."""
        return Finished(write_rows(self._target, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the written records, which brokers have acknowledged already."""
        logger.info("wrote %s", summary(messages))
        _warn_of_dead_letters(self._target, "the write", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the records that a failed job has written. They stay in the topics."""
        logger.warning("the job failed; the records that it has written stay in the topics: %s", summary(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream``."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @short_errors
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Finished:
        """Write the rows of a task."""
        return Finished(write_rows(self._target, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log the written records, which brokers have acknowledged already."""
        logger.info("batch %d wrote %s", batchId, summary(messages))
        _warn_of_dead_letters(self._target, f"batch {batchId}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the records that a failed batch has written. They stay in the topics; Spark writes the batch again."""
        logger.warning(
            "batch %d failed; the records that it has written stay in the topics: %s", batchId, summary(messages)
        )


@dataclass
class FinishedInTransaction(WriterCommitMessage):
    """The message of a task to the driver: the open transaction, which the driver commits."""

    prepared: Prepared


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream`` with exactly-once delivery. All transactional ids begin with ``prefix``."""

    def __init__(self, target: Target, prefix: str) -> None:
        self._target = target
        self._prefix = prefix

    @short_errors
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> FinishedInTransaction:
        """Write the rows of a task in a transaction, which stays open."""
        context = TaskContext.get()
        assert context is not None, "a task of Spark calls this"
        query, batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        if query is None or batch is None:
            raise ConfigurationError(f"delivery {EXACTLY_ONCE} requires a streaming query: use writeStream")
        place = Place(f"{self._prefix}-{query}", context.partitionId(), int(batch))
        return FinishedInTransaction(exactly_once.write_rows(self._target, place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the transactions of all tasks. Spark adds the batch to its commit log afterwards."""
        prepared = _prepared(messages)
        exactly_once.commit(self._target, batchId, prepared)
        written = [Finished(task.outcome) for task in prepared]
        logger.info("batch %d committed %s", batchId, summary(written))
        _warn_of_dead_letters(self._target, f"batch {batchId}", written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the transactions of a failed batch. Spark writes the batch again when the query is restarted."""
        logger.warning("batch %d failed; aborting its open transactions", batchId)
        exactly_once.abort(self._target, _prepared(messages))


_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties of a task of a streaming query. The id of the query is in its checkpoint."""


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    return [message.prepared for message in messages if isinstance(message, FinishedInTransaction)]


def batch_writer(options: Write, schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Make the writer of ``df.write``. Raises ConfigurationError for a schema or a mode that it cannot write."""
    if overwrite:
        raise ConfigurationError("mode overwrite is not possible: a topic cannot be overwritten; write .mode('append')")
    if options.transactional_id_prefix is not None:
        raise ConfigurationError(
            f"option delivery={EXACTLY_ONCE} is for streams: a batch write has no checkpoint to recognize a repeated"
            " task; leave it out, or use writeStream with .trigger(availableNow=True)"
        )
    return BatchWriter(_checked(options, schema))


def stream_writer(options: Write, schema: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Make the writer of ``df.writeStream``. In the output mode complete (``overwrite``), each batch has all rows."""
    if overwrite:
        logger.info("output mode complete: every batch appends the whole result to the topic")
    target = _checked(options, schema)
    if options.transactional_id_prefix is not None:
        exactly_once.make_transactional_producer(options.properties, options.transactional_id_prefix)  # checks options
        return ExactlyOnceStreamWriter(target, options.transactional_id_prefix)
    return StreamWriter(target)


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return the records that the tasks have written to each partition, as one line."""
    outcomes = [message.outcome for message in messages if isinstance(message, Finished)]
    records = sum((outcome.records for outcome in outcomes), Counter[tuple[str, int]]())
    places = ", ".join(f"{topic}-{partition}: {count}" for (topic, partition), count in sorted(records.items()))
    size = sum(outcome.size for outcome in outcomes)
    written = f"{plural(records.total(), 'record')}, {plural(size, 'byte')}"
    return f"{written}, in {len(outcomes)} of {len(messages)} tasks ({places})"


def _warn_of_dead_letters(target: Target, what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    records = sum(
        count
        for message in messages
        if isinstance(message, Finished)
        for (topic, _), count in message.outcome.records.items()
        if topic == target.dead_letter_topic
    )
    if records:
        logger.warning("%s has %s in topic %s", what, plural(records, "dead letter"), target.dead_letter_topic)


_checked_topics: set[Target] = set()


def _checked(options: Write, schema: StructType) -> Target:
    """Make the target, after all checks that the driver can make. A process looks up each topic once."""
    target = Target(
        properties=options.properties,
        topic=options.topic,
        freeze_gc=options.freeze_gc,
        dead_letter_topic=options.dead_letter_topic,
    )
    check_schema(schema, needs_topic=options.topic is None)
    if options.dead_letter_topic is not None:
        check_dead_letter_columns(schema)
    if target not in _checked_topics:
        # Raises the errors of settings on the driver, before any task runs.
        make_producer(options.properties)
        if target.topic is not None or target.dead_letter_topic is not None:
            check_topic(target)
        _checked_topics.add(target)
    return target


# The columns.

_TEXT_OR_BYTES = (StringType, BinaryType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}
_HEADERS = "array<struct<key:string,value:binary>>"
_CAST = {
    "key": "CAST(key AS STRING)",
    "value": "to_json(struct(*)) AS value, or CAST(value AS STRING)",
    "topic": "CAST(topic AS STRING)",
    "partition": "CAST(partition AS INT)",
    "headers": f"CAST(headers AS {_HEADERS})",
}


def check_schema(schema: StructType, *, needs_topic: bool) -> None:
    """Raise ConfigurationError unless the rows can become records. The error says what to select instead."""
    types = {field.name: field.dataType for field in schema.fields}
    for name in ("value", TOPIC) if needs_topic else ("value",):
        if name not in types:
            raise ConfigurationError(_missing(name, list(types)))
    for name in (*RECORD_COLUMNS, *((TOPIC,) if needs_topic else ())):
        if name in types and not _is_right(name, types[name]):
            raise ConfigurationError(
                f"column {name} must be {_wanted(name)}, got {types[name].simpleString()}; select {_CAST[name]}"
            )


_ORIGIN_TYPES = {"topic": StringType, "partition": IntegerType, "offset": LongType, "timestamp": TimestampType}


def check_dead_letter_columns(schema: StructType) -> None:
    """Raise ConfigurationError if a column for dead letters has another type than those of the source."""
    types = {field.name: field.dataType for field in schema.fields}
    reason, origin = types.get(REASON), types.get(ORIGIN)
    if reason is not None and not isinstance(reason, StringType):
        raise ConfigurationError(f"column {REASON} must be string, got {reason.simpleString()}")
    if origin is None:
        return
    fields = {field.name: field.dataType for field in origin.fields} if isinstance(origin, StructType) else {"": origin}
    if not all(name in _ORIGIN_TYPES and isinstance(kind, _ORIGIN_TYPES[name]) for name, kind in fields.items()):
        raise ConfigurationError(
            f"column {ORIGIN} must be struct(topic, partition, offset, timestamp) of the source's columns, got"
            f" {origin.simpleString()}"
        )


def _is_right(name: str, kind: DataType) -> bool:
    if name != "headers":
        return isinstance(kind, _TYPES[name])
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    of_header = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        of_header.keys() == {"key", "value"}
        and isinstance(of_header["key"], StringType)
        and isinstance(of_header["value"], BinaryType)
    )


def _wanted(name: str) -> str:
    return _HEADERS if name == "headers" else " or ".join(kind.typeName() for kind in _TYPES[name])


def _missing(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, [column.lower() for column in names], n=1, cutoff=0.8)
    meant = f"did you mean {close[0]}? Names must be in lower case; " if close else ""
    if name == TOPIC:
        return f"a topic is required: {meant}write .option('topic', name), or select a column named topic"
    return f"column value is required: {meant}the columns are {', '.join(names)}; select {_CAST['value']}"

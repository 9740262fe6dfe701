"""Writes the rows of a task to their topics, through the producer of this process.

The tasks of a process use the same idempotent producer, one after another, so a task opens no connection. When the
producer's buffer is full (``kafka.buffer.memory``), the task waits, and Spark computes no more rows until there is
room.

This module does not import Spark. A task is an iterator of Arrow record batches on a thread of Spark.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import RecordTooLarge, SerializationError
from ..producer import BulkDelivery, Producer, Written
from ..protocol.records.columns import by_number
from ..settings.properties import consumer_settings, producer_settings
from .options import Properties
from .worker_loop import WorkerLoop, freeze_gc, worker_loop

if TYPE_CHECKING:
    import pyarrow

TOPIC = "topic"
RECORD_COLUMNS = ("key", "value", "headers", "partition")
"""The columns that become records. Other columns, also ``timestamp``, are ignored, as in Spark's own connector."""

DEFAULTS: Mapping[str, Any] = {"batch_size": 256 * 1024}
"""Defaults of the producer. A task has thousands of rows at once, so batches are large."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The destination of rows. ``topic`` is None if the column ``topic`` names it."""

    properties: Properties
    topic: str | None
    freeze_gc: bool


@dataclass
class TaskOutput:
    """The number of records that a task has written to each partition. ``size`` is in bytes, before compression."""

    size: int = 0
    records: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, topic: str, size: int, runs: Iterable[Written]) -> None:
        """Count the runs of a batch of rows."""
        self.size += size
        for run in runs:
            self.records[topic, run.partition] += run.records


def write_rows(target: Target, batches: Iterable[pyarrow.RecordBatch]) -> TaskOutput:
    """Write all rows, in their order within each partition, and return when all are acknowledged.

    Raises the error of the first record that failed. Other records of the task may be in the log by then. Spark repeats
    the task, so these records are written twice.
    """
    if target.freeze_gc:
        freeze_gc()
    loop = worker_loop()
    with leased_producer(loop, target.properties) as producer:
        task = RowsOfTask(producer)
        for batch in batches:
            if batch.num_rows:
                loop.run(task.accept(list(by_topic(target.topic, batch))))
        return loop.run(task.finish())


def check_topic(target: Target) -> None:
    """Look up the topic of the target, if the target names a topic. The broker may create a missing topic.

    Raises UnknownTopic if the topic does not exist and the broker does not create it.
    """
    if target.topic is not None:
        loop = worker_loop()
        with leased_producer(loop, target.properties) as producer:
            loop.run(producer.partitions_for(target.topic))


def leased_producer(loop: WorkerLoop, properties: Properties) -> AbstractContextManager[Producer]:
    """Return a lease of the started producer that all tasks of this process with the same properties share."""
    return loop.lease((Producer, properties), lambda: make_producer(properties))


def make_producer(properties: Properties, **fixed: Any) -> Producer:
    """Make a producer without starting it. ``fixed`` are settings that the user cannot change.

    Raises ConfigurationError, which names the option as the user wrote it.
    """
    settings = {**DEFAULTS, **properties.settings(producer_settings)}
    # In Java, only the consumer has this property. Here it also prevents a write from creating a topic with a
    # misspelled name.
    of_consumer = properties.settings(consumer_settings)
    settings["allow_auto_create_topics"] = of_consumer.get("allow_auto_create_topics", True)
    with properties.named():
        return Producer(**settings | fixed)


class RowsOfTask:
    """The unacknowledged rows of one task. Belongs to the loop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._open: deque[tuple[str, BulkDelivery]] = deque()
        self._outcome = TaskOutput()

    async def accept(self, parts: Iterable[tuple[str, pyarrow.RecordBatch]]) -> None:
        """Pass rows to the producer when it has room, and count the earlier rows that are acknowledged."""
        for topic, rows in parts:
            with _option_names():
                self._open.append((topic, await self._producer.put_arrow(topic, rows)))
        while self._open and self._open[0][1].done():
            await self._count_first()

    async def finish(self) -> TaskOutput:
        """Wait until all rows are acknowledged. Returns the written records."""
        while self._open:
            await self._count_first()
        return self._outcome

    async def _count_first(self) -> None:
        topic, delivery = self._open.popleft()
        with _option_names():
            self._outcome.add(topic, delivery.size, await delivery)


@contextmanager
def _option_names() -> Iterator[None]:
    """Name the option of the sink, instead of the producer's setting, in the error for a row that is too large."""
    try:
        yield
    except RecordTooLarge as error:
        error.args = (str(error).replace("max_request_size", "kafka.max.request.size"),)
        raise


def by_topic(topic: str | None, batch: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """Divide rows by their topic. Raises SerializationError if a row has no topic."""
    rows = batch.select([name for name in RECORD_COLUMNS if name in batch.schema.names])
    if topic is not None:
        yield topic, rows
        return
    topic_column = batch.column(TOPIC)
    if topic_column.null_count:
        raise SerializationError(
            "column topic must not be null in any row; fill it, or write .option('topic', name) for all rows"
        )
    encoded = topic_column.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], rows
        return
    for number, places in by_number(encoded.indices.to_numpy()):
        yield topics[number], rows.take(places)

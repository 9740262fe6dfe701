"""Writes the rows of a task to their topics, through the producer of this process.

The tasks of a process use the same idempotent producer, one after another, so a task opens no connection. When the
producer's buffer is full (``kafka.buffer.memory``), the task waits, and Spark computes no more rows until there is
room.

This module does not import Spark. A task is an iterator of Arrow record batches on a thread of Spark.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import AuthorizationError, ConfigurationError, InvalidTopic, KafkaError, RecordTooLarge, UnknownTopic
from ..producer import BulkDelivery, Producer, Written
from ..settings.properties import consumer_settings, producer_settings
from .connection import leased_admin
from .options import Properties, with_option_names
from .routing import by_topic, records_of, written
from .worker_loop import WorkerLoop, freeze_gc, worker_loop

if TYPE_CHECKING:
    import pyarrow

Divide = Callable[["pyarrow.RecordBatch"], Awaitable[list[tuple[str, "pyarrow.RecordBatch"]]]]

DEFAULTS: Mapping[str, Any] = {"batch_size": 1_000_000}
"""Defaults of the producer. A task has thousands of rows at once, so batches are nearly as large as brokers take."""

FEWEST_BYTES, MOST_BYTES = 1 << 20, 8 << 20
"""Limits of the bytes of rows that are encoded at once.

Spark passes 10,000 rows at a time. Each time, every partition gets at least one batch of its own, so few rows make
small batches, which cost the client and the broker more. The bytes are doubled up to the limit, so that a task begins
to send early."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The destination of rows. ``topic`` is None if the column ``topic`` names it.

    ``dead_letter_topic`` is the topic of rows that their topic cannot take. If it is None, they are an error.
    """

    properties: Properties
    topic: str | None
    freeze_gc: bool
    dead_letter_topic: str | None = None


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
    with leased_producer(loop, target.properties) as producer, rows_of_task(loop, target, producer) as task:
        for batch in batches:
            if batch.num_rows:
                loop.run(task.accept(batch))
        return loop.run(task.finish())


@contextmanager
def rows_of_task(loop: WorkerLoop, target: Target, producer: Producer) -> Iterator[RowsOfTask]:
    """Make the object that writes the rows of one task with this producer."""
    if target.dead_letter_topic is None:
        yield RowsOfTask(producer, target)
        return
    from .dead_letters import DeadLetters

    with leased_admin(loop, target.properties) as admin:
        divide = DeadLetters(producer, admin, target.topic, target.dead_letter_topic).divide
        yield RowsOfTask(producer, target, divide)


def check_topic(target: Target) -> None:
    """Look up the topics that the target names. The broker may create a missing topic.

    Raises UnknownTopic if a topic does not exist and the broker does not create it, and ConfigurationError for a
    dead-letter topic that cannot be used.
    """
    loop = worker_loop()
    with leased_producer(loop, target.properties) as producer:
        if target.topic is not None:
            loop.run(producer.partitions_for(target.topic))
        if target.dead_letter_topic is not None:
            try:
                loop.run(producer.partitions_for(target.dead_letter_topic))
            except (UnknownTopic, InvalidTopic, AuthorizationError) as error:
                raise ConfigurationError(f"option deadLetterTopic: {error}") from None


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
    """The unacknowledged rows of one task. Belongs to the loop. ``divide`` returns rows by their topic.

    Rows wait here until there are enough of them to be encoded.
    """

    def __init__(self, producer: Producer, target: Target, divide: Divide | None = None) -> None:
        self._producer = producer
        self._target = target
        self._divide = divide
        self._waiting: list[pyarrow.RecordBatch] = []
        self._waiting_size = 0
        self._enough = FEWEST_BYTES
        self._open: deque[tuple[str, BulkDelivery]] = deque()
        self._outcome = TaskOutput()

    async def accept(self, rows: pyarrow.RecordBatch) -> None:
        """Pass rows to the producer when they are enough and it has room. Count earlier rows that are acknowledged."""
        needed = written(rows) if self._divide is None else rows
        self._waiting.append(needed)
        self._waiting_size += needed.nbytes
        if self._waiting_size >= self._enough:
            self._enough = min(2 * self._enough, MOST_BYTES)
            await self._put_waiting()
        while self._open and self._open[0][1].done():
            await self._count_first()

    async def finish(self) -> TaskOutput:
        """Wait until all rows are acknowledged. Returns the written records."""
        await self._put_waiting()
        while self._open:
            await self._count_first()
        return self._outcome

    async def _put_waiting(self) -> None:
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        for rows in _joined(waiting):
            await self._put(rows)

    async def _put(self, rows: pyarrow.RecordBatch) -> None:
        divided: Iterable[tuple[str, pyarrow.RecordBatch]]
        divided = by_topic(self._target.topic, rows) if self._divide is None else await self._divide(rows)
        for topic, part in divided:
            with self._named(topic):
                self._open.append((topic, await self._producer.put_arrow(topic, records_of(part))))

    async def _count_first(self) -> None:
        topic, delivery = self._open.popleft()
        with self._named(topic):
            self._outcome.add(topic, delivery.size, await delivery)

    @contextmanager
    def _named(self, topic: str) -> Iterator[None]:
        """Name the option of the sink, instead of the producer's setting, in an error of this topic."""
        try:
            yield
        except KafkaError as error:
            if isinstance(error, RecordTooLarge):
                error.args = (with_option_names(str(error)),)
            if topic == self._target.dead_letter_topic:
                raise KafkaError(
                    f"option deadLetterTopic: topic {topic!r} did not take the refused rows: {error}"
                ) from error
            raise


def _joined(rows: list[pyarrow.RecordBatch]) -> list[pyarrow.RecordBatch]:
    """Return the same rows in one record batch; in several if Arrow's type of a column cannot hold so many bytes."""
    if len(rows) < 2:
        return rows
    import pyarrow

    joined: list[pyarrow.RecordBatch] = pyarrow.Table.from_batches(rows).combine_chunks().to_batches()
    return joined

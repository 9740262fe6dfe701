"""What a task does with its rows: to the topics that they name, through this process's producer, until all are there.

The producer is idempotent and shared by the tasks of the process one after another, so that a task costs no connection.
Rows wait where the producer's buffer is full (``kafka.buffer.memory``), and with them what Spark computes.

Nothing here knows Spark; a task is an iterator of Arrow record batches, on a thread that is not the loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError, SerializationError
from ..producer import BulkDelivery, Producer, Written
from ..properties import producer_settings
from ..protocol.records.columns import by_number
from .options import KAFKA_PREFIX, Properties
from .runtime import Runtime, freeze_gc, runtime

if TYPE_CHECKING:
    import pyarrow

TOPIC = "topic"
RECORD_COLUMNS = ("key", "value", "headers", "partition")
"""The columns that become records. Others are ignored, as by Spark's own connector: also ``timestamp``."""

DEFAULTS: Mapping[str, Any] = {"batch_size": 256 * 1024}
"""Settings of the producer for what the user did not say: rows come by the ten thousand, so batches may be large."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where rows go. ``topic`` is None where a column names it."""

    properties: Properties
    topic: str | None
    freeze_gc: bool


@dataclass
class Range:
    """Records of one partition: how many, and the offsets of the first and last, -1 where the broker told none.

    Between them may be records of others.
    """

    records: int
    first: int
    last: int

    def add(self, run: Written) -> None:
        """Count a run that came after."""
        self.records += run.records
        if run.base_offset >= 0:
            self.first = run.base_offset if self.first < 0 else min(self.first, run.base_offset)
            self.last = max(self.last, run.base_offset + run.records - 1)


@dataclass
class Outcome:
    """What a task has written. ``size`` is in bytes, before compression."""

    records: int = 0
    size: int = 0
    ranges: dict[tuple[str, int], Range] = field(default_factory=dict)

    def add(self, topic: str, size: int, runs: Iterable[Written]) -> None:
        """Count what came of a batch of rows."""
        self.size += size
        for run in runs:
            self.records += run.records
            self.ranges.setdefault((topic, run.partition), Range(0, -1, -1)).add(run)


def write_rows(target: Target, batches: Iterable[pyarrow.RecordBatch]) -> Outcome:
    """Write all rows, in their order within each partition; returns when each of them is acknowledged.

    Raises what the first record failed with that was not written: others of the task may be in the log then, and the
    task that is run again writes them anew.
    """
    if target.freeze_gc:
        freeze_gc()
    process = runtime()
    with leased_producer(process, target.properties) as producer:
        task = _Task(producer)
        for batch in batches:
            if batch.num_rows:
                process.run(task.accept(list(_by_topic(target.topic, batch))))
        return process.run(task.finish())


def check_topic(target: Target) -> None:
    """Ask Kafka for the topic, if it is one for all rows; UnknownTopic where it does not exist and is not created."""
    if target.topic is not None:
        process = runtime()
        with leased_producer(process, target.properties) as producer:
            process.run(producer.partitions_for(target.topic))


def leased_producer(process: Runtime, properties: Properties) -> AbstractContextManager[Producer]:
    """A started producer with these settings, shared by all tasks of this process that have the same ones."""
    return process.lease((Producer, properties), lambda: make_producer(properties))


def make_producer(properties: Properties) -> Producer:
    """A producer with these settings, not started. ConfigurationError names the option as the user wrote it."""
    given = {name: value for name, value in properties.items() if name != "isolation.level"}
    try:
        settings: dict[str, Any] = {**DEFAULTS, **producer_settings(given)}
    except ConfigurationError as error:
        raise ConfigurationError(f"option {KAFKA_PREFIX}{error}") from None
    return Producer(**settings)


class _Task:
    """The rows of one task that are on their way. Lives on the loop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._open: deque[tuple[str, BulkDelivery]] = deque()
        self._outcome = Outcome()

    async def accept(self, shares: Iterable[tuple[str, pyarrow.RecordBatch]]) -> None:
        """Give rows to the producer as it has room, and note what has arrived of those before."""
        for topic, rows in shares:
            self._open.append((topic, await self._producer.put_arrow(topic, rows)))
        while self._open and self._open[0][1].done():
            await self._note()

    async def finish(self) -> Outcome:
        """Wait until nothing is open."""
        while self._open:
            await self._note()
        return self._outcome

    async def _note(self) -> None:
        topic, delivery = self._open.popleft()
        self._outcome.add(topic, delivery.size, await delivery)


def _by_topic(topic: str | None, batch: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """Divide rows by the topic that they go to; SerializationError for a row that names none."""
    rows = batch.select([name for name in RECORD_COLUMNS if name in batch.schema.names])
    if topic is not None:
        yield topic, rows
        return
    named = batch.column(TOPIC)
    if named.null_count:
        raise SerializationError(
            "the column topic is null in some row; fill it, or write .option('topic', name) for one topic for all"
        )
    encoded = named.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], rows
        return
    for number, places in by_number(encoded.indices.to_numpy()):
        yield topics[number], rows.take(places)

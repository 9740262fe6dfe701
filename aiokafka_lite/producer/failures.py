"""The stream of failed deliveries of a producer: ``async for failure in producer.failures()``.

A stream keeps failed *batches*, and decodes their records only when the user takes them. So a failure has no cost per
record until then, and a producer without a stream only checks an empty set for each failed batch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakSet

from ..aio.light_event import LightEvent
from ..protocol.records import RecordBatch
from ..types import Header
from .batch import ProducerBatch
from .delivery import BatchResult
from .record import PreparedRecord

logger = logging.getLogger(__name__)

_ALL = 2**62

OnFailure: TypeAlias = Callable[[Exception, ProducerBatch | None], None]


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record that was accepted and not delivered. Key and value are serialized, as they would have been written.

    ``partition`` is None if none was chosen. ``timestamp`` is in milliseconds. After a KafkaTimeout the record may
    still have been written; see "What an error says about the record" in docs/delivery.md.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int
    error: Exception


@dataclass(frozen=True, slots=True)
class _Group:
    """Records that failed together: a batch, some of its records (``results`` by index), or ``prepared`` records."""

    results: Mapping[int, BatchResult]
    size: int
    batch: ProducerBatch | None = None
    prepared: Sequence[PreparedRecord] = ()

    def records(self) -> Iterator[FailedRecord]:
        """Read the records. Their errors count as observed, so they are not logged."""
        columns = None if self.batch is None else RecordBatch(self.batch.encode()).columns(_ALL)
        for index, result in self.results.items():
            result.observe()
            error = result.error
            assert error is not None
            if columns is None:
                topic, key, value, headers, partition, timestamp, _, _ = self.prepared[index]
                pairs = tuple(Header(*pair) for pair in headers)
                yield FailedRecord(topic, partition, key, value, pairs, timestamp, error)
            else:
                yield FailedRecord(
                    result.topic,
                    result.partition,
                    columns.keys[index],
                    columns.values[index],
                    columns.headers[index],
                    columns.timestamps[index],
                    error,
                )


class Failures:
    """Failed deliveries since this stream was created. It ends when the producer has ended and no failure remains.

    The stream holds at most ``max_bytes`` of records. ``dropped`` counts the records without room, because the user
    takes records too slowly. Made by ``Producer.failures``. One task takes from it.
    """

    def __init__(self, max_bytes: int, check_process: Callable[[], None]) -> None:
        self.dropped: int = 0
        self._check_process = check_process
        self._max_bytes = max_bytes
        self._size = 0
        self._groups: deque[_Group] = deque()
        self._reading: Iterator[FailedRecord] = iter(())
        self._changed = LightEvent()
        self._is_over = False

    def __aiter__(self) -> Failures:
        return self

    async def __anext__(self) -> FailedRecord:
        """Wait for the next failed record. A cancelled wait loses no record.

        Raises IllegalStateError in a forked process: the producer's tasks are in its parent.
        """
        self._check_process()
        while True:
            for record in self._reading:
                return record
            if self._groups:
                group = self._groups.popleft()
                self._size -= group.size
                self._reading = group.records()
            elif self._is_over:
                raise StopAsyncIteration
            else:
                # There is no await between the checks above and this line, so no failure is missed.
                self._changed.clear()
                await self._changed.wait()

    def add(self, group: _Group) -> None:
        """Add records that have failed, or count them as dropped."""
        # An empty stream takes any group. Otherwise the records of a group above the limit could never be read.
        if self._size and self._size + group.size > self._max_bytes:
            if not self.dropped:
                logger.warning("a stream of failed deliveries is full and drops records: read it faster")
            self.dropped += len(group.results)
            return
        self._groups.append(group)
        self._size += group.size
        self._changed.set()

    def end(self) -> None:
        """End the stream, because the producer has ended and no more records can fail."""
        self._is_over = True
        self._changed.set()

    def __repr__(self) -> str:
        return f"<Failures bytes={self._size} dropped={self.dropped}>"


class FailureStreams:
    """The streams of one producer. A stream that its user has dropped is removed and costs nothing."""

    __slots__ = ("_check_process", "_is_over", "_on_failure", "_streams")

    def __init__(self, check_process: Callable[[], None]) -> None:
        self._check_process = check_process
        self._on_failure: OnFailure | None = None
        self._streams: WeakSet[Failures] = WeakSet()
        self._is_over = False

    def open(self, max_bytes: int) -> Failures:
        """Open a new stream."""
        stream = Failures(max_bytes, self._check_process)
        self._streams.add(stream)
        if self._is_over:
            stream.end()
        return stream

    def on_failure(self, callback: OnFailure) -> None:
        """Call ``callback(error, batch)`` for each failure of a batch, or of records in no batch (None)."""
        self._on_failure = callback

    def batch_failed(self, batch: ProducerBatch, results: Mapping[int, BatchResult] | None = None) -> None:
        """Report a failed batch, or only some of its records, if ``results`` contains their results by index."""
        if self._on_failure is not None:
            failed_result = batch if results is None else next(iter(results.values()))
            error = failed_result.error
            assert error is not None
            self._on_failure(error, batch)
        for stream in self._streams:
            failed = dict.fromkeys(range(batch.count), batch) if results is None else results
            stream.add(_Group(failed, batch.reserved * len(failed) // batch.count, batch))

    def records_failed(self, records: Sequence[PreparedRecord], result: BatchResult) -> None:
        """Report failed records that were in no batch."""
        if self._on_failure is not None and records:
            error = result.error
            assert error is not None
            self._on_failure(error, None)
        for stream in self._streams:
            failed = dict.fromkeys(range(len(records)), result)
            stream.add(_Group(failed, sum(record.size for record in records), prepared=records))

    def end(self) -> None:
        """End all streams, because the producer has ended."""
        self._is_over = True
        for stream in self._streams:
            stream.end()

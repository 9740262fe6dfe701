"""What blocking classes that read add to their asyncio counterparts: they cross to the loop once a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, Self

from ..consumer import Consumer as AsyncConsumer
from ..consumer.iteration import ArrowBatches as AsyncArrowBatches
from ..consumer.iteration import RecordIteration as AsyncRecordIteration
from ..errors import IllegalStateError
from ..share import ShareConsumer as AsyncShareConsumer
from ..types import K, Record, ShareRecord, TopicPartition, V
from .wrapper import BlockingClient, Reading

SeekBack = Callable[[Mapping[TopicPartition, int]], None]
"""Makes a consumer read these partitions from these offsets again, if they are still assigned. Runs in the loop."""


class ConsumerIteration(Reading[Record[K, V]], Generic[K, V]):
    """An iteration that a consumer has returned. What an interrupted step had is read again, by whichever call."""

    def __init__(self, inner: Any, seek_back: SeekBack) -> None:
        super().__init__(inner)
        self._seek_back = seek_back

    def _keep(self, records: Iterable[Record[K, V]]) -> None:
        self._seek_back(_first_offsets(records))


def _first_offsets(records: Iterable[Record[Any, Any]]) -> dict[TopicPartition, int]:
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return first


class BatchIteration(ConsumerIteration[bytes, bytes]):
    """An iteration over batches of columns, which are iterables of records."""


class ArrowIteration(ConsumerIteration[bytes, bytes]):
    """An iteration over Arrow record batches, which need not have a column of offsets."""

    _inner: AsyncArrowBatches

    def _keep(self, records: object) -> None:
        self._seek_back(dict([self._inner.start]))


class RecordIteration(ConsumerIteration[K, V]):
    """An iteration over single records."""

    _inner: AsyncRecordIteration[K, V]

    def __init__(self, inner: AsyncRecordIteration[K, V], seek_back: SeekBack) -> None:
        super().__init__(inner, seek_back)
        self._cursor = inner.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record[K, V]:
        # Hot: the loop decodes a batch, and most records are taken here, without it. A thread takes a record in one
        # step of the interpreter, in C, so a rebalance in the loop sees the record either as taken or as not taken.
        for record in self._cursor.current:
            return record  # type: ignore[return-value]  # its key and value are what K and V say
        return self._take_next(self._inner.__anext__)


class _OfPartition(Protocol):
    @property
    def decoded(self) -> Iterator[Record]: ...
    async def __anext__(self) -> Record[Any, Any]: ...


class PartitionIteration(Reading[Record[K, V]], Generic[K, V]):
    """An iteration over the records of one partition: of a ``PartitionReader`` or a ``Claim``."""

    _inner: _OfPartition

    def _next_record(self) -> Record[K, V]:
        for record in self._inner.decoded:  # as in RecordIteration
            return record  # type: ignore[return-value]  # its key and value are what K and V say
        return self._take_next(self._inner.__anext__)


class ReaderIteration(ConsumerIteration[K, V], PartitionIteration[K, V]):
    """An iteration over the records of a ``PartitionReader``."""


class BlockingConsumer(BlockingClient, Reading[Record[K, V]], Generic[K, V]):
    """A consumer of ``Record``."""

    _inner: AsyncConsumer[K, V]

    def __init__(self, inner: AsyncConsumer[K, V]) -> None:
        Reading.__init__(self, inner)
        BlockingClient.__init__(self, inner)
        self._records: RecordIteration[K, V] | None = None

    def _iterate(self) -> RecordIteration[K, V]:
        return RecordIteration(self._run(self._inner.__aiter__), self._seek_back)

    def _poll(
        self, max_records: int, timeout: float, *, partitions: Iterable[TopicPartition] | None
    ) -> list[Record[K, V]]:
        poll = partial(self._inner.poll, max_records, timeout, partitions=partitions)
        take = partial(self._inner.take_ready, max_records, timeout) if partitions is None else None
        return self._thread().call(poll, self._keep, take)

    def _keep(self, records: Iterable[Record[K, V]]) -> None:
        self._seek_back(_first_offsets(records))

    def _seek_back(self, first: Mapping[TopicPartition, int]) -> None:
        # The program has not seen the records: the position does not count them, and no mark or commit passes them.
        with suppress(IllegalStateError):  # the consumer is closed
            for partition in self._inner.assignment:
                if partition in first:
                    self._inner.seek(partition, first[partition])

    def _next_record(self) -> Record[K, V]:
        if self._records is None:
            self._records = self._iterate()
        for record in self._records:  # not next(): a signal handler may raise behind a call, and lose the record
            return record
        raise StopIteration


class BlockingShareConsumer(BlockingClient, Reading[ShareRecord[K, V]], Generic[K, V]):
    """A consumer of ``ShareRecord``."""

    _inner: AsyncShareConsumer[K, V]

    def __init__(self, inner: AsyncShareConsumer[K, V]) -> None:
        Reading.__init__(self, inner)
        BlockingClient.__init__(self, inner)

    def _keep(self, records: Iterable[ShareRecord[K, V]]) -> None:
        # The program has not seen the records, so no read and no commit may accept them.
        for record in records:
            with suppress(IllegalStateError):  # the consumer is closed
                self._inner.release(record)

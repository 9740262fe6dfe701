"""The ways to read from a ``Consumer``: single records, lists, batches of columns, and one partition alone.

Each read is inside ``core.reading()``, which reports to the group that the user reads. A read takes records from the
reader only after its last await: a cancelled read loses no record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import anyio

from ..aio.service import ServiceState
from ..arguments import check_max_records, check_wait
from ..arguments import partitions as checked_partitions
from ..errors import CorruptRecord, IllegalStateError
from ..protocol.records.columns import ArrowDecoder, PackedBatch, column_names
from ..types import K, Record, TopicPartition, V
from .chunk import corrupt
from .columns import Batch
from .consumer_core import ConsumerCore
from .deserializing import Deserializing
from .group.claim import ClaimReader
from .reader import Cursor, Reader

if TYPE_CHECKING:
    import pyarrow

ARROW_BYTES = 2 << 20
"""The maximum number of compressed bytes of the log in one Arrow record batch. One batch of the log may have more."""

T = TypeVar("T")


class RecordIteration(Generic[K, V]):
    """An iteration over single records."""

    __slots__ = ("__weakref__", "_core", "cursor")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        # A separate object: the reader keeps it, and the group must detect when the user drops this iteration.
        self.cursor: Cursor = Cursor()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[K, V]:
        cursor = self.cursor
        for record in cursor.current:  # hot: most records are returned here, without any other check
            return record  # type: ignore[return-value]  # its key and value are what K and V say
        core, reader, deserializing = self._core, self._core.reader, self._core.options.deserializing
        with core.reading(self):
            while await core.may_read():
                next_record = reader.serve(cursor)
                if next_record is not None:  # another iteration was dropped before the end of its chunk
                    return next_record  # type: ignore[return-value]
                if deserializing is not None:
                    if deserializing.iterate(reader):
                        return next(cursor.current)  # type: ignore[return-value]
                    records = await _until_closed(core, deserializing.take(reader, 1))
                    if records:
                        return intercepted(core, records)[0]
                elif reader.iterate():
                    return next(cursor.current)  # type: ignore[return-value]
                await _until_closed(core, reader.wait())
        raise StopAsyncIteration


class _NextBatch:
    """Waits for the next batch of a consumer, in any form."""

    __slots__ = ("__weakref__", "_core", "_max_records", "_timeout")

    def __init__(self, core: ConsumerCore, max_records: int, timeout: float) -> None:
        self._core = core
        self._max_records = max_records
        self._timeout = timeout

    async def take(self, take: Callable[[Reader], T | None]) -> T:
        """Wait for the next batch, as ``take`` makes it. Raises StopAsyncIteration when the consumer is closed."""
        core, reader = self._core, self._core.reader
        with core.reading(self):
            if self._timeout > 0 and not reader.is_full(self._max_records):
                await self._fill()
            while await core.may_read():
                batch = take(reader)
                if batch is not None:
                    return batch
                await _until_closed(core, reader.wait())
        raise StopAsyncIteration

    def take_ready(self, take: Callable[[Reader], T | None]) -> T | None:
        """Take the next batch in one step. Returns None if ``take`` has to wait, and when the consumer is closed."""
        core, reader = self._core, self._core.reader
        if core.service.state in (ServiceState.CLOSING, ServiceState.CLOSED):
            return None
        core.service.check()
        if not reader.has_ready or (self._timeout > 0 and not reader.is_full(self._max_records)):
            return None
        with core.reading(self):
            return take(reader)

    async def _fill(self) -> None:
        """Wait until a batch is full, or the time has passed."""
        core, reader = self._core, self._core.reader
        with anyio.move_on_after(self._timeout):
            while not reader.is_full(self._max_records) and await core.may_read():
                await _until_closed(core, reader.wait(more=True))


class Batches:
    """The iteration over batches that ``Consumer.batches`` returns."""

    __slots__ = ("__weakref__", "_core", "_max_records", "_next")

    def __init__(self, core: ConsumerCore, max_records: int, timeout: float) -> None:
        if core.options.interceptors is not None and core.options.interceptors.are_given:
            raise IllegalStateError("a consumer with interceptors cannot read columns; use another consumer")
        check_max_records(max_records)
        check_wait(timeout)
        self._core = core
        self._max_records = max_records
        self._next = _NextBatch(core, max_records, timeout)

    def __aiter__(self) -> Self:
        self._core.service.check()
        return self

    async def __anext__(self) -> Batch:
        most = self._core.most_records(self._max_records)
        batch = await self._next.take(lambda reader: reader.take_batch(most))
        _returned(self._core, TopicPartition(batch.topic, batch.partition), len(batch))
        return batch

    def take_ready(self) -> Batch | None:
        """Return the next batch if that needs no wait. The blocking client calls this, outside of a task."""
        most = self._core.most_records(self._max_records)
        batch = self._next.take_ready(lambda reader: reader.take_batch(most))
        if batch is not None:
            _returned(self._core, TopicPartition(batch.topic, batch.partition), len(batch))
        return batch

    def to_arrow(self, columns: Sequence[str] | None = None, *, headers: bool = False) -> ArrowBatches:
        """Iterate over Arrow record batches instead, with the columns of ``Batch.to_arrow(columns, headers=headers)``.

        No Python object is made for a record, so this is the cheapest way to read. Keys and values are binary: no
        deserializer is called. Batches of the log are not split: a record batch has about ``max_records`` rows. Raises
        ConfigurationError for an unknown column, and without NumPy and pyarrow. The iteration raises
        DeserializationError for a timestamp that does not fit into microseconds.
        """
        return ArrowBatches(self._core, self._next, self._max_records, column_names(columns, headers=headers))


class ArrowBatches:
    """The iteration over Arrow record batches that ``Batches.to_arrow`` returns."""

    __slots__ = ("__weakref__", "_core", "_decoder", "_max_records", "_next", "start")

    def __init__(self, core: ConsumerCore, next_batch: _NextBatch, max_records: int, columns: list[str]) -> None:
        self._core = core
        self._next = next_batch
        self._max_records = max_records
        self._decoder = ArrowDecoder(
            columns,
            max_rows=max_records,
            max_bytes=ARROW_BYTES,
            max_decompressed_size=core.options.consumer.max_decompressed_size,
            corrupt=_corrupt,
        )
        self.start: tuple[TopicPartition, int]
        """The partition and the position before the last batch; missing before the first one."""

    def __aiter__(self) -> Self:
        self._core.service.check()
        return self

    async def __anext__(self) -> pyarrow.RecordBatch:
        most = self._core.most_records(self._max_records)
        batch = await self._next.take(lambda reader: reader.take_packed(most, ARROW_BYTES, self._decode))
        _returned(self._core, self.start[0], batch.num_rows)
        return batch

    def take_ready(self) -> pyarrow.RecordBatch | None:
        """Return the next batch if that needs no wait. The blocking client calls this, outside of a task."""
        most = self._core.most_records(self._max_records)
        batch = self._next.take_ready(lambda reader: reader.take_packed(most, ARROW_BYTES, self._decode))
        if batch is not None:
            _returned(self._core, self.start[0], batch.num_rows)
        return batch

    def _decode(self, packed: list[PackedBatch]) -> pyarrow.RecordBatch:
        self.start = packed[0].partition, packed[0].low
        return self._decoder.decode(packed)


def _returned(core: ConsumerCore, partition: TopicPartition, count: int) -> None:
    """Record that a batch is returned."""
    core.returned(count)
    if (interceptors := core.options.interceptors) is not None:
        interceptors.on_batch(partition, count)


def _corrupt(packed: PackedBatch, reason: str) -> CorruptRecord:
    return corrupt(packed.partition, max(packed.low, packed.batch.base_offset), reason, packed.batch)


class PartitionReader(Generic[K, V]):
    """The records of one assigned partition, as ``Consumer.partition`` returns it.

    Iterate with ``async for``, or call ``poll``. Each reader may be used by another task at the same time. It ends when
    the partition leaves the assignment, or when the consumer is closed. A cancelled read loses no record. If the
    partition cannot be read, reads raise its error at a bounded rate, until ``Consumer.seek`` skips the damage.
    """

    __slots__ = ("_core", "_reader")

    def __init__(self, core: ConsumerCore, reader: ClaimReader) -> None:
        self._core = core
        self._reader = reader

    def __repr__(self) -> str:
        assigned = self._reader.assigned
        return f"<PartitionReader {assigned.partition} position={assigned.offset}>"

    @property
    def topic_partition(self) -> TopicPartition:
        return self._reader.assigned.partition

    @property
    def decoded(self) -> Iterator[Record]:
        """The records that the iteration returns next without a wait. A record that is taken counts as returned."""
        return self._reader.current

    @property
    def high_watermark(self) -> int | None:
        """The high watermark of this partition; see ``Consumer.high_watermark``."""
        self._core.service.check_process()
        return self._reader.assigned.high_watermark

    def __aiter__(self) -> Self:
        self._core.service.check()
        return self

    async def __anext__(self) -> Record[K, V]:
        for record in self._reader.current:  # hot: most records are returned here
            return record  # type: ignore[return-value]  # its key and value are what K and V say
        core = self._core
        # This comes before ``check``: a closed consumer ends the iteration. Only a failed consumer raises.
        if core.service.state in (ServiceState.CLOSING, ServiceState.CLOSED):
            raise StopAsyncIteration
        core.service.check()
        core.reader.raise_error()
        next_record = await _until_closed(core, self._reader.next_record(core.options.deserializing))
        if next_record is None:
            raise StopAsyncIteration
        return cast("Record[K, V]", next_record)

    async def poll(self, max_records: int = 500, timeout: float = 0.0) -> list[Record[K, V]]:
        """Poll like ``Consumer.poll``. Raises IllegalStateError if the partition is no longer assigned."""
        self._core.service.check()
        check_max_records(max_records)
        check_wait(timeout)
        if self._reader.has_ended:
            what = f"{self.topic_partition} is not assigned to this consumer any more"
            raise IllegalStateError(f"{what}; assign() it, and make another reader")
        records: list[Record[K, V]] = []
        with suppress(StopAsyncIteration), anyio.move_on_after(timeout):
            records.append(await anext(self))
        # No await after the first record, so that the timeout cannot lose it.
        records += cast("Iterable[Record[K, V]]", islice(self._reader.current, max_records - len(records)))
        return records


async def poll(
    core: ConsumerCore, max_records: int, timeout: float, partitions: Iterable[TopicPartition] | None
) -> list[Record[Any, Any]]:
    """Read records as ``Consumer.poll`` does."""
    core.service.check()
    check_max_records(max_records)
    check_wait(timeout)
    most = core.most_records(max_records)
    core.check_something_to_read()
    only = None if partitions is None else _readable_here(core, partitions)
    reader, deserializing = core.reader, core.options.deserializing
    if reader.must_yield:
        await asyncio.sleep(0)
    with core.reading():
        records: list[Record[Any, Any]]
        if deserializing is not None:
            records = await _poll_deserialized(core, deserializing, most, timeout, only)
        else:
            records = reader.take(most, only)
            if not records:
                records = await _poll_later(core, most, timeout, only)
        if core.options.interceptors is not None:
            records = core.options.interceptors.on_consume(records)
    core.returned(len(records))
    return records


def poll_ready(core: ConsumerCore, max_records: int, timeout: float) -> list[Record[Any, Any]] | None:
    """Read as ``poll`` does, in one step, outside of a task.

    Returns None, and takes nothing, if the read has to wait, or has to call code of the program.
    """
    core.service.check()
    check_max_records(max_records)
    check_wait(timeout)
    options, reader = core.options, core.reader
    if options.deserializing is not None or options.interceptors is not None or not reader.has_ready:
        return None
    most = core.most_records(max_records)
    core.check_something_to_read()
    with core.reading():
        records = reader.take(most)
    core.returned(len(records))
    return records or None


def _readable_here(core: ConsumerCore, partitions: Iterable[TopicPartition]) -> Collection[TopicPartition]:
    """Check the partitions of a poll. Raises IllegalStateError for one that is not assigned, or has its own reader."""
    only = frozenset(checked_partitions(partitions))
    for partition in only:
        if core.subscription[partition].has_reader:
            raise IllegalStateError(f"{partition} is read by the reader that partition() returned; poll that reader")
    return only


async def _poll_later(
    core: ConsumerCore, max_records: int, timeout: float, only: Collection[TopicPartition] | None
) -> list[Record[Any, Any]]:
    reader = core.reader
    records: list[Record] = []
    with anyio.move_on_after(timeout):
        while not records:
            await core.service.while_running(reader.wait(only=only))
            core.check_something_to_read()  # another task may have unsubscribed
            records = reader.take(max_records, only)
    return records


def intercepted(core: ConsumerCore, records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
    """Pass the records of a read through the interceptors."""
    interceptors = core.options.interceptors
    return records if interceptors is None else interceptors.on_consume(records)


async def _poll_deserialized(
    core: ConsumerCore,
    deserializing: Deserializing,
    max_records: int,
    timeout: float,
    only: Collection[TopicPartition] | None,
) -> list[Record[Any, Any]]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    # Without a timeout, all buffered records are checked, also those behind records that the policy skips.
    skip = 0 if timeout > 0 or deserializing.is_async else max_records - 1
    while True:
        taking = deserializing.take(core.reader, max_records, only, deadline=deadline, skip=skip)
        records = await core.service.while_running(taking)
        if records:
            return records
        if loop.time() >= deadline:
            await asyncio.sleep(0)  # a program that polls in a loop must not block the event loop
            return []
        with anyio.move_on_after(deadline - loop.time()) as scope:
            await core.service.while_running(core.reader.wait(only=only))
            core.check_something_to_read()
        if scope.cancelled_caught:
            return []


async def _until_closed(core: ConsumerCore, awaitable: Awaitable[T]) -> T | None:
    """Await the result while the consumer runs. Returns None if it is closed meanwhile, which ends an iteration."""
    try:
        return await core.service.while_running(awaitable)
    except IllegalStateError:
        if core.service.state not in (ServiceState.CLOSING, ServiceState.CLOSED):
            raise
        return None

"""Accepts Arrow tables: checks them as a whole, divides them by partition, and encodes them batch by batch.

Tables go to partitions in whole batches (``protocol.records.columns``), so one ``BulkDelivery`` stands for all records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from ...aio.service import Service
from ...errors import IllegalStateError, SerializationError
from ...extras import extra
from ...protocol.records.columns import Rows, by_number
from ...protocol.records.murmur2 import partitions_for_keys
from ...settings.producer import ProducerConfig
from ..accumulator import Accumulator
from ..admission import Admission
from ..batch import BatchFactories, ProducerBatch
from ..buffer_memory import BufferMemory
from ..delivery import BatchResult
from ..partitioning.interface import Chooser
from ..record import BATCH_OVERHEAD, largest_record, too_large

ANY = -1
"""The partition of a row that may go to any partition."""


class ArrowAcceptor:
    """Makes a ``BulkDelivery`` of an Arrow table. ``takes_tables``: the user has no interceptor and no serializer."""

    def __init__(
        self,
        accumulator: Accumulator,
        memory: BufferMemory,
        admission: Admission,
        batches: BatchFactories,
        config: ProducerConfig,
        clock: Callable[[], float],
        service: Service,
        takes_tables: bool,
    ) -> None:
        self._accumulator = accumulator
        self._memory = memory
        self._admission = admission
        self._batches = batches
        self._config = config
        self._clock = clock
        self._service = service
        self._takes_tables = takes_tables

    async def accept(self, topic: str, table: object) -> BulkDelivery:
        """Accept all rows of a table, waiting for room. Nothing is sent if any row is wrong."""
        if not self._takes_tables:
            raise IllegalStateError(
                "a producer with serializers or interceptors cannot write columns of Arrow; use another producer"
            )
        self._admission.check()
        transaction = self._admission.transaction
        parts = rows_of(topic, table, int(self._clock() * 1000))
        for rows in parts:
            if (largest := int(rows.sizes().max())) > largest_record(self._config):
                raise too_large(self._config, topic, largest)
        target = await self._service.while_running(self._accumulator.open_topic(topic))
        for rows in parts:
            while (unknown := rows.unknown_partition(target.partitions)) is not None:
                target = await self._service.while_running(self._accumulator.open_topic(topic, unknown))
        count = len(target.partitions)
        delivery = BulkDelivery()
        for rows in parts:
            for number, share in by_partition(rows, count, self._accumulator.choice.of_rows(target)):
                await self._accept_rows(topic, None if number == ANY else number, share, delivery, transaction)
        return delivery

    async def _accept_rows(
        self, topic: str, number: int | None, rows: Rows, delivery: BulkDelivery, transaction: int
    ) -> None:
        """Make batches of the rows for one partition, each when there is room for it."""
        budget = self._memory.budget
        start = 0
        while start < rows.count:
            encoded = rows.encode(start, rows.count, self._batches.of(topic).capacity)
            start += encoded.count
            # Bounded, because a batch that is larger than ``buffer_memory`` would wait for room forever.
            size = min(len(encoded.buffer) + BATCH_OVERHEAD, budget.total)
            if not budget.try_acquire(size):
                await self._memory.acquire(size, topic)
            try:
                # Looked up for each batch: during the wait for room, the topic may have been dropped or created again.
                target = await self._service.while_running(self._accumulator.open_topic(topic, number))
                self._service.check()
                self._admission.check_transaction(transaction)
                batch = self._accumulator.append_encoded(target, number, encoded, size)
            except BaseException:
                budget.release(size)
                raise
            delivery.add(batch, len(encoded.records))
            await asyncio.sleep(0)  # other tasks run, and the batches so far are sent


class Written(NamedTuple):
    """``records`` consecutive records in the log; ``base_offset`` is -1 if the broker did not report it."""

    partition: int
    base_offset: int
    records: int


class BulkDelivery:
    """The promise of the records of a table. Await it for the list of ``Written``, or for the first error.

    It is done when all records are settled, even if some have failed. ``size`` is the number of bytes before
    compression. Any number of tasks may await it, any number of times; cancelling an await ends only the wait.
    """

    __slots__ = ("_error", "_open", "_written", "size")

    def __init__(self) -> None:
        self.size: int = 0
        self._open: deque[BatchResult] = deque()
        self._written: list[Written] = []
        self._error: Exception | None = None

    def add(self, batch: ProducerBatch, size: int) -> None:
        """Include this batch of ``size`` bytes."""
        self._open.append(batch)
        self.size += size

    def done(self) -> bool:
        """Return whether every record is acknowledged or has failed."""
        self._take_settled()
        return not self._open

    def exception(self) -> Exception | None:
        """Return the first error so far; None if there is none."""
        self._take_settled()
        return self._error

    @property
    def written(self) -> Sequence[Written]:
        """The runs of records that are acknowledged so far."""
        self._take_settled()
        return tuple(self._written)

    @property
    def acknowledged(self) -> int:
        """The number of records that are acknowledged so far."""
        self._take_settled()
        return sum(run.records for run in self._written)

    def __await__(self) -> Generator[object, None, list[Written]]:
        while not self.done():
            result = self._open[0]
            waiter = result.wait()
            try:
                yield from waiter
            except asyncio.CancelledError:
                result.stop_waiting(waiter)
                raise
        if self._error is not None:
            raise self._error.with_traceback(None)
        return list(self._written)

    def _take_settled(self) -> None:
        """Store the results of the first settled batches, and drop these batches to free their bytes."""
        while self._open and self._open[0].settled:
            result = self._open.popleft()
            if result.moved is not None:
                # The parts take the place of the whole, so that the results stay in the order of the rows.
                self._open.extendleft(reversed(dict.fromkeys(place for place, _ in result.moved)))
            elif result.has_failed:
                result.observe()
                self._error = self._error or result.error
            else:
                assert isinstance(result, ProducerBatch)
                self._written.append(Written(result.partition, result.base_offset, result.count))

    def __repr__(self) -> str:
        return f"<BulkDelivery open={len(self._open)} written={sum(run.records for run in self._written)}>"


def rows_of(topic: str, table: object, now: int) -> list[Rows]:
    """Return the record batches of a table that have rows.

    ``now`` is the timestamp of rows without one, in milliseconds. Raises SerializationError for an object that is not a
    table, and for a wrong column.
    """
    return [Rows(topic, batch, now) for batch in _record_batches(topic, table) if batch.num_rows]


def _record_batches(topic: str, table: object) -> Sequence[Any]:
    pa = extra("pyarrow")
    if isinstance(table, pa.RecordBatch):
        return [table]
    if isinstance(table, pa.Table):
        batches: list[Any] = table.to_batches()
        return batches
    if hasattr(table, "__arrow_c_stream__"):
        return _record_batches(topic, pa.table(table))
    raise SerializationError(
        f"records for topic {topic!r} must be a Table or RecordBatch of Arrow, got {type(table).__name__}"
    )


def by_partition(rows: Rows, count: int, choose: Chooser | None) -> Iterator[tuple[int, Rows]]:
    """Divide rows by their partition, in their order; ``ANY`` for rows that name no partition and have no key.

    ``choose`` is called for each row that names no partition. If it is None, partitions are chosen by the hash of keys.
    """
    np = extra("numpy")
    places = np.full(rows.count, ANY)
    if rows.partitions is not None:
        places = rows.partitions.fill_null(ANY).to_numpy(zero_copy_only=False).copy()
    free = np.flatnonzero(places == ANY)
    if choose is not None:
        keys = [None] * len(free) if rows.keys is None else rows.keys.take(free).to_pylist()
        places[free] = [choose(key, value) for key, value in zip(keys, rows.values.take(free).to_pylist())]
    elif rows.keys is not None and len(free):
        present = rows.keys.is_valid().to_numpy(zero_copy_only=False)
        places = np.where(present & (places == ANY), partitions_for_keys(rows.keys, count), places)
    if (places == places[0]).all():
        yield int(places[0]), rows
        return
    for partition, numbers in by_number(places):
        yield partition, rows.take(numbers)

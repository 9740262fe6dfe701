"""Accepts Arrow tables: checks them as a whole, divides them by partition, and encodes them batch by batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...aio.service import Service
from ...protocol.records.columns import Rows
from ...settings.config import ProducerConfig
from ..accumulator import Accumulator
from ..batch import BatchFactory
from ..buffer_memory import BufferMemory
from ..record import BATCH_OVERHEAD
from .accept import Acceptor, largest_record, too_large
from .append_bulk import BulkAppender
from .bulk import ANY, BulkDelivery, by_partition, rows_of


class ArrowAcceptor:
    """Makes a ``BulkDelivery`` of an Arrow table. ``acceptor`` has the check whether records are accepted."""

    def __init__(
        self,
        accumulator: Accumulator,
        appender: BulkAppender,
        room: BufferMemory,
        batches: BatchFactory,
        config: ProducerConfig,
        clock: Callable[[], float],
        service: Service,
        acceptor: Acceptor,
    ) -> None:
        self._accumulator = accumulator
        self._appender = appender
        self._room = room
        self._batches = batches
        self._config = config
        self._clock = clock
        self._service = service
        self._acceptor = acceptor

    async def accept(self, topic: str, table: object) -> BulkDelivery:
        """Accept all rows of a table, waiting for room. Nothing is sent if any row is wrong."""
        self._acceptor.check_writable()
        transaction = self._acceptor.transaction
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
        budget = self._room.budget
        start = 0
        while start < rows.count:
            encoded = rows.encode(start, rows.count, self._batches.room)
            start += encoded.count
            # Bounded, because a batch that is larger than ``buffer_memory`` would wait for room forever.
            size = min(len(encoded.buffer) + BATCH_OVERHEAD, budget.total)
            if not budget.try_acquire(size):
                await self._room.acquire(size, topic)
            try:
                # Looked up for each batch: during the wait for room, the topic may have been dropped or created again.
                target = await self._service.while_running(self._accumulator.open_topic(topic, number))
                self._service.check()
                self._acceptor.check_transaction(transaction)
                batch = self._appender.append_encoded(target, number, encoded, size)
            except BaseException:
                budget.release(size)
                raise
            delivery.add(batch, len(encoded.records))
            await asyncio.sleep(0)  # other tasks run, and the batches so far are sent

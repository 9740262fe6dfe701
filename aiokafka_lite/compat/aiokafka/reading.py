"""Lets several tasks read one consumer, each from its own partitions, as aiokafka allows.

Only one task may read a ``Consumer`` at a time. So one of the waiting tasks reads for all: it waits for a record that
any of the tasks wants.

Rules of this file:

Rule 1: Only the task that has the lock reads.
Rule 2: A new task interrupts the read that waits. The next read also waits for the partitions of the new task. A change
        of the subscription or the assignment interrupts the read too.
Rule 3: New tasks, and tasks that have their records, get the lock before a task begins to wait for records. Otherwise
        a ``getmany`` without a timeout would wait behind older reads.
Rule 4: If the read of a task is cancelled, the records that were found for it are read again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

from ... import consumer as native
from ...errors import IllegalStateError
from ...types import Record, TopicPartition

T = TypeVar("T")

Ready = Callable[[], Awaitable[native.Consumer | None]]
"""Returns the running consumer of the present subscription; None while nothing is subscribed or assigned."""


@dataclass(eq=False, slots=True)
class _Read:
    """A task that waits for records of the partitions in ``only``; None means all."""

    only: frozenset[TopicPartition] | None
    records: list[Record[Any, Any]] = field(default_factory=list)
    consumer: native.Consumer | None = None
    """The consumer that returned the records; None until another task has read them."""

    def wants(self, record: Record[Any, Any]) -> bool:
        return not self.records and (self.only is None or _place(record) in self.only)


class SharedReads:
    """The reads of one ``AIOKafkaConsumer``. Owner: this consumer."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._arriving = 0
        """The number of tasks that wait for the lock for the first time."""
        self._waiting: list[_Read] = []
        self._reader: asyncio.Task[Any] | None = None
        """The task that reads and may wait; None between two reads."""
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Interrupt the read that waits. The next read waits for the partitions that are wanted now."""
        if self._reader is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._reader.cancel()

    async def one(self, ready: Ready) -> Record[Any, Any]:
        """Wait for the next record of any partition. Raises StopAsyncIteration when the consumer is closed."""
        await self._arrive()
        try:
            consumer = await ready()
            if consumer is not None and not (self._waiting or self._arriving):  # hot: a task that reads alone
                record = await self._read(ready, consumer, anext(consumer))
                if record is not None:
                    return record
        finally:
            self._lock.release()
        (record,) = await self.many(ready, 1, math.inf, ())
        return record

    async def many(
        self, ready: Ready, most: int, timeout: float, partitions: Sequence[TopicPartition]
    ) -> list[Record[Any, Any]]:
        """Read up to ``most`` records of these partitions, or of all if there are none. Waits ``timeout`` seconds."""
        read = _Read(frozenset(partitions) or None)
        self._waiting.append(read)
        try:
            await self._arrive()
            try:
                # Before ready(), which raises when the consumer is stopped: stop() has committed these records.
                if not read.records:
                    read.records = await self._take(ready, await ready(), most, read.only)
            finally:
                self._lock.release()
            with anyio.move_on_after(timeout):
                while timeout > 0 and not read.records:
                    async with self._lock:
                        if not read.records:
                            await self._wait(ready, await ready(), most)
        except BaseException:
            read_again(read.consumer, read.records)
            raise
        finally:
            self._waiting.remove(read)
            self.interrupt()
        return read.records

    async def _arrive(self) -> None:
        """Take the lock before a task begins to wait for records."""
        self.interrupt()
        self._arriving += 1
        try:
            await self._lock.acquire()
        finally:
            self._arriving -= 1

    async def _take(
        self, ready: Ready, consumer: native.Consumer | None, most: int, only: frozenset[TopicPartition] | None
    ) -> list[Record[Any, Any]]:
        """Take the records that are fetched already, without waiting."""
        if consumer is None:
            return []
        readable = _assigned(consumer, only)
        if readable is None or readable:
            return await self._read(ready, consumer, consumer.poll(most, partitions=readable)) or []
        if consumer.membership is not None:
            consumer.mark()  # as a poll does, because the records of earlier reads are processed now
        return []

    async def _wait(self, ready: Ready, consumer: native.Consumer | None, most: int) -> None:
        if self._arriving or any(read.records for read in self._waiting):
            await asyncio.sleep(0)  # the other task may be cancelled; it ends only when the event loop runs it
        else:
            await self._read_for_all(ready, consumer, most)

    async def _read_for_all(self, ready: Ready, consumer: native.Consumer | None, most: int) -> None:
        """Wait for a record that a waiting task wants, and hand it over."""
        only = _assigned(consumer, _union(waiting.only for waiting in self._waiting))
        if consumer is None or (only is not None and not only):
            await self._read(ready, consumer, asyncio.get_running_loop().create_future())
            return
        count = most if len(self._waiting) == 1 else 1
        records = await self._read(ready, consumer, consumer.poll(count, math.inf, partitions=only))
        if records:
            read = next(waiting for waiting in self._waiting if waiting.wants(records[0]))
            read.records, read.consumer = records, consumer

    async def _read(self, ready: Ready, consumer: native.Consumer | None, reading: Awaitable[T]) -> T | None:
        """Await a read. None if it was interrupted, or if another consumer has replaced this one."""
        # Not a cancel scope, which costs more than the rest of a read of one record.
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        self._reader, self._is_interrupted = task, False
        try:
            return await reading
        except asyncio.CancelledError:
            if self._is_interrupted and task.cancelling() == before + 1:
                return None
            raise
        except (IllegalStateError, StopAsyncIteration):
            self._reader = None
            if await ready() is consumer:
                raise
            return None
        finally:
            self._reader = None
            if self._is_interrupted:
                task.uncancel()


def read_again(consumer: native.Consumer | None, records: Sequence[Record[Any, Any]]) -> None:
    """Let the next reads return these records, because the program has not seen them."""
    for record in reversed(records):
        if consumer is not None and _place(record) in consumer.assignment:
            consumer.seek(_place(record), record.offset)


def _assigned(
    consumer: native.Consumer | None, only: frozenset[TopicPartition] | None
) -> frozenset[TopicPartition] | None:
    """Return the wanted partitions that are assigned now; None means all."""
    return None if only is None or consumer is None else only.intersection(consumer.assignment)


def _union(sets: Iterable[frozenset[TopicPartition] | None]) -> frozenset[TopicPartition] | None:
    union: frozenset[TopicPartition] = frozenset()
    for partitions in sets:
        if partitions is None:
            return None
        union |= partitions
    return union


def _place(record: Record[Any, Any]) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)

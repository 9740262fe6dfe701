"""Lines on their way to the cluster: handed to the producer as fast as it has room, and followed until acknowledged.

At first each line is a record of its own. Once there are many, and pyarrow is here, blocks of lines go as columns, of
which no Python object is made for any line.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Protocol

from aiokafka_lite.errors import BufferFull, KafkaError, RecordTooLarge, SerializationError
from aiokafka_lite.producer import Delivery, Producer
from aiokafka_lite.producer.bulk import BulkDelivery
from aiokafka_lite.types import Header

from .lines import Lines
from .progress import Bar

CHUNK = 500
"""Records that are accepted in one turn of the loop, a few milliseconds."""

GLANCE = 0.5
"""Seconds without a line after which a look is taken at what became of those before."""

COLUMNS_AFTER = 4 << 20
"""Bytes of lines after which columns are worth the third of a second that importing Arrow takes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of the lines."""

    topic: str
    file: Path | None
    key_separator: str | None
    headers: tuple[Header, ...]
    partition: int | None
    rate: float | None
    settings: dict[str, object]

    @property
    def may_be_columns(self) -> bool:
        """Whether a line is a value and nothing else, and as many may be sent as there are."""
        return self.key_separator is None and not self.headers and self.rate is None


class Share(Protocol):
    """Some consecutive lines that the producer has accepted."""

    def settle(self) -> bool:
        """Whether it is known of all what came of them. Raises what the first of them failed with, naming its line."""

    def acknowledged(self) -> int:
        """How many are in the log by now."""


class _Records:
    """Lines that are records of their own. ``first`` is the number of the first of them."""

    __slots__ = ("_deliveries", "_first")

    def __init__(self, first: int, deliveries: list[Delivery]) -> None:
        self._first = first
        self._deliveries = deliveries

    def settle(self) -> bool:
        if not self._deliveries[-1].done():  # the last is the last to be known, mostly: one look in place of all
            return False
        for number, delivery in enumerate(self._deliveries, self._first):
            if not delivery.done():
                return False
            if (error := delivery.exception()) is not None:
                raise of_line(number, error)
        return True

    def acknowledged(self) -> int:
        return sum(delivery.done() and delivery.exception() is None for delivery in self._deliveries)


class _Columns:
    """Lines that were sent as columns, which do not tell which of them it was that failed."""

    __slots__ = ("_count", "_delivery", "_first")

    def __init__(self, first: int, count: int, delivery: BulkDelivery) -> None:
        self._first = first
        self._count = count
        self._delivery = delivery

    def settle(self) -> bool:
        if (error := self._delivery.exception()) is not None:
            raise KafkaError(f"lines {self._first} to {self._first + self._count - 1}: {error}")
        return self._delivery.done()

    def acknowledged(self) -> int:
        return self._delivery.acknowledged


class Sending:
    """All lines of one run. ``read`` is how many were read, of ``size`` bytes with their newlines."""

    def __init__(self, producer: Producer, wanted: Wanted, bar: Bar) -> None:
        self.read = 0
        self.size = 0
        self._producer = producer
        self._wanted = wanted
        self._bar = bar
        self._separator = None if wanted.key_separator is None else wanted.key_separator.encode()
        self._open: deque[Share] = deque()
        self._acknowledged = 0
        self._began = 0.0
        self._columns: ModuleType | None = None
        self._may_be_columns = wanted.may_be_columns and find_spec("pyarrow") is not None

    @property
    def acknowledged(self) -> int:
        """How many lines are in the log."""
        return self._acknowledged + sum(share.acknowledged() for share in self._open)

    async def send_all(self, source: Lines) -> None:
        """Send lines until there are no more; a record that failed meanwhile ends it, even while none comes."""
        while True:
            try:
                async with asyncio.timeout(GLANCE) as scope:
                    block = await source.next(self.read)
            except TimeoutError:
                if not scope.expired():
                    raise
                self._settle()
                continue
            if block is None:
                break
            if self._may_be_columns and self.size >= COLUMNS_AFTER and block:
                await self._send_columns(block)
            else:
                await self._send_records(block.split(b"\n")[:-1])
        await self._producer.flush()
        self._settle()

    async def _send_columns(self, block: bytes) -> None:
        if self._columns is None:
            from . import columns

            self._columns = columns
        table = self._columns.of_lines(block, self._wanted.partition)
        try:
            delivery = await self._producer.put_arrow(self._wanted.topic, table)
        except RecordTooLarge:
            await self._send_records(block.split(b"\n")[:-1])  # which tells the line
            return
        self._open.append(_Columns(self.read + 1, table.num_rows, delivery))
        self.read += table.num_rows
        self._sent(len(block))

    async def _send_records(self, lines: list[bytes]) -> None:
        """No faster than the producer has room, and no faster than the rate."""
        rate = self._wanted.rate
        self._began = self._began or time.perf_counter()
        chunk = CHUNK if rate is None else max(1, min(CHUNK, int(rate / 20)))
        for start in range(0, len(lines), chunk):
            if rate is not None:
                await asyncio.sleep(self._began + self.read / rate - time.perf_counter())
            some = lines[start : start + chunk]
            await self._accept(some)
            await asyncio.sleep(0)  # what is accepted goes out
            self._sent(sum(map(len, some)) + len(some))

    async def _accept(self, lines: list[bytes]) -> None:
        """Hot: this runs for each record."""
        topic, headers, partition = self._wanted.topic, self._wanted.headers, self._wanted.partition
        separator, send = self._separator, self._producer.send_nowait
        deliveries: list[Delivery] = []
        self._open.append(_Records(self.read + 1, deliveries))
        for line in lines:
            key = None
            value = line
            self.read += 1
            if separator is not None:
                key, found, value = line.partition(separator)
                if not found:
                    absent = f"there is no {self._wanted.key_separator!r} in it"
                    raise SerializationError(f"line {self.read} has no key: {absent}")
            while True:
                try:
                    deliveries.append(send(topic, value, key=key, headers=headers, partition=partition))
                    break
                except BufferFull:
                    await self._producer.drain()
                except KafkaError as error:
                    raise of_line(self.read, error) from error

    def _sent(self, size: int) -> None:
        self.size += size
        self._settle()
        self._bar.advance(size, self.read)

    def _settle(self) -> None:
        """Let go of the shares at the head of which all is known."""
        while self._open and self._open[0].settle():
            self._acknowledged += self._open.popleft().acknowledged()


def of_line(number: int, error: BaseException) -> KafkaError:
    """The error with the line that it came of."""
    return KafkaError(f"line {number}: {error}")

"""Sends lines: passes them to the producer while it has room, and waits until they are acknowledged.

At first each line is sent as a record. After ``COLUMNS_AFTER`` bytes, and if pyarrow is installed, a block of lines is
sent as Arrow columns, which makes no Python object for a line.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import anyio

from ..errors import BufferFull, KafkaError, RecordTooLarge, SerializationError
from ..producer import Delivery, Producer
from ..producer.accept.arrow import BulkDelivery
from ..types import Header
from .terminal.lines import Lines
from .terminal.progress import Bar

if TYPE_CHECKING:
    from .terminal.json_lines import JsonRecord

CHUNK = 500
"""Records that are accepted in a row before the event loop runs again; they take a few milliseconds."""

SETTLE_INTERVAL = 0.5
"""Seconds without a line after which the results of earlier lines are checked."""

COLUMNS_AFTER = 4 << 20
"""Bytes of lines after which columns save more time than the import of Arrow takes, a third of a second."""


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """The topic, the input, and the form of the records."""

    topic: str
    file: Path | None
    key_separator: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    rate: float | None
    settings: dict[str, object]
    null: bytes | None = None
    """The text that stands for a null key or a null value."""
    is_json: bool = False

    @property
    def may_be_columns(self) -> bool:
        """Whether lines can be sent as columns: values without keys, nulls and headers, and without a rate."""
        is_value = self.key_separator is None and self.null is None and not self.is_json
        return is_value and not self.headers and self.rate is None


class _Block(Protocol):
    """Consecutive lines that the producer has accepted."""

    def settle(self) -> bool:
        """Return whether all lines have a result. Raises the error of the first line that failed, with its number."""

    def acknowledged(self) -> int:
        """Return the number of lines that are acknowledged so far."""


class _Records:
    """Lines that were sent as single records. ``first`` is the number of the first line."""

    __slots__ = ("_deliveries", "_first")

    def __init__(self, first: int, deliveries: list[Delivery]) -> None:
        self._first = first
        self._deliveries = deliveries

    def settle(self) -> bool:
        # The last delivery usually finishes last. This one check avoids a look at all others every time.
        if not self._deliveries[-1].done():
            return False
        for number, delivery in enumerate(self._deliveries, self._first):
            if not delivery.done():
                return False
            if (error := delivery.exception()) is not None:
                raise line_error(number, error)
        return True

    def acknowledged(self) -> int:
        return sum(delivery.done() and delivery.exception() is None for delivery in self._deliveries)


class _Columns:
    """Lines that were sent as columns. Their error names the whole block, because columns have one common result."""

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
    """Sends the lines of one run. ``read`` counts the lines so far, ``size`` their bytes with the newlines."""

    def __init__(self, producer: Producer, job: ProduceJob, bar: Bar) -> None:
        self.read: int = 0
        self.size: int = 0
        self._producer = producer
        self._job = job
        self._bar = bar
        self._parse = _json_parser() if job.is_json else None
        self._open: deque[_Block] = deque()
        self._acknowledged = 0
        self._began = 0.0
        self._columns: ModuleType | None = None
        self._may_be_columns = job.may_be_columns and find_spec("pyarrow") is not None

    @property
    def acknowledged(self) -> int:
        """The number of lines that are acknowledged."""
        return self._acknowledged + sum(block.acknowledged() for block in self._open)

    async def send_all(self, source: Lines) -> None:
        """Send lines until the end of the input. The error of a failed record ends this, even while no line arrives."""
        while True:
            with anyio.move_on_after(SETTLE_INTERVAL) as scope:
                block = await source.next(self.read)
            if scope.cancelled_caught:
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
            from .terminal import columns

            self._columns = columns
        table = self._columns.lines_to_arrow(block, self._job.partition)
        try:
            delivery = await self._producer.put_arrow(self._job.topic, table)
        except RecordTooLarge:
            # As records, because the error then names the line that is too large.
            await self._send_records(block.split(b"\n")[:-1])
            return
        self._open.append(_Columns(self.read + 1, table.num_rows, delivery))
        self.read += table.num_rows
        self._sent(len(block))

    async def _send_records(self, lines: list[bytes]) -> None:
        """Send lines as single records. The producer's room and the rate limit the speed."""
        rate = self._job.rate
        self._began = self._began or time.perf_counter()
        chunk = CHUNK if rate is None else max(1, min(CHUNK, int(rate / 20)))
        for start in range(0, len(lines), chunk):
            if rate is not None:
                await asyncio.sleep(self._began + self.read / rate - time.perf_counter())
            chunk_lines = lines[start : start + chunk]
            await self._accept(chunk_lines)
            # send_nowait never gives way to the event loop. Without this line, the producer could not send meanwhile.
            await asyncio.sleep(0)
            self._sent(sum(map(len, chunk_lines)) + len(chunk_lines))

    async def _accept(self, lines: list[bytes]) -> None:
        """Pass lines to the producer, and wait while its buffer is full. Hot: the loop runs for each record."""
        topic, headers, partition = self._job.topic, self._job.headers, self._job.partition
        separator, null, parse, timestamp = self._job.key_separator, self._job.null, self._parse, None
        send = self._producer.send_nowait
        deliveries: list[Delivery] = []
        self._open.append(_Records(self.read + 1, deliveries))
        for line in lines:
            key: bytes | None = None
            value: bytes | None = line
            self.read += 1
            if separator is not None:
                key, sign, value = line.partition(separator)
                if not sign:
                    text = separator.decode(errors="backslashreplace")
                    raise SerializationError(f"line {self.read} has no key: it does not contain {text!r}")
            elif parse is not None:
                try:
                    key, value, own_headers, own_partition, timestamp = parse(line)
                except SerializationError as error:
                    raise line_error(self.read, error) from None
                headers = own_headers + self._job.headers
                partition = own_partition if self._job.partition is None else self._job.partition
            if null is not None:
                key = None if key == null else key
                value = None if value == null else value
            while True:
                try:
                    deliveries.append(
                        send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
                    )
                    break
                except BufferFull:
                    await self._producer.drain()
                except KafkaError as error:
                    raise line_error(self.read, error) from error

    def _sent(self, size: int) -> None:
        self.size += size
        self._settle()
        self._bar.advance(size, self.read)

    def _settle(self) -> None:
        """Drop the finished blocks at the head of the queue."""
        while self._open and self._open[0].settle():
            self._acknowledged += self._open.popleft().acknowledged()


def _json_parser() -> Callable[[bytes], JsonRecord]:
    from .terminal.json_lines import from_json_line

    return from_json_line


def line_error(number: int, error: BaseException) -> KafkaError:
    """Return the error of a line, with the number of the line."""
    return KafkaError(f"line {number}: {error}")

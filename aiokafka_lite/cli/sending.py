"""Sends lines: passes them to the producer while it has room, and waits until they are acknowledged.

At first each line is sent as a record. After ``COLUMNS_AFTER`` bytes, and if pyarrow is installed, a block of lines is
sent as Arrow columns, which makes no Python object for a line.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio

from ..arguments import plural
from ..errors import BufferFull, KafkaError, RecordTooLarge, SerializationError
from ..producer import Delivery, Producer
from ..producer.accept.arrow import BulkDelivery, Written
from ..types import Header
from .terminal.lines import Lines
from .terminal.progress import Bar
from .terminal.run import say

if TYPE_CHECKING:
    from .terminal.json_lines import JsonRecord

CHUNK = 500
"""Records that are accepted in a row before the event loop runs again; they take a few milliseconds."""

SETTLE_INTERVAL = 0.5
"""Seconds without a line after which the results of earlier lines are checked."""

COLUMNS_AFTER = 4 << 20
"""Bytes of lines after which columns save more time than the import of Arrow takes, a third of a second."""


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """The schemas to write keys and values with, as the user gave them, and the address of the registry."""

    registry: str | None = None
    key: str | None = None
    value: str | None = None
    message: str | None = None

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None


class Encoders(NamedTuple):
    """The functions that write JSON of keys and of values with schemas; None writes the bytes as they are."""

    key: Callable[[bytes], bytes] | None = None
    value: Callable[[bytes], bytes] | None = None


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
    key: bytes | None = None
    """The key of each record, if lines have none."""
    schemas: SchemaChoice = field(default_factory=lambda: SchemaChoice())

    @property
    def may_be_columns(self) -> bool:
        """Whether lines can be sent as columns: values without keys, nulls and headers, and without a rate."""
        is_value = self.key_separator is None and self.key is None and self.null is None and not self.is_json
        return is_value and not self.headers and self.rate is None and not self.schemas


class _Block(Protocol):
    """Consecutive lines that the producer has accepted."""

    def settle(self) -> bool:
        """Return whether all lines have a result. Raises the error of the first line that failed, with its number."""

    def acknowledged(self) -> int:
        """Return the number of lines that are acknowledged so far."""

    def written(self) -> Iterable[Written]:
        """Yield the acknowledged records, as runs in their partitions."""


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

    def written(self) -> Iterable[Written]:
        for delivery in self._deliveries:
            if delivery.done() and delivery.exception() is None:
                metadata = delivery.result()
                yield Written(metadata.partition, metadata.offset, 1)


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

    def written(self) -> Iterable[Written]:
        return self._delivery.written


class WrittenOffsets:
    """The offsets of the records that a run has written, by partition."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[int]] = {}

    def add(self, runs: Iterable[Written]) -> None:
        """Add runs of acknowledged records."""
        for partition, base, count in runs:
            first, last = (base, base + count - 1) if base >= 0 else (-1, -1)
            offsets = self._ranges.setdefault(partition, [first, last, 0])
            offsets[0] = min(offsets[0], first)
            offsets[1] = max(offsets[1], last)
            offsets[2] += count

    def as_objects(self) -> list[dict[str, int | None]]:
        """Return the first and the last offset of each partition; None if the broker did not report them (acks=0).

        Other producers may have written records between them.
        """
        return [
            {
                "partition": partition,
                "first_offset": None if first < 0 else first,
                "last_offset": None if last < 0 else last,
                "records": count,
            }
            for partition, (first, last, count) in sorted(self._ranges.items())
        ]


class Sending:
    """Sends the lines of one run. ``read`` counts the lines so far, ``size`` their bytes with the newlines.

    ``offsets`` gets the offsets of acknowledged records, if it is given.
    """

    def __init__(
        self,
        producer: Producer,
        job: ProduceJob,
        bar: Bar,
        offsets: WrittenOffsets | None = None,
        encoders: Encoders = Encoders(),  # noqa: B008 - it is immutable
    ) -> None:
        self._offsets = offsets
        self._encoders = encoders
        self.read: int = 0
        self.size: int = 0
        self._producer = producer
        self._job = job
        self._bar = bar
        self._parse = _json_parser(encoders) if job.is_json else None
        self._open: deque[_Block] = deque()
        self._acknowledged = 0
        self._began = 0.0
        self._columns: ModuleType | None = None
        self._may_be_columns = job.may_be_columns and find_spec("pyarrow") is not None
        self._partitions: int | None = None

    @property
    def acknowledged(self) -> int:
        """The number of lines that are acknowledged."""
        return self._acknowledged + sum(block.acknowledged() for block in self._open)

    def expect_partitions(self, count: int) -> None:
        """Say once, when a record is for another partition than these: the producer waits for it to be created."""
        self._partitions = count
        if self._job.partition is not None:
            self._check_partition(self._job.partition)

    def _check_partition(self, number: int) -> None:
        if self._partitions is None or number < self._partitions:
            return
        count, self._partitions = self._partitions, None
        say(f"topic {self._job.topic!r} has {plural(count, 'partition')}: waiting until partition {number} exists")

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
        chunk = CHUNK if rate is None else max(1, int(min(CHUNK, rate / 20)))
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
        topic, headers, partition, own_key = self._job.topic, self._job.headers, self._job.partition, self._job.key
        separator, null, parse, timestamp = self._job.key_separator, self._job.null, self._parse, None
        send = self._producer.send_nowait
        encode_key, encode_value = self._encoders
        deliveries: list[Delivery] = []
        self._open.append(_Records(self.read + 1, deliveries))
        for line in lines:
            key: bytes | None = own_key
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
                if partition is not None:
                    self._check_partition(partition)
            if null is not None:
                key = None if key == null else key
                value = None if value == null else value
            if encode_key is not None and key is not None:
                key = self._encoded("key", encode_key, key)
            if encode_value is not None and value is not None:
                value = self._encoded("value", encode_value, value)
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

    def _encoded(self, part: str, encode: Callable[[bytes], bytes], data: bytes) -> bytes:
        try:
            return encode(data)
        except ValueError as error:
            raise line_error(self.read, SerializationError(f"{part}: {error}")) from None

    def _sent(self, size: int) -> None:
        self.size += size
        self._settle()
        self._bar.advance(size, self.read)

    def _settle(self) -> None:
        """Drop the finished blocks at the head of the queue."""
        while self._open and self._open[0].settle():
            block = self._open.popleft()
            self._acknowledged += block.acknowledged()
            if self._offsets is not None:
                self._offsets.add(block.written())


def _json_parser(encoders: Encoders) -> Callable[[bytes], JsonRecord]:
    from .terminal.json_lines import from_json_line

    as_json = [part for part, encode in encoders._asdict().items() if encode is not None]
    return partial(from_json_line, as_json=as_json)


def line_error(number: int, error: BaseException) -> KafkaError:
    """Return the error of a line, with the number of the line."""
    return KafkaError(f"line {number}: {error}")

"""``aiokafka-lite produce``: lines in, records out."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka_lite.errors import BufferFull, ConfigurationError, KafkaError, SerializationError
from aiokafka_lite.producer import Delivery, Producer
from aiokafka_lite.types import Header

from .connection import Connection
from .lines import Lines
from .output import Facts, Output
from .progress import Bar, progress
from .running import log_warnings, say

CHUNK = 500
"""Records that are accepted in one turn of the loop, a few milliseconds."""

GLANCE = 0.5
"""Seconds without a line after which a look is taken at what became of those before."""

LINGER = 0.005
BATCH_SIZE = 256 * 1024


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


def parse_header(text: str) -> Header:
    """``NAME=VALUE``; raises ConfigurationError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"header={text!r}: use NAME=VALUE")
    return Header(name, value.encode())


async def produce(connection: Connection, output: Output, wanted: Wanted) -> int:
    """Send every line, and return when all of them are acknowledged. Raises what the first that failed failed with."""
    with ExitStack() as stack:
        descriptor = sys.stdin.fileno()
        total = None
        if wanted.file is not None:
            descriptor = stack.enter_context(wanted.file.open("rb", buffering=0)).fileno()
            total = os.fstat(descriptor).st_size or None
        began = time.perf_counter()
        producer = connection.producer({"linger": LINGER, "batch_size": BATCH_SIZE}, wanted.settings)
        shown = stack.enter_context(progress("producing", total, is_wanted=not os.isatty(descriptor)))
        sending = _Sending(producer, wanted, shown)
        try:
            async with producer:
                await producer.partitions_for(wanted.topic)
                log_warnings()
                await sending.send_all(Lines(descriptor, producer.config.max_request_size))
                await sending.finish()
        except (asyncio.CancelledError, KafkaError):
            sending.settle_rest()
            if sending.read:
                say(f"stopped after line {sending.read}: {sending.acknowledged} records were acknowledged")
            raise
    if output.as_json:
        seconds = round(time.perf_counter() - began, 3)
        output.show(
            Facts({"topic": wanted.topic, "records": sending.acknowledged, "bytes": sending.size, "seconds": seconds})
        )
    return 0


@dataclass
class _Sending:
    """The records on their way: what is accepted, in chunks, and what is known to have come of them."""

    producer: Producer
    wanted: Wanted
    bar: Bar
    read: int = 0
    size: int = 0
    acknowledged: int = 0
    _chunks: deque[tuple[int, list[Delivery]]] = field(default_factory=deque)
    _late: list[tuple[int, Delivery]] = field(default_factory=list)
    _began: float = 0.0

    async def send_all(self, source: Lines) -> None:
        """Send lines until there are no more; a record that failed meanwhile ends it, even while none comes."""
        while True:
            try:
                async with asyncio.timeout(GLANCE) as scope:
                    lines = await source.next()
            except TimeoutError:
                if not scope.expired():
                    raise
                self._settle_done()
                continue
            if lines is None:
                return
            await self._send(lines)

    async def _send(self, lines: list[bytes]) -> None:
        """Hand lines to the producer, no faster than it has room and no faster than the rate."""
        rate = self.wanted.rate
        self._began = self._began or time.perf_counter()
        chunk = CHUNK if rate is None else max(1, min(CHUNK, int(rate / 20)))
        for start in range(0, len(lines), chunk):
            some = lines[start : start + chunk]
            if rate is not None:
                await asyncio.sleep(self._began + self.read / rate - time.perf_counter())
            await self._accept(some)
            await asyncio.sleep(0)  # what is accepted goes out
            self._settle_done()
            size = sum(map(len, some)) + len(some)
            self.size += size
            self.bar.advance(size, self.read)

    async def _accept(self, lines: list[bytes]) -> None:
        """Hot: this runs for each record."""
        topic, headers, partition = self.wanted.topic, self.wanted.headers, self.wanted.partition
        separator = None if self.wanted.key_separator is None else self.wanted.key_separator.encode()
        send = self.producer.send_nowait
        deliveries: list[Delivery] = []
        self._chunks.append((self.read + 1, deliveries))
        for line in lines:
            key = None
            value = line
            self.read += 1
            if separator is not None:
                key, found, value = line.partition(separator)
                if not found:
                    absent = f"there is no {self.wanted.key_separator!r} in it"
                    raise SerializationError(f"line {self.read} has no key: {absent}")
            while True:
                try:
                    deliveries.append(send(topic, value, key=key, headers=headers, partition=partition))
                    break
                except BufferFull:
                    await self.producer.drain()
                except KafkaError as error:
                    raise _of_line(self.read, error) from error

    def _settle_done(self) -> None:
        """Look at chunks whose last record is settled; the records of slower partitions are looked at in the end."""
        while self._chunks and self._chunks[0][1][-1].done():
            self._settle(*self._chunks.popleft())

    def _settle(self, first: int, deliveries: list[Delivery]) -> None:
        for number, delivery in enumerate(deliveries, first):
            if not delivery.done():
                self._late.append((number, delivery))
            elif (error := delivery.exception()) is None:
                self.acknowledged += 1
            else:
                raise _of_line(number, error)

    async def finish(self) -> None:
        """Wait until all that was sent is acknowledged."""
        await self.producer.flush()
        while self._chunks:
            self._settle(*self._chunks.popleft())
        late, self._late = self._late, []
        for number, delivery in late:
            self._settle(number, [delivery])

    def settle_rest(self) -> None:
        """Count what was acknowledged after all; what was not has been told of already."""
        rest = [delivery for _, deliveries in self._chunks for delivery in deliveries]
        rest += [delivery for _, delivery in self._late]
        self.acknowledged += sum(delivery.done() and delivery.exception() is None for delivery in rest)


def _of_line(number: int, error: BaseException) -> KafkaError:
    return KafkaError(f"line {number}: {error}")

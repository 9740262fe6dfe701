"""``aiokafka-lite demo``: records through Kafka and back, each one checked.

A record must be read once, where its acknowledgement said, unchanged, and after the earlier records with its key. A
group (``demo_group``) follows, and on request a Spark pipeline (``demo_spark``).
"""

from __future__ import annotations

import time
from array import array
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console

from ..admin import Admin
from ..arguments import plural
from ..embedded import EmbeddedCluster
from ..producer import Producer
from ..types import Header, Record
from .connection import TIMEOUT
from .demo_group import group_demo
from .demo_results import CHUNK, MAX_FAULTS, read_all, show_result
from .demo_spark import check_installed, spark_demo
from .temporary import temporary_topic

PARTITIONS = 3
KEYS = 1000


def key_of(number: int) -> bytes:
    """The key of a record, one of a thousand."""
    return b"customer-%03d" % (number % KEYS)


def value_of(number: int) -> bytes:
    """A value of about a hundred bytes that no other record has."""
    return b'{"order": %d, "customer": %d, "note": "%s"}' % (number, number % KEYS, b"x" * 60)


def headers_of(number: int) -> tuple[Header, ...]:
    """Two headers. The first one is the number that identifies the record."""
    return Header("number", b"%d" % number), Header("sent-by", b"aiokafka-lite demo")


class Check:
    """Compares the records that are read with those that were sent and acknowledged."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read = 0
        self._faults: list[str] = []
        self._partitions = array("i", [-1]) * count
        self._offsets = array("q", [-1]) * count
        self._seen = bytearray(count)
        self._last_of_key: dict[bytes | None, int] = {}

    def acknowledged(self, number: int, partition: int, offset: int) -> None:
        """Store the partition and offset at which the broker acknowledged a record."""
        self._partitions[number], self._offsets[number] = partition, offset

    def received(self, record: Record) -> None:
        """Compare a record that was read with the record that was sent."""
        self.read += 1
        try:
            number = int(dict(record.headers)["number"] or b"")
        except (KeyError, ValueError):
            number = -1
        if not 0 <= number < self.count:
            self._fault(record, "was never sent")
            return
        place = self._partitions[number], self._offsets[number]
        if self._seen[number]:
            self._fault(record, f"is record {number} for the second time")
        self._seen[number] = True
        if (record.key, record.value, record.headers) != (key_of(number), value_of(number), headers_of(number)):
            self._fault(record, f"is record {number} with other content")
        if (record.partition, record.offset) != place:
            self._fault(record, f"was acknowledged at {place[0]}:{place[1]}")
        if self._last_of_key.get(record.key, -1) > number:
            self._fault(record, f"comes after a later record with key {record.key!r}")
        self._last_of_key[record.key] = number

    def result(self) -> list[str]:
        """All faults; empty if every record was read once, unchanged and in order."""
        missing = self._seen.count(0)
        return [*self._faults, *([f"not read: {plural(missing, 'record')}"] if missing else [])]

    def _fault(self, record: Record, what: str) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(f"{record.topic}-{record.partition} offset {record.offset}: {what}")


class PipedConsole(Console):
    """A console that raises BrokenPipeError if the reader has closed the pipe. Rich's own would end with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


async def demo(bootstrap_server: str | None, count: int, spark_output: Path | None) -> int:
    """Run the demo, with Spark if there is a directory for its output; 0 if all checks pass, else 1."""
    if spark_output is not None:
        check_installed()
    console = PipedConsole(soft_wrap=True, highlight=False)
    async with AsyncExitStack() as stack:
        if bootstrap_server is None:
            servers = (await stack.enter_async_context(EmbeddedCluster(brokers=3))).bootstrap_servers
            console.print(f"embedded cluster of three brokers at {servers}")
        else:
            servers = bootstrap_server
            console.print(f"Kafka at {servers}")
        admin = await stack.enter_async_context(Admin(servers, api_timeout=TIMEOUT))
        status = await _round_trip(servers, admin, count, console) or await group_demo(servers, admin, console)
        if status or spark_output is None:
            return status
        return await spark_demo(servers, admin, spark_output, console)


async def _round_trip(servers: str, admin: Admin, count: int, console: Console) -> int:
    check = Check(count)
    async with temporary_topic(admin, "demo", PARTITIONS) as topic:
        began = time.perf_counter()
        await _produce(servers, topic, check)
        produced = time.perf_counter()
        console.print(f"produced {_rate(count, produced - began)}, each acknowledged by all in-sync replicas")
        async for records in read_all(servers, topic, PARTITIONS, count):
            for record in records:
                check.received(record)
        console.print(f"consumed {_rate(check.read, time.perf_counter() - produced)}, each checked")
    success = f"all {count:,} records came back exactly once, unchanged, and in order per key"
    return show_result(console, check.result(), success)


async def _produce(servers: str, topic: str, check: Check) -> None:
    """Send all records, and wait until each is acknowledged."""
    async with Producer(servers, acks="all") as producer:
        for start in range(0, check.count, CHUNK):
            numbers = range(start, min(start + CHUNK, check.count))
            deliveries = [
                await producer.put(topic, value_of(number), key=key_of(number), headers=headers_of(number))
                for number in numbers
            ]
            for number, delivery in zip(numbers, deliveries):
                metadata = await delivery
                check.acknowledged(number, metadata.partition, metadata.offset)


def _rate(count: int, seconds: float) -> str:
    size = len(value_of(count)) * count / 1e6
    return f"{count:,} records in {seconds:.2f} s: {count / seconds:,.0f} records/s, {size / seconds:.1f} MB/s"

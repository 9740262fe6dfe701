"""``aiokafka-lite demo``: the main job, done in front of the user and checked record by record.

The real producer and the real consumer over TCP, on the embedded cluster or on any Kafka. Nothing is taken on trust: a
record must come back once, where its acknowledgement said, unchanged, and behind its predecessor of the same key.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from aiokafka_lite.admin import create_topic, delete_topics
from aiokafka_lite.cli.demo_group import group_demo
from aiokafka_lite.cli.demo_spark import check_installed, spark_demo
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.config import ClientConfig
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BufferFull, UnknownTopic
from aiokafka_lite.producer import Delivery, Producer
from aiokafka_lite.types import Header, Record, TopicPartition

PARTITIONS = 3
KEYS = 1000
STALLED_AFTER = 30.0
_PATIENCE = 5.0  # somebody sits in front of this: a broker that is not there is said to be so soon
_CHUNK = 5000


def key_of(number: int) -> bytes:
    """The key of a record: a thousand keys take turns."""
    return b"customer-%03d" % (number % KEYS)


def value_of(number: int) -> bytes:
    """A value of about a hundred bytes that no other record has."""
    return b'{"order": %d, "customer": %d, "items": [%d, %d], "note": "%s"}' % (
        number,
        number % KEYS,
        number % 7,
        number % 11,
        b"x" * 40,
    )


def headers_of(number: int) -> tuple[Header, ...]:
    """Two headers, one of them the record's number, by which it is known when it comes back."""
    return Header("number", b"%d" % number), Header("sent-by", b"aiokafka-lite demo")


@dataclass
class Check:
    """What was acknowledged and what came back, compared as it comes."""

    count: int
    partitions: array[int] = field(init=False)
    offsets: array[int] = field(init=False)
    read: int = 0
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partitions = array("i", [-1]) * self.count
        self.offsets = array("q", [-1]) * self.count
        self._seen = bytearray(self.count)
        self._last_of_key: dict[bytes | None, int] = {}

    def acknowledged(self, number: int, partition: int, offset: int) -> None:
        """The broker said that the record is there."""
        self.partitions[number] = partition
        self.offsets[number] = offset

    def came_back(self, record: Record) -> None:
        """Compare one record with what was sent."""
        self.read += 1
        try:
            number = int(dict(record.headers)["number"] or b"")
            known = 0 <= number < self.count
        except (KeyError, ValueError):
            known = False
        if not known:
            self._fault(record, "was never sent")
            return
        if self._seen[number]:
            self._fault(record, f"is record {number} for the second time")
        self._seen[number] = True
        if (record.key, record.value, record.headers) != (key_of(number), value_of(number), headers_of(number)):
            self._fault(record, f"is record {number}, changed on its way")
        if (record.partition, record.offset) != (self.partitions[number], self.offsets[number]):
            self._fault(record, f"was acknowledged at {self.partitions[number]}:{self.offsets[number]}")
        if self._last_of_key.get(record.key, -1) > number:
            self._fault(record, f"of key {record.key!r} came behind a later one")
        self._last_of_key[record.key] = number

    def verdict(self) -> list[str]:
        """All that is wrong; empty when every record came back once and in order."""
        missing = self._seen.count(0)
        return [*self.faults, *([f"{missing} records never came back"] if missing else [])]

    def _fault(self, record: Record, what: str) -> None:
        if len(self.faults) < 10:
            self.faults.append(f"{record.topic}-{record.partition} offset {record.offset}: {what}")


@dataclass
class Tally:
    """What one partition gave back."""

    records: int = 0
    size: int = 0
    first: int = -1
    last: int = -1

    def add(self, record: Record) -> None:
        self.records += 1
        self.size += len(record.key or b"") + len(record.value or b"")
        self.size += sum(len(header.key) + len(header.value or b"") for header in record.headers)
        if self.first < 0:
            self.first = record.offset
        self.last = record.offset


async def demo(bootstrap_server: str | None, count: int, spark_output: Path | None) -> int:
    """Run the demo, with its Spark part if there is a directory for what that writes; 0 when all was right, else 1."""
    if spark_output is not None:
        check_installed()
    console = Console(soft_wrap=True, highlight=False)
    async with _kafka(bootstrap_server, console) as servers:
        settings = ClientConfig(bootstrap_servers=servers, api_timeout=_PATIENCE)
        async with Client(settings) as client:
            topic = f"aiokafka-lite-demo-{secrets.token_hex(4)}"
            await create_topic(client, topic, partitions=PARTITIONS)
            try:
                leaders = await _leaders(client, topic)
                status = await _there_and_back(servers, topic, leaders, count, console)
            finally:
                await delete_topics(client, [topic])
            status = status or await group_demo(servers, client, console)
            if status or spark_output is None:
                return status
            return await spark_demo(servers, client, spark_output, console)


@asynccontextmanager
async def _kafka(bootstrap_server: str | None, console: Console) -> AsyncIterator[str]:
    if bootstrap_server is not None:
        console.print(f"Kafka at {bootstrap_server}")
        yield bootstrap_server
        return
    async with EmbeddedCluster(brokers=3) as cluster:
        console.print(f"embedded cluster of three nodes at {cluster.bootstrap_servers}")
        yield cluster.bootstrap_servers


async def _leaders(client: Client, topic: str) -> dict[int, str]:
    """The leader of each partition. A new topic is known to the controller first, so it may take a few questions."""
    async with asyncio.timeout(STALLED_AFTER):
        while True:
            with suppress(UnknownTopic):
                await client.topic(topic)
            nodes = {number: client.view.leader_of(TopicPartition(topic, number)) for number in range(PARTITIONS)}
            leaders = {number: str(node) for number, node in nodes.items() if node is not None}
            if len(leaders) == PARTITIONS:
                return leaders
            await client.refresh([topic])


async def _there_and_back(servers: str, topic: str, leaders: dict[int, str], count: int, console: Console) -> int:
    check = Check(count)
    tallies = {partition: Tally() for partition in sorted(leaders)}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        started = time.perf_counter()
        await _produce(servers, topic, check, partial(progress.advance, progress.add_task("produced", total=count)))
        produced = time.perf_counter()
        advance = partial(progress.advance, progress.add_task("consumed", total=count))
        await _consume(servers, topic, check, tallies, advance)
        consumed = time.perf_counter()
    console.print(_table(tallies, leaders))
    console.print(f"produced {_rate(count, tallies, produced - started)}, each acknowledged by all in-sync replicas")
    console.print(f"consumed {_rate(check.read, tallies, consumed - produced)}, each one checked")
    if faults := check.verdict():
        console.print(*faults, sep="\n", style="red")
        return 1
    console.print(f"all {count:,} records came back exactly once, unchanged, and in order per key", style="green")
    return 0


async def _produce(servers: str, topic: str, check: Check, advance: Callable[[int], None]) -> None:
    """Send everything and wait until all of it is acknowledged."""
    async with Producer(servers, acks="all") as producer:
        for start in range(0, check.count, _CHUNK):
            numbers = range(start, min(start + _CHUNK, check.count))
            await _send(producer, topic, numbers, check)
            advance(len(numbers))


async def _send(producer: Producer, topic: str, numbers: Iterable[int], check: Check) -> None:
    deliveries: list[tuple[int, Delivery]] = []
    for number in numbers:
        while True:
            try:
                delivery = producer.send_nowait(topic, value_of(number), key=key_of(number), headers=headers_of(number))
                break
            except BufferFull:
                await producer.drain()
        deliveries.append((number, delivery))
    for number, delivery in deliveries:
        metadata = await delivery
        check.acknowledged(number, metadata.partition, metadata.offset)


async def _consume(
    servers: str, topic: str, check: Check, tallies: dict[int, Tally], advance: Callable[[int], None]
) -> None:
    """Read from the beginning to the end of each partition, or until nothing more comes."""
    partitions = [TopicPartition(topic, partition) for partition in tallies]
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        # Whatever the log holds beyond what was sent is read too: it would be a duplicate.
        while check.read < max(sum(ends.values()), check.count):
            records = await consumer.poll(max_records=_CHUNK, timeout=STALLED_AFTER)
            if not records:
                return
            for record in records:
                check.came_back(record)
                tallies[record.partition].add(record)
            advance(len(records))


def _rate(count: int, tallies: dict[int, Tally], seconds: float) -> str:
    size = sum(tally.size for tally in tallies.values())
    return f"{count:,} records in {seconds:.2f} s: {count / seconds:,.0f} records/s, {size / seconds / 1e6:.1f} MB/s"


def _table(tallies: dict[int, Tally], leaders: dict[int, str]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("partition", justify="right")
    table.add_column("leader", no_wrap=True)
    for name in ("records", "bytes", "offsets"):
        table.add_column(name, justify="right", no_wrap=True)
    for partition, tally in tallies.items():
        offsets = f"{tally.first:,} to {tally.last:,}" if tally.records else "none"
        table.add_row(str(partition), leaders[partition], f"{tally.records:,}", f"{tally.size:,}", offsets)
    records = sum(tally.records for tally in tallies.values())
    size = sum(tally.size for tally in tallies.values())
    table.add_row("all", "", f"{records:,}", f"{size:,}", "", style="bold")
    return table

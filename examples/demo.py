"""Sends records through Kafka and back, and checks each one: ``python examples/demo.py``, or ``make demo``.

Each record must be read once, unchanged, at the acknowledged offset, and after the earlier records with the same key. A
group (``demo_group``) follows, and on request a Spark pipeline (``demo_spark``).
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from contextlib import AsyncExitStack
from pathlib import Path

from aiokafka_lite import Admin, EmbeddedCluster, Producer, Record
from aiokafka_lite.arguments import plural
from aiokafka_lite.cli.terminal.run import run
from aiokafka_lite.cli.terminal.temporary import temporary_topic
from aiokafka_lite.types import Header
from demo_group import group_demo
from demo_results import CHUNK, read_all, show_result
from demo_spark import check_installed, spark_demo

PARTITIONS = 3
KEYS = 1000


def content_of(number: int) -> tuple[bytes, bytes, tuple[Header, ...]]:
    """Return a record's key, one of a thousand, its unique value of about a hundred bytes, and its headers."""
    value = b'{"order": %d, "customer": %d, "note": "%s"}' % (number, number % KEYS, b"x" * 60)
    return b"customer-%03d" % (number % KEYS), value, (Header("sent-by", b"aiokafka-lite demo"),)


class Check:
    """Compares the records that are read with those that were sent and acknowledged, in the order of their numbers."""

    def __init__(self) -> None:
        self.read = 0
        self._faults: list[str] = []
        self._sent = [array("q") for _ in range(PARTITIONS)]  # the numbers of the records, by partition and offset
        self._next = [0] * PARTITIONS  # the offset that is read next
        self._partition_of_key: dict[int, int] = {}

    def acknowledged(self, number: int, partition: int, offset: int) -> None:
        """Store the partition and offset at which the broker acknowledged a record."""
        if offset != len(self._sent[partition]):
            self._fault(partition, offset, f"is record {number} out of order")
        if self._partition_of_key.setdefault(number % KEYS, partition) != partition:
            self._fault(partition, offset, f"is record {number}, whose key has another partition")
        self._sent[partition].append(number)

    def received(self, record: Record) -> None:
        """Compare a record that was read with the record that was acknowledged at its offset."""
        partition, offset = record.partition, record.offset
        if offset >= len(self._sent[partition]):
            self._fault(partition, offset, "was never acknowledged")
        elif offset < self._next[partition]:
            self._fault(partition, offset, "is read after it or a later record was read")
        elif (record.key, record.value, record.headers) != content_of(self._sent[partition][offset]):
            self._fault(partition, offset, "has other content than was sent")
        else:
            self.read += 1
        self._next[partition] = max(self._next[partition], offset + 1)

    def result(self) -> list[str]:
        """Return all faults; empty if every record was read once, unchanged and in order."""
        missing = sum(map(len, self._sent)) - self.read
        return [*self._faults, *([f"{plural(missing, 'record')} did not come back"] if missing else [])]

    def _fault(self, partition: int, offset: int, fault: str) -> None:
        self._faults.append(f"partition {partition} offset {offset} {fault}")


async def demo(bootstrap_server: str | None, count: int, spark_output: Path | None) -> int:
    """Run the demo, with Spark if there is a directory for its output. Return 0 if all checks pass, else 1."""
    if spark_output is not None:
        check_installed()
    async with AsyncExitStack() as stack:
        if bootstrap_server is None:
            servers = (await stack.enter_async_context(EmbeddedCluster(brokers=3))).bootstrap_servers
            print(f"embedded cluster of three brokers at {servers}")
        else:
            servers = bootstrap_server
            print(f"Kafka at {servers}")
        admin = await stack.enter_async_context(Admin(servers, api_timeout=10.0))
        status = await _round_trip(servers, admin, count) or await group_demo(servers, admin)
        if status or spark_output is None:
            return status
        return await spark_demo(servers, admin, spark_output)


async def _round_trip(servers: str, admin: Admin, count: int) -> int:
    check = Check()
    async with temporary_topic(admin, "demo", PARTITIONS) as topic:
        began = time.perf_counter()
        await _produce(servers, topic, count, check)
        produced = time.perf_counter()
        print(f"produced {_rate(count, produced - began)}, each acknowledged by all in-sync replicas")
        async for records in read_all(servers, topic, PARTITIONS, count):
            for record in records:
                check.received(record)
        print(f"consumed {_rate(check.read, time.perf_counter() - produced)}, each checked")
    return show_result(check.result(), f"all {count:,} records came back exactly once, unchanged, and in order per key")


async def _produce(servers: str, topic: str, count: int, check: Check) -> None:
    """Send all records, and wait until each is acknowledged."""
    async with Producer(servers, acks="all") as producer:
        for start in range(0, count, CHUNK):
            numbers = range(start, min(start + CHUNK, count))
            contents = map(content_of, numbers)
            deliveries = [await producer.put(topic, value, key=key, headers=more) for key, value, more in contents]
            for number, delivery in zip(numbers, deliveries):
                metadata = await delivery
                check.acknowledged(number, metadata.partition, metadata.offset)


def _rate(count: int, seconds: float) -> str:
    size = len(content_of(count)[1]) * count / 1e6
    return f"{count:,} records in {seconds:.2f} s: {count / seconds:,.0f} records/s, {size / seconds:.1f} MB/s"


def main() -> None:
    """Run the demo, with the options of the command line."""
    parser = argparse.ArgumentParser(description="Send records, read them back, and check every one.")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="Kafka to use; by default an embedded cluster of 3 brokers"
    )
    parser.add_argument("--records", type=int, default=100_000, help="number of records; 100,000 by default")
    parser.add_argument("--spark", action="store_true", help="run the Spark pipeline as well; requires the extra demo")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="directory for Parquet files, chart and log",
    )
    options = parser.parse_args()
    if options.records < 1:
        parser.error(f"--records must be at least 1, got {options.records}")
    # Print each line at once, also into a pipe.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(run(lambda: demo(options.bootstrap_server, options.records, options.output if options.spark else None)))


if __name__ == "__main__":
    main()

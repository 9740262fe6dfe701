"""A transactional producer of a simulation, and a reader of committed records beside it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import groupby
from random import Random
from typing import Any, Protocol

from aiokafka_lite import (
    Consumer,
    EmbeddedCluster,
    KafkaError,
    KafkaTimeout,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, OffsetCommitValue, offset_key
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.protocol.codec import decode_versioned
from aiokafka_lite.types import GroupMetadata
from tests.simulation.chain_journal import stable_offsets
from tests.simulation.ledger import Outcome, Transaction, early_anomalies, ledger_anomalies
from tests.simulation.workload import FIXED, LEDGER, LEDGER_PARTITIONS, TRANSACTIONS, TransactionPlan

GROUP = GroupMetadata("ledger")
OFFSETS_OF = TopicPartition(FIXED, 0)

TRANSACTION_TIMEOUT = 160.0
"""Seconds in which a transaction ends in any case: the timeouts of its calls one after the other."""
PROBES = 5
"""Transactions that may fail after all faults have ended: the first ones find out about the faults."""


class UserAbort(Exception):
    """The exception with which the body of a transaction aborts it."""


class Surroundings(Protocol):
    """The parts of the world that a transactor uses."""

    random: Random
    cluster: EmbeddedCluster

    def anomaly(self, text: str) -> None: ...

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any: ...

    def wall_clock(self) -> float: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class Transactor:
    """One transactional id: its producers, one after the other, and its transactions."""

    def __init__(self, world: Surroundings, plan: TransactionPlan) -> None:
        self.plan = plan
        self.transactions: list[Transaction] = []
        self.slow = 0.0
        self.is_replaced = False
        """Whether a new producer takes over in the middle of the next transaction."""
        self.is_aborted = False
        """Whether the next transaction is aborted while its records are in flight."""
        self.offsets_timeout: float | None = None
        """The seconds that the next call with offsets may take."""
        self._world = world
        self._producer: Producer | None = None
        self._made = 0
        self._current: asyncio.Task[None] | None = None
        self._live: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        self._reads: list[tuple[float, bytes]] = []
        """When the live reader returned each value."""
        self._reader = self._make_reader("live")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._reader.start()
        self._tasks.append(asyncio.create_task(self._read_live(), name="read the ledger"))
        if self.plan.is_watched:
            self._tasks.append(asyncio.create_task(self._watch(), name="watch the offset"))

    async def run(self) -> None:
        """Write all transactions, one after the other."""
        for _ in range(TRANSACTIONS):
            await self._one()
            await asyncio.sleep(self._world.random.choice(self.plan.pauses))

    def cancel(self) -> None:
        """Cancel the transaction that runs."""
        if self._current is not None:
            self._current.cancel()

    async def finish(self) -> None:
        """Commit a transaction, with all faults ended, and wait until the readers see all that is committed."""
        for _ in range(PROBES):
            await self._one(aborts=False)
            if self.transactions[-1].outcome is Outcome.COMMITTED:
                break
        else:
            self._world.anomaly(f"no transaction was committed after all faults ended: {self._producer!r}")
        whole: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        after = self._make_reader("whole", group_id=GROUP.group_id)
        # The markers of a commit that returned may still be on their way. The reader waits for them as well.
        uncommitted = self._make_reader("ends", isolation_level="read_uncommitted")
        async with after, uncommitted:
            ends = await uncommitted.end_offsets(_PARTITIONS)
            after.assign(_PARTITIONS)
            reading = asyncio.create_task(self._read(after, whole))
            for reader in (after, self._reader):
                await self._world.bounded("reading the ledger to its end", _until_read(reader, ends), 60.0)
            await after.committed([OFFSETS_OF])  # waits until they are stable
            reading.cancel()
            await asyncio.wait([reading])
        offsets = _committed_offsets(self._world.cluster)
        stable = [
            (at, offset)
            for at, group_id, partition, offset in stable_offsets(self._world.cluster)
            if (group_id, partition) == (GROUP.group_id, OFFSETS_OF)
        ]
        for anomaly in (
            *ledger_anomalies(self.transactions, whole, {"live": self._live}, offsets),
            *early_anomalies(self.transactions, self._reads, stable),
        ):
            self._world.anomaly(f"{self.plan}: {anomaly}")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._reader.close()
        if self._producer is not None:
            await self._close(self._producer)

    # Transactions.

    async def _one(self, *, aborts: bool = True) -> None:
        transaction = Transaction(len(self.transactions))
        self.transactions.append(transaction)
        self._current = asyncio.create_task(self._run_one(transaction, aborts), name=f"{transaction}")
        await asyncio.wait([self._current])

    async def _run_one(self, transaction: Transaction, aborts: bool) -> None:
        call = self._transaction(transaction, aborts)
        try:
            await self._world.bounded(f"{transaction}", call, TRANSACTION_TIMEOUT + self.slow)
        except UserAbort:
            pass
        except IllegalStateError as error:
            self._world.anomaly(f"{transaction} raised {error!r}")
        except KafkaError as error:
            if self._producer is not None and not isinstance(error, KafkaTimeout):
                transactions = self._producer.metrics().transactions
                if transactions is None or transactions.state == "FATAL_ERROR":
                    fatal, self._producer = self._producer, None
                    await self._close(fatal)
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._world.anomaly(f"{transaction} raised {error!r}, which is not a KafkaError")

    async def _transaction(self, transaction: Transaction, aborts: bool) -> None:
        if self._producer is None:
            self._producer = await self._make_producer()
        producer = self._producer
        is_replaced, self.is_replaced = self.is_replaced, False
        try:
            await self._write(producer, transaction, aborts, is_replaced)
        finally:
            if producer is not self._producer:
                await self._close(producer)

    async def _write(self, producer: Producer, transaction: Transaction, aborts: bool, is_replaced: bool) -> None:
        random = self._world.random
        is_aborted, self.is_aborted = self.is_aborted, False
        async with producer.transaction() as open_transaction:
            for number in range(random.choice((1, 2, 5))):
                partition = random.choice(_PARTITIONS)
                value = f"{transaction.number:04d}-{number}".encode()
                transaction.values[value] = partition
                if random.random() < 0.5 and not is_aborted:
                    await open_transaction.send(LEDGER, value, partition=partition.partition)
                else:
                    await open_transaction.put(LEDGER, value, partition=partition.partition)
            slow, self.slow = self.slow, 0.0
            await asyncio.sleep(slow + random.choice((0.0, 0.05)))
            if is_aborted:
                raise UserAbort
            if is_replaced:
                self._producer = None
                self._producer = await self._make_producer()
            if random.random() < 0.5:
                transaction.offset = transaction.number + 1
                offsets = {OFFSETS_OF: OffsetAndMetadata(transaction.offset)}
                timeout, self.offsets_timeout = self.offsets_timeout, None
                await open_transaction.send_offsets(offsets, GROUP, timeout=timeout)
            if aborts and random.random() < 0.2:
                raise UserAbort
            if not is_replaced:
                transaction.outcome = Outcome.UNKNOWN
                transaction.ended_at = asyncio.get_running_loop().time()
        if is_replaced:
            self._world.anomaly(f"{transaction} was committed by {producer!r}, which is fenced")
        transaction.outcome = Outcome.COMMITTED

    async def _make_producer(self) -> Producer:
        """Return a new producer, started. A failed start is tried again with the next transaction."""
        self._made += 1
        producer: Producer = self._world.client(
            Producer,
            client_id=f"transactor-{self._made}",
            clock=self._world.wall_clock,
            random=self._world.random.random,
            metadata_max_age=10.0,
            transactional_id="ledger",
            **self.plan.settings,
        )
        await producer.start()
        return producer

    async def _close(self, producer: Producer) -> None:
        try:
            await producer.close()
        except KafkaError:
            pass  # the error that ended it
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._world.anomaly(f"close of {producer!r} raised {error!r}, which is not a KafkaError")

    # Readers.

    def _make_reader(self, name: str, **settings: Any) -> Consumer[Any, Any]:
        reader: Consumer[Any, Any] = self._world.client(
            Consumer,
            client_id=f"reader-{name}",
            metadata_max_age=10.0,
            **{"isolation_level": "read_committed", **settings},
        )
        return reader

    async def _read_live(self) -> None:
        self._reader.assign(_PARTITIONS)
        async for record in self._reader:
            self._live[TopicPartition(record.topic, record.partition)].append(record.value)
            self._reads.append((asyncio.get_running_loop().time(), record.value))

    async def _watch(self) -> None:
        """Ask for the stable offset of the group again and again. The history has the answers."""
        async with self._make_reader("watch", group_id=GROUP.group_id) as watcher:
            while True:
                with suppress(KafkaError):
                    await watcher.committed([OFFSETS_OF], timeout=1.0)
                await asyncio.sleep(self._world.random.choice((0.05, 0.3, 1.0)))

    async def _read(self, reader: Consumer[Any, Any], into: dict[TopicPartition, list[bytes]]) -> None:
        reader.assign(_PARTITIONS)
        async for record in reader:
            into[TopicPartition(record.topic, record.partition)].append(record.value)


_PARTITIONS = [TopicPartition(LEDGER, number) for number in range(LEDGER_PARTITIONS)]


async def _until_read(reader: Consumer[Any, Any], ends: Mapping[TopicPartition, int]) -> None:
    while any([await reader.position(partition) < end for partition, end in ends.items()]):
        await asyncio.sleep(0.1)


def _committed_offsets(cluster: EmbeddedCluster) -> list[int]:
    """Return the offsets of the group that were committed, in order. A repeated request may write one of them again."""
    if OFFSETS_TOPIC not in cluster.controller.topics:
        return []
    key = offset_key(GROUP.group_id, OFFSETS_OF.topic, OFFSETS_OF.partition)
    values = [record.value for record in cluster.records(OFFSETS_TOPIC) if record.key == key and record.value]
    return [offset for offset, _ in groupby(decode_versioned(OffsetCommitValue, value)[0].offset for value in values)]

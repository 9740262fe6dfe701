"""Topics that are created, deleted, grown and created again during a simulation, and the clients that use them.

Producers write to partitions by their number, whether these exist or not. The checks:

1. Each send ends, with an acknowledgement or a KafkaError, and no producer ends.
2. An acknowledged record is in the log, unless its topic was deleted after the send began. Nothing else excuses it.
3. With idempotence, the log has no record twice, and the records of one producer are in the order of their sends.
4. The records of a committed transaction are read, unless their topic was deleted after it began. The records of an
   aborted transaction are not.
5. When all faults have ended, each partition takes a record soon, and each group processes it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Protocol

from aiokafka_lite import Consumer, EmbeddedCluster, KafkaError, Producer, TopicPartition
from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.embedded.metadata.controller import Refused
from tests.embedded.producer.producers_and_logs import values_of
from tests.simulation.group_members import SimulatedGroup
from tests.simulation.share_members import SimulatedShareGroup
from tests.simulation.workload import VOLATILE, ChurnPlan

MOST_PARTITIONS = 4
RECORDS = 120
SEND_TIMEOUT = 60.0
PROBE_TIMEOUT = 20.0
"""The longest time, in seconds, until a cluster without faults acknowledges a record."""

SETTLE = 30.0
"""Seconds until all clients know the last topics: ``metadata_max_age``, a rebalance, and a heartbeat."""

GROUP_TIMEOUT = 300.0
LINGERING = 15.0
"""Seconds after the deletion of a topic, in which a broker that is frozen or cut off may still acknowledge records."""


class Surroundings(Protocol):
    """The parts of the world that churn uses."""

    random: Random
    cluster: EmbeddedCluster
    groups: list[SimulatedGroup]
    share_groups: list[SimulatedShareGroup]

    def anomaly(self, text: str) -> None: ...

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any: ...

    def wall_clock(self) -> float: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


@dataclass(slots=True, eq=False)
class Sent:
    """One record: its place in the order of its producer, and how its send ended."""

    number: int
    partition: TopicPartition
    value: bytes
    began: float
    is_acknowledged: bool = False
    is_probe: bool = False
    error: BaseException | None = None


class Topics:
    """The volatile topics of a world, and when each was deleted last."""

    def __init__(self, world: Surroundings) -> None:
        self.deleted_at: dict[str, float] = {}
        self._world = world

    @property
    def _controller(self) -> Any:
        return self._world.cluster.controller

    async def create(self, name: str, partitions: int) -> None:
        """Create a topic, unless it exists or too few brokers run."""
        if name not in self._controller.topics:
            with suppress(Refused):
                await self._world.cluster.create_topic(name, partitions, 3, configs={"min.insync.replicas": "2"})

    async def delete(self, name: str) -> None:
        if name in self._controller.topics:
            self.deleted_at[name] = asyncio.get_running_loop().time()
            await self._world.cluster.delete_topic(name)

    async def grow(self, name: str) -> None:
        topic = self._controller.topics.get(name)
        if topic is not None and len(topic.partitions) < MOST_PARTITIONS:
            with suppress(Refused):
                self._controller.create_partitions(name, len(topic.partitions) + 1, None)

    async def recreate(self, name: str, partitions: int) -> None:
        await self.delete(name)
        await self.create(name, partitions)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that exist now."""
        topics = self._controller.topics
        names = [name for name in VOLATILE if name in topics]
        return [TopicPartition(name, number) for name in names for number in range(len(topics[name].partitions))]

    def was_deleted(self, name: str, since: float) -> bool:
        """Return whether a topic may have lost a record that was sent at this time."""
        return name in self.deleted_at and self.deleted_at[name] + LINGERING >= since


class ChurnWriter:
    """A producer that writes to numbered partitions of volatile topics, also to missing ones."""

    def __init__(self, world: Surroundings, topics: Topics, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.sends: list[Sent] = []
        self._world = world
        self._topics = topics
        self._is_idempotent = settings.get("idempotence", True)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.producer: Producer = world.client(
            Producer,
            client_id=f"churn-{name}",
            clock=world.wall_clock,
            random=world.random.random,
            metadata_max_age=10.0,
            **settings,
        )

    async def run(self) -> None:
        random = self._world.random
        for _ in range(RECORDS):
            for _ in range(random.choice((1, 1, 5))):
                self._start(TopicPartition(random.choice(VOLATILE), random.randrange(MOST_PARTITIONS)))
            await asyncio.sleep(random.choice((0.0, 0.05, 0.2)))

    async def finish(self) -> None:
        """Wait for the ends of all sends."""
        if self._tasks:
            await self._world.bounded(f"sends of churn-{self.name}", asyncio.wait(list(self._tasks)), SEND_TIMEOUT)
        if self.producer.state is not ServiceState.RUNNING:
            self._world.anomaly(f"{self.producer!r} has ended")

    async def probe(self) -> list[bytes]:
        """Send a record to each partition. Returns their values."""
        probes = [self._start(partition, is_probe=True) for partition in self._topics.partitions()]
        await asyncio.wait(list(self._tasks), timeout=PROBE_TIMEOUT)
        for sent in probes:
            if not sent.is_acknowledged:
                self._world.anomaly(f"churn-{self.name} did not write {sent} after all faults ended")
        return [sent.value for sent in probes]

    def _start(self, partition: TopicPartition, *, is_probe: bool = False) -> Sent:
        number = len(self.sends)
        value = f"{self.name}-{number:06d}".encode()
        sent = Sent(number, partition, value, asyncio.get_running_loop().time(), is_probe=is_probe)
        self.sends.append(sent)
        task = asyncio.create_task(self._send(sent), name=f"send {value!r}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return sent

    async def _send(self, sent: Sent) -> None:
        topic, number = sent.partition
        try:
            metadata = await self._world.bounded(
                f"send of {sent}", self.producer.send(topic, sent.value, partition=number), SEND_TIMEOUT
            )
        except KafkaError as error:
            sent.error = error
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            sent.error = error
            self._world.anomaly(f"{sent} raised {error!r}, which is not a KafkaError")
        else:
            sent.is_acknowledged = metadata is not None

    def anomalies(self, logs: dict[TopicPartition, list[bytes | None]]) -> Iterator[str]:
        """Check rules 2 and 3."""
        counts = Counter((partition, value) for partition, values in logs.items() for value in values)
        for sent in self.sends:
            count = counts[sent.partition, sent.value]
            is_excused = self._topics.was_deleted(sent.partition.topic, sent.began)
            if sent.is_acknowledged and not count and not is_excused:
                yield f"churn-{self.name}: {sent} was acknowledged and is lost"
            if self._is_idempotent and count > 1:
                yield f"churn-{self.name}: {sent} was written {count} times"
        if self._is_idempotent:
            prefix = f"{self.name}-".encode()
            for partition, values in logs.items():
                own = [value for value in values if value is not None and value.startswith(prefix)]
                for before, value in pairwise(own):
                    if value < before:
                        yield f"churn-{self.name}: {partition} has {value!r} behind {before!r}"


@dataclass(slots=True, eq=False)
class ChurnTransaction:
    """One transaction: the place of each of its values, and its outcome; None if that is not known."""

    began: float
    values: dict[bytes, TopicPartition]
    is_committed: bool | None = False


class ChurnTransactor:
    """A transactional producer of records in volatile topics. After a fatal error, another one takes its place."""

    def __init__(self, world: Surroundings, topics: Topics) -> None:
        self.transactions: list[ChurnTransaction] = []
        self._world = world
        self._topics = topics
        self._made = 0
        self._producer: Producer | None = None

    async def run(self) -> None:
        for _ in range(15):
            places = [
                TopicPartition(self._world.random.choice(VOLATILE), self._world.random.randrange(MOST_PARTITIONS))
                for _ in range(self._world.random.choice((1, 2, 3)))
            ]
            await self._one(places, aborts=self._world.random.random() < 0.2)
            await asyncio.sleep(self._world.random.choice((0.0, 0.3, 2.0)))

    async def probe(self) -> None:
        """Commit a transaction over all partitions, which takes little time with all faults ended."""
        for _ in range(4):
            await self._one(self._topics.partitions(), aborts=False)
            if self.transactions[-1].is_committed:
                return
        self._world.anomaly(f"no transaction was committed after all faults ended: {self._producer!r}")

    async def _one(self, places: list[TopicPartition], *, aborts: bool) -> None:
        transaction = ChurnTransaction(asyncio.get_running_loop().time(), {})
        self.transactions.append(transaction)
        number = len(self.transactions)
        try:
            await self._world.bounded(
                f"churn transaction {number}", self._write(transaction, number, places, aborts), 180.0
            )
        except KafkaError:
            producer = self._producer
            transactions = None if producer is None else producer.metrics().transactions
            if producer is not None and (transactions is None or transactions.state == "FATAL_ERROR"):
                self._producer = None
                await self._close(producer)
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._world.anomaly(f"churn transaction {number} raised {error!r}, which is not a KafkaError")

    async def _write(
        self, transaction: ChurnTransaction, number: int, places: list[TopicPartition], aborts: bool
    ) -> None:
        producer = self._producer = self._producer or await self._make()
        await producer.begin_transaction()
        try:
            for position, place in enumerate(places):
                value = f"t{number:04d}-{position}".encode()
                transaction.values[value] = place
                await producer.send(place.topic, value, partition=place.partition)
        except KafkaError:
            await producer.abort_transaction()
            raise
        if aborts:
            await producer.abort_transaction()
            return
        transaction.is_committed = None
        try:
            await producer.commit_transaction()
        except KafkaError:
            await producer.abort_transaction()
            raise
        transaction.is_committed = True

    async def _make(self) -> Producer:
        self._made += 1
        producer: Producer = self._world.client(
            Producer,
            client_id=f"churn-transactor-{self._made}",
            clock=self._world.wall_clock,
            random=self._world.random.random,
            metadata_max_age=10.0,
            transactional_id="churn",
            max_block=3.0,
            delivery_timeout=15.0,
            transaction_timeout=30.0,
        )
        await producer.start()
        return producer

    async def close(self) -> None:
        if self._producer is not None:
            await self._close(self._producer)

    async def _close(self, producer: Producer) -> None:
        with suppress(KafkaError):
            await producer.close()

    def anomalies(self, committed: dict[TopicPartition, list[bytes]]) -> Iterator[str]:
        """Check rule 4. ``committed`` are the values that a reader of committed records returned."""
        counts = Counter((partition, value) for partition, values in committed.items() for value in values)
        for transaction in self.transactions:
            for value, place in transaction.values.items():
                count = counts[place, value]
                if count > 1:
                    yield f"{value!r} of a transaction was written {count} times to {place}"
                if count and transaction.is_committed is False:
                    yield f"{value!r} of an aborted transaction was read from {place}"
                is_excused = self._topics.was_deleted(place.topic, transaction.began)
                if not count and transaction.is_committed and not is_excused:
                    yield f"{value!r} of a committed transaction is lost in {place}"


class Churn:
    """The volatile topics of a world and their producers. Nothing, without a plan."""

    def __init__(self, world: Surroundings, plan: ChurnPlan | None) -> None:
        self.topics = Topics(world)
        self._world = world
        self._writers: list[ChurnWriter] = []
        self._transactor: ChurnTransactor | None = None
        if plan is not None:
            self._writers = [
                ChurnWriter(world, self.topics, f"w{number}", dict(settings))
                for number, settings in enumerate(plan.writers)
            ]
            self._transactor = ChurnTransactor(world, self.topics)

    @property
    def is_on(self) -> bool:
        return bool(self._writers)

    async def start(self) -> None:
        if self.is_on:
            for name in VOLATILE:
                await self.topics.create(name, 2)
        for writer in self._writers:
            await writer.producer.start()

    def runs(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the functions to run beside the faults."""
        transactor = [] if self._transactor is None else [self._transactor.run]
        return [*(writer.run for writer in self._writers), *transactor]

    async def close(self) -> None:
        for writer in self._writers:
            try:
                await self._world.bounded(f"close of churn-{writer.name}", writer.producer.close(5.0), 5.0 + 2.0)
            except KafkaError as error:
                self._world.anomaly(f"close of {writer.producer!r} raised {error!r}")
        if self._transactor is not None:
            await self._transactor.close()

    async def finish(self) -> None:
        """Check, with all faults ended, the sends, the logs, the transactions, and what groups process."""
        if not self.is_on:
            return
        for writer in self._writers:
            await writer.finish()
        for name in VOLATILE:
            await self.topics.create(name, 2)
            await self._world.cluster.until_in_sync(name, 120.0)
        await asyncio.sleep(SETTLE)
        probes = [value for writer in self._writers for value in await writer.probe()]
        assert self._transactor is not None
        await self._transactor.probe()
        logs = {partition: values_of(self._world.cluster, *partition) for partition in self.topics.partitions()}
        committed = await self._read()
        for anomalies in (
            *(writer.anomalies(logs) for writer in self._writers),
            self._transactor.anomalies(committed),
        ):
            for anomaly in anomalies:
                self._world.anomaly(anomaly)
        await self._wait_for_groups(set(probes))

    async def _read(self) -> dict[TopicPartition, list[bytes]]:
        """Return all committed values of the volatile topics."""
        values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in self.topics.partitions()}
        reader: Consumer[Any, Any] = self._world.client(
            Consumer, client_id="churn-reader", isolation_level="read_committed"
        )
        async with reader:
            reader.assign(list(values))
            ends = await reader.end_offsets(list(values))
            async with asyncio.timeout(120.0):
                while any([await reader.position(partition) < end for partition, end in ends.items()]):
                    for record in await reader.poll(500, timeout=0.5):
                        values[TopicPartition(record.topic, record.partition)].append(record.value)
        return values

    async def _wait_for_groups(self, probes: set[bytes]) -> None:
        groups: list[SimulatedGroup | SimulatedShareGroup] = [
            group
            for group in (*self._world.groups, *self._world.share_groups)
            if isinstance(group.plan.topics, tuple) and set(VOLATILE) <= set(group.plan.topics)
        ]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GROUP_TIMEOUT
        for group in groups:
            if isinstance(group, SimulatedShareGroup):
                group.is_calm = True
            while not probes <= group.values and loop.time() < deadline:
                if not group.running:
                    group.start_member()
                await asyncio.sleep(1.0)
            if missing := sorted(probes - group.values):
                self._world.anomaly(f"group {group.plan.group_id} never processed {missing[:5]} ({len(missing)})")

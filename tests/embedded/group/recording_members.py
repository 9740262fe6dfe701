"""Group members that record which partitions they own and which records they read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer, RebalanceHandle, RebalanceListener
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.group import CooperativeStickyStrategy, MemberState
from aiokafka_lite.types import Record, TopicPartition

ORDERS = [TopicPartition("orders", number) for number in range(6)]
COOPERATIVE: dict[str, Any] = {"strategies": [CooperativeStickyStrategy()]}

CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}

each_protocol = pytest.mark.parametrize("protocol", [{}, CONSUMER], ids=["classic", "consumer"])
each_mode = pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
each_way = pytest.mark.parametrize(
    "settings", [{}, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer protocol"]
)
"""How partitions are handed over: the two modes of the classic protocol, and the consumer protocol."""


class Ownership:
    """The owner of each partition. Two owners at once are recorded as a clash, with the loop's time."""

    def __init__(self) -> None:
        self.owners: dict[TopicPartition, Worker] = {}
        self.clashes: list[str] = []
        self.read: Counter[tuple[str, int, int]] = Counter()
        self.events: list[tuple[str, str, list[TopicPartition]]] = []

    def take(self, worker: Worker, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            owner = self.owners.get(partition)
            if owner is not None:
                now = asyncio.get_running_loop().time()
                self.clashes.append(f"{now:.3f}: {worker.name} got {partition} while {owner.name} had it")
            self.owners[partition] = worker

    def give(self, worker: Worker, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            if self.owners.get(partition) is worker:
                del self.owners[partition]


class Worker(RebalanceListener):
    """A member that reads records until it is stopped, and takes ``work`` seconds for each."""

    def __init__(
        self, cluster: EmbeddedCluster, ownership: Ownership, name: str, *, work: float = 0.0, **settings: Any
    ) -> None:
        self.name = name
        self.work = work
        self.ownership = ownership
        self.read: list[Record] = []
        self.error: BaseException | None = None
        self.consumer = member_of(cluster, client_id=name, listener=self, **settings)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Worker:
        await self.consumer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        try:
            async for record in self.consumer:
                self.ownership.read[record.topic, record.partition, record.offset] += 1
                self.read.append(record)
                if self.work:
                    await asyncio.sleep(self.work)
        except KafkaError as error:
            self.error = error

    async def stop(self, **how: Any) -> None:
        """Close the consumer and end its task."""
        assert self._task is not None
        with suppress(KafkaError):
            await self.consumer.close(**how)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def die(self) -> None:
        """End like a killed process: without a commit and without LeaveGroup."""
        self.ownership.give(self, list(self.ownership.owners))
        self.ownership = Ownership()
        await self.stop(timeout=0.0)

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.ownership.events.append((self.name, "assigned", list(partitions)))
        self.ownership.take(self, partitions)

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.ownership.events.append((self.name, "revoked", list(partitions)))
        self.ownership.give(self, partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.ownership.events.append((self.name, "lost", list(partitions)))
        self.ownership.give(self, partitions)


def member_of(cluster: EmbeddedCluster, **settings: Any) -> Consumer:
    """Return a member of the group that is not started. It reads the topic ``orders`` unless ``topics`` is given."""
    settings = {"group_id": "workers", "topics": ["orders"], **settings}
    return Consumer(cluster.bootstrap_servers, connector=cluster.connector, **settings)


async def until_stable(*consumers: Consumer, within: float = 30.0) -> None:
    """Wait until all members are stable in one generation, and each partition is assigned to one of them."""
    async with asyncio.timeout(within):
        while True:
            owned = [partition for consumer in consumers for partition in consumer.assignment]
            if all(consumer.membership is MemberState.STABLE for consumer in consumers) and sorted(owned) == ORDERS:
                generations = {consumer.group_metadata().generation_id for consumer in consumers}
                if len(generations) == 1:
                    return
            await asyncio.sleep(0.05)  # virtual time


async def read_all(consumer: Consumer, count: int) -> list[Record]:
    """Return ``count`` records by poll."""
    records: list[Record] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll(count - len(records), timeout=5.0)
    return records


def now() -> float:
    return asyncio.get_running_loop().time()


async def reading(*consumers: Consumer) -> None:
    """Poll all consumers repeatedly."""

    async def read(consumer: Consumer) -> None:
        with suppress(KafkaError):
            while True:
                await consumer.poll(timeout=1.0)

    await asyncio.gather(*map(read, consumers))


class Reading:
    """Polls consumers in the background."""

    def __init__(self, *consumers: Consumer) -> None:
        self._consumers = consumers

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(reading(*self._consumers))

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

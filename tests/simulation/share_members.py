"""The members of the simulated share groups: how they read and acknowledge, and how their user code misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import anyio

from aiokafka_lite import KafkaError, KafkaTimeout, ShareConsumer, ShareRecord, TopicPartition
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.share.acknowledgements import AcknowledgeType
from tests.simulation.group_members import UserError
from tests.simulation.share_journal import Place, ShareJournal
from tests.simulation.workload import SharePlan

CLOSE_TIMEOUT = 3.5
"""Seconds in which a share consumer closes."""


class Surroundings(Protocol):
    """The parts of the world that a member uses."""

    random: Random

    def anomaly(self, text: str) -> None: ...

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class SimulatedShareGroup:
    """One share group and its members. While it ``is_calm``, its members accept each record at once."""

    def __init__(self, world: Surroundings, plan: SharePlan) -> None:
        self.plan = plan
        self.journal = ShareJournal(plan.group_id)
        self.members: list[ShareMember] = []
        self.is_calm = False
        self.values: set[object] = set()
        """The values of all processed records."""
        self._world = world

    @property
    def running(self) -> list[ShareMember]:
        return [member for member in self.members if not member.task.done()]

    def start_member(self) -> None:
        """Start one more member. Its number only names it."""
        self.members.append(ShareMember(self._world, self, f"{self.plan.group_id}-{len(self.members) + 1}"))


class ShareMember:
    """A member that works on one record after the other, and acknowledges each of them as its user decides."""

    def __init__(self, world: Surroundings, group: SimulatedShareGroup, name: str) -> None:
        self.name = name
        self.slow = 0.0
        self.dead = False
        self.raises = False
        self.cancels_reads = False
        self.is_leaving = False
        self._world = world
        self._group = group
        self._journal = group.journal
        self._unacknowledged: dict[Place, None] = {}
        self._most = world.random.choice((1, 3, 500))
        self.consumer: ShareConsumer[Any, Any] = world.client(
            ShareConsumer,
            client_id=name,
            group_id=group.plan.group_id,
            topics=group.plan.topics,
            on_acknowledged=self._on_acknowledged,
            metadata_max_age=10.0,
            **group.plan.settings,
        )
        self.task = asyncio.create_task(self._run(), name=name)

    @property
    def _is_explicit(self) -> bool:
        return self._group.plan.settings["acknowledgement_mode"] == "explicit"

    # Its lifetime.

    async def _run(self) -> None:
        try:
            async with self.consumer:
                while not self.is_leaving:
                    await self._read()
        except UserError:
            if not self.raises:
                raise
        except IllegalStateError as error:
            if not self.is_leaving and not self.dead:
                self._world.anomaly(f"{self.name} ended with {error!r}")
        except Exception as error:  # noqa: BLE001 - every error is an anomaly
            if not self.dead or not isinstance(error, KafkaError):
                self._world.anomaly(f"{self.name} ended with {error!r}")

    async def leave(self) -> None:
        self.is_leaving = True
        try:
            await self._world.bounded(f"close of {self.name}", self.consumer.close(), CLOSE_TIMEOUT)
        except KafkaError as error:
            self._world.anomaly(f"close of {self.name} raised {error!r}")
        await self.stop()

    async def die(self) -> None:
        """End like a killed process: the records in hand are neither acknowledged nor released by it."""
        self.dead = True
        with suppress(KafkaError):
            await self.consumer.close(0.0)
        await self.stop()

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    # Reading.

    async def _read(self) -> None:
        """Do one read, the work on its records, and sometimes a commit."""
        self._accept_returned()
        if self._group.plan.reading == "iterate":
            records = [await anext(self.consumer)]
        else:
            records = await self._poll()
        for record in records:
            self._note_delivered(record)
        for record in records:
            await self._work(record)
        if records and self._world.random.random() < 0.2:
            self._accept_returned()
            with suppress(KafkaTimeout):
                await self._world.bounded(f"commit of {self.name}", self.consumer.commit(timeout=5.0), 5.0)

    async def _poll(self) -> list[ShareRecord[Any, Any]]:
        poll = self._world.bounded("poll", self.consumer.poll(self._most, timeout=1.0), 1.0)
        if not self.cancels_reads:
            return await poll or []
        with anyio.move_on_after(self._world.random.choice((0.0, 0.001, 0.02, 0.3))):
            return await poll or []
        self.cancels_reads = False
        return []

    def _accept_returned(self) -> None:
        """Note what the next read, or a commit, accepts in implicit mode: the records without another
        acknowledgement."""
        for place in self._unacknowledged:
            self._journal.acknowledged[self.name, place].add(AcknowledgeType.ACCEPT)
        self._unacknowledged.clear()

    def _note_delivered(self, record: ShareRecord[Any, Any]) -> None:
        now = asyncio.get_running_loop().time()
        self._journal.delivered.append((self.name, _place(record), record.delivery_count, now))
        if not self._is_explicit:
            self._unacknowledged[_place(record)] = None

    # Work.

    async def _work(self, record: ShareRecord[Any, Any]) -> None:
        """Process a record, and acknowledge it. Raises UserError if the member was asked to."""
        random = self._world.random
        await asyncio.sleep(random.choice((0.0, 0.0, 0.02)) + self.slow)
        self.slow = 0.0
        if self.raises:
            raise UserError("the work on a record failed")
        self._group.values.add(record.value)
        chance = 0.0 if self._group.is_calm else random.random()
        if chance > 0.9:
            with suppress(KafkaError):  # an expired lock, a lost session, or no answer
                await self._world.bounded("renew", self.consumer.renew(record, timeout=5.0), 5.0)
        if chance > 0.95:
            await asyncio.sleep(random.uniform(0.5, 1.2) * self._group.plan.lock)
        if 0.6 < chance <= 0.65:
            self._acknowledge(record, AcknowledgeType.REJECT)
        elif 0.65 < chance <= 0.8:
            self._acknowledge(record, AcknowledgeType.RELEASE)
        elif self._is_explicit or chance > 0.8:
            self._acknowledge(record, AcknowledgeType.ACCEPT)

    def _acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> None:
        if self.dead:
            return
        self._unacknowledged.pop(_place(record), None)
        self._journal.acknowledged[self.name, _place(record)].add(kind)
        getattr(self.consumer, kind.name.lower())(record)

    def _on_acknowledged(self, partition: TopicPartition, offsets: tuple[int, ...], error: KafkaError | None) -> None:
        now = asyncio.get_running_loop().time()
        if error is None:
            self._journal.confirmed += [(self.name, Place(partition, offset), now) for offset in offsets]


def _place(record: ShareRecord[Any, Any]) -> Place:
    return Place(TopicPartition(record.topic, record.partition), record.offset)

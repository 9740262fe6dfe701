"""The members of the simulated groups: how they read, work, mark and commit, and how their user code misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from aiokafka_lite import (
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    KafkaError,
    KafkaTimeout,
    OffsetAndMetadata,
    Record,
    TopicPartition,
)
from aiokafka_lite.consumer import Claim, ConsumerGroupSession, RebalanceHandle, RebalanceListener
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.group import MemberState
from tests.simulation.journal import HEARTBEAT_INTERVAL, MAX_POLL_INTERVAL, SESSION_TIMEOUT, GroupJournal
from tests.simulation.workload import SCRATCH, GroupPlan

CLASSIC_TIMES = {"session_timeout": SESSION_TIMEOUT, "heartbeat_interval": HEARTBEAT_INTERVAL}
"""Under the consumer protocol the brokers set both."""


class UserError(Exception):
    """An error that user code raises on purpose."""


class Surroundings(Protocol):
    """The parts of the world that a member uses."""

    random: Random

    def anomaly(self, text: str) -> None: ...

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any: ...

    def check_owner(self, group: SimulatedGroup, partition: TopicPartition, new: str) -> None: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class SimulatedGroup:
    """One group and its members."""

    def __init__(self, world: Surroundings, plan: GroupPlan) -> None:
        self.plan = plan
        self.journal = GroupJournal(plan.group_id)
        self.members: list[Member] = []
        self.values: set[object] = set()
        """The values of all processed records."""
        self._world = world
        self._started = 0

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if not member.task.done()]

    def start_member(self) -> None:
        """Start one more member. Its number only names it."""
        self._started += 1
        instance_id = None
        if self.plan.is_static:
            used = {member.instance_id for member in self.running}
            instance_id = next(name for number in range(9) if (name := f"static-{number}") not in used)
        kind = HandlerMember if self.plan.reading == "handler" else ConsumerMember
        self.members.append(kind(self._world, self, f"{self.plan.group_id}-{self._started}", instance_id))

    def find(self, name: str) -> Member | None:
        return next((member for member in self.running if member.name == name), None)


class Member:
    """A member that works on one record after the other. It notes a record after the work on it is done."""

    def __init__(self, world: Surroundings, group: SimulatedGroup, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.slow = 0.0
        self.dead = False
        self.raises = False
        self.is_leaving = False
        self._world = world
        self._group = group
        protocols, settings = group.plan.protocols, dict(group.plan.settings)
        self.protocol = protocols[0] if len(protocols) == 1 else world.random.choice(protocols)
        if self.protocol == "consumer":
            settings.pop("strategies", None)
        self.restarted: dict[TopicPartition, None] = {}  # reading of these began again since the last poll
        self._next: dict[TopicPartition, int] = {}  # the offset that must come next
        self._settings = {
            "client_id": name,
            **(CLASSIC_TIMES if self.protocol == "classic" else {}),
            "group_protocol": self.protocol,
            "max_poll_interval": MAX_POLL_INTERVAL,
            "auto_commit_interval": 1.0,
            "metadata_max_age": 10.0,
            "group_id": group.plan.group_id,
            **({} if instance_id is None else {"group_instance_id": instance_id}),
            **settings,
        }
        self.make()
        self.task = asyncio.create_task(self._run(), name=name)

    def make(self) -> None:
        """Create the client."""
        raise NotImplementedError

    async def read(self) -> None:
        """Read until the client is closed."""
        raise NotImplementedError

    async def close_client(self, timeout: float | None = None) -> None:
        raise NotImplementedError

    def owns(self, partition: TopicPartition) -> bool:
        """Return whether the member still acts as the owner of a partition that was assigned to it."""
        return not self.dead

    @property
    def has_settled(self) -> bool:
        """Whether the member is in its group, as far as its client shows it."""
        return True

    async def _run(self) -> None:
        try:
            await self.read()
        except UserError:
            if not self.raises:
                raise
        except KafkaError as error:
            if not self.dead and not may_end_a_member(error):
                self._world.anomaly(f"{self.name} ended with {error!r}")
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._world.anomaly(f"{self.name} ended with {error!r}, which is not a KafkaError")
        finally:
            self.release(list(self._group.journal.owners))

    async def leave(self) -> None:
        self.is_leaving = True
        try:
            await self._world.bounded(f"close of {self.name}", self.close_client(), 30.0 + 3.0)
        except KafkaError as error:
            if not may_end_a_member(error):
                self._world.anomaly(f"close of {self.name} raised {error!r}")
        await self.stop()

    async def die(self) -> None:
        """End like a killed process: nothing is committed, and the coordinator is not notified."""
        self.dead = True
        self.release(list(self._group.journal.owners))
        with suppress(KafkaError):
            await self.close_client(0.0)
        await self.stop()

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    # Work.

    async def work(self, record: Record[Any, Any]) -> None:
        """Process a record; it is done when this returns. Raises UserError if the member was asked to."""
        partition = TopicPartition(record.topic, record.partition)
        self._check_order(partition, record.offset)
        await asyncio.sleep(self._world.random.choice((0.0, 0.0, 0.02)) + self.slow)
        self.slow = 0.0
        if self.raises:
            raise UserError("the work on a record failed")
        if not self.dead:
            self._group.values.add(record.value)
            self._group.journal.note_done(partition, record.offset, asyncio.get_running_loop().time())

    def _check_order(self, partition: TopicPartition, offset: int) -> None:
        expected = self._next.get(partition)
        if expected is not None and offset != expected and not self.dead and not partition.topic.startswith(SCRATCH):
            self._world.anomaly(f"{self.name} received offset {offset} of {partition}, expected {expected}")
        self._next[partition] = offset + 1

    def restart_order(self, partitions: Sequence[TopicPartition]) -> None:
        """Note that reading begins again, at any offset."""
        for partition in partitions:
            self._next.pop(partition, None)
            self.restarted[partition] = None

    # Ownership.

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._world.check_owner(self._group, partition, self.name)
            self._group.journal.owners[partition] = self.name
        self.restart_order(partitions)

    def release(self, partitions: Sequence[TopicPartition]) -> None:
        owners = self._group.journal.owners
        for partition in partitions:
            if owners.get(partition) == self.name:
                del owners[partition]


class ConsumerMember(Member, RebalanceListener):
    """A member with a ``Consumer``."""

    consumer: Consumer[Any, Any]

    def make(self) -> None:
        plan = self._group.plan
        self.consumer = self._world.client(Consumer, topics=plan.topics, listener=self, **self._settings)
        self._count = 0
        self._is_unsubscribed = False

    @property
    def has_settled(self) -> bool:
        return self.consumer.membership is MemberState.STABLE

    async def close_client(self, timeout: float | None = None) -> None:
        await self.consumer.close(timeout)

    async def read(self) -> None:
        most = self._world.random.choice((1, 3, 500))
        async with self.consumer:
            while not self.is_leaving:
                try:
                    await (self._poll(most) if self._group.plan.reading == "poll" else self._iterate())
                except IllegalStateError:
                    if not self._is_unsubscribed and not self.is_leaving:
                        raise
                    await asyncio.sleep(0.2)

    async def _iterate(self) -> None:
        async for record in self.consumer:
            await self.work(record)
            await self._after(record)

    async def _poll(self, most: int) -> None:
        while True:
            records = await self._world.bounded("poll", self.consumer.poll(most, timeout=1.0), 1.0)
            self.restarted.clear()
            for record in records or ():
                # After a seek, or a new assignment, these records come again.
                if TopicPartition(record.topic, record.partition) not in self.restarted:
                    await self.work(record)
                    await self._after(record)

    async def _after(self, record: Record[Any, Any]) -> None:
        """Mark and commit as the group's plan says."""
        committing = self._group.plan.committing
        if committing in ("mark", "auto_mark"):
            self.consumer.mark(record)
        self._count += 1
        if committing in ("auto", "auto_mark") or self._count % 7 or self.dead:
            return
        partition = TopicPartition(record.topic, record.partition)
        offsets = {partition: OffsetAndMetadata(record.offset + 1)} if committing == "offsets" else None
        with suppress(KafkaTimeout):
            await self._world.bounded(f"commit of {self.name}", self.consumer.commit(offsets, timeout=5.0), 5.0)

    # What the user does beside reading.

    def pause(self, seconds: float) -> None:
        if self.consumer.assignment:
            partition = self.consumer.assignment[0]
            with suppress(IllegalStateError):  # closed meanwhile
                self.consumer.pause([partition])
            asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        with suppress(KafkaError):
            self.consumer.resume()

    def seek_back(self) -> None:
        for partition in self.consumer.assignment:
            expected = self._next.get(partition)
            if expected:
                target = max(0, expected - 4)
                with suppress(IllegalStateError):  # closed meanwhile
                    self.consumer.seek(partition, target)
                self.restart_order([partition])
                self._next[partition] = target

    async def unsubscribe(self, seconds: float) -> None:
        with suppress(IllegalStateError):  # not started yet, or closed meanwhile
            self.consumer.unsubscribe()
            self._is_unsubscribed = True
            await asyncio.sleep(seconds)
            self.consumer.subscribe(self._group.plan.topics)
        self._is_unsubscribed = False

    # The listener.

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.take(partitions)

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.release(partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.release(partitions)


class HandlerMember(Member, ConsumerGroupHandler[Any, Any]):
    """A member with a ``ConsumerGroup``: a task for each partition."""

    client: ConsumerGroup[Any, Any]

    def make(self) -> None:
        self.client = self._world.client(ConsumerGroup, **self._settings)
        self._sessions: dict[TopicPartition, ConsumerGroupSession] = {}

    def owns(self, partition: TopicPartition) -> bool:
        session = self._sessions.get(partition)
        return super().owns(partition) and session is not None and not session.cancelled

    async def close_client(self, timeout: float | None = None) -> None:
        await self.client.close(timeout)

    async def read(self) -> None:
        await self.client.consume(self._group.plan.topics, self)

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
        partition = claim.topic_partition
        self._sessions[partition] = session
        self.take([partition])
        try:
            await self._read(session, claim)
        except IllegalStateError:
            if not session.cancelled:
                raise  # else the session was lost during the work
        finally:
            if self._sessions[partition] is session:
                self.release([partition])

    async def _read(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
        count = 0
        async for record in claim:
            await self.work(record)
            if self.dead:  # a killed process neither marks nor commits
                continue
            session.mark(record)
            count += 1
            if count % 9 == 0:
                with suppress(KafkaTimeout):
                    await self._world.bounded(f"commit of {self.name}", session.commit(timeout=5.0), 5.0)


def may_end_a_member(error: KafkaError) -> bool:
    """Return two members of one instance id: the newer one fences the older one (KIP-345), or is refused (KIP-848)."""
    return getattr(error, "code", None) in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)

"""Execute the steps of a schedule on a world: faults of brokers, network, clocks, members and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any, Protocol

from aiokafka_lite import Admin, KafkaError, TopicPartition
from aiokafka_lite.admin import NewTopic, OffsetSpec
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, partition_of
from aiokafka_lite.embedded.faults import Fault
from aiokafka_lite.protocol import messages
from aiokafka_lite.testing.simulation.cluster_faults import ClusterFaults, FaultyWorld
from aiokafka_lite.testing.simulation.steps import Step
from tests.simulation.chain import Chain, Process
from tests.simulation.churn import Churn
from tests.simulation.group_members import ConsumerMember, Member, SimulatedGroup
from tests.simulation.share_members import ShareMember, SimulatedShareGroup
from tests.simulation.transactor import Transactor
from tests.simulation.workload import COPIES, FIXED, GROWING, LEDGER, SCRATCH, VOLATILE
from tests.simulation.writer import Writer

MOST_MEMBERS = 4
MOST_PARTITIONS = 4


class Surroundings(FaultyWorld, Protocol):
    """The parts of a world that faults use."""

    random: Random
    groups: list[SimulatedGroup]
    share_groups: list[SimulatedShareGroup]
    writers: list[Writer]
    transactor: Transactor | None
    chain: Chain
    churn: Churn

    def anomaly(self, text: str) -> None: ...

    def block_loop(self, seconds: float) -> None: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class Faults(ClusterFaults):
    """The faults of one world: those of the cluster, of its clients, and which admin calls run."""

    def __init__(self, world: Surroundings, admin: Admin) -> None:
        super().__init__(world, (FIXED, GROWING))
        self._world = world
        self._admin = admin
        self._calls: dict[asyncio.Task[Any], None] = {}
        self._slow_leaves: list[Fault] = []
        self._scratch: list[str] = []
        self._created = 0

    async def heal(self) -> None:
        """End all faults."""
        await super().heal()
        for fault in self._slow_leaves:  # the member may leave later, so a slow answer is not a fault here
            if not fault.hits:
                self._cluster.on(messages.LeaveGroupRequest).delay(fault.wait)

    async def _block_loop(self, step: Step) -> None:
        self._world.block_loop(step.amount)

    async def finish(self) -> None:
        """Wait until all calls have ended."""
        if self._calls:
            await asyncio.wait(list(self._calls))

    def coordinator_of(self, group_id: str) -> int:
        """Return the broker that coordinates a group now; -1 if none does."""
        topic = self._cluster.controller.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_of(group_id, len(topic.partitions))].leader

    async def _move_leader(self, step: Step) -> None:
        await self._move(FIXED, step.partition)
        await self._move(GROWING, 0)

    # Members.

    def _group(self, step: Step) -> SimulatedGroup | SimulatedShareGroup:
        return [*self._world.groups, *self._world.share_groups][step.node]

    def _member(self, step: Step) -> Member | ShareMember | None:
        running = self._group(step).running
        return running[0] if running else None

    async def _member_joins(self, step: Step) -> None:
        group = self._group(step)
        if len(group.running) < MOST_MEMBERS:
            group.start_member()

    async def _member_leaves(self, step: Step) -> None:
        if member := self._member(step):
            self._start_call(member.leave())

    async def _member_dies(self, step: Step) -> None:
        if member := self._member(step):
            await member.die()

    async def _member_raises(self, step: Step) -> None:
        if member := self._member(step):
            member.raises = True

    async def _member_cancelled(self, step: Step) -> None:
        if member := self._member(step):
            self._start_call(member.stop())

    async def _member_slow(self, step: Step) -> None:
        if member := self._member(step):
            member.slow = step.amount

    async def _member_isolated(self, step: Step) -> None:
        if member := self._member(step):
            network = self._world.network
            network.isolate(member.name)
            asyncio.get_running_loop().call_later(step.amount, network.rejoin, member.name)

    async def _member_overdue(self, step: Step) -> None:
        """Let a member exceed max_poll_interval, with a coordinator that is slow when it leaves the group."""
        if member := self._member(step):
            member.slow = 12.0
            self._slow_leaves.append(self._cluster.on(messages.LeaveGroupRequest).delay(step.amount))

    async def _member_pauses(self, step: Step) -> None:
        member = self._member(step)
        if isinstance(member, ConsumerMember):
            member.pause(step.amount)

    async def _member_seeks(self, step: Step) -> None:
        member = self._member(step)
        if isinstance(member, ConsumerMember):
            member.seek_back()

    async def _member_unsubscribes(self, step: Step) -> None:
        member = self._member(step)
        if isinstance(member, ConsumerMember):
            self._start_call(member.unsubscribe(step.amount))

    async def _read_cancelled(self, step: Step) -> None:
        member = self._member(step)
        if isinstance(member, ShareMember):
            member.cancels_reads = True

    async def _cancel_send(self, step: Step) -> None:
        for writer in self._world.writers:
            writer.cancel_some()

    # Transactions, which only some seeds have.

    async def _hold_markers(self, step: Step) -> None:
        self._hold(LEDGER, 0, step.amount)

    def _hold(self, topic: str, partition: int, seconds: float) -> None:
        markers = self._cluster.hold_markers(topic, partition)
        asyncio.get_running_loop().call_later(seconds, markers.release)

    async def _records_late(self, step: Step) -> None:
        """Abort a transaction before its records arrive."""
        if transactor := self._world.transactor:
            self._cluster.on(messages.ProduceRequest, topic=LEDGER, times=1).delay(step.amount)
            transactor.is_aborted = True

    async def _offsets_late(self, step: Step) -> None:
        """Abort a transaction before its offsets arrive: the caller does not wait for them."""
        if transactor := self._world.transactor:
            self._cluster.on(messages.TxnOffsetCommitRequest, times=1).delay(step.amount)
            transactor.offsets_timeout = 0.1

    async def _transaction_cancelled(self, step: Step) -> None:
        if transactor := self._world.transactor:
            transactor.cancel()

    async def _transaction_slow(self, step: Step) -> None:
        if transactor := self._world.transactor:
            transactor.slow = step.amount

    async def _producer_replaced(self, step: Step) -> None:
        if transactor := self._world.transactor:
            transactor.is_replaced = True

    # Chains of exactly-once workers, which only some seeds have.

    async def _hold_offset_markers(self, step: Step) -> None:
        """Keep the offsets of decided transactions open for a while."""
        topic = self._cluster.controller.topics.get(OFFSETS_TOPIC)
        for number in range(len(topic.partitions) if topic is not None else 0):
            self._hold(OFFSETS_TOPIC, number, step.amount)

    async def _hold_copy_markers(self, step: Step) -> None:
        self._hold(COPIES[step.node], 0, step.amount)

    async def _move_copies(self, step: Step) -> None:
        await self._move_all((LEDGER, *COPIES)[step.partition])

    def _process(self, step: Step) -> Process | None:
        """Return the process for a step. The worker is random, so that the steps of one stage hit different workers."""
        workers = self._world.chain.stages[step.node].workers
        return self._world.random.choice(workers).process

    async def _worker_killed(self, step: Step) -> None:
        if process := self._process(step):
            process.kill()

    async def _worker_cancelled(self, step: Step) -> None:
        if process := self._process(step):
            process.cancel()

    async def _worker_isolated(self, step: Step) -> None:
        if process := self._process(step):
            process.isolate(step.amount)

    async def _worker_slow(self, step: Step) -> None:
        if process := self._process(step):
            process.slow = step.amount

    async def _worker_raises(self, step: Step) -> None:
        if process := self._process(step):
            process.raises = True

    async def _worker_joins(self, step: Step) -> None:
        self._world.chain.stages[step.node].start_worker()

    # Volatile topics, which only some seeds have.

    async def _topic_created(self, step: Step) -> None:
        await self._world.churn.topics.create(VOLATILE[step.node], int(step.amount))

    async def _topic_deleted(self, step: Step) -> None:
        await self._world.churn.topics.delete(VOLATILE[step.node])

    async def _topic_grown(self, step: Step) -> None:
        await self._world.churn.topics.grow(VOLATILE[step.node])

    async def _topic_recreated(self, step: Step) -> None:
        await self._world.churn.topics.recreate(VOLATILE[step.node], int(step.amount))

    # Admin calls, which run while the next steps are done.

    async def _create_topic(self, step: Step) -> None:
        self._created += 1
        name = f"{SCRATCH}-{self._created}"
        self._scratch.append(name)
        self._start_call(self._admin.topics.create([NewTopic(name, partitions=2, replication_factor=3)]))

    async def _delete_topic(self, step: Step) -> None:
        if self._scratch:
            self._start_call(self._admin.topics.delete([self._scratch.pop(0)]))

    async def _add_partition(self, step: Step) -> None:
        count = len(self._cluster.controller.topics[GROWING].partitions)
        if count < MOST_PARTITIONS:
            self._start_call(self._admin.topics.add_partitions({GROWING: count + 1}))

    async def _delete_records(self, step: Step) -> None:
        if self._scratch:
            self._start_call(self._admin.records.delete({TopicPartition(self._scratch[-1], 0): None}))

    async def _look_around(self, step: Step) -> None:
        """Make calls that change nothing."""
        names = [group.plan.group_id for group in self._world.groups]
        shared = [group.plan.group_id for group in self._world.share_groups]
        for call in (
            lambda: self._admin.topics.list(),
            lambda: self._admin.topics.describe([FIXED, GROWING]),
            lambda: self._admin.offsets.list({TopicPartition(FIXED, 0): OffsetSpec.LATEST}),
            lambda: self._admin.groups.list(),
            lambda: self._admin.groups.describe(names),
            lambda: self._admin.groups.offsets(names),
            lambda: self._admin.groups.lag(names),
        ):
            self._start_call(call())
        if shared:
            self._start_call(self._admin.share_groups.describe(shared))
            self._start_call(self._admin.share_groups.offsets(shared))

    def _start_call(self, call: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(self._guard(call))
        self._calls[task] = None
        task.add_done_callback(lambda task: self._calls.pop(task, None))

    async def _guard(self, call: Awaitable[Any]) -> None:
        """Check that a call ends in time, with a result or with a KafkaError."""
        what = getattr(call, "__qualname__", repr(call))
        try:
            await self._world.bounded(what, call, 35.0)
        except KafkaError:
            pass
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._world.anomaly(f"{what} raised {error!r}, which is not a KafkaError")

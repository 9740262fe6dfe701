"""Execute the steps of a schedule on a world: faults of brokers, network, clocks, members and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any, Protocol

from aiokafka_lite import Admin, EmbeddedCluster, KafkaError, TopicPartition
from aiokafka_lite.admin import NewTopic, OffsetSpec
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, partition_of
from aiokafka_lite.embedded.coordinators.share.records import SHARE_STATE_TOPIC
from aiokafka_lite.embedded.coordinators.transactions.records import TRANSACTION_TOPIC
from aiokafka_lite.embedded.faults import Fault
from aiokafka_lite.embedded.metadata.controller import Refused
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages
from tests.simulation.chain import Chain, Process
from tests.simulation.churn import Churn
from tests.simulation.group_members import ConsumerMember, Member, SimulatedGroup
from tests.simulation.network import Network
from tests.simulation.schedule import NODES, Step
from tests.simulation.share_members import ShareMember, SimulatedShareGroup
from tests.simulation.transactor import Transactor
from tests.simulation.workload import COPIES, FIXED, GROWING, LEDGER, SCRATCH, VOLATILE
from tests.simulation.writer import Writer

MOST_MEMBERS = 4
MOST_PARTITIONS = 4
CUT_OFF_MEMORY = 10.0
"""Seconds after the end of a network cut. Until then, members may act on answers of the old coordinator."""


class Surroundings(Protocol):
    """The parts of a world that faults use."""

    random: Random
    clock_jump: float
    cluster: EmbeddedCluster
    network: Network
    groups: list[SimulatedGroup]
    share_groups: list[SimulatedShareGroup]
    writers: list[Writer]
    transactor: Transactor | None
    chain: Chain
    churn: Churn

    def anomaly(self, text: str) -> None: ...

    def block_loop(self, seconds: float) -> None: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class Faults:
    """The faults of one world: which brokers are down, frozen or cut off, and which admin calls run."""

    def __init__(self, world: Surroundings, admin: Admin) -> None:
        self.killed_at: list[float] = []
        self._world = world
        self._cluster = world.cluster
        self._admin = admin
        self._down: dict[int, None] = {}
        self._frozen: dict[int, None] = {}
        self._cut_off: dict[int, float] = {}
        self._calls: dict[asyncio.Task[Any], None] = {}
        self._slow_leaves: list[Fault] = []
        self._scratch: list[str] = []
        self._created = 0

    async def do(self, step: Step) -> None:
        """Do one step."""
        await getattr(self, f"_{step.kind}")(step)

    async def heal(self) -> None:
        """End all faults."""
        self._cluster.faults.clear()
        for fault in self._slow_leaves:  # the member may leave later, so a slow answer is not a fault here
            if not fault.hits:
                self._cluster.on(messages.LeaveGroupRequest).delay(fault.wait)
        self._world.network.heal()
        await self._start(Step(0.0, "start"))
        await self._thaw(Step(0.0, "thaw"))
        await self._heal_network(Step(0.0, "heal_network"))
        for node in NODES:
            self._cluster.skew_clock(node, 0.0)

    async def finish(self) -> None:
        """Wait until all calls have ended."""
        if self._calls:
            await asyncio.wait(list(self._calls))

    def was_cut_off(self, node: int) -> bool:
        """Return whether a broker is cut off from the cluster, or was cut off until recently."""
        now = asyncio.get_running_loop().time()
        return node in self._cut_off and self._cut_off[node] + CUT_OFF_MEMORY > now

    def coordinator_of(self, group_id: str) -> int:
        """Return the broker that coordinates a group now; -1 if none does."""
        topic = self._cluster.controller.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_of(group_id, len(topic.partitions))].leader

    # Requests and connections.

    async def _request(self, step: Step) -> None:
        request = getattr(messages, f"{step.request}Request")
        fault = self._cluster.on(request, times=1 if step.amount == 1.0 else 2)
        match step.fault:
            case "truncate":
                fault.truncate(int(step.amount))
            case "delay":
                fault.delay(step.amount / 3)
            case "disconnect" | "apply_then_disconnect" | "drop":
                getattr(fault, step.fault)()
            case code:
                fault.fail(ErrorCode[code])

    async def _cut_connections(self, step: Step) -> None:
        self._world.network.cut(self._cluster.nodes[step.node].port, int(step.amount))

    async def _repeat_answer(self, step: Step) -> None:
        self._world.network.repeat_answer(self._cluster.nodes[step.node].port)

    async def _latency(self, step: Step) -> None:
        self._world.network.set_latency(self._cluster.nodes[step.node].port, step.amount)

    # Brokers.

    @property
    def _all_run(self) -> bool:
        return not self._down and not self._frozen

    async def _kill(self, step: Step) -> None:
        if self._all_run:
            self._down[step.node] = None
            self.killed_at.append(asyncio.get_running_loop().time())
            await self._cluster.kill(step.node, noticed_after=1.0)

    async def _start(self, step: Step) -> None:
        for node in list(self._down):
            del self._down[node]
            await self._cluster.start_node(node)

    async def _freeze(self, step: Step) -> None:
        if self._all_run:
            self._frozen[step.node] = None
            await self._cluster.freeze(step.node)

    async def _thaw(self, step: Step) -> None:
        for node in list(self._frozen):
            del self._frozen[node]
            await self._cluster.thaw(node)

    async def _move_leader(self, step: Step) -> None:
        await self._move(FIXED, step.partition)
        await self._move(GROWING, 0)

    async def _move_coordinator(self, step: Step) -> None:
        await self._move_all(OFFSETS_TOPIC)

    async def _move_share_coordinator(self, step: Step) -> None:
        await self._move_all(SHARE_STATE_TOPIC)

    async def _move_transaction_coordinator(self, step: Step) -> None:
        await self._move_all(TRANSACTION_TOPIC)

    async def _move_all(self, name: str) -> None:
        topic = self._cluster.controller.topics.get(name)
        for number in range(len(topic.partitions) if topic is not None else 0):
            await self._move(name, number)

    async def _move(self, topic: str, partition: int) -> None:
        try:
            await self._cluster.move_leader(topic, partition)
        except Refused as refused:
            if refused.code is not ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:  # no live replica is in sync
                raise

    async def _shrink_isr(self, step: Step) -> None:
        state = self._cluster.state_of(FIXED, step.partition)
        if state.leader > 0:
            others = [node for node in state.isr if node != state.leader]
            await self._cluster.set_isr(FIXED, step.partition, [state.leader, *others[:1]])

    async def _cut_network(self, step: Step) -> None:
        if self._all_run:
            await self._cluster.partition_network([step.node])
            self._end_cuts()  # this cut replaces the one before it
            self._cut_off[step.node] = float("inf")

    async def _heal_network(self, step: Step) -> None:
        await self._cluster.heal_network()
        self._end_cuts()

    def _end_cuts(self) -> None:
        now = asyncio.get_running_loop().time()
        self._cut_off = {node: min(until, now) for node, until in self._cut_off.items()}

    # Clocks.

    async def _skew_clock(self, step: Step) -> None:
        self._cluster.skew_clock(step.node, step.amount)

    async def _jump_clock(self, step: Step) -> None:
        self._world.clock_jump += step.amount

    async def _block_loop(self, step: Step) -> None:
        self._world.block_loop(step.amount)

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

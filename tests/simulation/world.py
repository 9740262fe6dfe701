"""A cluster of three brokers, a producer and three consumer groups on virtual time, and a check of their history.

``simulate(seed, steps)`` runs the workload while the steps go wrong, heals the cluster, waits until the groups have
processed everything, and returns the broken promises with a hash of all requests.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokafka_lite import (
    Admin,
    Consumer,
    EmbeddedCluster,
    ErrorCode,
    KafkaError,
    Producer,
    RebalanceHandle,
    RebalanceListener,
    TopicPartition,
)
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.aio import virtual_time
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.group import MemberState
from aiokafka_lite.protocol import messages
from tests.embedded.producer.logs import values_of
from tests.simulation.schedule import NODES, PARTITIONS, Step, schedule

TOPIC = "orders"
OFFSETS_TOPIC = "__consumer_offsets"
RECORDS = 150
HEAL_TIMEOUT = 600.0
GRACE = 5.0
"""Seconds of virtual time that a call may take beyond its own deadline: it has to clean up, too."""

GROUPS: tuple[dict[str, Any], ...] = (
    {"group_id": "eager", "strategies": ["range"]},
    {"group_id": "cooperative", "strategies": ["cooperative-sticky"]},
    {"group_id": "static", "strategies": ["cooperative-sticky"]},
)


@dataclass(slots=True)
class Result:
    """The broken promises of a run, and the hash of all requests and their times."""

    anomalies: list[str]
    trace: str


def simulate(seed: int, steps: Sequence[Step] | None = None) -> Result:
    """Run one seed in virtual time. Without ``steps`` it has the schedule of its seed."""
    return virtual_time.run(_World(seed, schedule(seed) if steps is None else steps).run(), seed=seed)


@dataclass(eq=False)
class _Group:
    """The members of one group, and what the group has processed: the offsets by partition."""

    settings: dict[str, Any]
    members: list[_Member] = field(default_factory=list)
    started: int = 0
    owners: dict[TopicPartition, _Member] = field(default_factory=dict)
    processed: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))


class _Member(RebalanceListener):
    """A member that processes one record after the other. It notes a record after its work is done."""

    def __init__(self, world: _World, group: _Group, number: int) -> None:
        self._world = world
        self._group = group
        self.name = f"{group.settings['group_id']}-{number}"
        used = {member.instance_id for member in group.members if not member.task.done()}
        free = [name for name in ("static-1", "static-2", "static-3") if name not in used]
        self.instance_id = free[0] if group.settings["group_id"] == "static" else None
        static = {} if self.instance_id is None else {"group_instance_id": self.instance_id}
        self.slow = 0.0
        self.dead = False
        self.consumer = world.client(
            Consumer,
            topics=[TOPIC],
            client_id=self.name,
            listener=self,
            session_timeout=6.0,
            heartbeat_interval=1.0,
            max_poll_interval=10.0,
            auto_commit_interval=1.0,
            **group.settings,
            **static,
        )
        self.task = asyncio.create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        try:
            async with self.consumer:
                async for record in self.consumer:
                    await asyncio.sleep(self._world.random.choice((0.0, 0.0, 0.02)) + self.slow)
                    self.slow = 0.0
                    if not self.dead:
                        self._group.processed[record.partition].add(record.offset)
        except KafkaError as error:
            if not self.dead and not _may_end_a_member(error):
                self._world.anomaly(f"{self.name} ended with {error!r}")

    async def leave(self) -> None:
        try:
            await self._world.bounded(f"close of {self.name}", self.consumer.close(), 30.0 + 3.0)
        except KafkaError as error:
            if not _may_end_a_member(error):
                self._world.anomaly(f"close of {self.name} raised {error!r}")
        await self._end()

    async def die(self) -> None:
        """End like a killed process: nothing is committed, and the coordinator is not notified."""
        self.dead = True
        self._world.cut(self.name)
        for partition in [each for each, owner in self._group.owners.items() if owner is self]:
            del self._group.owners[partition]
        with suppress(KafkaError):
            await self.consumer.close(timeout=0.0)
        await self._end()

    async def _end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            owner = self._group.owners.get(partition)
            stable = owner is not None and owner.consumer.membership is MemberState.STABLE
            if owner not in (None, self) and stable and not self.dead and not self._world.split_brain:
                self._world.anomaly(f"{self.name} was assigned {partition} while {owner.name} owned it")
            self._group.owners[partition] = self

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._release(partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self._release(partitions)

    def _release(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            if self._group.owners.get(partition) is self:
                del self._group.owners[partition]


def _may_end_a_member(error: KafkaError) -> bool:
    # Two members of one instance id: the newer one fences the older one (KIP-345).
    return getattr(error, "code", None) is ErrorCode.FENCED_INSTANCE_ID


class _World:
    def __init__(self, seed: int, steps: Sequence[Step]) -> None:
        self.random = Random(seed ^ 0x5EED)
        self._seed = seed
        self._steps = steps
        self._anomalies: list[str] = []
        self._groups = [_Group(settings) for settings in GROUPS]
        self._sends: dict[int, list[tuple[bytes, bool]]] = {number: [] for number in range(PARTITIONS)}
        self._sending: set[asyncio.Task[Any]] = set()
        self._down: set[int] = set()
        self._frozen: set[int] = set()
        self._dead: set[str] = set()
        self._created = 0
        # Two members may own a partition for a while, in Kafka as well: if a coordinator that is cut off from other
        # brokers still answers heartbeats, if a member's loop is blocked for longer than its session, and if a member
        # of a cooperative group waits for the answer to JoinGroup. Commits of the old owner are refused.
        self.split_brain = any(step.kind in ("cut_network", "block_loop") for step in steps)

    def anomaly(self, text: str) -> None:
        self._anomalies.append(f"{asyncio.get_running_loop().time():.3f} s: {text}")

    def cut(self, client_id: str) -> None:
        self._dead.add(client_id)

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any:
        if kind is Producer:
            settings["clock"] = asyncio.get_running_loop().time
        return kind(
            self.cluster.bootstrap_servers,
            connector=self.cluster.connector,
            request_timeout=3.0,
            api_timeout=20.0,
            **settings,
        )

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any:
        """Await a call. It is an anomaly if the call does not end by its own deadline of ``seconds``."""
        try:
            async with asyncio.timeout(seconds + GRACE) as scope:
                return await call
        except TimeoutError:
            if not scope.expired():
                raise
            self.anomaly(f"{what} did not end within {seconds:g} s")
        return None

    async def run(self) -> Result:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        config = ClusterConfig(broker_session_timeout=3.0, history_limit=1_000_000, wall_clock=asyncio.get_running_loop().time)
        async with EmbeddedCluster(brokers=3, tcp=False, seed=self._seed, config=config) as self.cluster:
            await self.cluster.create_topic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            async with self.client(Admin) as self._admin:
                await self._live()
            trace = self._trace()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self._anomalies += [f"a task is left behind: {task!r}" for task in left]
        gc.collect()
        await asyncio.sleep(0)
        self._anomalies += [f"an error that no code handled: {complaint}" for complaint in complaints]
        return Result(self._anomalies, trace)

    async def _live(self) -> None:
        for group in self._groups:
            self._add_member(group)
            self._add_member(group)
        idempotent = self.random.random() < 0.8
        producer = self.client(
            Producer,
            idempotence=idempotent,
            linger=self.random.choice((0.0, 0.02)),
            batch_size=self.random.choice((200, 5_000)),
            delivery_timeout=self.random.choice((6.0, 30.0, 120.0)),
            random=self.random.random,
        )
        async with producer:
            writing = asyncio.create_task(self._write(producer))
            for step in self._steps:
                await asyncio.sleep(step.after)
                await getattr(self, f"_{step.kind}")(step)
            self.cluster.faults.clear()
            await self._heal()
            await writing
            await self.bounded("flush", producer.flush(130.0), 130.0)
            if self._sending:
                await self.bounded("sends", asyncio.wait(self._sending), 130.0)
        await self.cluster.until_in_sync(TOPIC, 120.0)
        logs = {number: values_of(self.cluster, TOPIC, number) for number in range(PARTITIONS)}
        self._check_log(logs, idempotent)
        await self._wait_for_groups(logs)
        await self._check_commits()
        for group in self._groups:
            for member in group.members:
                await member.leave()

    async def _write(self, producer: Producer) -> None:
        """Write unique, increasing values to each partition at changing speed."""
        for number in range(RECORDS):
            task = asyncio.create_task(self._send(producer, number % PARTITIONS, b"%06d" % number))
            self._sending.add(task)
            await asyncio.sleep(self.random.choice((0.0, 0.01, 0.1, 0.5)))

    async def _send(self, producer: Producer, partition: int, value: bytes) -> None:
        sent = len(self._sends[partition])
        self._sends[partition].append((value, False))
        with suppress(KafkaError):
            await self.bounded(f"send of {value!r}", producer.send(TOPIC, value, partition=partition), 180.0)
            self._sends[partition][sent] = (value, True)

    def _add_member(self, group: _Group) -> None:
        """Start one more member. The number only names it."""
        group.started += 1
        group.members.append(_Member(self, group, group.started))

    # Checks.

    def _check_log(self, logs: dict[int, list[bytes | None]], idempotent: bool) -> None:
        for partition, log in logs.items():
            sent = [value for value, _ in self._sends[partition]]
            if set(log) - set(sent):
                self.anomaly(f"partition {partition} has values that were never sent: {set(log) - set(sent)}")
            twice = [value for value, count in Counter(log).items() if count > 1]
            if twice and idempotent:
                self.anomaly(f"partition {partition} has duplicates: {twice}")
            first = list(dict.fromkeys(log))
            if first != sorted(first):  # type: ignore[type-var]
                self.anomaly(f"partition {partition} is out of order: {first}")
            for value, acknowledged in self._sends[partition]:
                if acknowledged and value not in log:
                    self.anomaly(f"acknowledged {value!r} is not in partition {partition}")

    async def _wait_for_groups(self, logs: dict[int, list[bytes | None]]) -> None:
        for group in self._groups:
            while not [member for member in group.members if not member.task.done()]:
                self._add_member(group)
                await asyncio.sleep(1.0)

        def missing(group: _Group) -> dict[int, list[int]]:
            return {
                number: gaps
                for number, log in logs.items()
                if (gaps := [offset for offset in range(len(log)) if offset not in group.processed[number]])
            }

        deadline = asyncio.get_running_loop().time() + HEAL_TIMEOUT
        while any(missing(group) for group in self._groups) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(1.0)
        for group in self._groups:
            if gaps := missing(group):
                self.anomaly(f"group {group.settings['group_id']} never processed {gaps}")

    async def _check_commits(self) -> None:
        """Committed means processed: no offset below a commit may be unprocessed."""
        await asyncio.sleep(3.0)
        for group in self._groups:
            name = group.settings["group_id"]
            committed = await self.bounded(f"offsets of {name}", self._admin.groups.offsets(name), 20.0)
            for partition, offset in ({} if committed is None else committed[name]).items():
                unprocessed = set(range(offset.offset)) - group.processed[partition.partition]
                if unprocessed:
                    self.anomaly(f"group {name} committed {partition} up to {offset.offset} without {unprocessed}")

    def _trace(self) -> str:
        trace = hashlib.sha256()
        for each in self.cluster.history:
            trace.update(f"{each.at:.6f} {each.node_id} {each.client_id} {type(each.request).__name__}\n".encode())
        return trace.hexdigest()

    # Steps.

    async def _request(self, step: Step) -> None:
        request = getattr(messages, f"{step.request}Request")
        fault = self.cluster.on(request, times=2)
        match step.fault:
            case "truncate":
                fault.truncate(int(step.amount))
            case "delay":
                fault.delay(step.amount / 3)
            case "disconnect" | "apply_then_disconnect" | "drop":
                getattr(fault, step.fault)()
            case code:
                fault.fail(ErrorCode[code])

    async def _kill(self, step: Step) -> None:
        if not self._down and not self._frozen:
            self._down.add(step.node)
            await self.cluster.kill(step.node, noticed_after=1.0)

    async def _start(self, step: Step) -> None:
        while self._down:
            await self.cluster.start_node(self._down.pop())

    async def _freeze(self, step: Step) -> None:
        if not self._down and not self._frozen:
            self._frozen.add(step.node)
            await self.cluster.freeze(step.node)

    async def _thaw(self, step: Step) -> None:
        while self._frozen:
            await self.cluster.thaw(self._frozen.pop())

    async def _move_leader(self, step: Step) -> None:
        await self.cluster.move_leader(TOPIC, step.partition)

    async def _move_coordinator(self, step: Step) -> None:
        topic = self.cluster.controller.topics.get(OFFSETS_TOPIC)
        for number in range(len(topic.partitions) if topic is not None else 0):
            await self.cluster.move_leader(OFFSETS_TOPIC, number)

    async def _shrink_isr(self, step: Step) -> None:
        state = self.cluster.state_of(TOPIC, step.partition)
        if state.leader > 0:
            others = [node for node in state.isr if node != state.leader]
            await self.cluster.set_isr(TOPIC, step.partition, [state.leader, *others[:1]])

    async def _cut_network(self, step: Step) -> None:
        if not self._down and not self._frozen:
            await self.cluster.partition_network([step.node])

    async def _heal_network(self, step: Step) -> None:
        await self.cluster.heal_network()

    async def _skew_clock(self, step: Step) -> None:
        self.cluster.skew_clock(step.node, step.amount)

    async def _member_joins(self, step: Step) -> None:
        group = self._groups[step.node]
        # Three at most: a fourth static member would take over an instance id that is in use.
        if len([member for member in group.members if not member.task.done()]) < 3:
            self._add_member(group)

    async def _member_leaves(self, step: Step) -> None:
        if members := self._groups[step.node].members:
            await members.pop(0).leave()

    async def _member_dies(self, step: Step) -> None:
        if members := self._groups[step.node].members:
            await members.pop(0).die()

    async def _slow_member(self, step: Step) -> None:
        if members := self._groups[step.node].members:
            members[-1].slow = step.amount

    async def _block_loop(self, step: Step) -> None:
        """Hold the loop: time passes, and no task runs."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualTimeLoop)
        loop.now += step.amount

    async def _cancel_send(self, step: Step) -> None:
        for task in list(self._sending)[-3:]:
            task.cancel()

    async def _create_topic(self, step: Step) -> None:
        self._created += 1
        with suppress(KafkaError):
            topic = NewTopic(f"created-{self._created}", partitions=1, replication_factor=1)
            await self.bounded("topic creation", self._admin.topics.create([topic]), 20.0)

    async def _heal(self) -> None:
        await self._start(Step(0.0, "start"))
        await self._thaw(Step(0.0, "thaw"))
        await self.cluster.heal_network()
        for node in NODES:
            self.cluster.skew_clock(node, 0.0)

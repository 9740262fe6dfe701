"""Three brokers, producers, groups and share groups on virtual time, with faults, and a check of what happened.

``simulate(seed, steps)`` runs the workload with the faults of the steps and then ends all faults. It waits until the
groups have processed everything, and returns the broken promises with a hash of all requests.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import re
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokafka_lite import Admin, EmbeddedCluster, KafkaError, TopicPartition
from aiokafka_lite.aio import virtual_time
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.testing.simulation.network import Network
from aiokafka_lite.testing.simulation.steps import Step
from tests.embedded.producer.producers_and_logs import values_of
from tests.simulation.chain import Chain
from tests.simulation.churn import Churn
from tests.simulation.event_journal import EventJournal
from tests.simulation.faults import Faults
from tests.simulation.group_members import SimulatedGroup
from tests.simulation.journal import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    commit_anomalies,
    log_anomalies,
    may_share,
    may_share_assigned,
    rate_anomalies,
)
from tests.simulation.schedule import PARTITIONS, schedule
from tests.simulation.share_groups import Sharing
from tests.simulation.transactor import Transactor
from tests.simulation.workload import FIXED, GROWING, LEDGER, LEDGER_PARTITIONS, VOLATILE, Workload, workload
from tests.simulation.writer import Writer

HEAL_TIMEOUT = 600.0
SETTLE_TIMEOUT = 60
"""Seconds until all members are in their groups, after the end of all faults and of the work."""
GRACE = 5.0
"""Seconds of virtual time that a call may take beyond its own deadline: it has to clean up, too."""
API_TIMEOUT = 20.0
EPOCH = 1_700_000_000.0
"""The time of day at which a simulation begins."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(slots=True)
class Result:
    """The broken promises of a run, the hash of all requests and their times, and the seconds of virtual time."""

    anomalies: list[str]
    trace: str
    seconds: float
    exchanges: list[str] = field(default_factory=list)
    """The lines of the requests from which the hash is computed, if they were requested."""


def simulate(seed: int, steps: Sequence[Step] | None = None, *, with_exchanges: bool = False) -> Result:
    """Run one seed in virtual time. Without ``steps`` it has the schedule of its seed."""
    world = World(seed, schedule(seed) if steps is None else steps, workload(seed), with_exchanges=with_exchanges)
    with _complaints() as complaints:
        result = virtual_time.run(world.run(), seed=seed, ticks=True)
        clients, world = [client for client, _ in world.clients], None  # type: ignore[assignment]
        gc.collect()
        result.anomalies += [f"{client()!r} is still in memory" for client in clients if client() is not None]
    result.anomalies += complaints
    return result


class World:
    """The cluster, its clients, and their history."""

    def __init__(self, seed: int, steps: Sequence[Step], plan: Workload, *, with_exchanges: bool) -> None:
        self.random = Random(seed ^ 0x5EED)
        self.clock_jump = 0.0
        self.blocked = 0.0
        self.clients: list[tuple[weakref.ref[Any], EventJournal]] = []
        self._seed = seed
        self._steps = steps
        self._plan = plan
        self._with_exchanges = with_exchanges
        self._anomalies: list[str] = []
        self._bounds: dict[asyncio.Timeout, None] = {}

    # What the parts of the world use.

    def anomaly(self, text: str) -> None:
        self._anomalies.append(f"{asyncio.get_running_loop().time():.3f} s: {text}")

    def wall_clock(self) -> float:
        return EPOCH + asyncio.get_running_loop().time() + self.clock_jump

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any:
        name = settings.get("client_id", kind.__name__)
        journal = EventJournal(lambda text: self.anomaly(f"{name}: {text}"))
        member = kind(
            self.cluster.bootstrap_servers,
            connector=self.network.connector_of(name),
            request_timeout=3.0,
            api_timeout=API_TIMEOUT,
            on_event=journal,
            **settings,
        )
        self.clients.append((weakref.ref(member), journal))
        return member

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that can be written to."""
        return [
            TopicPartition(topic, number)
            for topic in (FIXED, GROWING)
            for number in range(len(self.cluster.controller.topics[topic].partitions))
        ]

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any:
        """Await a call. It is an anomaly if the call does not end by its own deadline of ``seconds``."""
        scope = asyncio.timeout(seconds + GRACE)
        self._bounds[scope] = None
        try:
            async with scope:
                return await call
        except TimeoutError:
            if not scope.expired():
                raise
            self.anomaly(f"{what} did not end within {seconds:g} s")
        finally:
            del self._bounds[scope]
        return None

    def block_loop(self, seconds: float) -> None:
        """Block the loop: time passes, and no task runs. The time limits of the calls do not include this time."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualTimeLoop)
        loop.now += seconds
        self.blocked += seconds
        for scope in self._bounds:
            when = scope.when()
            if when is not None and not scope.expired():
                scope.reschedule(when + seconds)

    def check_owner(self, group: SimulatedGroup, partition: TopicPartition, new: str) -> None:
        """Note the assignment of a partition to a member. Check that no other member owns it, except as ``may_share``
        allows."""
        if partition.topic in VOLATILE:
            return  # the members may own partitions of two topics of this name, one of them deleted
        owner = group.journal.owners.get(partition)
        member = None if owner in (None, new) else group.find(owner)
        if member is None or not member.owns(partition):
            return
        coordinator = self.faults.coordinator_of(group.plan.group_id)
        now = asyncio.get_running_loop().time()
        exchanges = list(self.cluster.history)
        names, cut_off = (member.name, new), self.faults.was_cut_off
        if member.protocol == "consumer":
            there = self._by_id(partition)
            is_legal = may_share_assigned(*names, there, now, exchanges, coordinator, cut_off=cut_off)
        else:
            is_legal = may_share(*names, now, exchanges, coordinator, cut_off=cut_off, blocked=self.blocked)
        if not is_legal:
            self.anomaly(f"{new} was assigned {partition} while {member.name} owned it")

    def _by_id(self, partition: TopicPartition) -> tuple[bytes, int]:
        topic = self.cluster.controller.topics.get(partition.topic)
        return (b"" if topic is None else topic.topic_id), partition.partition

    # The run.

    async def run(self) -> Result:
        loop = asyncio.get_running_loop()
        complaints: list[str] = []
        loop.set_exception_handler(lambda _, context: complaints.append(_ADDRESS.sub("", str(context))))
        config = ClusterConfig(broker_session_timeout=3.0, history_limit=1_000_000, wall_clock=self.wall_clock)
        transactions = self._plan.transactions
        configs = {
            "group.consumer.session.timeout.ms": str(int(SESSION_TIMEOUT * 1000)),
            "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_INTERVAL * 1000)),
        }
        if transactions is not None and not transactions.is_verified:
            configs["transaction.partition.verification.enable"] = "false"
        cluster = EmbeddedCluster(brokers=3, tcp=False, seed=self._seed, config=config, configs=configs)
        async with cluster as self.cluster:
            assert self.cluster.connector is not None
            self.network = Network(self.cluster.connector)
            await self.cluster.create_topic(FIXED, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            await self.cluster.create_topic(GROWING, 1, 3, configs={"min.insync.replicas": "2"})
            if transactions is not None:
                self.cluster.set_feature("transaction.version", transactions.generation)
                await self.cluster.create_topic(LEDGER, LEDGER_PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            await self._live()
            if self.network.open_links:
                await asyncio.sleep(1.0)
            if self.network.open_links:
                self.anomaly(f"{self.network.open_links} connections are open after all clients are closed")
            for _, journal in self.clients:
                journal.end()
            exchanges = [
                f"{exchange.at:.6f} {exchange.node_id} {exchange.client_id} v{exchange.version} {exchange.size} "
                f"{_ADDRESS.sub('', repr(exchange.request))}"
                for exchange in self.cluster.history
            ]
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        self._anomalies += [f"a task is left behind: {task!r}" for task in tasks]
        gc.collect()
        await asyncio.sleep(0)
        self._anomalies += [f"an error that no code handled: {complaint}" for complaint in complaints]
        trace = hashlib.sha256("\n".join(exchanges).encode()).hexdigest()[:16]
        seconds = loop.time()
        self.__dict__.update(cluster=None, groups=(), writers=(), faults=None, network=None, transactor=None)
        self.__dict__.update(share_groups=(), _sharing=None, chain=None, churn=None)
        return Result(self._anomalies, trace, seconds, exchanges if self._with_exchanges else [])

    async def _live(self) -> None:
        self.groups = [SimulatedGroup(self, plan) for plan in self._plan.groups]
        self._sharing = Sharing(self, self.cluster, self._plan.share_groups)
        self.share_groups = self._sharing.groups
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(self.client(Admin, metadata_max_age=10.0))
            self.writers = [Writer(self, plan) for plan in self._plan.writers]
            self.transactor = None if self._plan.transactions is None else Transactor(self, self._plan.transactions)
            self.chain = Chain(self, self._plan.chain)
            self.churn = Churn(self, self._plan.churn)
            stack.push_async_callback(self.churn.close)
            await self.churn.start()
            self.faults = Faults(self, admin)
            await self._sharing.start(admin)
            for group in self.groups:
                group.start_member()
                group.start_member()
            for writer in self.writers:
                await stack.enter_async_context(writer.producer)
            if self.transactor is not None:
                await self.transactor.start()
                stack.push_async_callback(self.transactor.close)
            stack.push_async_callback(self.chain.close)
            await self.chain.start()
            async with asyncio.TaskGroup() as writing:
                if self.transactor is not None:
                    writing.create_task(self.transactor.run())
                for run in self.churn.runs():
                    writing.create_task(run())
                for writer in self.writers:
                    writing.create_task(writer.run())
                for step in self._steps:
                    await asyncio.sleep(step.after)
                    await self.faults.do(step)
                await self.faults.heal()
            for writer in self.writers:
                await writer.finish()
            for topic in (FIXED, GROWING):
                await self.cluster.until_in_sync(topic, 120.0)
            for writer in self.writers:
                await writer.probe()
            if self.transactor is not None:
                await self.cluster.until_in_sync(LEDGER, 120.0)
                await self.transactor.finish()
            await self.chain.finish(HEAL_TIMEOUT)
            await self.faults.finish()
            await self.churn.finish()
            logs = {
                partition: values_of(self.cluster, partition.topic, partition.partition)
                for partition in self.partitions()
            }
            for writer in self.writers:
                for anomaly in log_anomalies(writer.plan, writer.history, logs):
                    self.anomaly(anomaly)
            await self._wait_for_groups(logs)
            await self._sharing.finish(admin, logs, HEAL_TIMEOUT)
            await asyncio.sleep(3.0)
            self._check_history(logs)
            self._sharing.check(logs, self.faults.killed_at)
            for group in self.groups:
                for member in group.members:
                    await member.leave()

    async def _wait_for_groups(self, logs: dict[TopicPartition, list[bytes | None]]) -> None:
        """Wait until each group has processed all records of its topics."""
        expected = {
            group: {
                partition: log
                for partition, log in logs.items()
                if not group.plan.reads_all or partition.topic in group.plan.topics  # type: ignore[operator]
            }
            for group in self.groups
        }
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HEAL_TIMEOUT
        while any(group.journal.missing(expected[group]) for group in self.groups) and loop.time() < deadline:
            for group in self.groups:
                if not group.running:
                    group.start_member()
            await asyncio.sleep(1.0)
        for group in self.groups:
            if gaps := group.journal.missing(expected[group]):
                self.anomaly(f"group {group.plan.group_id} never processed {gaps}")
        await self._wait_for_members()

    async def _wait_for_members(self) -> None:
        """Wait until every member is in its group. Outside, it would read nothing while others do its work."""
        for _ in range(SETTLE_TIMEOUT):
            outside = [member for group in self.groups for member in group.running if not member.has_settled]
            if not outside:
                return
            await asyncio.sleep(1.0)
        for member in outside:
            self.anomaly(f"{member.name} is still outside its group")

    def _check_history(self, logs: dict[TopicPartition, list[bytes | None]]) -> None:
        exchanges = list(self.cluster.history)
        topics = {bytes(topic.topic_id): name for name, topic in self.cluster.controller.topics.items()}
        for anomaly in rate_anomalies(exchanges):
            self.anomaly(anomaly)
        for group in self.groups:
            for anomaly in commit_anomalies(group.journal, exchanges, topics, logs):
                self.anomaly(anomaly)


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect warnings of Python, and logged exceptions of the package that are not KafkaErrors."""
    complaints: list[str] = []
    collector = _Collector(complaints)
    package = logging.getLogger("aiokafka_lite")
    before = package.level, package.propagate
    package.setLevel(logging.ERROR)
    package.propagate = False
    package.addHandler(collector)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield complaints
            gc.collect()
        complaints += [f"a warning: {warning.message}" for warning in caught]
    finally:
        package.removeHandler(collector)
        package.level, package.propagate = before


class _Collector(logging.Handler):
    def __init__(self, complaints: list[str]) -> None:
        super().__init__()
        self._found = complaints

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, KafkaError | ValueError):
            self._found.append(f"logged: {record.getMessage()}: {error!r}")

"""One run of a service: the cluster, its instances, the workload, the steps of a schedule, and what happened."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from ...aio import virtual_time
from ...arguments import must_be
from ...embedded import ClusterConfig, EmbeddedCluster
from ...embedded.coordinators.transactions.transaction import TransactionState
from ...embedded.metadata.controller import Refused
from ...errors import ConfigurationError
from ...protocol.connection import garbage_collection_paused
from .blocking import current_process
from .checks import Broken, Check
from .database import Database
from .effects import EffectFaults
from .history import Event, History
from .network import Network
from .process import Instance, Process, track_tasks
from .real_io import SimulationLoop, virtual_machine
from .requests import RequestLog
from .service_faults import MOST_INSTANCES_MORE, ServiceFaults, describe
from .steps import Step
from .workload import Workload, messages_of
from .writing import WorkloadWriter

EPOCH = 1_700_000_000.0
"""The time of day at which a simulation begins."""
SETTLE_TIMEOUT = 400.0
"""Seconds after the end of all faults in which the service has to process everything. A client notices a new partition
after its ``metadata_max_age``, which is 300 s by default."""
STOP_TIMEOUT = 60.0
"""Seconds after SIGTERM until a process is killed."""
QUIET = 2.0
"""Seconds for which the service runs on after everything is processed, so that it can do too much."""
FETCH_PATIENCE = 4.0
"""A fetch without records waits for 2 s instead of 0.5 s, which is a fifth of the time of a run."""
PARTITIONS = 3
RESTARTS = (0.1, 1.0, 5.0)
"""Seconds between the end of a process and the start of the next one with its number."""

CONFIGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What every seed of a simulation has in common."""

    service: Callable[[Instance], Any]
    workload: Workload
    checks: Sequence[Check]
    instances: int
    seconds: float
    kinds: Sequence[str]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run: what is broken, the history, the requests and their hash, the seconds of virtual time."""

    broken: Broken | None
    history: History
    requests: RequestLog
    trace: str
    seconds: float


def run(plan: Plan, seed: int, steps: Sequence[Step]) -> Run:
    """Run a service with the steps of a schedule, in virtual time."""
    world = World(plan, seed, steps)
    with _quiet(), garbage_collection_paused():  # 5 % of a run's time
        return virtual_time.run(world.run(), seed=seed, loop=SimulationLoop)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep log lines of the clients and of the cluster out of the output of the test: faults make many.

    The errors that clients log are lines of the timeline. Warnings of clients and coroutines that a killed process
    could not end are dropped, too.
    """
    package = logging.getLogger("aiokafka_lite")
    before = package.level, package.propagate
    package.setLevel(logging.ERROR)
    package.propagate = False
    package.addHandler(_TIMELINE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
    finally:
        package.removeHandler(_TIMELINE)
        package.setLevel(before[0])
        package.propagate = before[1]


class _Timeline(logging.Handler):
    """Adds what a process logs to the timeline."""

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process.get()
        if process is not None:
            process.note(f"logs: {record.getMessage():.200}")


_TIMELINE = _Timeline(logging.ERROR)


class World:
    """The cluster, the instances and their history."""

    def __init__(self, plan: Plan, seed: int, steps: Sequence[Step]) -> None:
        self.clock_jump = 0.0
        self.effect_faults = EffectFaults(Random(seed ^ 0xEFFEC7))
        self.history = History()
        self.database = Database(self.history, self.effect_faults)
        self._random = Random(seed ^ 0x5EED)
        self._plan = plan
        self._seed = seed
        self._steps = steps
        self._messages = messages_of(plan.workload, Random(seed ^ 0x3147))
        self._processes: list[Process] = []
        self._current: dict[int, Process] = {}
        self._background: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._faults_begun = False

    # What faults use.

    def block(self, process: Process, seconds: float) -> None:
        """Let time pass in which no task of a process runs. The others continue."""
        self._loop.block(process, seconds)

    def process(self, number: int) -> Process | None:
        """Return the running process of an instance; None if it is down."""
        process = self._current.get(number)
        return process if process is not None and process.is_running else None

    def stop_soon(self, process: Process) -> None:
        """Send SIGTERM to a process, without waiting for its end."""
        if not process.stopping.is_set():
            self._spawn(process.stop(STOP_TIMEOUT))

    def add_instance(self) -> None:
        """Start one more instance, up to a limit."""
        if len(self._current) < self._plan.instances + MOST_INSTANCES_MORE:
            self._start_instance(len(self._current) + 1)

    @property
    def _loop(self) -> SimulationLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        return loop

    def _spawn(self, call: Any) -> None:
        self._background.append(asyncio.get_running_loop().create_task(call))

    # The run.

    def _wall_clock(self) -> float:
        return EPOCH + asyncio.get_running_loop().time() + self.clock_jump

    async def run(self) -> Run:
        loop = self._loop
        loop.set_task_factory(track_tasks)
        loop.set_exception_handler(lambda _, context: self._complain(context))
        config = ClusterConfig(
            broker_session_timeout=3.0,
            fetch_patience=FETCH_PATIENCE,
            history_limit=1_000_000,
            wall_clock=self._wall_clock,
        )
        with virtual_machine(loop, lambda: EPOCH + loop.now + self.clock_jump):
            cluster = EmbeddedCluster(brokers=3, tcp=False, seed=self._seed, config=config, configs=CONFIGS)
            async with cluster as self.cluster:
                assert cluster.connector is not None
                self.network = Network(cluster.connector, self._newest_connection)
                topics = list(dict.fromkeys(message.topic for message in self._messages))
                for topic in topics:
                    await cluster.create_topic(topic, PARTITIONS, 3)
                await self._live(ServiceFaults(self, topics))
                requests = self._read_cluster()
            for process in self._processes:
                await process.clear()
                if process.refused:
                    self.history.errors.insert(0, process.refused[0])
        gc.collect(0)
        return Run(self._judge(), self.history, requests, self._trace(requests), loop.time())

    async def _live(self, faults: ServiceFaults) -> None:
        loop = asyncio.get_running_loop()
        for number in range(1, self._plan.instances + 1):
            self._start_instance(number)
        writer = WorkloadWriter(self.cluster, self.history, self._random)
        writing = loop.create_task(writer.write(self._messages, self._plan.seconds))
        begun = loop.time()
        due = begun
        for step in self._steps:
            due += step.after
            await asyncio.sleep(max(0.0, due - loop.time()))
            self.history.events.append(Event(loop.time(), describe(step)))
            self._faults_begun = True
            await faults.do(step)
        await asyncio.sleep(max(0.0, begun + self._plan.seconds - loop.time()))
        await faults.heal()
        await writing
        over = max(self._loop.last_block_ends_at(), faults.recovered_at())
        await asyncio.sleep(max(0.0, over - loop.time()))
        await self._settle()
        self._over.set()
        running = [process for process in self._current.values() if process.is_running]
        await asyncio.gather(*(process.stop(STOP_TIMEOUT) for process in running if not process.stopping.is_set()))
        await asyncio.wait(self._background, timeout=STOP_TIMEOUT + 5.0)
        self._note_open_transactions([process.name for process in running if not process.is_dead])

    def _note_open_transactions(self, processes: Sequence[str]) -> None:
        """Note the transactions that these processes have left open, although no fault hindered their end."""
        transactions = [transaction for node in self.cluster.nodes.values() for transaction in node.transactions.all()]
        producers = self._requests().producers() if transactions else {}
        for transaction in transactions:
            process = producers.get(transaction.transactional_id)
            if transaction.state is TransactionState.ONGOING and process in processes:
                text = f"{process} left a transaction of {transaction.transactional_id!r} open"
                self.history.left_behind.append(text)

    async def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_TIMEOUT
        pending = [check.pending for check in self._plan.checks if hasattr(check, "pending")]
        while loop.time() < deadline:
            self._read_outputs()
            if not any(is_pending(self.history) for is_pending in pending):
                break
            await asyncio.sleep(1.0)
        await asyncio.sleep(QUIET)

    def _start_instance(self, number: int) -> None:
        self._start_process(number, 1)
        self._spawn(self._supervise(number))

    def _start_process(self, number: int, start: int) -> None:
        name = f"instance {number}" if start == 1 else f"instance {number} (start {start})"
        process = Process(name, number, self.history, self.network, self.effect_faults, self.database)
        self._processes.append(process)
        self._current[number] = process
        process.start(self._plan.service, self.cluster.bootstrap_servers)

    async def _supervise(self, number: int) -> None:
        """Start the next process of an instance when one has ended, as production does."""
        start = 1
        while True:
            process = self._current[number]
            await process.ended.wait()
            if not process.stopping.is_set():  # a stop looks at first at what was left behind
                process.exit()
            if process.failure and not self._faults_begun and not process.stopping.is_set():
                self.history.errors.append(f"{process.failure}, although no fault has happened")
            if self._over.is_set():
                return
            await asyncio.sleep(self._random.choice(RESTARTS))
            if self._over.is_set():
                return
            start += 1
            self._start_process(number, start)

    def _complain(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.history.errors.append(f"{context.get('message')}: {error!r}")

    # What happened.

    def _read_outputs(self) -> None:
        own = {message.topic for message in self._messages}
        for topic in self.cluster.controller.topics:
            if topic not in own and not topic.startswith("__"):
                try:
                    self.history.outputs[topic] = self.cluster.records(topic)
                except Refused:  # a partition has no leader yet
                    continue

    def _newest_connection(self) -> int:
        numbers = (next(reversed(node.clients.connections), None) for node in self.cluster.nodes.values())
        return max((connection.connection_id for connection in numbers if connection is not None), default=0)

    def _requests(self) -> RequestLog:
        topics = {bytes(topic.topic_id): name for name, topic in self.cluster.controller.topics.items()}
        return RequestLog(list(self.cluster.history), topics, self.network.clients)

    def _read_cluster(self) -> RequestLog:
        """Read outputs, commits and rows. Returns the requests."""
        self._read_outputs()
        requests = self._requests()
        self.history.tables = self.database.tables
        self.history.commits = list(requests.commits())
        if any(self.history.outputs.values()):
            self.history.appended = requests.appends()
        return requests

    def _trace(self, requests: RequestLog) -> str:
        """Return the hash of everything that happened."""
        lines = requests.trace()
        lines += [f"{effect.at:.6f} {effect.process} {effect.name} {effect.id}" for effect in self.history.effects]
        lines += [f"{change.at:.6f} {change.process} {change.table} {change.key}" for change in self.history.rows]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def _judge(self) -> Broken | None:
        """Return the first broken check."""
        for check in self._plan.checks:
            result: object = check(self.history)
            if isinstance(result, Broken):
                return result
            if isinstance(result, str | None):
                if result:
                    return Broken(result)
                continue
            name = getattr(check, "__qualname__", repr(check))
            wrong = must_be(f"the result of the check {name}", "a sentence, a Broken or None", result)
            hint = f"; call {name}() to make a check" if callable(result) else ""
            raise ConfigurationError(wrong + hint)
        return None

"""A chain of exactly-once workers: each stage is a group that copies one topic to the next, in transactions.

A worker has one transactional id and many processes, one after the other. A process that is killed does nothing more:
its connections close, it aborts nothing and leaves no group. The next process of the worker has the same id.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol

from aiokafka_lite import (
    Consumer,
    EmbeddedCluster,
    ExactlyOnce,
    KafkaError,
    Producer,
    Record,
    TopicPartition,
)
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, OffsetCommitValue, offset_key
from aiokafka_lite.protocol.codec import decode_versioned
from aiokafka_lite.testing.simulation.network import Network
from tests.simulation.chain_journal import Log, StageJournal, stable_offsets, stage_anomalies
from tests.simulation.group_members import CLASSIC_TIMES, UserError
from tests.simulation.workload import LEDGER_PARTITIONS, StagePlan

MOST_WORKERS = 4
PAUSES = (0.0, 0.1, 2.0, 15.0)
"""Seconds between the end of a worker's process and the start of the next. The last value is longer than a session."""
STOP_TIMEOUT = 90.0
"""The longest time, in seconds, in which a worker stops without faults: a poll, then the calls of a commit."""


class Surroundings(Protocol):
    """What a chain needs of the world."""

    random: Random
    cluster: EmbeddedCluster
    network: Network

    def anomaly(self, text: str) -> None: ...

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any: ...

    def wall_clock(self) -> float: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class Chain:
    """The stages of a world, and a reader of all copies."""

    def __init__(self, world: Surroundings, plans: tuple[StagePlan, ...]) -> None:
        self.stages = [Stage(world, plan) for plan in plans]
        self._world = world
        self._reads: defaultdict[TopicPartition, list[tuple[float, bytes]]] = defaultdict(list)
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if not self.stages:
            return
        for stage in self.stages:
            await self._world.cluster.create_topic(
                stage.plan.target, LEDGER_PARTITIONS, 3, configs={"min.insync.replicas": "2"}
            )
        for stage in self.stages:
            for _ in range(stage.plan.workers):
                stage.start_worker()
        self._reading = asyncio.create_task(self._read(), name="read the copies")

    async def finish(self, timeout: float) -> None:
        """Wait, with all faults ended, until the last copy is complete, stop all workers, and check what they did."""
        if not self.stages:
            return
        loop = asyncio.get_running_loop()
        first, last = self.stages[0].plan.source, self.stages[-1].plan.target
        deadline = loop.time() + timeout
        while self._count(last) < self._count(first) and loop.time() < deadline:
            await asyncio.sleep(1.0)
        workers = [worker for stage in self.stages for worker in stage.workers]
        await asyncio.gather(*(worker.stop() for worker in workers))
        while (self._seen_of(last) < self._count(last) or self._lags()) and loop.time() < deadline:
            await asyncio.sleep(1.0)  # markers may still be in flight, also the markers of the offsets
        await self._check()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for stage in self.stages:
            for worker in stage.workers:
                await worker.close()

    async def _check(self) -> None:
        answers = stable_offsets(self._world.cluster)
        for stage in self.stages:
            plan = stage.plan
            target = self._logs(plan.target)
            for anomaly in stage_anomalies(
                stage.journal,
                self._logs(plan.source),
                target,
                [read for number in target for read in self._reads[TopicPartition(plan.target, number)]],
                answers,
                self._committed(plan),
            ):
                self._world.anomaly(f"{plan}: {anomaly}")
            for number, log in target.items():
                seen = [value for _, value in self._reads[TopicPartition(plan.target, number)]]
                if seen != [value for _, value in log]:
                    self._world.anomaly(f"the reader of {plan.target}-{number} saw {seen}, committed is {log}")

    def _logs(self, topic: str) -> dict[int, Log]:
        """Return the committed records of each partition."""
        return {
            number: [(record.offset, bytes(record.value)) for record in self._world.cluster.records(topic, number)]
            for number in range(LEDGER_PARTITIONS)
        }

    def _lags(self) -> bool:
        """Return whether the committed offset of a stage is before the end of its source."""
        return any(
            log and self._committed(stage.plan).get(number, 0) <= log[-1][0]
            for stage in self.stages
            for number, log in self._logs(stage.plan.source).items()
        )

    def _count(self, topic: str) -> int:
        return len(self._world.cluster.records(topic))

    def _seen_of(self, topic: str) -> int:
        return sum(len(self._reads[TopicPartition(topic, number)]) for number in range(LEDGER_PARTITIONS))

    def _committed(self, plan: StagePlan) -> dict[int, int]:
        """Return the last committed offset of each partition of the source."""
        keys = {offset_key(plan.group_id, plan.source, number): number for number in range(LEDGER_PARTITIONS)}
        return {
            keys[record.key]: decode_versioned(OffsetCommitValue, record.value)[0].offset
            for record in self._world.cluster.records(OFFSETS_TOPIC)
            if record.key in keys and record.value
        }

    async def _read(self) -> None:
        reader: Consumer[Any, Any] = self._world.client(Consumer, client_id="reader-copies", metadata_max_age=10.0)
        async with reader:
            targets = [stage.plan.target for stage in self.stages]
            reader.assign([TopicPartition(topic, number) for topic in targets for number in range(LEDGER_PARTITIONS)])
            async for record in reader:
                place = TopicPartition(record.topic, record.partition)
                self._reads[place].append((asyncio.get_running_loop().time(), bytes(record.value)))


class Stage:
    """One group of the chain."""

    def __init__(self, world: Surroundings, plan: StagePlan) -> None:
        self.plan = plan
        self.journal = StageJournal(plan.group_id, plan.source, plan.target)
        self.workers: list[Worker] = []
        self._world = world

    def start_worker(self) -> None:
        """Start one more worker, up to a limit."""
        if len(self.workers) < MOST_WORKERS:
            self.workers.append(Worker(self._world, self, len(self.workers) + 1))


class Worker:
    """One transactional id, and its processes."""

    def __init__(self, world: Surroundings, stage: Stage, number: int) -> None:
        self.name = f"{stage.plan.group_id}-worker-{number}"
        self._world = world
        self._stage = stage
        self._started = 0
        self._is_stopped = False
        self._dying: dict[asyncio.Task[None], None] = {}
        self._process = self._next_process()
        self._running = asyncio.create_task(self._run(), name=self.name)

    @property
    def process(self) -> Process | None:
        """The process that runs now."""
        return None if self._process.has_ended.is_set() else self._process

    def _next_process(self) -> Process:
        self._started += 1
        process = Process(self._world, self._stage, self.name, self._started)
        self._dying[process.task] = None
        process.task.add_done_callback(lambda task: self._dying.pop(task, None))
        return process

    async def _run(self) -> None:
        while True:
            await self._process.has_ended.wait()
            if self._is_stopped:
                return
            await asyncio.sleep(self._world.random.choice(PAUSES))
            if self._is_stopped:
                return
            self._process = self._next_process()

    async def stop(self) -> None:
        """Stop after the current batch, and wait for the end of all processes."""
        self._is_stopped = True
        self._process.session.stop()
        await self._world.bounded(f"the end of {self.name}", self._wait_ended(), STOP_TIMEOUT)

    async def _wait_ended(self) -> None:
        while self._dying:
            await asyncio.wait(list(self._dying))

    async def close(self) -> None:
        """End everything at once, if a failed run did not come to ``stop``."""
        self._is_stopped = True
        self._running.cancel()
        for task in list(self._dying):
            task.cancel()
        await asyncio.wait([self._running, *self._dying])


class Process:
    """One process of a worker, with clients of its own. ``has_ended`` is set when the next one may start."""

    def __init__(self, world: Surroundings, stage: Stage, worker: str, number: int) -> None:
        plan = stage.plan
        self.name = f"{worker}-{number}"
        self.slow = 0.0
        self.raises = False
        self.has_ended = asyncio.Event()
        self._world = world
        self._stage = stage
        self._is_dead = False
        protocol = world.random.choice(plan.protocols)
        reading = dict(plan.reading) if protocol == "classic" else {}
        self._clients = (f"{self.name}-consumer", f"{self.name}-producer")
        self._consumer: Consumer[Any, Any] = world.client(
            Consumer,
            client_id=self._clients[0],
            topics=[plan.source],
            group_id=plan.group_id,
            group_protocol=protocol,
            group_instance_id=worker if plan.is_static else None,
            auto_commit=False,
            metadata_max_age=10.0,
            max_poll_interval=60.0,
            **reading,
            **(CLASSIC_TIMES if protocol == "classic" else {}),
        )
        self._producer: Producer[Any, Any] = world.client(
            Producer,
            client_id=self._clients[1],
            clock=world.wall_clock,
            random=world.random.random,
            metadata_max_age=10.0,
            transactional_id=worker,
            **plan.writing,
        )
        self.session = ExactlyOnce(self._consumer, self._producer, **plan.session)
        self.task = asyncio.create_task(self._run(), name=self.name)
        # Not at the end of ``_run``: a task that is cancelled before its first step runs nothing.
        self.task.add_done_callback(lambda _: self.has_ended.set())

    # What faults do.

    def kill(self) -> None:
        """End as a killed process does."""
        self._is_dead = True
        for client in self._clients:
            self._world.network.kill(client)
        self.has_ended.set()
        self.task.cancel()

    def cancel(self) -> None:
        self.task.cancel()

    def isolate(self, seconds: float) -> None:
        """Hold all bytes of this process for some seconds, then deliver them."""
        network = self._world.network
        for client in self._clients:
            network.isolate(client)
            asyncio.get_running_loop().call_later(seconds, network.rejoin, client)

    # What the process does.

    async def _run(self) -> None:
        try:
            await self._consumer.start()
            await self._producer.start()
            await self._copy()
        except KafkaError:
            pass  # it ends the process, and the worker starts the next one
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._anomaly(f"ended with {error!r}, which is not a KafkaError")
        finally:
            await self._close()

    async def _copy(self) -> None:
        """Copy until the session is stopped. After an error in the loop's body, the same records are returned again."""
        while True:
            try:
                async for records in self.session:
                    await self._copy_batch(records)
                    self._note_done(records)
            except UserError:
                continue
            return

    async def _copy_batch(self, records: list[Record[Any, Any]]) -> None:
        random = self._world.random
        for record in records:
            self._producer.send_nowait(self._stage.plan.target, record.value, partition=record.partition)
            if random.random() < 0.1:
                await asyncio.sleep(random.choice((0.0, 0.01)))
        slow, self.slow = self.slow, 0.0
        await asyncio.sleep(slow + random.choice((0.0, 0.02, 0.2)))
        if self.raises:
            self.raises = False
            raise UserError("the work on a batch failed")

    def _note_done(self, records: list[Record[Any, Any]]) -> None:
        now = asyncio.get_running_loop().time()
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            self._stage.journal.note_done(place, record.offset, bytes(record.value), now)

    async def _close(self) -> None:
        try:
            await self._close_client(self._consumer)
        finally:  # a process that is killed while it closes its consumer
            await self._close_client(self._producer)

    async def _close_client(self, client: Consumer[Any, Any] | Producer[Any, Any]) -> None:
        try:
            await client.close(0.0 if self._is_dead else None)
        except KafkaError:
            pass  # the error that ended it
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            self._anomaly(f"close of {client!r} raised {error!r}, which is not a KafkaError")

    def _anomaly(self, text: str) -> None:
        if not self._is_dead:
            self._world.anomaly(f"{self.name} {text}")

"""The faults of a simulation of a service: their kinds, a schedule from a seed, and how a step reads in a report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from ...arguments import must_be, plural
from ...embedded.metadata.controller import Refused
from ...errors import ConfigurationError, ErrorCode
from ...protocol import messages
from .cluster_faults import ClusterFaults, FaultyWorld
from .database import Database
from .effects import EffectFaults, FaultAtWork
from .history import Outcome
from .process import Process
from .steps import CODES, NODES, Step

FAULTS: dict[str, tuple[str, ...]] = {
    "connections": ("cut_connections", "latency", "repeat_answer", "instance_isolated"),
    "requests": ("request", "refused", "throttled"),
    "brokers": ("kill", "freeze", "cut_network", "shrink_isr"),
    "leaders": ("move_leader", "move_coordinator", "move_transaction_coordinator", "move_share_coordinator"),
    "partitions": ("add_partition",),
    "instances": ("instance_killed", "instance_stopped", "instance_joins"),
    "effects": ("effect_slow", "effect_fails", "effect_unknown", "effects_down"),
    "database": ("database_restarts",),
    "loop": ("instance_blocked",),
    "clock": ("jump_clock", "skew_clock"),
}
"""The groups of faults, each with its kinds. All are on by default."""

_WEIGHTS = {"request": 4, "instance_killed": 4, "instance_stopped": 2, "effect_slow": 2, "effect_fails": 2,
            "effect_unknown": 2, "move_leader": 2, "cut_connections": 2, "kill": 2}  # fmt: skip

_REQUESTS = (
    "Produce", "Fetch", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat",
    "OffsetCommit", "OffsetFetch", "ListOffsets", "InitProducerId", "TxnOffsetCommit", "EndTxn", "ShareFetch",
)  # fmt: skip
_REFUSALS = (
    ("Fetch", "TOPIC_AUTHORIZATION_FAILED"), ("OffsetCommit", "GROUP_AUTHORIZATION_FAILED"),
    ("Produce", "NOT_ENOUGH_REPLICAS"), ("Produce", "TOPIC_AUTHORIZATION_FAILED"),
)  # fmt: skip
_OUTAGES = ("effects_down", "database_restarts")
OUTLASTS_A_STOP = 40.0
"""Seconds of an outage in which an instance is stopped as well. It has to end before the outage is over."""
_STOPPED_AFTER = (2.0, 5.0, 8.0)
"""Seconds from the beginning of such an outage to SIGTERM."""

_AT_WORK = ("instance_killed", "instance_blocked")
"""The faults of an instance of which half wait for its work. At another time, it mostly waits for records."""
MOST_WORK = 8
"""Steps of its work that such an instance does before."""
PAUSED_AT_WORK = 0.3
"""The share of schedules in which any instance is blocked at its work, in addition to their other faults."""
PAUSES = (12.0, 50.0)
"""Seconds of that pause: longer than the lease of a lock, or also than the session of a member of a group."""

_AMOUNTS = {
    "cut_connections": (0.0, 1.0, 40.0, 200.0, 1000.0),
    "latency": (0.02, 0.3, 2.0),
    "instance_isolated": (1.0, 5.0, 15.0),
    "throttled": (0.5, 2.0),
    "database_restarts": (0.1, 3.0, OUTLASTS_A_STOP),
    "effect_slow": (0.2, 2.0, 12.0),
    "effects_down": (1.0, 10.0, OUTLASTS_A_STOP, OUTLASTS_A_STOP),
    "instance_blocked": (0.3, 5.0, 50.0),
    "jump_clock": (-3600.0, 3600.0),
    "skew_clock": (-3600.0, 3600.0),
}
MOST_INSTANCES_MORE = 1
"""Instances that faults start in addition to those of the test."""
MOST_PARTITIONS = 6


def kinds_of(faults: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of faults of groups and kinds. Raises ConfigurationError for an unknown name."""
    kinds: dict[str, None] = {}
    every = {kind for group in FAULTS.values() for kind in group}
    for name in [faults] if isinstance(faults, str) else faults:
        if name not in FAULTS and name not in every:
            raise ConfigurationError(must_be("faults", f"names of {', '.join(FAULTS)}, or their kinds", name))
        kinds.update(dict.fromkeys(FAULTS.get(name, (name,))))
    return tuple(kinds)


def schedule(random: Random, kinds: Sequence[str], seconds: float, instances: int) -> list[Step]:
    """Return the steps of a seed, over the first ``seconds``. A broken broker heals after some time."""
    if not kinds:
        return []
    weights = [_WEIGHTS.get(kind, 1) for kind in kinds]
    steps: list[tuple[float, Step]] = []
    for _ in range(random.randrange(2, 12)):
        at = round(random.uniform(0.0, seconds), 3)
        step = _step(random, random.choices(kinds, weights)[0], instances)
        steps.append((at, step))
        if end := {"kill": "start", "freeze": "thaw", "cut_network": "heal_network"}.get(step.kind):
            steps.append((round(at + random.choice((0.5, 3.0, 8.0)), 3), Step(0.0, end)))
        if step.kind in _OUTAGES and step.amount == OUTLASTS_A_STOP and "instance_stopped" in kinds:
            stop = _step(random, "instance_stopped", instances)
            steps.append((round(at + random.choice(_STOPPED_AFTER), 3), stop))
    steps = [(at, _at_work(random, step) if step.kind in _AT_WORK else step) for at, step in steps]
    if "instance_blocked" in kinds and random.random() < PAUSED_AT_WORK:
        steps.append((round(random.uniform(0.0, seconds), 3), _pause(random)))
    steps.sort(key=lambda entry: entry[0])
    before, timed = 0.0, []
    for at, step in steps:
        timed.append(replace(step, after=round(at - before, 3)))
        before = at
    return timed


def _at_work(random: Random, step: Step) -> Step:
    return replace(step, nth=random.choice((0, random.randint(1, MOST_WORK))))


def _pause(random: Random) -> Step:
    return Step(0.0, "instance_blocked", amount=random.choice(PAUSES), nth=random.randint(1, MOST_WORK))


def _step(random: Random, kind: str, instances: int) -> Step:
    node = random.randrange(instances) + 1 if kind.startswith("instance") else random.choice(NODES)
    amount = random.choice(_AMOUNTS.get(kind, (0.0,)))
    request, fault = "", ""
    if kind == "request":
        request = random.choice(_REQUESTS)
        fault = random.choice(("disconnect", "apply_then_disconnect", "truncate", "delay", "drop", *CODES[request]))
        amount = random.choice((0.0, 1.0, 7.0))
    elif kind in ("refused", "throttled"):
        request, refusal = random.choice(_REFUSALS)
        fault = refusal if kind == "refused" else ""
    return Step(0.0, kind, node, random.randrange(MOST_PARTITIONS), request, fault, amount)


_TEXTS = {
    "cut_connections": "the connections of broker {node} are cut after {amount:g} more bytes",
    "latency": "the connections of broker {node} take {amount:g} s for each answer",
    "repeat_answer": "broker {node} sends its next answers twice",
    "instance_isolated": "instance {node} has no network for {amount:g} s",
    "request": "{request}: {fault}",
    "refused": "{request} is refused with {fault}",
    "throttled": "{request} is throttled for {amount:g} s",
    "kill": "broker {node} is killed",
    "start": "the killed broker starts",
    "freeze": "broker {node} is frozen",
    "thaw": "the frozen broker continues",
    "cut_network": "broker {node} is cut off from the other brokers",
    "heal_network": "the brokers reach one another again",
    "shrink_isr": "replicas of partition {partition} fall out of sync",
    "move_leader": "leaders of partition {partition} move",
    "move_coordinator": "the coordinators of groups move",
    "move_transaction_coordinator": "the coordinators of transactions move",
    "move_share_coordinator": "the coordinators of share groups move",
    "add_partition": "the topics get one more partition",
    "instance_killed": "instance {node} is killed",
    "instance_stopped": "instance {node} receives SIGTERM",
    "instance_joins": "one more instance starts",
    "effect_slow": "the next effect takes {amount:g} s",
    "effect_fails": "the next effect fails",
    "effect_unknown": "the next effect happens, and its answer is lost",
    "effects_down": "no effect can happen for {amount:g} s",
    "database_restarts": "the database is down for {amount:g} s",
    "instance_blocked": "the event loop of instance {node} is blocked for {amount:g} s",
    "jump_clock": "the time of day jumps by {amount:g} s",
    "skew_clock": "the clock of broker {node} is {amount:g} s off",
}  # fmt: skip


def describe(step: Step) -> str:
    """Return what a step does, in words."""
    text = _TEXTS[step.kind].format(
        node=step.node, partition=step.partition, request=step.request, fault=step.fault, amount=step.amount
    )
    if not step.nth:
        return text
    later = f"{plural(step.nth, 'step')} of its work later"
    return f"{text}, {later}" if step.node else text.replace("instance 0", "an instance") + f", {later}"


class ServiceWorld(FaultyWorld, Protocol):
    """The parts of a world that faults of a service use."""

    database: Database
    effect_faults: EffectFaults

    def block(self, process: Process, seconds: float) -> None: ...

    def process(self, number: int) -> Process | None: ...

    def stop_soon(self, process: Process) -> None: ...

    def add_instance(self) -> None: ...


class ServiceFaults(ClusterFaults):
    """The faults of a service and its cluster."""

    def __init__(self, world: ServiceWorld, topics: Sequence[str]) -> None:
        super().__init__(world, topics)
        self._world = world

    async def heal(self) -> None:
        """End all faults. An outage of effects or of the database ends by itself (``recovered_at``)."""
        await super().heal()
        self._world.effect_faults.clear()

    def recovered_at(self) -> float:
        """Return the loop's time at which effects can happen and the database runs."""
        return max(self._world.effect_faults.down_until, self._world.database.down_until)

    async def _refused(self, step: Step) -> None:
        self._cluster.on(getattr(messages, f"{step.request}Request"), times=2).fail(ErrorCode[step.fault])

    async def _throttled(self, step: Step) -> None:
        def throttle(response: Any) -> Any:
            response.throttle_time_ms = int(step.amount * 1000)
            return response

        self._cluster.on(getattr(messages, f"{step.request}Request"), times=2).alter(throttle)

    async def _add_partition(self, step: Step) -> None:
        for topic in self.topics:
            count = len(self._cluster.controller.require(topic).partitions)
            if count < MOST_PARTITIONS:
                with suppress(Refused):  # too few brokers run
                    self._cluster.controller.create_partitions(topic, count + 1, None)

    async def _instance_killed(self, step: Step) -> None:
        self._hit(step, self._kill_instance)

    async def _instance_stopped(self, step: Step) -> None:
        if process := self._world.process(step.node):
            self._world.stop_soon(process)

    async def _instance_isolated(self, step: Step) -> None:
        if process := self._world.process(step.node):
            self._network.isolate(process.name)
            asyncio.get_running_loop().call_later(step.amount, self._network.rejoin, process.name)

    async def _instance_blocked(self, step: Step) -> None:
        self._hit(step, lambda number, place: self._block_instance(number, step, place))

    def _hit(self, step: Step, fault: Callable[[int, str], None]) -> None:
        """Do a fault of an instance, now or at its work."""
        if step.nth:
            self._world.effect_faults.at_work.append(FaultAtWork(step.nth, step.node, fault))
        else:
            fault(step.node, "")

    def _kill_instance(self, number: int, place: str) -> None:
        if process := self._world.process(number):
            process.kill(place)

    def _block_instance(self, number: int, step: Step, place: str) -> None:
        process = self._world.process(number)
        if process is not None and not process.stopping.is_set():
            if place:
                process.note(f"is blocked for {step.amount:g} s {place}")
            self._world.block(process, step.amount)

    async def _instance_joins(self, step: Step) -> None:
        self._world.add_instance()

    async def _database_restarts(self, step: Step) -> None:
        self._world.database.restart(step.amount)

    async def _effect_slow(self, step: Step) -> None:
        self._world.effect_faults.slow.append(step.amount)

    async def _effect_fails(self, step: Step) -> None:
        self._world.effect_faults.failing.append(Outcome.FAILED)

    async def _effect_unknown(self, step: Step) -> None:
        self._world.effect_faults.failing.append(Outcome.UNKNOWN)

    async def _effects_down(self, step: Step) -> None:
        self._world.effect_faults.take_down(step.amount)

"""Execute the steps of a schedule that concern a cluster: its requests, connections, brokers, leaders and clocks.

The faults of services (``service_faults``) and those of the project's own clients build on these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ...embedded import EmbeddedCluster
from ...embedded.coordinators.groups.records import OFFSETS_TOPIC
from ...embedded.coordinators.share.records import SHARE_STATE_TOPIC
from ...embedded.coordinators.transactions.records import TRANSACTION_TOPIC
from ...embedded.metadata.controller import Refused
from ...errors import ErrorCode
from ...protocol import messages
from .network import Network
from .steps import NODES, Step

CUT_OFF_MEMORY = 10.0
"""Seconds after the end of a network cut. Until then, members may act on answers of the old coordinator."""


class FaultyWorld(Protocol):
    """The parts of a world that faults of a cluster use."""

    clock_jump: float
    cluster: EmbeddedCluster
    network: Network


class ClusterFaults:
    """The faults of one cluster: which brokers are down, frozen or cut off.

    ``topics`` are the topics whose leaders move. Each method ``_<kind>`` does the steps of that kind.
    """

    def __init__(self, world: FaultyWorld, topics: Sequence[str]) -> None:
        self.killed_at: list[float] = []
        self.topics = topics
        self._cluster = world.cluster
        self._network = world.network
        self._surroundings = world
        self._down: dict[int, None] = {}
        self._frozen: dict[int, None] = {}
        self._cut_off: dict[int, float] = {}

    async def do(self, step: Step) -> None:
        """Do one step."""
        await getattr(self, f"_{step.kind}")(step)

    async def heal(self) -> None:
        """End all faults."""
        self._cluster.faults.clear()
        self._network.heal()
        await self._start(Step(0.0, "start"))
        await self._thaw(Step(0.0, "thaw"))
        await self._heal_network(Step(0.0, "heal_network"))
        for node in NODES:
            self._cluster.skew_clock(node, 0.0)

    def was_cut_off(self, node: int) -> bool:
        """Return whether a broker is cut off from the cluster, or was cut off until recently."""
        now = asyncio.get_running_loop().time()
        return node in self._cut_off and self._cut_off[node] + CUT_OFF_MEMORY > now

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
        self._network.cut(self._cluster.nodes[step.node].port, int(step.amount))

    async def _repeat_answer(self, step: Step) -> None:
        self._network.repeat_answer(self._cluster.nodes[step.node].port)

    async def _latency(self, step: Step) -> None:
        self._network.set_latency(self._cluster.nodes[step.node].port, step.amount)

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
        for topic in self.topics:
            partitions = len(self._cluster.controller.require(topic).partitions)
            await self._move(topic, step.partition % partitions)

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
        topic = self.topics[0]
        partitions = len(self._cluster.controller.require(topic).partitions)
        partition = step.partition % partitions
        state = self._cluster.state_of(topic, partition)
        if state.leader > 0:
            others = [node for node in state.isr if node != state.leader]
            await self._cluster.set_isr(topic, partition, [state.leader, *others[:1]])

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
        self._surroundings.clock_jump += step.amount

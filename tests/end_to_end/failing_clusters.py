"""Clusters of three nodes that fail in the same ways: Apache Kafka as processes, and the embedded cluster.

A test chooses the faults and the nodes. Each cluster implements the faults, and knows how soon it notices a failure.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from aiokafka_lite import EmbeddedCluster, KafkaTimeout
from aiokafka_lite.aio.retry import is_retriable
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.metadata import PartitionView
from aiokafka_lite.errors import BrokerError, ErrorCode, UnknownTopic, error_for
from aiokafka_lite.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from aiokafka_lite.settings.client import ClientConfig
from tests.real.jvm_cluster import JvmCluster, NodeState
from tests.waiting import DEADLINE

LOOK_AGAIN = 0.05
"""Seconds between two looks at the state of another process, which cannot be awaited."""

ELECTED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
NOT_ALIVE = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
"""Errors of a change with a broker that does not serve, as the controller sees it."""


class BreakableCluster(ABC):
    """Nodes 1, 2 and 3. ``session_timeout`` is the time in seconds in which the cluster notices a dead or frozen
    node."""

    session_timeout: float

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str: ...

    @abstractmethod
    async def create_topic(
        self, name: str, assignments: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with these replicas for each partition. The first replica is the leader."""

    @abstractmethod
    async def stop(self, node: int) -> None:
        """Shut a node down cleanly."""

    @abstractmethod
    async def kill(self, node: int) -> None:
        """Kill a node."""

    @abstractmethod
    async def start(self, *nodes: int) -> None:
        """Start nodes that were stopped or killed, on their old ports, and wait until they serve."""

    @abstractmethod
    async def freeze(self, node: int) -> None:
        """Suspend a node."""

    @abstractmethod
    async def thaw(self, node: int) -> None:
        """Resume a frozen node."""

    @abstractmethod
    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Make one of the in-sync replicas the leader."""

    @abstractmethod
    async def partitions(self, topic: str) -> tuple[PartitionView, ...]:
        """Return leaders, replicas and in-sync replicas as the brokers report them; empty if they report none yet."""

    @abstractmethod
    async def mend(self) -> None:
        """Resume and start all nodes that are frozen or down."""

    async def until_in_sync(self, topic: str) -> tuple[PartitionView, ...]:
        """Wait until every partition of the topic has a leader and all replicas are in sync, and return them."""

        def whole(partitions: Collection[PartitionView]) -> bool:
            return all(
                partition.leader is not None and set(partition.isr) == set(partition.replicas)
                for partition in partitions
            )

        return await self._until(topic, whole)

    async def _until(self, topic: str, holds: Callable[[Collection[PartitionView]], bool]) -> tuple[PartitionView, ...]:
        partitions: tuple[PartitionView, ...] = ()
        try:
            async with asyncio.timeout(DEADLINE):
                while not partitions or not holds(partitions):
                    await asyncio.sleep(LOOK_AGAIN)
                    partitions = await self.partitions(topic)
        except TimeoutError:
            raise AssertionError(f"{topic} did not come to that within {DEADLINE} s: {partitions}") from None
        return partitions


class BreakableEmbedded(BreakableCluster):
    """The embedded cluster, on TCP."""

    session_timeout = 2.0

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._down: set[int] = set()
        self._frozen: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    async def create_topic(
        self, name: str, assignments: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> None:
        await self._cluster.create_topic(name, assignments=assignments, configs=configs)

    async def stop(self, node: int) -> None:
        self._down.add(node)
        await self._cluster.stop(node)

    async def kill(self, node: int) -> None:
        self._down.add(node)
        self._frozen.discard(node)
        await self._cluster.kill(node, noticed_after=self.session_timeout)

    async def start(self, *nodes: int) -> None:
        for node in nodes:
            await self._cluster.start_node(node)
            self._down.discard(node)

    async def freeze(self, node: int) -> None:
        self._frozen.add(node)
        await self._cluster.freeze(node)

    async def thaw(self, node: int) -> None:
        self._frozen.discard(node)
        await self._cluster.thaw(node)

    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        await self._cluster.move_leader(topic, partition, node)

    async def partitions(self, topic: str) -> tuple[PartitionView, ...]:
        states = self._cluster.controller.require(topic).partitions
        return tuple(
            PartitionView(
                partition=number,
                leader=None if state.leader < 0 else state.leader,
                leader_epoch=state.leader_epoch,
                replicas=tuple(state.replicas),
                isr=tuple(state.isr),
            )
            for number, state in enumerate(states)
        )

    async def mend(self) -> None:
        for node in list(self._frozen):
            await self.thaw(node)
        await self.start(*self._down)


async def controller(client: Client) -> int:
    """Return the node id of a broker that takes requests for the controller."""
    while client.view.controller is None:
        await client.refresh()
    return client.view.controller.node_id


async def until_done(attempt: Callable[[], Awaitable[Sequence[BrokerError]]]) -> None:
    """Repeat a change of the cluster while its errors pass. On a busy machine a broker may miss its heartbeats, and the
    controllers may elect another leader."""
    errors: Sequence[BrokerError] = ()
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    errors = await attempt()
                except BrokerError as absence:  # the broker to ask has just left the cluster
                    errors = [absence]
                if not errors:
                    return
                for error in errors:
                    if not (is_retriable(error) or error.code in NOT_ALIVE):
                        raise error
                await asyncio.sleep(LOOK_AGAIN)
    except TimeoutError:
        raise AssertionError(f"not done within {DEADLINE} s: {errors}") from None


class BreakableKafka(BreakableCluster):
    """Apache Kafka, one process per node."""

    session_timeout = 3.0

    def __init__(self, cluster: JvmCluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    def _client(self) -> Client:
        servers = self.bootstrap_servers
        return Client(ClientConfig(bootstrap_servers=servers, connect_timeout=1.0, request_timeout=2.0))

    async def create_topic(
        self, name: str, assignments: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
                for number, replicas in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=setting, value=value) for setting, value in (configs or {}).items()],
        )
        async with self._client() as client:

            async def create() -> list[BrokerError]:
                answer = await client.send(CreateTopicsRequest(topics=[topic]), node=await controller(client))
                # The client repeats a request whose connection was lost, and the first one may have created the topic.
                # Each test takes names of its own.
                return [
                    error_for(result.error_code, f"creating {name}: {result.error_message}")
                    for result in answer.topics
                    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                ]

            await until_done(create)
        await self.until_in_sync(name)

    async def stop(self, node: int) -> None:
        await asyncio.to_thread(self._cluster.nodes[node].stop)

    async def kill(self, node: int) -> None:
        await asyncio.to_thread(self._cluster.nodes[node].kill)

    async def start(self, *nodes: int) -> None:
        started = [self._cluster.nodes[node] for node in nodes]
        for process in started:
            process.launch()
        for process in started:
            await asyncio.to_thread(process.wait_until_ready)

    async def freeze(self, node: int) -> None:
        self._cluster.nodes[node].freeze()

    async def thaw(self, node: int) -> None:
        self._cluster.nodes[node].thaw()

    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Make the node the first of the replicas, then ask for a preferred leader election."""
        election = ElectLeadersTopic(topic=topic, partitions=[partition])
        async with self._client() as client:

            async def reorder_and_elect() -> list[BrokerError]:
                # Not read again: the next broker that is asked may not have the topic yet.
                state = (await self.until_in_sync(topic))[partition]
                replicas = [node, *(replica for replica in state.replicas if replica != node)]
                wish = ReassignableTopic(
                    name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
                )
                node_id = await controller(client)
                moved = await client.send(AlterPartitionReassignmentsRequest(topics=[wish]), node=node_id)
                results = [result for answer in moved.responses for result in answer.partitions if result.error_code]
                if results:
                    what = f"reordering {topic}-{partition}: "
                    return [error_for(result.error_code, f"{what}{result.error_message}") for result in results]
                elected = await client.send(ElectLeadersRequest(topic_partitions=[election]), node=node_id)
                return [
                    error_for(outcome.error_code, f"electing {node} for {topic}-{partition}")
                    for answer in elected.replica_election_results
                    for outcome in answer.partition_result
                    if outcome.error_code not in ELECTED
                ]

            await until_done(reorder_and_elect)

    async def partitions(self, topic: str) -> tuple[PartitionView, ...]:
        async with self._client() as client:
            try:
                return (await client.topic(topic, timeout=1.0)).partitions
            except (UnknownTopic, KafkaTimeout):
                return ()

    async def mend(self) -> None:
        for node in self._cluster.nodes.values():
            node.thaw()
        await self.start(*(number for number, node in self._cluster.nodes.items() if node.state is NodeState.STOPPED))

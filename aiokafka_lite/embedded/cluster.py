"""A Kafka cluster inside the process: nodes, a controller, replication, and everything that can be done to them.

``async with EmbeddedCluster(brokers=3) as cluster`` listens on loopback TCP, so that any client can use it, or, with
``tcp=False``, in memory only, where the whole cluster and its clients run in one loop, on a virtual clock if need be.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from ..aio.memory_pipe import MemoryTransport, memory_pipe
from ..aio.service import Component
from ..errors import ConfigurationError, KafkaTimeout
from ..protocol.schema import Request
from .authoriser import AllowAll
from .configs import BROKER_KEYS, InvalidConfig, check_configs
from .controller import Controller
from .faults import Fault, Faults, History
from .network import Network
from .node import BrokerNode, NodeState, default_versions
from .quotas import QuotaLimits
from .replication import ReplicaFetcher
from .topics import PartitionKey, PartitionState, Topic
from .versions import VersionRanges, in_common
from .versions import as_kafka as versions_of_release

P = TypeVar("P", bound=asyncio.BaseProtocol)

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_REQUEST_SIZE = 100 * 1024 * 1024
MAX_CONNECTIONS = 10_000
FIRST_MEMORY_PORT = 9092


class MemoryConnector:
    """Connects to the nodes of one cluster without sockets; it has the shape of the client's connectors."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"<MemoryConnector to {self._cluster!r}>"

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[MemoryTransport, P]:
        """Raises ConnectionRefusedError where no node listens."""
        for node in self._cluster.nodes.values():
            if (node.host, node.port) == (host, port) and node.state is not NodeState.STOPPED:
                near, _ = memory_pipe(protocol_factory, node.new_stream, server_address=(host, port))
                return near
        raise ConnectionRefusedError(f"no node of the embedded cluster listens on {host}:{port}")


class EmbeddedCluster(Component):
    """Kafka brokers for tests and demonstrations.

    ``ports`` is the first node's port, or one for each node; by default the system chooses. ``racks`` names a rack for
    each node. ``as_kafka`` is the release whose versions nodes speak, ``versions`` caps single APIs: {API key:
    (first, last)}. ``configs`` are broker settings under Kafka's names. ``storage_limit`` is in bytes, for each node;
    a node that has no room answers KAFKA_STORAGE_ERROR. ``wall_clock`` gives seconds since the epoch, for timestamps;
    durations are the loop's. ``seed`` settles topic ids and the cluster id. A host beyond loopback has to be allowed
    with ``expose=True``: anyone who reaches the port can do anything. ``advertised_host`` is what metadata says
    instead of ``host``, for clients that know the machine by another name.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        tcp: bool = True,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        ports: int | Sequence[int] | None = None,
        racks: Sequence[str | None] | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        default_replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        versions: VersionRanges | None = None,
        as_kafka: str | None = None,
        replica_lag_time_max: float = 30.0,
        broker_session_timeout: float = 9.0,
        replication_delay: float = 0.0,
        max_request_size: int = MAX_REQUEST_SIZE,
        max_connections: int = MAX_CONNECTIONS,
        storage_limit: int | None = None,
        history_limit: int = 10_000,
        rack_aware_fetch: bool = True,
        wall_clock: Callable[[], float] = time.time,
        seed: int | None = None,
        expose: bool = False,
    ) -> None:
        super().__init__()
        if brokers < 1:
            raise ConfigurationError(f"brokers={brokers}: at least 1 is needed")
        if tcp and host not in LOOPBACK and not expose:
            raise ConfigurationError(f"host={host!r}: not a loopback address; say expose=True if you mean it")
        if not 1 <= default_replication_factor <= brokers:
            raise ConfigurationError(
                f"default_replication_factor={default_replication_factor}: must lie within 1..{brokers}"
            )
        if default_partitions < 1:
            raise ConfigurationError(f"default_partitions={default_partitions}: at least 1 is needed")
        try:
            check_configs(BROKER_KEYS, configs or {})
        except InvalidConfig as error:
            raise ConfigurationError(f"configs: {error}") from None
        self.tcp = tcp
        self.host = host
        self.advertised_host = advertised_host or host
        self.auto_create_topics = auto_create_topics
        self.replica_lag_time_max = replica_lag_time_max
        self.broker_session_timeout = broker_session_timeout
        self.replication_delay = replication_delay
        self.max_request_size = max_request_size
        self.max_connections = max_connections
        self.rack_aware_fetch = rack_aware_fetch
        self.wall_clock = wall_clock
        self.random = random.Random(seed)
        self.cluster_id = base64.urlsafe_b64encode(self.random.randbytes(16)).decode().rstrip("=")
        self.authoriser = AllowAll()
        self.quota_limits = QuotaLimits()
        self.faults = Faults()
        self.connection_ids = itertools.count(1)
        self.history = History(history_limit)
        self.storage_limit = storage_limit
        self.network = Network()
        self.connector = None if tcp else MemoryConnector(self)
        self.controller = Controller(
            self._publish,
            random=self.random,
            broker_configs=configs or {},
            default_partitions=default_partitions,
            default_replication_factor=default_replication_factor,
        )
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._changed = asyncio.Event()  # set, and replaced, at each change of the metadata
        self._fence_timers: dict[int, asyncio.TimerHandle] = {}
        spoken = default_versions() if as_kafka is None else versions_of_release(as_kafka, default_versions())
        if versions is not None:
            spoken.update(in_common(versions, spoken))
        self.nodes = {
            node_id: BrokerNode(
                self,
                node_id,
                host=host,
                port=port,
                rack=racks[node_id - 1] if racks else None,
                versions=spoken,
                spawn=self._service.start_child,
            )
            for node_id, port in enumerate(self._ports(brokers, ports), start=1)
        }

    def __repr__(self) -> str:
        return f"<EmbeddedCluster brokers={len(self.nodes)} topics={len(self.controller.topics)} {self.state.name}>"

    def _ports(self, brokers: int, ports: int | Sequence[int] | None) -> list[int]:
        if ports is None:
            return [0 if self.tcp else FIRST_MEMORY_PORT + index for index in range(brokers)]
        if isinstance(ports, int):
            ports = range(ports, ports + brokers)
        if len(ports) != brokers or not all(0 <= port <= 65535 for port in ports):
            raise ConfigurationError(f"ports={list(ports)}: {brokers} ports within 0..65535 are needed")
        return list(ports)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, separated by commas."""
        return ",".join(f"{node.host}:{node.port}" for node in self.nodes.values())

    # ---- the lifetime

    async def _on_start(self) -> None:
        try:
            for node in self.nodes.values():
                await node.start()
        except BaseException:
            self._stop_nodes()
            raise
        for node in self.nodes.values():
            self._register(node)

    async def _on_close(self) -> None:
        self._stop_nodes()

    def _stop_nodes(self) -> None:
        for timer in self._fence_timers.values():
            timer.cancel()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for node in self.nodes.values():
            node.stop(abruptly=True)

    def _register(self, node: BrokerNode) -> None:
        if self.network.reaches_controller(node.node_id):
            timer = self._fence_timers.pop(node.node_id, None)  # where it is cut off, its session goes on ending
            if timer is not None:
                timer.cancel()
            self.controller.register(node.node_id, self.advertised_host, node.port, node.rack)
            node.catch_up()
        self._resume_replication()

    def _publish(self, name: str | None) -> None:
        """Tell the nodes about a topic, or, with None, about the brokers."""
        for node in self.nodes.values():
            if not node.is_running or not self.network.reaches_controller(node.node_id):
                continue  # it catches up when it is back
            if name is None:
                node.hear_of_brokers()
            else:
                node.hear_of_topic(name)
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- replication

    def fetcher(self, follower: int, leader: int) -> ReplicaFetcher:
        """The fetcher that copies from one node to another."""
        fetcher = self._fetchers.get((follower, leader))
        if fetcher is None:
            fetcher = ReplicaFetcher(self.nodes[follower], self.nodes[leader])
            self._fetchers[follower, leader] = fetcher
        return fetcher

    def _resume_replication(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.resume()

    # ---- topics

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Make a topic, ready for use. Raises ``Refused`` with Kafka's error code."""
        self._service.check()
        if assignments is not None:
            partitions = replication_factor = -1
        numbered = None if assignments is None else list(enumerate(assignments))
        return self.controller.create_topic(name, partitions, replication_factor, assignments=numbered, configs=configs)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and its records. Raises ``Refused``."""
        self._service.check()
        self.controller.delete_topic(name)

    def state_of(self, topic: str, partition: int) -> PartitionState:
        """Leader, replicas and in-sync set, as the controller knows them. Raises ``Refused``."""
        return self.controller.state_of((topic, partition))

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader's node id; -1 when there is none."""
        return self.state_of(topic, partition).leader

    async def until_in_sync(self, topic: str, timeout: float = 10.0) -> None:
        """Wait until every replica of a topic is in sync. Raises KafkaTimeout."""
        try:
            async with asyncio.timeout(timeout):
                while any(set(state.isr) != set(state.replicas) for state in self.controller.require(topic).partitions):
                    await self._changed.wait()
        except TimeoutError:
            raise KafkaTimeout(f"replicas of {topic!r} are not in sync after {timeout:g} s") from None

    # ---- faults

    def on(
        self,
        request: type[Request[Any]],
        *,
        node: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Fault:
        """Announce a fault for requests of a kind; what it does is said on what this returns.

        It hits the ``nth`` matching request and as many as ``times`` in all; ``times=None`` hits until it is removed.
        """
        return self.faults.on(request, node=node, topic=topic, partition=partition, nth=nth, times=times)

    async def stop(self, node: int) -> None:
        """Shut a broker down in order: others lead what it led, then its connections end."""
        broker = self.nodes[node]
        self.controller.fence(node)
        broker.stop(abruptly=False)

    async def kill(self, node: int, *, noticed_after: float = 0.0) -> None:
        """End a broker as ``kill -9`` does: connections are reset; the cluster notices ``noticed_after`` seconds on."""
        self.nodes[node].stop(abruptly=True)
        self._fence_later(node, noticed_after)

    async def start_node(self, node: int, *, port: int | None = None) -> None:
        """Start a stopped broker, on its old port or on another; it has the logs that it had."""
        broker = self.nodes[node]
        if port is not None:
            broker.port = port
        await broker.start()
        self._register(broker)

    async def restart(self, node: int, *, port: int | None = None) -> None:
        """Stop and start a broker."""
        await self.stop(node)
        await self.start_node(node, port=port)

    async def freeze(self, node: int) -> None:
        """Suspend a broker: it keeps its connections, answers nobody, and is fenced when its session is over."""
        self.nodes[node].freeze()
        self._fence_later(node, self.broker_session_timeout)

    async def thaw(self, node: int) -> None:
        """Let a frozen broker go on."""
        self.nodes[node].thaw()
        self._register(self.nodes[node])

    def _fence_later(self, node: int, delay: float) -> None:
        timer = self._fence_timers.pop(node, None)
        if timer is not None:
            timer.cancel()
        if delay <= 0:
            self.controller.fence(node)
        else:
            loop = asyncio.get_running_loop()
            self._fence_timers[node] = loop.call_later(delay, self.controller.fence, node)

    async def partition_network(self, *groups: Collection[int]) -> None:
        """Cut the brokers into groups that do not reach one another; clients still reach all of them.

        The controller is with the largest group; the others' brokers lose what they lead when their sessions end, and
        go on believing that they lead it.
        """
        named = [node for group in groups for node in group]
        if len(set(named)) != len(named) or not set(named) <= set(self.nodes):
            raise ConfigurationError(f"groups {groups}: each broker of {list(self.nodes)} belongs to at most one")
        rest = [node for node in self.nodes if node not in named]
        was_cut = [node for node in self.nodes if not self.network.reaches_controller(node)]
        self.network.split([*groups, rest] if rest else groups)
        for node, broker in self.nodes.items():
            if not self.network.reaches_controller(node):
                if node not in was_cut:
                    self._fence_later(node, self.broker_session_timeout)
            elif node in was_cut and broker.is_running:
                self._register(broker)
        self._resume_replication()

    async def heal_network(self) -> None:
        """Join all brokers again."""
        self.network.heal()
        for node in self.nodes.values():
            if node.is_running:
                self._register(node)

    async def move_leader(self, topic: str, partition: int, node: int | None = None, *, unclean: bool = False) -> int:
        """Make another replica the leader, by default the next one in sync; gives its node id. Raises ``Refused``.

        With ``unclean`` it may be one that is not in sync; what it lacks is lost.
        """
        key: PartitionKey = (topic, partition)
        state = self.controller.state_of(key)
        if node is None:
            electable = state.replicas if unclean else state.isr
            others = [each for each in electable if each != state.leader and self.controller.is_alive(each)]
            node = others[0] if others else state.leader
        self.controller.move_leader(key, node, unclean=unclean)
        return node

    async def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set the in-sync set. Followers left out come back when they fetch; cut or freeze them to prevent it."""
        key: PartitionKey = (topic, partition)
        state = self.controller.state_of(key)
        if not set(isr) <= set(state.replicas) or state.leader not in isr:
            raise ConfigurationError(f"isr={list(isr)}: must hold leader {state.leader} and only replicas of {key}")
        self.controller.force_isr(key, tuple(isr))

    def cap_versions(self, node: int, request: type[Request[Any]], last: int, *, first: int | None = None) -> None:
        """Let a broker speak an API up to version ``last`` only, for connections and requests from now on."""
        versions = self.nodes[node].versions
        lowest, _ = versions[request.api_key]
        versions[request.api_key] = (lowest if first is None else first, last)

    def clean_up(self) -> None:
        """Let every running broker apply retention, compaction and expiration now."""
        for broker in self.nodes.values():
            if broker.is_running:
                broker.clean_up()

    def skew_clock(self, node: int, seconds: float) -> None:
        """Set a broker's wall clock ahead, or back."""
        self.nodes[node].clock_skew = seconds

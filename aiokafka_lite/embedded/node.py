"""One broker: its listener, its connections, its replicas, and its view of the cluster.

A node answers from its own view of the metadata, which is the controller's as long as the two reach each other.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import ConfigurationError, ErrorCode, IllegalStateError
from ..protocol.messages import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, ProduceRequest
from ..protocol.state import next_state
from .configs import broker_synonyms
from .connection import ServerConnection, ServerStream
from .controller import Registration
from .fetch_session import FetchSessions
from .group_coordinator import GroupCoordinator
from .group_records import OFFSETS_TOPIC
from .handlers import HANDLERS, REQUESTS_HANDLED
from .partition import Partition
from .quotas import Quotas
from .replica_manager import FetchParameters, FetchPartition, ReplicaManager
from .topics import PartitionKey, PartitionState, Topic
from .versions import VersionRanges

if TYPE_CHECKING:
    from .cluster import EmbeddedCluster

logger = logging.getLogger(__name__)


class NodeState(Enum):
    """What a broker is doing."""

    STOPPED = "no listener, no connections; its logs are kept"
    RUNNING = "listens, answers, replicates"
    FROZEN = "as if its process were suspended: connections stay, nothing is read, answered or replicated"


class NodeEvent(Enum):
    """What happens to a broker."""

    START = "its process is started"
    STOP = "its process ends, in order or not"
    FREEZE = "its process is suspended"
    THAW = "its process goes on"


TRANSITIONS: dict[NodeState, dict[NodeEvent, NodeState]] = {
    NodeState.STOPPED: {NodeEvent.START: NodeState.RUNNING, NodeEvent.STOP: NodeState.STOPPED},
    NodeState.RUNNING: {NodeEvent.STOP: NodeState.STOPPED, NodeEvent.FREEZE: NodeState.FROZEN},
    NodeState.FROZEN: {NodeEvent.STOP: NodeState.STOPPED, NodeEvent.THAW: NodeState.RUNNING},
}


class BrokerNode:
    """A broker. Owner: the cluster."""

    handlers = HANDLERS

    def __init__(
        self,
        cluster: EmbeddedCluster,
        node_id: int,
        *,
        host: str,
        port: int,
        rack: str | None,
        versions: VersionRanges,
        spawn: Callable[..., object],
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.versions = dict(versions)
        self._spawn = spawn
        self.state = NodeState.STOPPED
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.brokers: dict[int, Registration] = {}
        self.connections: set[ServerConnection] = set()
        self.replica_manager = ReplicaManager(node_id)
        self.replica_manager.storage_limit = cluster.storage_limit
        self.replica_manager.on_append = self._wake_followers
        self.replica_manager.on_high_watermark = self._wake_followers
        self.replica_manager.preferred_replica = self.preferred_replica
        self.groups = GroupCoordinator(self)
        self.fetch_sessions = FetchSessions(cluster.random)
        self.fetch_max_bytes = 57671680
        self.quotas = Quotas(cluster.quota_limits, self.time)
        self.clock_skew = 0.0
        self._server: asyncio.Server | None = None
        self._thawed = asyncio.Event()
        self._isr_timer: asyncio.TimerHandle | None = None
        self._cleanup_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return (
            f"<BrokerNode {self.node_id} {self.host}:{self.port} {self.state.name} connections={len(self.connections)}>"
        )

    # ---- what handlers ask

    @property
    def is_running(self) -> bool:
        return self.state is NodeState.RUNNING

    @property
    def is_frozen(self) -> bool:
        return self.state is NodeState.FROZEN

    def time(self) -> float:
        """Seconds of the loop's clock, for durations."""
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        """Milliseconds of this broker's wall clock, for timestamps."""
        return int((self.cluster.wall_clock() + self.clock_skew) * 1000)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)

    def partition_state(self, key: PartitionKey) -> PartitionState | None:
        topic = self.topics.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return None
        return topic.partitions[key[1]]

    def endpoint(self, node_id: int) -> Registration | None:
        return self.brokers.get(node_id)

    async def until_thawed(self) -> None:
        """Return at once unless the node is frozen."""
        await self._thawed.wait()

    # ---- versions

    def speaks(self, api_key: int, version: int) -> bool:
        spoken = self.versions.get(api_key)
        return spoken is not None and spoken[0] <= version <= spoken[1]

    def api_versions(self) -> list[ApiVersion]:
        """What ApiVersions advertises."""
        ranges = []
        for key, (first, last) in sorted(self.versions.items()):
            if key == ProduceRequest.api_key and last >= 12:
                first = 0  # as Kafka 4 claims, for librdkafka takes a higher minimum for a broker without Produce
            ranges.append(ApiVersion(api_key=key, min_version=first, max_version=last))
        return ranges

    def unsupported_api_versions(self) -> ApiVersionsResponse:
        """The answer, in version 0, to an ApiVersions request that is too new; empty from brokers before 2.4."""
        own = self.versions[ApiVersionsRequest.api_key]
        keys = []
        if own[1] >= 3:
            keys.append(ApiVersion(api_key=ApiVersionsRequest.api_key, min_version=own[0], max_version=own[1]))
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)

    # ---- the listener

    async def start(self) -> None:
        """Listen, on the port used before if there was one, and register with the controller."""
        state = next_state(TRANSITIONS, self.state, NodeEvent.START)
        if self.cluster.tcp:
            loop = asyncio.get_running_loop()
            try:
                self._server = await loop.create_server(self.new_stream, self.host, self.port, backlog=1024)
            except OSError as error:
                # asyncio's own text says the address once more; it has no number where a name has no address.
                reason = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else error
                raise ConfigurationError(
                    f"broker {self.node_id} cannot listen on {self.host}:{self.port}: {reason}"
                ) from error
            self.port = self._server.sockets[0].getsockname()[1]
        self.state = state
        self._thawed.set()
        self._arm_cleanup()

    def new_stream(self) -> ServerStream:
        """A connection's end on this side, for whoever accepts one."""
        return ServerStream(self, self.cluster.max_request_size)

    def connected(self, stream: ServerStream) -> None:
        """A client has connected."""
        if self.state is NodeState.STOPPED or len(self.connections) >= self.cluster.max_connections:
            stream.abort()
            return
        connection = ServerConnection(self, stream)
        self.connections.add(connection)
        try:
            self._spawn(connection.serve, name=f"node {self.node_id} connection {connection.connection_id}")
        except IllegalStateError:
            self.connections.discard(connection)
            stream.abort()

    def disconnected(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)

    def stop(self, *, abruptly: bool) -> None:
        """Stop listening and end every connection; the logs stay."""
        self.state = next_state(TRANSITIONS, self.state, NodeEvent.STOP)
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.node_gone()
            if abruptly:
                connection.stream.abort()
            else:
                connection.stream.close()
        self.fetch_sessions.clear()
        self.groups.stop()
        self._thawed.set()  # so that coroutines of a frozen node can end
        for timer in (self._isr_timer, self._cleanup_timer):
            if timer is not None:
                timer.cancel()
        self._isr_timer = self._cleanup_timer = None
        self.replica_manager.produce_purgatory.complete_all()
        self.replica_manager.fetch_purgatory.complete_all()

    def freeze(self) -> None:
        self.state = next_state(TRANSITIONS, self.state, NodeEvent.FREEZE)
        self._thawed.clear()

    def thaw(self) -> None:
        self.state = next_state(TRANSITIONS, self.state, NodeEvent.THAW)
        self._thawed.set()

    # ---- the view of the cluster

    def reaches(self, other: BrokerNode) -> bool:
        return self.is_running and other.is_running and not self.cluster.network.is_cut(self.node_id, other.node_id)

    def hear_of_brokers(self) -> None:
        self.brokers = dict(self.cluster.controller.brokers)

    def hear_of_topic(self, name: str) -> None:
        """Take over what the controller has decided about a topic."""
        known = self.topics.get(name)
        topic = self.cluster.controller.topics.get(name)
        if known is not None and (topic is None or topic.topic_id != known.topic_id):
            del self.topics[name]
            self.names.pop(known.topic_id, None)
            for index in range(len(known.partitions)):
                self.replica_manager.drop((name, index))
            self.groups.forget_topic(name)
        if name == OFFSETS_TOPIC and topic is None:
            self.groups.apply()
        if topic is None:
            return
        self.topics[name] = topic
        self.names[topic.topic_id] = name
        self.replica_manager.apply(topic, self.time())
        for index, state in enumerate(topic.partitions):
            if state.leader not in (self.node_id, -1) and self.node_id in state.replicas:
                self.cluster.fetcher(self.node_id, state.leader).wake((name, index))
        if name == OFFSETS_TOPIC:
            self.groups.apply()

    def catch_up(self) -> None:
        """Take over everything that the controller has decided, after a time without it."""
        self.hear_of_brokers()
        for name in list(self.topics):
            if name not in self.cluster.controller.topics:
                self.hear_of_topic(name)
        for name in self.cluster.controller.topics:
            self.hear_of_topic(name)

    # ---- housekeeping

    def _arm_cleanup(self) -> None:
        interval = int(self._config("log.retention.check.interval.ms")) / 1000
        self._cleanup_timer = asyncio.get_running_loop().call_later(interval, self._clean_up)

    def _clean_up(self) -> None:
        """What a broker does every few minutes; a frozen one makes up for it later."""
        if self.is_running:
            self.clean_up()
            self._close_idle_connections()
        self._arm_cleanup()

    def _close_idle_connections(self) -> None:
        """A connection that has sent no whole request for long is closed, also one that trickles bytes."""
        before = self.time() - int(self._config("connections.max.idle.ms")) / 1000
        for connection in list(self.connections):
            if connection.idle_since is not None and connection.idle_since < before:
                connection.stream.close()

    def clean_up(self) -> None:
        """Apply retention, compaction and the expiration of producers, groups and quotas' samples now."""
        self.groups.clean_up()
        self.quotas.clean_up()
        self.replica_manager.clean_up(self.now_ms(), int(self._config("producer.id.expiration.ms")))

    def _config(self, name: str) -> str:
        return broker_synonyms(name, self.cluster.controller.layers(str(self.node_id)))[0].value or ""

    # ---- leading

    def _wake_followers(self, partition: Partition) -> None:
        for node_id in partition.followers:
            self.cluster.fetcher(node_id, self.node_id).wake(partition.key)
        if partition.followers and self._isr_timer is None and partition.is_behind:
            self._arm_isr_timer()

    def follower_fetched(self, partition: Partition, node_id: int, end_offset: int) -> None:
        """A follower has copied everything before ``end_offset``."""
        moved = partition.update_follower(node_id, end_offset, self.time())
        if partition.may_join_isr(node_id):
            self._propose_isr(partition, (*partition.state.isr, node_id))
            moved = partition.try_advance_high_watermark() or moved
        if moved:
            self.replica_manager.complete_delayed(partition.key)
            self._wake_followers(partition)

    def _arm_isr_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._isr_timer = loop.call_later(self.cluster.replica_lag_time_max / 2, self._check_isr)

    def _check_isr(self) -> None:
        """Put followers that lag out of the in-sync sets, as often as half of the lag allowed."""
        self._isr_timer = None
        if self.state is NodeState.STOPPED:
            return
        any_behind = False
        for partition in list(self.replica_manager.leading()):
            lagging = partition.lagging(self.time(), self.cluster.replica_lag_time_max)
            if lagging and self.is_running:
                self._propose_isr(partition, tuple(node for node in partition.state.isr if node not in lagging))
            any_behind = any_behind or partition.is_behind
        if any_behind:
            self._arm_isr_timer()

    def _propose_isr(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Ask the controller for another in-sync set; without it the set stays, and so does the high watermark."""
        if not self.cluster.network.reaches_controller(self.node_id):
            return
        state = partition.state
        self.cluster.controller.alter_partition(
            self.node_id, partition.key, state.leader_epoch, state.partition_epoch, isr
        )

    def preferred_replica(self, partition: Partition, parameters: FetchParameters, wanted: FetchPartition) -> int:
        """An in-sync follower in the reader's rack, or -1 for this leader (KIP-392)."""
        if not parameters.rack or not partition.is_leader or parameters.rack == self.rack:
            return -1
        if not self.cluster.rack_aware_fetch:
            return -1
        for node_id in partition.state.isr:
            registration = self.brokers.get(node_id)
            follower = partition.followers.get(node_id)
            if registration is None or follower is None or not registration.alive:
                continue
            if registration.rack == parameters.rack and follower.end_offset >= wanted.fetch_offset:
                return node_id
        return -1


def default_versions() -> dict[int, tuple[int, int]]:
    """Every API that has a handler, in every version spoken here."""
    return {cls.api_key: (cls.versions.first, cls.versions.last) for cls in REQUESTS_HANDLED}

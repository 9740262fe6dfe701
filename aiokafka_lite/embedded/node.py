"""One broker: its listeners, its connections, its replicas, and its copy of the metadata.

A node answers from its own copy of the metadata, which follows the controller's as long as the node reaches it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any, Never

from ..arguments import INT64_MAX, must_be
from ..errors import ErrorCode
from ..state_machine import next_state
from .client_connections import ClientConnections
from .client_telemetry import ClientTelemetry
from .cluster_config import ClusterConfig
from .connection import ServerConnection
from .coordinators.groups.coordinator import GroupCoordinator
from .coordinators.groups.log import GroupLog
from .coordinators.groups.records import OFFSETS_TOPIC
from .coordinators.share.groups import HostedShareGroups, ShareStateLog
from .coordinators.share.partitions import SharePartitions
from .coordinators.share.session import ShareSessions
from .coordinators.transactions.coordinator import TransactionCoordinator
from .coordinators.transactions.markers import append_marker
from .coordinators.transactions.records import TRANSACTION_TOPIC
from .coordinators.transactions.requests import TransactionRequests
from .faults import Faults, History
from .log.files import LogFiles
from .log.producer_state import Marker
from .metadata.broker_loggers import BrokerLoggers
from .metadata.changes import ClusterChanges
from .metadata.controller import Controller
from .metadata.features import TRANSACTION_VERSION
from .metadata.leadership import PartitionLeadership
from .metadata.topics import NO_LEADER, PartitionKey, Topic
from .metadata.view import MetadataView
from .periodic_work import PeriodicWork
from .quotas import QuotaLimits, QuotaManager
from .replicas.fetch_session import FetchSessions
from .replicas.in_sync import InSyncSets
from .replicas.manager import FetchParameters, FetchPartition, ReplicaManager
from .replicas.partition import Partition
from .replicas.replication import Network
from .request_context import BrokerParts
from .security.authorizer import Authorizer
from .security.security import ClusterSecurity
from .settings.configs import BrokerSettings, TopicConfig
from .settings.listeners import Listener
from .settings.versions import OfferedVersions, VersionRanges

logger = logging.getLogger(__name__)


class NodeState(Enum):
    """The state of a broker."""

    STOPPED = "no listener, no connections; the logs stay"
    RUNNING = "listens, answers, replicates"
    FROZEN = "like a suspended process: connections stay open, and the broker reads, answers and replicates nothing"


class NodeEvent(Enum):
    """An event of a broker."""

    START = "the process starts"
    STOP = "the process ends, orderly or not"
    FREEZE = "the process is suspended"
    THAW = "the process continues"


_RUNNING = NodeState.RUNNING

TRANSITIONS: dict[NodeState, dict[NodeEvent, NodeState]] = {
    NodeState.STOPPED: {NodeEvent.START: NodeState.RUNNING, NodeEvent.STOP: NodeState.STOPPED},
    NodeState.RUNNING: {NodeEvent.STOP: NodeState.STOPPED, NodeEvent.FREEZE: NodeState.FROZEN},
    NodeState.FROZEN: {NodeEvent.STOP: NodeState.STOPPED, NodeEvent.THAW: NodeState.RUNNING},
}


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The parts of a cluster that its nodes share. Owner: the EmbeddedCluster.

    ``spawn`` runs a coroutine function as a task of the cluster, under a name. ``wake_fetcher`` takes a follower, a
    leader and a partition that the follower may have to copy; ``log_files`` a node, a partition and its topic's id.
    """

    config: ClusterConfig
    cluster_id: str
    tcp: bool
    random: Random
    controller: Controller
    changes: ClusterChanges
    leadership: PartitionLeadership
    network: Network
    transaction_requests: TransactionRequests
    share_groups: HostedShareGroups
    authorizer: Authorizer
    loggers: BrokerLoggers
    security: ClusterSecurity
    quota_limits: QuotaLimits
    faults: Faults
    history: History
    connection_ids: itertools.count[int]
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]], str], object]
    wake_fetcher: Callable[[int, int, PartitionKey], None]
    log_files: Callable[[int, PartitionKey, bytes], LogFiles | None]


class BrokerNode:
    """A broker. Owner: the cluster."""

    def __init__(
        self, cluster: ClusterParts, node_id: int, ports: Sequence[int], *, rack: str | None, versions: VersionRanges
    ) -> None:
        self.node_id = node_id
        self.host: str = cluster.config.host
        self.listeners: dict[str, Listener] = {
            name: Listener(name, self.host, port) for name, port in zip(cluster.security.protocols, ports, strict=True)
        }
        self.rack = rack
        self.state: NodeState = NodeState.STOPPED
        self.clock_skew: float = 0.0
        self.versions: OfferedVersions = OfferedVersions(versions)
        self.settings: BrokerSettings = cluster.controller.settings.of(str(node_id))
        self.metadata: MetadataView = MetadataView()
        self.replica_manager: ReplicaManager = ReplicaManager(
            node_id,
            storage_limit=cluster.config.storage_limit,
            fetch_patience=cluster.config.fetch_patience,
            config_of=self._config_of,
            files_of=lambda key, topic_id: cluster.log_files(node_id, key, topic_id),
            wake_followers=lambda partition: self.in_sync.wake_followers(partition),
            preferred_replica=self._preferred_replica,
        )
        self.in_sync: InSyncSets = InSyncSets(
            self.replica_manager,
            cluster.leadership,
            wake=lambda follower, key: cluster.wake_fetcher(follower, node_id, key),
            is_running=lambda: self.is_running,
            reaches_controller=lambda: cluster.network.reaches_controller(node_id),
            lag_max=self.settings.seconds("replica.lag.time.max.ms"),
        )
        self.groups: GroupCoordinator = GroupCoordinator(
            node_id, self.metadata, self.replica_manager, self.settings, now_ms=self.now_ms, random=cluster.random
        )
        self.transactions: TransactionCoordinator = TransactionCoordinator(
            node_id,
            self.metadata,
            self.replica_manager,
            self.settings,
            cluster.transaction_requests,
            now_ms=self.now_ms,
            generation=lambda: cluster.controller.features.level(TRANSACTION_VERSION),
            next_producer_id=cluster.controller.next_producer_id,
            spawn=cluster.spawn,
        )
        self.share_log: ShareStateLog = ShareStateLog(self.metadata, self.replica_manager, self.now_ms)
        self.shares: SharePartitions = SharePartitions(
            self.metadata, self.replica_manager, cluster.share_groups, self.now_ms
        )
        self.parts: BrokerParts = self._make_parts(cluster)
        self.clients: ClientConnections = ClientConnections(
            self.parts,
            cluster.security,
            cluster.spawn,
            self.time,
            connection_ids=cluster.connection_ids,
            faults=cluster.faults,
            history=cluster.history,
        )
        self._cluster = cluster
        self._work = PeriodicWork(node_id, self.settings, lambda: self.is_running)

    def _make_parts(self, cluster: ClusterParts) -> BrokerParts:
        """Return the parts of this broker and of its cluster that handlers of requests use."""
        setting = self.settings.number
        receive, telemetry = cluster.config.receive_client_metrics, None
        if receive is not None:
            telemetry = ClientTelemetry(cluster.controller.settings, self.time, receive)
        return BrokerParts(
            node_id=self.node_id,
            cluster_id=cluster.cluster_id,
            versions=self.versions,
            settings=self.settings,
            metadata=self.metadata,
            replica_manager=self.replica_manager,
            groups=self.groups,
            transactions=self.transactions,
            transaction_requests=cluster.transaction_requests,
            fetch_sessions=FetchSessions(cluster.random, setting("max.incremental.fetch.session.cache.slots")),
            share_groups=cluster.share_groups,
            shares=self.shares,
            share_sessions=ShareSessions(setting("group.share.max.share.sessions")),
            quotas=QuotaManager(cluster.quota_limits, self.time, self.settings),
            quota_limits=cluster.quota_limits,
            controller=cluster.controller,
            changes=cluster.changes,
            leadership=cluster.leadership,
            authorizer=cluster.authorizer,
            loggers=cluster.loggers,
            scram_users=cluster.security.scram_users,
            tokens=cluster.security.tokens,
            fetch_max_bytes=setting("fetch.max.bytes"),
            telemetry=telemetry,
            topic_creation_delay=cluster.config.topic_creation_delay,
            now_ms=self.now_ms,
        )

    def __repr__(self) -> str:
        return (
            f"<BrokerNode {self.node_id} {self.host}:{self.port} {self.state.name} connections={len(self.connections)}>"
        )

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.listeners.values())).port

    @property
    def group_log(self) -> GroupLog:
        return self.groups.log

    @property
    def is_running(self) -> bool:
        return self.state is _RUNNING

    @property
    def connections(self) -> Collection[ServerConnection]:
        return self.clients.connections

    def time(self) -> float:
        """Return the loop's time in seconds, for durations."""
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        """Return this broker's wall clock in milliseconds, for timestamps."""
        return int((self._cluster.config.wall_clock() + self.clock_skew) * 1000)

    # The listeners.

    async def start(self, port: int | None = None) -> None:
        """Listen, on the same ports as before, except for the first listener if it gets another ``port``.

        Raises ConfigurationError if a port cannot be used.
        """
        state = next_state(TRANSITIONS, self.state, NodeEvent.START)
        # A broker that starts again is a new process, which has seen no connections and no requests.
        self.clients.limits.clear()
        self.parts.quotas.clear()
        if port is not None:
            next(iter(self.listeners.values())).port = port
        if self._cluster.tcp:
            try:
                for listener in self.listeners.values():
                    context = self._cluster.security.server_context(listener.name) if listener.uses_tls else None
                    new_stream = partial(self.clients.new_stream, listener)
                    await listener.open(new_stream, context, f"broker {self.node_id}", self.clients.closings)
            except BaseException:  # a cancellation, too
                self._close_listeners()
                raise
        self._describe()
        self.state = state
        self.clients.open()
        repeat = self._work.repeat
        repeat("log.retention.check.interval.ms", self._clean_up_periodically)
        repeat("log.cleaner.backoff.ms", lambda: self.replica_manager.compact(self.now_ms()))
        if self.settings.number("log.flush.scheduler.interval.ms") < INT64_MAX:  # the default means never
            repeat("log.flush.scheduler.interval.ms", lambda: self.replica_manager.flush_old(self.time()))
        repeat(
            "replica.high.watermark.checkpoint.interval.ms", lambda: self.replica_manager.checkpoint(is_flushed=False)
        )
        repeat("transaction.abort.timed.out.transaction.cleanup.interval.ms", self.transactions.abort_timed_out)
        repeat("transaction.remove.expired.transaction.cleanup.interval.ms", self.transactions.remove_expired)

    def _describe(self) -> None:
        """Set the settings that this broker alone has in its file."""

        def addresses(host: str, ports: Mapping[str, int]) -> str:
            host = f"[{host}]" if ":" in host else host
            return ",".join(f"{name}://{host}:{port}" for name, port in ports.items())

        ports = {name: listener.port for name, listener in self.listeners.items()}
        values = {
            "listeners": addresses(self.host, ports),
            "advertised.listeners": addresses(*self._cluster.config.advertised(self.node_id, ports)),
            **self._cluster.security.broker_settings(),
        }
        if self.rack is not None:
            values["broker.rack"] = self.rack
        self._cluster.controller.settings.set_static(str(self.node_id), values)

    def _close_listeners(self) -> None:
        for listener in self.listeners.values():
            listener.close()

    def stop(self, *, abruptly: bool) -> None:
        """Stop listening and close every connection. The logs stay."""
        self.state = next_state(TRANSITIONS, self.state, NodeEvent.STOP)
        self._close_listeners()
        self.clients.close(abruptly=abruptly)
        self.parts.fetch_sessions.clear()
        self.parts.share_sessions.clear()
        self.shares.stop()
        self.groups.stop()
        self.transactions.stop()
        self.in_sync.stop()
        self._work.stop()
        # Requests that wait would otherwise wait for their timeout, and their tasks with them.
        self.replica_manager.produce_purgatory.complete_all()
        self.replica_manager.fetch_purgatory.complete_all()

    def freeze(self) -> None:
        self.state = next_state(TRANSITIONS, self.state, NodeEvent.FREEZE)
        self.clients.freeze()

    def thaw(self) -> None:
        self.state = next_state(TRANSITIONS, self.state, NodeEvent.THAW)
        self.clients.thaw()

    # Metadata.

    def update_brokers(self) -> None:
        """Copy the controller's list of brokers."""
        self.metadata.brokers = dict(self._cluster.controller.brokers)

    def update_topic(self, name: str) -> None:
        """Apply the controller's decision about a topic: create, change or delete its replicas here."""
        former = self.metadata.topics.get(name)
        topic = self._cluster.controller.topics.get(name)
        # A topic that was created again has another id. The logs of the old topic must not become its logs.
        if former is not None and (topic is None or topic.topic_id != former.topic_id):
            self.metadata.remove(former)
            for index in range(len(former.partitions)):
                self.replica_manager.drop((name, index))
            self.groups.drop_topic(name)
        if topic is not None:
            self.metadata.put(topic)
            self.replica_manager.apply(topic, self.time())
            for index, state in enumerate(topic.partitions):
                if state.leader not in (self.node_id, NO_LEADER) and self.node_id in state.replicas:
                    self._cluster.wake_fetcher(self.node_id, state.leader, (name, index))
        if name == OFFSETS_TOPIC:
            self.groups.apply()
        if name == TRANSACTION_TOPIC:
            self.transactions.apply()

    def _config_of(self, topic: Topic) -> TopicConfig:
        """Return the settings of a topic on this broker, which may have settings of its own."""
        settings, own = self._cluster.controller.settings, str(self.node_id)
        return TopicConfig.parse(topic.configs, settings.merged(own)) if settings.dynamic(own) else topic.config

    def catch_up(self) -> None:
        """Apply all decisions of the controller, after a time without it."""
        self.update_brokers()
        # Topics that have been deleted since are only in the old metadata.
        for name in {**self.metadata.topics, **self._cluster.controller.topics}:
            self.update_topic(name)

    async def write_marker(self, key: PartitionKey, marker: Marker) -> ErrorCode:
        """Write the end of a transaction to the log of a partition that this node leads."""
        return await append_marker(self.parts, key, marker)

    # Housekeeping.

    def _clean_up_periodically(self) -> None:
        self.clean_up()
        self.clients.close_idle()

    def clean_up(self) -> None:
        """Apply retention and compaction, and drop expired producers, groups and quota samples, now."""
        self.groups.clean_up()
        self.transactions.abort_timed_out()
        self.transactions.remove_expired()
        self.parts.quotas.clean_up()
        self.replica_manager.clean_up(self.now_ms(), self.settings.number("producer.id.expiration.ms"))

    def _preferred_replica(self, partition: Partition, parameters: FetchParameters, requested: FetchPartition) -> int:
        """Return an in-sync follower in the reader's rack, or -1 for this leader (KIP-392)."""
        if not parameters.rack or not partition.is_leader or parameters.rack == self.rack:
            return -1
        if not self._cluster.config.rack_aware_fetch:
            return -1
        for node_id in partition.state.isr:
            registration = self.metadata.brokers.get(node_id)
            follower = partition.followers.get(node_id)
            if registration is None or follower is None or not registration.alive:
                continue
            # A follower that has not come so far would refuse the offset as out of range.
            if registration.rack == parameters.rack and follower.end_offset >= requested.fetch_offset:
                return node_id
        return -1


class Nodes(dict[int, BrokerNode]):
    """The brokers of a cluster, by id."""

    def __missing__(self, node_id: object) -> Never:
        raise ValueError(must_be("node", f"the id of a broker: {', '.join(map(str, self))}", node_id))

"""A Kafka cluster inside the process: nodes, a controller, replication, and operations on all of them.

``async with EmbeddedCluster(brokers=3) as cluster`` listens on loopback TCP, for any client. With ``tcp=False`` the
cluster and its clients are connected in memory and run in one loop, if needed in virtual time.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeVar

from ..aio.component import Component
from ..aio.deadline import deadline
from ..aio.memory_pipe import MemoryTransport, memory_pipe
from ..aio.service import NOT_STARTED
from ..arguments import check_wait, is_whole, must_be, plural, text, whole
from ..errors import ErrorCode, IllegalStateError
from ..protocol.schema import Request
from ..types import Record
from . import direct_records as direct
from .broker_metrics import ClusterMetrics, cluster_metrics
from .broker_sessions import BrokerSessions
from .cluster_config import ClusterConfig, broker_settings, ports_of
from .coordinators.share.groups import HostedShareGroups
from .coordinators.transactions.requests import HeldMarkers, TransactionRequests
from .data_dir import data_of
from .faults import Fault, Faults, History
from .handlers import NEWEST, versions_of
from .metadata.broker_loggers import BrokerLoggers
from .metadata.changes import ClusterChanges
from .metadata.controller import Controller, Refused
from .metadata.features import ClusterFeatures
from .metadata.leadership import PartitionLeadership
from .metadata.topics import PartitionRegistration, Topic
from .node import BrokerNode, ClusterParts, Nodes, NodeState
from .quotas import QuotaLimits
from .replicas.replication import Network, Replication
from .security.acl_authorizer import AclAuthorizer
from .security.authorizer import Authorizer
from .security.security import ClusterSecurity, Security
from .settings.versions import release_of

P = TypeVar("P", bound=asyncio.BaseProtocol)

_LOOK_AGAIN = 0.005
"""Seconds between two looks of ``wait_for_records``. A partition grows in many places, and none has to know of it."""


class MemoryConnector:
    """Connects clients to the nodes of one cluster without sockets; pass it as ``connector`` to a client."""

    def __init__(self, nodes: Mapping[int, BrokerNode]) -> None:
        self._nodes = nodes
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<MemoryConnector to {len(self._nodes)} nodes>"

    def bind(self) -> None:
        """Let only clients of the running event loop connect."""
        self._loop = asyncio.get_running_loop()

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[MemoryTransport, P]:
        """Connect to the node at an address. Raises ConnectionRefusedError if no running node has it.

        Raises IllegalStateError in another event loop than the cluster's, because nothing would answer there.
        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise IllegalStateError(f"{self!r} belongs to another event loop; create a cluster for each loop")
        for node in self._nodes.values():
            for listener in node.listeners.values():
                if (listener.host, listener.port) == (host, port) and node.state is not NodeState.STOPPED:
                    near, _ = memory_pipe(
                        protocol_factory, partial(node.clients.new_stream, listener), server_address=(host, port)
                    )
                    return near
        raise ConnectionRefusedError(f"no node of the embedded cluster listens on {host}:{port}")


class EmbeddedCluster(Component):
    """Kafka brokers for tests and demonstrations.

    - ``ports`` is the port of the first node, or one for each node; by default the system chooses. With ``tcp=False``
      there are no sockets, and clients need ``connector=cluster.connector``.
    - ``security`` says how clients connect: a security protocol such as ``"SSL"``, or a ``Security`` with users. Each
      node has a port for each protocol. ``client_settings`` returns the settings for a client.
    - ``configs`` are broker settings with Kafka's names and values, for example ``{"min.insync.replicas": "2"}``.
      ``auto_create_topics`` and ``default_partitions`` are short forms of two of them.
    - ``super_users``, such as ``["User:admin"]``, turns ACLs on: these principals may do everything, and other clients
      only the operations that ACLs allow. Without it every client may do everything.
    - ``as_kafka`` is the release of Kafka whose API versions the nodes offer, for example ``"2.8"``.
    - ``seed`` makes the cluster id, topic ids and session ids the same in every run.
    - ``data_dir`` keeps topics, records and offsets in a directory, for the next start, also after ``kill -9``.
    - ``config`` has the settings that few tests need.

    Raises ConfigurationError for a wrong argument. ``broker_session_timeout`` (seconds) may be changed while it runs.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        tcp: bool = True,
        ports: int | Sequence[int] | None = None,
        auto_create_topics: bool | None = None,
        default_partitions: int | None = None,
        super_users: Iterable[str] | None = None,
        configs: Mapping[str, str] | None = None,
        as_kafka: str | None = None,
        security: Security | str | None = None,
        seed: int | None = None,
        data_dir: str | PathLike[str] | None = None,
        config: ClusterConfig | None = None,
    ) -> None:
        super().__init__()
        config = config or ClusterConfig()
        config.check(brokers, tcp=tcp)
        settings = broker_settings(
            brokers, configs, super_users, auto_create_topics=auto_create_topics, default_partitions=default_partitions
        )
        versions = config.offered_versions(
            versions_of(
                as_kafka or NEWEST, two_phase_commit=settings.of().enabled("transaction.two.phase.commit.enable")
            )
        )
        self.random: random.Random = random.Random(seed)
        secured = (configs or {}, settings.of(), self.random, config.wall_clock)
        self._security = ClusterSecurity.of(security, *secured, tcp=tcp)
        self.tcp: bool = tcp
        self.config: ClusterConfig = config
        self.broker_session_timeout: float = config.broker_session_timeout
        new_id = base64.urlsafe_b64encode(self.random.randbytes(16)).decode().rstrip("=")
        self._data = data_of(data_dir, new_id, range(config.first_node_id, config.first_node_id + brokers))
        self.cluster_id: str = self._data.cluster_id
        self._was_started = False
        self.authorizer: Authorizer = Authorizer(AclAuthorizer.of_settings(settings.of()))
        self.quota_limits: QuotaLimits = QuotaLimits()
        self.faults: Faults = Faults()
        self.history: History = History(config.history_limit)
        self.nodes: Nodes = Nodes()
        self.connector: MemoryConnector | None = None if tcp else MemoryConnector(self.nodes)
        features = ClusterFeatures.of_release(release_of(as_kafka or NEWEST))
        self.controller: Controller = Controller(self._data.save, self._publish, settings, self.random, features)
        self.leadership: PartitionLeadership = PartitionLeadership(self.controller)
        network, clock = Network(), config.wall_clock
        self.share_groups: HostedShareGroups = HostedShareGroups(
            self.nodes, self.controller, lambda: int(clock() * 1000)
        )
        self.replication: Replication = Replication(self.nodes, network, config.replication_delay)
        self._sessions = BrokerSessions(self.nodes, self.controller, network, self.replication, config.advertised)
        self._parts = ClusterParts(
            config=config,
            cluster_id=self.cluster_id,
            tcp=tcp,
            random=self.random,
            controller=self.controller,
            changes=ClusterChanges(self.controller),
            leadership=self.leadership,
            network=network,
            transaction_requests=TransactionRequests(self.nodes, network),
            share_groups=self.share_groups,
            authorizer=self.authorizer,
            loggers=BrokerLoggers(),
            security=self._security,
            quota_limits=self.quota_limits,
            faults=self.faults,
            history=self.history,
            connection_ids=itertools.count(1),
            spawn=lambda function, name: self._service.start_child(function, name=name),
            wake_fetcher=self.replication.wake,
            log_files=self._data.log_files,
        )
        listeners = len(self._security.protocols)
        for node_id, node_ports in enumerate(ports_of(brokers, listeners, ports, tcp=tcp), start=config.first_node_id):
            rack = config.racks[node_id - config.first_node_id] if config.racks else None
            self.nodes[node_id] = BrokerNode(self._parts, node_id, node_ports, rack=rack, versions=versions)

    def __repr__(self) -> str:
        return f"<EmbeddedCluster brokers={len(self.nodes)} topics={len(self.controller.topics)} {self.state.name}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener of every node, separated by commas.

        Raises IllegalStateError before the start, unless the ports are given.
        """
        return _addresses(self, self._security.protocols[0])

    def client_settings(
        self, user: str | None = None, *, protocol: str | None = None, mechanism: str | None = None
    ) -> dict[str, Any]:
        """Return the arguments with which a client of this package connects: ``Producer(**cluster.client_settings())``.

        The defaults are the first user, the first listener and its first mechanism. Raises ConfigurationError for a
        user, listener or mechanism that the cluster does not have.
        """
        settings = self._security.client_settings(user, protocol, mechanism)
        if self.connector is not None:
            settings["connector"] = self.connector
        return {"bootstrap_servers": _addresses(self, settings["security_protocol"]), **settings}

    # The lifetime.

    async def _on_start(self) -> None:
        if self.connector is not None:
            self.connector.bind()
        try:
            self._data.open(
                self.controller, acls=self.authorizer.acls, quotas=self.quota_limits, security=self._security
            )
            self._security.open([self.config.advertised_host or self.config.host, self.config.host])
            for node in self.nodes.values():
                await node.start()
            # All run before the first one registers, because a registration is published to the brokers that run.
            for node in self.nodes.values():
                self._sessions.register(node)
            used = max(node.transactions.largest_producer_id for node in self.nodes.values())
            self.controller.skip_producer_ids(used)
            self.share_groups.load()
            self.leadership.resume_reassignments()
            self._was_started = True
        except BaseException:
            await self._on_close()
            raise

    async def _on_close(self) -> None:
        # The timers of the cluster end before its brokers: none of them may act on a broker that has stopped.
        self._sessions.stop()
        self.replication.stop()
        self.leadership.stop()
        self.controller.stop()
        self.share_groups.stop()
        self.faults.log_unused()
        for node in self.nodes.values():
            node.stop(abruptly=True)
            node.replica_manager.checkpoint(is_flushed=True)
        self._data.close(is_orderly=self._was_started)
        self._security.close()
        self._parts.loggers.restore()

    def _publish(self, name: str | None) -> None:
        self._sessions.publish(name)
        if name is not None and name not in self.controller.topics:
            self.share_groups.drop_deleted_topics()

    # Topics.

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic, ready for use. ``assignments`` are the replicas of each partition.

        Raises ``Refused`` with Kafka's error code.
        """
        self._service.check()
        text("name", name)
        for what, number in (("partitions", partitions), ("replication_factor", replication_factor)):
            if not is_whole(number):
                raise TypeError(must_be(what, "a whole number", number))
        if assignments is not None:
            partitions = replication_factor = -1
        numbered = None if assignments is None else list(enumerate(assignments))
        return self.controller.create_topic(name, partitions, replication_factor, assignments=numbered, configs=configs)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises ``Refused``."""
        self._service.check()
        self.controller.delete_topic(name)

    def state_of(self, topic: str, partition: int) -> PartitionRegistration:
        """Return the leader, the replicas and the in-sync set of a partition. Raises ``Refused``."""
        self._service.check_process()
        return self.controller.state_of((topic, partition))

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of the leader; -1 if the partition has none. Raises ``Refused``."""
        return self.state_of(topic, partition).leader

    async def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
    ) -> int:
        """Write one record without a client, with acks=all. Returns its offset.

        A topic that does not exist is created. Without ``partition``, the key chooses it as in Kafka's clients; a
        record without a key goes to partition 0. Raises ``Refused`` with the broker's code, and TypeError and
        ValueError for arguments of another type.
        """
        self._service.check()
        key_bytes, value_bytes = direct.encoded("key", key), direct.encoded("value", value)
        header_list = direct.headers_of(headers)
        if partition is not None:
            whole("partition", partition)
        text("topic", topic)
        topic_state = self.controller.topics.get(topic) or self.controller.create_topic(topic)
        if partition is None:
            partition = direct.partition_for(key_bytes, len(topic_state.partitions))
        leader = self._leader(topic, partition)
        return await direct.produce(leader, topic, partition, value_bytes, key_bytes, header_list)

    def records(self, topic: str, partition: int | None = None) -> list[Record[bytes, bytes]]:
        """Return the committed records of a topic, or of one partition, in order of partitions and offsets, without a
        client.

        Records of open and aborted transactions are left out. Raises ``Refused`` if the topic or the partition does
        not exist, or if a partition has no leader.
        """
        if partition is not None:
            whole("partition", partition)
        numbers = range(len(self.controller.require(topic).partitions)) if partition is None else [partition]
        replicas = [self._leader(topic, number).replica_manager.require((topic, number)) for number in numbers]
        return [record for replica in replicas for record in direct.records_of(replica)]

    async def wait_for_records(
        self, topic: str, count: int = 1, *, partition: int | None = None, timeout: float = 10.0
    ) -> list[Record[bytes, bytes]]:
        """Wait until a topic, or one partition, has ``count`` committed records. Returns all of them, as ``records``.

        The topic may be created later. Raises KafkaTimeout after ``timeout`` seconds; its text has the present number.
        """
        self._service.check()
        text("topic", topic)
        whole("count", count, 1)
        check_wait(timeout, "timeout")
        records: list[Record[bytes, bytes]] = []

        def missing() -> str:
            where = f"topic {topic!r}" if partition is None else f"{topic}-{partition}"
            return f"{where} has {plural(len(records), 'record')} after {timeout:g} s, expected {count}"

        with deadline(timeout, missing):
            ends: list[int] = []
            while True:
                # Records are decoded only when a partition has grown: a topic may have many of them.
                present_ends = self._ends_of(topic)
                if present_ends and present_ends != ends:
                    ends, records = present_ends, self.records(topic, partition)
                if len(records) >= count:
                    return records
                await asyncio.sleep(_LOOK_AGAIN)

    def _ends_of(self, topic: str) -> list[int]:
        """Return the last stable offset of each partition; [] if the topic is missing or a partition has no leader."""
        if topic not in self.controller.topics:
            return []
        leaders = [state.leader for state in self.controller.require(topic).partitions]
        if not all(leader in self.nodes for leader in leaders):
            return []
        partitions = [
            self.nodes[leader].replica_manager.require((topic, index)) for index, leader in enumerate(leaders)
        ]
        return [partition.last_stable_offset for partition in partitions]

    def metrics(self) -> ClusterMetrics:
        """Return the counters and gauges of all brokers: requests by topic, purgatories, in-sync sets, connections."""
        self._service.check_process()
        return cluster_metrics(self.nodes.values())

    def _leader(self, topic: str, partition: int) -> BrokerNode:
        leader = self.leader_of(topic, partition)
        if leader not in self.nodes:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self.nodes[leader]

    async def until_in_sync(self, topic: str, timeout: float = 10.0) -> None:
        """Wait until all replicas of a topic are in sync, and none moves. Raises KafkaTimeout after ``timeout`` s."""
        self._service.check_process()
        with deadline(timeout, lambda: f"the replicas of {topic!r} are not in sync after {timeout:g} s"):
            while not all(state.is_settled for state in self.controller.require(topic).partitions):
                await self._sessions.changed.wait()

    # Faults.

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
        """Make a fault for one kind of request. A method of the returned fault sets its effect.

        It hits the ``nth`` matching request (counting from 1) and up to ``times`` requests in all. ``times=None`` is
        unlimited, until ``remove()``.
        """
        self._service.check_process()
        if node is not None:
            self.nodes[node]  # raises ValueError for a broker that does not exist
        remove = self.faults.remove
        return self.faults.add(
            Fault(request, node=node, topic=topic, partition=partition, nth=nth, times=times, remove=remove)
        )

    async def stop(self, node: int) -> None:
        """Shut a broker down: first other brokers take over its partitions, then its connections close."""
        self._service.check()
        broker = self.nodes[node]
        self.controller.fence(node)
        broker.stop(abruptly=False)

    async def kill(self, node: int, *, noticed_after: float = 0.0) -> None:
        """End a broker as ``kill -9`` does: connections are reset. It is fenced ``noticed_after`` seconds later."""
        self._service.check()
        self.nodes[node].stop(abruptly=True)
        self._sessions.fence_after(node, noticed_after)

    async def start_node(self, node: int, *, port: int | None = None) -> None:
        """Start a stopped broker with its old logs, on its old ports. ``port`` is for its first listener alone."""
        self._service.check()
        broker = self.nodes[node]
        await broker.start(port)
        self._sessions.register(broker)

    async def restart(self, node: int, *, port: int | None = None) -> None:
        """Stop and start a broker."""
        await self.stop(node)
        await self.start_node(node, port=port)

    async def freeze(self, node: int) -> None:
        """Suspend a broker: its connections stay open without answers. It is fenced when its session expires."""
        self._service.check()
        self.nodes[node].freeze()
        self._sessions.fence_after(node, self.broker_session_timeout)

    async def thaw(self, node: int) -> None:
        """Continue a frozen broker."""
        self._service.check()
        self.nodes[node].thaw()
        self._sessions.register(self.nodes[node])

    async def partition_network(self, *groups: Collection[int]) -> None:
        """Cut the brokers into groups that do not reach one another. Clients still reach all of them.

        The controller is with the largest group. The brokers of the other groups are fenced when their sessions expire,
        and continue to act as leaders with their old metadata. Raises ConfigurationError.
        """
        self._service.check()
        self._sessions.partition(groups, self.broker_session_timeout)

    async def heal_network(self) -> None:
        """Connect all brokers again."""
        self._service.check()
        self._sessions.heal()

    async def move_leader(self, topic: str, partition: int, node: int | None = None, *, unclean: bool = False) -> int:
        """Elect another leader, by default the next live replica in sync. Returns its node id. Raises ``Refused``.

        With ``unclean`` the leader may be a replica that is not in sync; the records that it does not have are lost.
        """
        self._service.check()
        return self.leadership.move_leader((topic, partition), node, unclean=unclean)

    async def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set the in-sync set. A replica outside joins again with its next fetch, unless it is cut off or frozen."""
        self._service.check()
        self.leadership.force_isr((topic, partition), tuple(isr))

    def hold_markers(self, topic: str, partition: int) -> HeldMarkers:
        """Hold the markers of transactions for one partition until ``release()`` of the returned object.

        Meanwhile the transactions that end are decided but not complete: a producer gets CONCURRENT_TRANSACTIONS for
        its next transaction, and readers of committed records wait. The object is a context manager too.
        """
        self._service.check_process()
        return self._parts.transaction_requests.hold_markers((topic, partition))

    def set_feature(self, name: str, level: int) -> None:
        """Finalize a level of a feature: ``set_feature("transaction.version", 1)`` makes clients use generation 1.

        Clients see it with their next connection to a broker. Raises ConfigurationError.
        """
        self._service.check_process()
        self._parts.changes.set_feature(name, level)

    def cap_versions(self, node: int, request: type[Request[Any]], last: int, *, first: int | None = None) -> None:
        """Limit the versions of an API that a broker offers, from now on."""
        self._service.check_process()
        versions = self.nodes[node].versions
        lowest, _ = versions[request.api_key]
        versions[request.api_key] = (lowest if first is None else first, last)

    def clean_up(self) -> None:
        """Apply retention, compaction, expiration and timeouts of transactions on every running broker, now."""
        self._service.check_process()
        for broker in self.nodes.values():
            if broker.is_running:
                broker.clean_up()

    def skew_clock(self, node: int, seconds: float) -> None:
        """Set a broker's wall clock ahead, or with a negative number back."""
        self._service.check_process()
        check_wait(seconds, "seconds")
        self.nodes[node].clock_skew = seconds


def _addresses(cluster: EmbeddedCluster, listener: str) -> str:
    addresses = [(node.host, node.listeners[listener].port) for node in cluster.nodes.values()]
    if not all(port for _, port in addresses):
        raise IllegalStateError(f"{cluster!r} has no ports yet, because it {NOT_STARTED}")
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)

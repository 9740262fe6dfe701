"""The brokers that a client can connect to: the brokers of the snapshot, and the bootstrap addresses.

Owns the ``Broker`` objects, marks unreachable ones, and chooses a broker for a request that any broker can answer. Does
no I/O itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import anyio

from ..aio.runtime import Runtime
from ..errors import ErrorCode, error_for
from ..net.broker import Broker
from ..net.traffic import TrafficCounters
from ..types import Node
from .bootstrap import Address, shuffled
from .metadata import ClusterView

_CLOSE_TIMEOUT = 1.5
"""Seconds to wait for transports to close. A transport whose peer does not read may take longer; the event loop then
ends it."""


class Brokers:
    """All brokers by node id. ``make`` creates the Broker of a node; creating one does not connect.

    A bootstrap address is a node with a negative id, since it is not known which broker listens there.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        make: Callable[[Node], Broker],
        runtime: Runtime,
        *,
        are_controllers: bool = False,
    ) -> None:
        self.bootstrap: tuple[Address, ...] = tuple(bootstrap)
        self.are_controllers = are_controllers
        """Whether these are controllers, which know neither topics nor groups."""
        self._bootstrap_ids = {address: -1 - position for position, address in enumerate(bootstrap)}
        self.departed: TrafficCounters = TrafficCounters()
        """The sums over the brokers that have left the cluster, so that sums over all brokers never fall."""
        self._make = make
        self._runtime = runtime
        self._brokers: dict[int, Broker] = {}
        self._unreachable: set[int] = set()
        self._listed: set[int] = set()
        self._newest: dict[int, Node] = {}
        """The address of each broker in the newest answer that named it: of metadata, of a coordinator, or a hint."""

    def record(self, node: Node) -> None:
        """Apply an answer that names a broker. It is newer than all earlier ones, so the broker moves there."""
        self._newest[node.node_id] = node
        if node.node_id in self._brokers:
            self.of(node)

    def of(self, node: Node) -> Broker:
        """Return the broker of this node, created on first use. If the node has a new address, the broker moves there.

        A cached node may be older than the newest answer, whose address counts.
        """
        node = self._newest.get(node.node_id, node)
        broker = self._brokers.get(node.node_id)
        if broker is None:
            broker = self._brokers[node.node_id] = self._make(node)
        elif broker.node != node:
            if _address(broker.node) != _address(node):  # the failure happened at the old address
                self._unreachable.discard(node.node_id)
            broker.update(node)
        return broker

    def __iter__(self) -> Iterator[Broker]:
        """Iterate over all known brokers, and the bootstrap addresses that were tried."""
        return iter(tuple(self._brokers.values()))

    def follow(self, view: ClusterView) -> None:
        """Apply the snapshot of an answer: move brokers, drop unlisted idle ones, retire bootstrap connections.

        A broker that is not listed keeps its connections. An outdated answer may omit a live broker, and the requests
        in flight at that broker must not fail. Idle connections close by themselves, and a broker without connections
        is dropped. A broker that is listed again is reconnected at once, without the rest of its backoff.
        """
        for node in view.nodes.values():
            # Also if the snapshot is as before: a coordinator may have had an older address meanwhile.
            self._newest[node.node_id] = node
            if node.node_id in self._brokers:
                broker = self.of(node)
                if node.node_id not in self._listed:
                    broker.reset_backoff()
        self._listed = set(view.nodes)
        self._unreachable.intersection_update(view.nodes)
        # Only idle brokers are dropped: a broker with a request in flight may be alive although this view omits it.
        for node_id, broker in list(self._brokers.items()):
            if node_id >= 0 and node_id not in self._listed and broker.is_idle:
                del self._brokers[node_id]
                self.departed.include(broker.traffic)
                broker.close()
                self._newest.pop(node_id, None)
        # The same brokers are known by their own ids now, so a second connection to them would be wasted.
        for bootstrap_id in self._bootstrap_ids.values():
            if bootstrap_id in self._brokers:
                for connection in self._brokers[bootstrap_id].connections.values():
                    connection.retire()

    def mark_unreachable(self, broker: Broker) -> None:
        """Mark a broker as unreachable after a failure: it is used only if no other broker is reachable."""
        if broker.node.node_id >= 0:
            self._unreachable.add(broker.node.node_id)

    def mark_all_unreachable(self, view: ClusterView) -> None:
        """Start again from the bootstrap addresses."""
        for node in view.nodes.values():
            self.mark_unreachable(self.of(node))

    def mark_reachable(self, broker: Broker) -> None:
        """Mark every node id with the address of this broker as reachable, because the broker answered."""
        if self._unreachable:  # checked for each answer, and nearly always empty
            address = _address(broker.node)
            self._unreachable = {
                node_id
                for node_id in self._unreachable
                if node_id in self._brokers and _address(self._brokers[node_id].node) != address
            }

    def mark_all_reachable(self) -> None:
        """Forget which brokers are unreachable. If all are unreachable, no broker is a worse choice than another."""
        self._unreachable.clear()

    def candidates(self, view: ClusterView) -> Iterator[Broker]:
        """Yield the brokers to ask one after the other until one answers: reachable ones, then the bootstrap addresses.

        Lazy, so a broker that becomes unreachable during the search is skipped. A bootstrap address that is also the
        address of a broker is tried only once.
        """
        tried = set()
        for broker in self._reachable(view):
            if broker.node.node_id not in self._unreachable:
                tried.add(_address(broker.node))
                yield broker
        for address in shuffled(self.bootstrap, self._runtime.random):
            if address not in tried:
                yield self.of(Node(self._bootstrap_ids[address], address.host, address.port))

    def by_load(self, view: ClusterView) -> list[Broker]:
        """Return brokers for a request that any can answer, best first: connected, then fewest requests in flight.

        Raises BrokerError (BROKER_NOT_AVAILABLE) only while the snapshot has no broker at all.
        """
        brokers = self._reachable(view)
        if not brokers:
            raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata lists no broker")
        return brokers

    async def close(self) -> None:
        """Close all connections and wait briefly for their transports."""
        brokers = list(self._brokers.values())
        for broker in brokers:
            broker.close()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            for broker in brokers:
                await broker.wait_closed()

    def _reachable(self, view: ClusterView) -> list[Broker]:
        """Return the reachable brokers of the snapshot, best first. If none is reachable, all brokers of the
        snapshot."""
        nodes = [node for node in view.nodes.values() if node.node_id not in self._unreachable]
        now = asyncio.get_running_loop().time()

        def reluctance(broker: Broker) -> tuple[bool, bool, int, float]:
            in_flight = sum(connection.in_flight for connection in broker.connections.values())
            return broker.retry_at > now, not broker.connected, in_flight, self._runtime.random()

        return sorted(map(self.of, nodes or view.nodes.values()), key=reluctance)


def _address(node: Node) -> Address:
    return Address(node.host, node.port)

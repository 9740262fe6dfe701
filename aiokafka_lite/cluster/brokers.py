"""The brokers that the client may talk to: those of the snapshot, those of the bootstrap list, and who is put aside.

Owns the ``Broker`` objects. Decides whom to ask next when any broker would do; it does no I/O by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import anyio

from ..aio.runtime import Runtime
from ..errors import ErrorCode, error_for
from ..net.broker import Broker
from ..types import Node
from .bootstrap import Address, shuffled
from .metadata import ClusterView

_CLOSE_TIMEOUT = 1.5
"""Seconds to wait for transports to end. One whose peer does not read may take longer, and goes with the loop."""


class Brokers:
    """All brokers by node id. ``make`` makes a Broker for a node; nothing is connected before it is asked for.

    Bootstrap addresses are nodes with ids below zero, as nobody knows yet which brokers they are.
    """

    def __init__(
        self, bootstrap: Sequence[Address], make: Callable[[Node], Broker], runtime: Runtime
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self._seed_ids = {address: -1 - position for position, address in enumerate(bootstrap)}
        self._make = make
        self._runtime = runtime
        self._brokers: dict[int, Broker] = {}
        self._aside: set[int] = set()
        self._listed: set[int] = set()

    def of(self, node: Node) -> Broker:
        """The broker of a node; it moves when the node's address is another one now."""
        broker = self._brokers.get(node.node_id)
        if broker is None:
            broker = self._brokers[node.node_id] = self._make(node)
        elif broker.node != node:
            if _place(broker.node) != _place(node):
                self._aside.discard(node.node_id)
            broker.update(node)
        return broker

    def __iter__(self) -> Iterator[Broker]:
        """All that are known at the moment, with the bootstrap addresses that were tried."""
        return iter(tuple(self._brokers.values()))

    def follow(self, view: ClusterView) -> None:
        """Follow an answer: brokers move, and connections to bootstrap addresses have done their duty.

        A broker that is not listed keeps its connections: an answer that lags behind may leave out one that lives, and
        what is in flight there must not be lost for it. Idle connections end by themselves, and without any it is
        forgotten. One that is listed again has come back, so it is called at once, whatever the pause after the calls
        in vain.
        """
        for node in view.nodes.values():
            if node.node_id in self._brokers:
                listed = self.of(node)
                if node.node_id not in self._listed:
                    listed.hurry()
        self._listed = set(view.nodes)
        self._aside.intersection_update(view.nodes)
        for node_id, broker in list(self._brokers.items()):
            if node_id >= 0 and node_id not in self._listed and broker.is_idle:
                del self._brokers[node_id]
                broker.close()
        for seed in self._seed_ids.values():
            if seed in self._brokers:
                for connection in self._brokers[seed].connections:
                    connection.retire()

    def put_aside(self, broker: Broker) -> None:
        """Ask it only when no other is left: it failed."""
        if broker.node.node_id >= 0:
            self._aside.add(broker.node.node_id)

    def put_all_aside(self, view: ClusterView) -> None:
        """Begin again from the bootstrap addresses."""
        for node in view.nodes.values():
            self.put_aside(self.of(node))

    def revive(self, broker: Broker) -> None:
        """It answered, and so it is alive under whatever id its address was put aside."""
        if self._aside:
            place = _place(broker.node)
            self._aside = {
                node_id
                for node_id in self._aside
                if node_id in self._brokers and _place(self._brokers[node_id].node) != place
            }

    def resurrect(self) -> None:
        """None is left, so all get another chance."""
        self._aside.clear()

    def candidates(self, view: ClusterView) -> Iterator[Broker]:
        """Whom to ask, one after the other until one answers: live brokers, then the bootstrap addresses.

        An address that was tried as a broker's is not tried again as a bootstrap address.
        """
        tried = set()
        for broker in self._live(view):
            if broker.node.node_id not in self._aside:
                tried.add(_place(broker.node))
                yield broker
        for address in shuffled(self.bootstrap, self._runtime.random):
            if address not in tried:
                yield self.of(Node(self._seed_ids[address], address.host, address.port))

    def by_load(self, view: ClusterView) -> list[Broker]:
        """Brokers for a request that any may answer: connected before not, then with the least in flight first.

        Raises BrokerError (BROKER_NOT_AVAILABLE) only while the snapshot has no broker at all.
        """
        brokers = self._live(view)
        if not brokers:
            raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, "no broker of the cluster is known")
        return brokers

    async def close(self) -> None:
        """Close all connections; waits for their transports, but not for long."""
        brokers = list(self._brokers.values())
        for broker in brokers:
            broker.close()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            for broker in brokers:
                await broker.wait_closed()

    def _live(self, view: ClusterView) -> list[Broker]:
        """Listed brokers that are not put aside, or all when none is left, in the order in which to choose them."""
        live = [node for node in view.nodes.values() if node.node_id not in self._aside] or list(view.nodes.values())
        now = asyncio.get_running_loop().time()

        def reluctance(broker: Broker) -> tuple[bool, bool, int, float]:
            in_flight = sum(connection.in_flight for connection in broker.connections)
            return broker.retry_at > now, not broker.connected, in_flight, self._runtime.random()

        return sorted(map(self.of, live), key=reluctance)


def _place(node: Node) -> Address:
    return Address(node.host, node.port)

"""The brokers' sessions with the controller: registration, publishing of metadata, fencing, and network partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from ..errors import ConfigurationError
from .metadata.controller import Controller
from .node import BrokerNode
from .replicas.replication import Network, Replication


class BrokerSessions:
    """Owner: the EmbeddedCluster. ``changed`` is set, and replaced, at each change of the metadata."""

    def __init__(
        self,
        nodes: Mapping[int, BrokerNode],
        controller: Controller,
        network: Network,
        replication: Replication,
        advertised: Callable[[int, Mapping[str, int]], tuple[str, dict[str, int]]],
    ) -> None:
        self.changed: asyncio.Event = asyncio.Event()
        self._nodes = nodes
        self._controller = controller
        self._network = network
        self._replication = replication
        self._advertised = advertised
        self._timers: dict[int, asyncio.TimerHandle] = {}  # each fences a broker when it ends

    def register(self, node: BrokerNode) -> None:
        """Register a broker that runs, and update its metadata. A broker that is cut off stays fenced."""
        if self._network.reaches_controller(node.node_id):
            self._cancel(node.node_id)
            listeners = {name: listener.port for name, listener in node.listeners.items()}
            self._controller.register(node.node_id, *self._advertised(node.node_id, listeners), node.rack)
            node.catch_up()
        self._replication.resume()

    def publish(self, name: str | None) -> None:
        """Send a changed topic or, with None, the list of brokers to the nodes that the controller reaches."""
        for node in self._nodes.values():
            if not node.is_running or not self._network.reaches_controller(node.node_id):
                continue  # the node catches up at its next registration
            if name is None:
                node.update_brokers()
            else:
                node.update_topic(name)
        self.changed.set()
        self.changed = asyncio.Event()

    def fence_after(self, node_id: int, delay: float) -> None:
        """Fence a broker in ``delay`` seconds, unless it registers before."""
        self._cancel(node_id)
        if delay <= 0:
            self._controller.fence(node_id)
        else:
            loop = asyncio.get_running_loop()
            self._timers[node_id] = loop.call_later(delay, self._controller.fence, node_id)

    def partition(self, groups: Collection[Collection[int]], timeout: float) -> None:
        """Cut the brokers into groups. The groups without the controller are fenced in ``timeout`` seconds."""
        named = [node for group in groups for node in group]
        if len(set(named)) != len(named) or not set(named) <= set(self._nodes):
            raise ConfigurationError(f"groups must have each broker of {list(self._nodes)} at most once, got {groups}")
        rest = [node for node in self._nodes if node not in named]
        was_cut = [node for node in self._nodes if not self._network.reaches_controller(node)]
        self._network.split([*groups, rest] if rest else groups)
        for node_id, node in self._nodes.items():
            if not self._network.reaches_controller(node_id):
                if node_id not in was_cut:
                    self.fence_after(node_id, timeout)
            elif node_id in was_cut and node.is_running:
                self.register(node)
        self._replication.resume()

    def heal(self) -> None:
        """Connect all brokers again."""
        self._network.heal()
        for node in self._nodes.values():
            if node.is_running:
                self.register(node)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _cancel(self, node_id: int) -> None:
        timer = self._timers.pop(node_id, None)
        if timer is not None:
            timer.cancel()

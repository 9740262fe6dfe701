"""One attempt of an admin call: its deadline, the broker that it asks, and the items for each broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..arguments import must_be
from ..cluster.client import Client
from ..errors import ConfigurationError, KafkaError, UnsupportedVersion
from ..net.broker import Broker, Purpose
from ..protocol.messages import MetadataRequest
from ..protocol.schema import Request, Since
from ..protocol.versions import VersionTable
from ..settings.checks import LONGEST
from ..types import Node

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class Deadline:
    """The end of a call in the loop's time, ``timeout`` seconds from now. Raises ConfigurationError."""

    __slots__ = ("at", "timeout")

    def __init__(self, timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= sys.float_info.max:
            raise ConfigurationError(must_be("timeout", "a number of seconds > 0", timeout))
        self.timeout: float = float(timeout)
        self.at: float = asyncio.get_running_loop().time() + timeout

    @property
    def left(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - asyncio.get_running_loop().time())

    def first_part(self) -> Deadline:
        """Return a deadline after three quarters of the remaining time, so that a late step leaves time for others."""
        return Deadline(max(self.left * 0.75, 0.001))


class Peer:
    """A broker for one attempt: its versions, and a way to send it requests."""

    def __init__(self, broker: Broker, versions: VersionTable, timeout: float) -> None:
        self.node: Node = broker.node
        self.node_id: int = broker.node.node_id
        self.versions = versions
        self._broker = broker
        self._timeout = timeout

    @property
    def timeout_ms(self) -> int:
        """The milliseconds that the broker may take: 90 % of the client's timeout, so that its answer still arrives."""
        return max(1, round(min(self._timeout, LONGEST) * 900))

    async def send(self, request: Request[R], *, at_most: int | None = None) -> R:
        """Send the request once and return the response. ``at_most`` bounds the version."""
        return await self._broker.send(request, purpose=Purpose.ADMIN, timeout=self._timeout, at_most=at_most)

    def speaks(self, what: type[Request[Any]] | Since) -> bool:
        """Return whether the broker and this client both support an API, or a version of the API that has a feature."""
        request, version = (what.message, int(what)) if isinstance(what, Since) else (what, 0)
        newest = self.versions.maximum(request)
        return newest is not None and newest >= version

    def require(self, feature: Since, what: str) -> None:
        """Raise UnsupportedVersion unless the broker has the feature. The error names the Kafka release that has it."""
        if not self.speaks(feature):
            if not any(map(self.versions.offered, (feature.message, MetadataRequest))):
                raise UnsupportedVersion(f"{what} is for brokers, and {self.versions.peer} is a controller")
            raise UnsupportedVersion(
                f"{what} requires Kafka {feature.kafka} or newer, and {self.versions.peer} is older"
            )


@dataclass(slots=True)
class Targets:
    """The items of each broker to ask, and the errors of items without a broker."""

    by_node: dict[int, list[Any]] = field(default_factory=dict)
    errors: dict[Any, KafkaError] = field(default_factory=dict)
    any_broker: bool = False
    """Whether any broker can answer. If so, a broker that does not answer must leave time to ask another one."""

    def put(self, node_id: int, item: Any) -> None:
        self.by_node.setdefault(node_id, []).append(item)


FindTargets = Callable[[list[Any], Deadline], Awaitable[Targets]]
Ask = Callable[[Peer, list[K]], Awaitable[Mapping[K, V | KafkaError]]]


class Brokers:
    """The brokers of a client as admin calls see them: connections for attempts, and which brokers failed last."""

    def __init__(self, client: Client) -> None:
        self.client: Client = client
        self._avoided: set[int] = set()  # brokers whose last attempt failed

    def is_avoided(self, node_id: int) -> bool:
        return node_id in self._avoided

    async def peer(self, node_id: int, deadline: Deadline, *, share: float = 1.0) -> Peer:
        """Connect to the broker for an attempt. ``share`` is the part of the remaining time for it."""
        broker = self.client.broker(node_id)
        connection = await broker.connection(Purpose.ADMIN)
        # After the connection is open, because this takes a part of the time as well.
        timeout = max(min(deadline.left * share, self.client.config.request_timeout), 0.001)
        return Peer(broker, connection.versions, timeout)

    def failed(self, node_id: int) -> None:
        """Prefer other brokers from now on. Refresh the metadata, because the broker may have left the cluster."""
        self._avoided.add(node_id)
        self.client.request_refresh()

    def answered(self, node_id: int) -> None:
        """Record that the broker is reachable."""
        self._avoided.discard(node_id)

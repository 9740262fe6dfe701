"""All clients of one broker: their streams and connections, and the limits on their number and their memory."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from ..errors import IllegalStateError
from ..protocol.framing import FrameMemory
from .closing_log import ClosingLog
from .connection import ServerConnection
from .connection_limits import ConnectionLimits
from .faults import Faults, History
from .request_context import BrokerParts
from .security.authentication import Authentication
from .security.principal_mapping import NoMatchingRule
from .security.security import ClusterSecurity
from .server_stream import ServerStream, UnsentResponses
from .settings.listeners import Listener

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]], str], object]
"""Runs a coroutine function as a task of the cluster, under a name."""

INCOMPLETE_REQUEST = 2.0
"""Seconds after which an incomplete large request has to make room for requests of other clients."""


class ClientConnections:
    """The connections of the clients of one node. Owner: the node.

    ``spawn`` runs a connection as a task of the cluster, ``clock`` gives the loop's time in seconds. While the node is
    frozen, its connections stay open, and nothing is read or answered.
    """

    def __init__(
        self,
        parts: BrokerParts,
        security: ClusterSecurity,
        spawn: Spawn,
        clock: Callable[[], float],
        *,
        connection_ids: itertools.count[int],
        faults: Faults,
        history: History,
    ) -> None:
        self.node_id: int = parts.node_id
        self.parts: BrokerParts = parts
        self.faults: Faults = faults
        self.history: History = history
        self.connection_ids: itertools.count[int] = connection_ids
        self.closings: ClosingLog = ClosingLog(parts.node_id, clock)
        self.limits: ConnectionLimits = ConnectionLimits(parts.settings, parts.quotas, clock)
        self.long_work: asyncio.Lock = asyncio.Lock()
        # A dict keeps the order, so that stopping is repeatable in virtual time.
        self.connections: dict[ServerConnection, None] = {}
        self._security = security
        self._spawn = spawn
        self._clock = clock
        self._is_open = False
        self._thawed = asyncio.Event()
        limit = parts.settings.number("queued.max.request.bytes")
        limit = sys.maxsize if limit < 0 else limit
        self._memory = FrameMemory(limit, reserved=limit // 4, make_room=self._drop_slowest_sender)
        self._unsent = UnsentResponses(limit, self.closings)

    def __repr__(self) -> str:
        return f"<ClientConnections node={self.node_id} connections={len(self.connections)}>"

    @property
    def is_frozen(self) -> bool:
        return not self._thawed.is_set()

    async def until_thawed(self) -> None:
        """Wait while the node is frozen."""
        await self._thawed.wait()

    def open(self) -> None:
        """Accept clients, because the node runs."""
        self._is_open = True
        self._thawed.set()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def close(self, *, abruptly: bool) -> None:
        """Close every connection, and accept no more."""
        self._is_open = False
        for connection in list(self.connections):
            connection.node_stopped()
            if abruptly:
                connection.stream.abort()
            else:
                connection.stream.close()
        self.closings.flush()
        self._thawed.set()  # so that coroutines of a frozen node can end

    def new_stream(self, listener: Listener) -> ServerStream:
        """Return the broker's end of a new connection."""
        limit = "sasl.server.max.receive.size" if listener.uses_sasl else "socket.request.max.bytes"
        max_size = self.parts.settings.of_listener(listener.name).number(limit)
        return ServerStream(listener, max_size, self._memory, self._unsent, self.closings, self._connected)

    def _connected(self, stream: ServerStream) -> None:
        listener = stream.listener.name
        if not self._is_open:
            stream.abort()
            return
        if not self.limits.make_room(self.connections, listener, stream.client_address):
            self.closings.closed(stream.peer, f"the listener {listener} has as many connections as it allows")
            stream.abort()
            return
        try:
            principal = self._security.principal_of(listener, stream.subject)
        except NoMatchingRule as error:
            self.closings.closed(stream.peer, str(error))
            stream.abort()
            return
        authentication = None
        if stream.listener.uses_sasl:
            credentials = self._security.credentials_of(listener)
            authentication = Authentication(credentials, self.parts.settings.of_listener(listener), self._clock)
        connection = ServerConnection(self, stream, principal, authentication)
        self.connections[connection] = None
        try:
            self._spawn(connection.serve, f"node {self.node_id} connection {connection.connection_id}")
        except IllegalStateError:
            # The cluster closes, and takes no more tasks.
            self.connections.pop(connection, None)
            stream.abort()

    def disconnected(self, connection: ServerConnection) -> None:
        """Forget a connection that has ended, and release what its client has acquired."""
        self.connections.pop(connection, None)
        # The other members of the share group must not wait until the locks on these records expire.
        for (group_id, member_id), session in self.parts.share_sessions.of_connection(connection.connection_id):
            self.parts.shares.release(group_id, member_id, session.partitions)

    def _drop_slowest_sender(self) -> bool:
        """Disconnect the client whose request has been incomplete for longest. False if all are recent."""
        streams = [connection.stream for connection in self.connections]
        waiting = [(since, stream) for stream in streams if (since := stream.incomplete_since) is not None]
        since, slowest = min(waiting, key=lambda sender: sender[0], default=(math.inf, None))
        if slowest is None or since > self._clock() - INCOMPLETE_REQUEST:
            return False
        self.closings.closed(slowest.peer, "its request is incomplete, and other clients need the memory")
        slowest.drop()
        return True

    def close_idle(self) -> None:
        """Close connections without a whole request for ``connections.max.idle.ms``, even if they send single bytes."""
        before = self._clock() - self.parts.settings.seconds("connections.max.idle.ms")
        for connection in list(self.connections):
            if connection.idle_since is not None and connection.idle_since < before:
                connection.stream.close()

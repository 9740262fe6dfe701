"""One broker and its connections: one for each purpose, opened when a caller needs it.

Rule 1: Callers that need a connection share one attempt. The attempt is a task of its own, so a cancelled caller does
        not end it.

Rule 2: Attempts to one broker are made one after another, for all purposes and callers together. The pause between them
grows with each failure. Otherwise a hundred clients could overload a broker that is starting.

Rule 3: ``_ending`` has the connections that get no new callers, until their transports are closed, and the connections
that are being opened. So closing the broker waits for all these connections.

Bootstrap addresses are brokers with a negative node id. They are used only while no other broker is known. They have no
outage of their own, because the metadata updater reports their failures.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random as _random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from ..aio.light_event import result_of
from ..aio.outages import Outages
from ..aio.retry import is_refusal
from ..errors import ConnectionLost, KafkaError
from ..protocol.framing import WaitingFrameMemory
from ..protocol.messages import ApiVersionsRequest
from ..protocol.schema import Request
from ..settings.client import ClientConfig
from ..types import Node
from .connection import Connection, Purpose
from .connector import Connector, format_address
from .reconnect import ReconnectBackoff
from .traffic import TrafficCounters

if TYPE_CHECKING:
    from ..events import ConnectionClosed, ConnectionOpened
    from ..protocol.versions import VersionTable
    from .login import Login
    from .metrics import BrokerTraffic

__all__ = ["Broker", "Purpose", "Spawn"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

_RENEW_FROM, _RENEW_UNTIL = 0.85, 0.95
"""The fraction of a session that passes before the next login. It is random, so that clients do not log in together."""

_SHORTEST_SESSION = 1.05
"""The shortest time between two logins, in seconds. Brokers refuse a second login within one second."""

_NAMES_SOFTWARE = 3
"""The first version of ApiVersions with the client's name. A broker that offers it does not close on this version."""


class Spawn(Protocol):
    """Runs a coroutine function as a task of the component that owns the broker, as ``Service.start_child`` does."""

    def __call__(self, function: Callable[[], Coroutine[Any, Any, None]], /) -> object: ...


class Broker:
    """A broker's address and its connections. Owned by one client, in one loop. The constructor does no I/O.

    A negative ``node_id`` is a bootstrap address: it is not known which broker listens there. ``random`` returns
    numbers in [0, 1), for jitter. Failures are counted in ``outages``, whose ``on_event`` is called with each
    connection that is opened or closed. ``memory`` bounds the incomplete responses of all brokers together.
    """

    def __init__(
        self,
        node: Node,
        *,
        config: ClientConfig,
        connector: Connector,
        spawn: Spawn,
        login: Login | None = None,
        random: Callable[[], float] = _random.random,
        outages: Outages | None = None,
        memory: WaitingFrameMemory | None = None,
    ) -> None:
        self.node: Node = node
        self._outages = Outages() if outages is None else outages
        self._config = config
        self._connector = connector
        self._spawn = spawn
        self._login = login
        self._random = random
        self._memory = memory
        self.versions: VersionTable | None = None
        """The versions that the broker offered on the last opened connection, even if that connection is closed now."""
        self._counters = TrafficCounters()
        self._connections: dict[Purpose, Connection] = {}
        # A dict keeps the order, so that closing is repeatable in virtual time.
        self._ending: dict[Connection, None] = {}
        self._wanted: dict[Purpose, asyncio.Future[Connection]] = {}
        self._connecting = False
        self._attempt_scope: anyio.CancelScope | None = None
        self._backoff = ReconnectBackoff(config.reconnect_backoff, config.reconnect_backoff_max, random)
        self._oldest_first = False  # whether the next connection begins with version 0 of ApiVersions
        self._idle_timer: asyncio.TimerHandle | None = None
        self._recovery_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def address(self) -> str:
        return format_address(self.node.host, self.node.port)

    @property
    def retry_at(self) -> float:
        """The loop's time of the next attempt to connect; in the past, or 0.0, if it may begin at once."""
        return self._backoff.retry_at

    @property
    def connected(self) -> bool:
        """Whether a connection is open."""
        return any(connection.ready for connection in self._connections.values())

    @property
    def is_idle(self) -> bool:
        """Whether no connection is open or closing, and no caller waits for a connection."""
        closing = any(not connection.gone for connection in self._ending)
        return not (self._connections or self._wanted or self._connecting or closing)

    @property
    def connections(self) -> dict[Purpose, Connection]:
        return dict(self._connections)

    @property
    def traffic(self) -> BrokerTraffic:
        """The traffic with this broker so far, over all its connections."""
        from .metrics import BrokerTraffic  # imported here: its dataclasses take a millisecond to import

        counted, open_now = self._counters, tuple(self._connections.values())
        p50, p99, longest = counted.latencies.at(0.5, 0.99, 1.0)
        return BrokerTraffic(
            node_id=self.node.node_id,
            address=self.address,
            connections=len(open_now),
            connects=counted.connects,
            connect_failures=counted.connect_failures,
            requests=counted.requests,
            requests_in_flight=sum(connection.in_flight for connection in open_now),
            responses=counted.responses,
            bytes_sent=counted.bytes_sent,
            bytes_received=counted.bytes_received,
            latency_p50=p50,
            latency_p99=p99,
            latency_max=longest,
            throttle_time=counted.throttle_time,
            latency_count=counted.latencies.count,
            latency_total=counted.latencies.total,
        )

    @property
    def last_response_at(self) -> float | None:
        """The loop's time of the last response; None before the first one."""
        return self._counters.last_response_at

    @property
    def _refusals(self) -> str:
        """The place of refused logins and certificates in outages."""
        return f"the login at {self.place}"

    @property
    def place(self) -> str:
        """The broker's name in log lines and outages."""
        return f"broker {self.node.node_id} at {self.address}" if self.node.node_id >= 0 else self.address

    def __repr__(self) -> str:
        name = f"{self.node.node_id} " if self.node.node_id >= 0 else ""
        open_for = ",".join(purpose.value for purpose in self._connections) or "none"
        return f"<Broker {name}{self.address} open={open_for}>"

    # Connections and requests.

    async def connection(self, purpose: Purpose = Purpose.OTHER) -> Connection:
        """Open the connection for a purpose, or return the open one. An attempt waits for the pause after a failure.

        Raises the error of the attempt: ConnectionLost(sent=False), KafkaTimeout, ProtocolError, AuthenticationError,
        UnsupportedVersion, BrokerError. A cancelled caller does not end the attempt.
        """
        ready = self.ready_connection(purpose)
        return await result_of(self._want(purpose)) if ready is None else ready  # all callers share it (rule 1)

    def ready_connection(self, purpose: Purpose) -> Connection | None:
        """Return the connection for a purpose, if it is open."""
        connection = self._connections.get(purpose)
        return connection if connection is not None and connection.ready else None

    async def send(
        self,
        request: Request[R],
        *,
        purpose: Purpose = Purpose.OTHER,
        timeout: float | None = None,
        at_most: int | None = None,
    ) -> R:
        """Send a request on the connection for a purpose, and wait for the response.

        ``timeout`` is for the response alone; ``connect_timeout`` bounds connecting. Raises the errors of
        ``connection`` and of ``Connection.send``.
        """
        connection = await self.connection(purpose)
        return await connection.send(request, timeout=timeout, at_most=at_most)

    def update(self, node: Node) -> None:
        """Apply the broker's present metadata.

        If the address is new, the old connections close after their requests are answered.
        """
        moved = (node.host, node.port) != (self.node.host, self.node.port)
        if moved:
            self._outages.forget(self.place)
            self._outages.forget(self._refusals)
        self.node = node
        if not moved:
            return
        logger.info("broker %d moved to %s", node.node_id, self.address)
        for connection in tuple(self._connections.values()):
            self._end(connection)
            connection.retire()
        self._connections.clear()
        self._oldest_first = False
        self.reset_backoff()
        if self._attempt_scope is not None:
            self._attempt_scope.cancel()  # the attempt goes to the old address; its callers wait for the next attempt

    def reset_backoff(self) -> None:
        """Make the next connection attempt without a pause, because it is likely to succeed."""
        self._backoff.reset()

    def close(self) -> None:
        """Close all connections. Callers that wait for one get ConnectionLost(sent=False)."""
        self._closed = True
        for timer in (self._idle_timer, self._recovery_timer):
            if timer is not None:
                timer.cancel()
        self._outages.forget(self.place)
        self._outages.forget(self._refusals)
        for connection in tuple(self._connections.values()):
            self._end(connection)
        for connection in tuple(self._ending):
            connection.close()
        self._connections.clear()
        self._backoff.reset()
        if self._attempt_scope is not None:
            self._attempt_scope.cancel()
        self._fail_wanted(ConnectionLost(f"{self!r} is closed", sent=False))

    async def wait_closed(self) -> None:
        """Wait until the transports are closed, two seconds at most. Call it after ``close``."""
        for connection in tuple(self._ending):
            await connection.wait_closed()
            self._ending.pop(connection, None)

    # Connecting.

    def _want(self, purpose: Purpose) -> asyncio.Future[Connection]:
        if self._closed:
            raise ConnectionLost(f"{self!r} is closed", sent=False)
        promise = self._wanted.get(purpose)
        if promise is None:
            if not self._connecting:
                self._spawn(self._connect_wanted)
                self._connecting = True
            promise = self._wanted[purpose] = asyncio.get_running_loop().create_future()
        return promise

    async def _connect_wanted(self) -> None:
        """Open connections while callers wait for them. Runs as a task."""
        try:
            # Rule 2: one task for all purposes, so attempts never overlap and each one waits for the pause.
            while self._wanted and not self._closed:
                await self._backoff.wait()
                # The callers may have failed, or the broker may have been closed, during the pause.
                purpose = next(iter(self._wanted), None)
                if purpose is not None:
                    await self._attempt(purpose)
        finally:
            self._connecting = False
            # The callers wait for this task, so they must not wait after its end.
            self._fail_wanted(ConnectionLost(f"connecting to {self.address} was cancelled", sent=False))

    async def _attempt(self, purpose: Purpose) -> None:
        assert self._attempt_scope is None, "attempts to one broker are made one after another (rule 2)"
        node = self.node
        connection = Connection(
            node.host,
            node.port,
            connector=self._connector,
            client_id=self._config.client_id,
            node_id=node.node_id,
            request_timeout=self._config.request_timeout,
            max_response_size=self._config.max_response_size,
            memory=self._memory,
            oldest_first=self._oldest_first,
            login=self._login,
            uses_tls=self._config.uses_tls,
            # A producer bounds its requests itself, by max_in_flight_requests_per_connection.
            max_open_requests=math.inf if purpose is Purpose.PRODUCE else self._config.max_open_requests,
            counters=self._counters,
            on_gone=self._drop_gone,
        )
        self._counters.connects += 1
        logger.debug("connecting to %s for %s requests", self.place, purpose.value)
        self._end(connection)  # the connection is not open yet, but close() must close it
        try:
            with anyio.CancelScope() as self._attempt_scope:
                await connection.connect(self._config.connect_timeout)
        except KafkaError as error:
            self._counters.connect_failures += 1
            # The versions alternate, because a peer that closed on version 0 too may have been restarting.
            self._oldest_first = connection.closed_on_versions and not self._oldest_first
            refused = is_refusal(error)
            self._backoff.attempt_failed(refused=refused)
            pause = self.retry_at - asyncio.get_running_loop().time()
            self._report(error, "connecting to %s failed: %s; next attempt in %.2f s", self.place, error, pause)
            if refused:
                self._report_refusal(error, pause)
            self._fail_wanted(error)  # for all purposes, because they have the same address
        finally:
            self._attempt_scope = None
        if connection.ready and not self._closed:
            self._adopt(purpose, connection)

    def _adopt(self, purpose: Purpose, connection: Connection) -> None:
        self.versions = connection.versions
        offered = self.versions.offered(ApiVersionsRequest)
        if self._oldest_first and offered is not None and offered.last >= _NAMES_SOFTWARE:
            # The peer knows newer versions, so it closed the earlier connection for another reason. The next
            # connection begins with the newest version again.
            self._oldest_first = False
        self._ending.pop(connection, None)
        # The former connection may still wait for its last answers.
        retired = self._connections.get(purpose)
        if retired is not None:
            self._end(retired)
        self._connections[purpose] = connection
        if self._outages.on_event is not None:
            self._tell(self._outages.on_event, purpose, connection)  # first, so that an outage follows its loss
        connection.closed.add_done_callback(lambda done: self._connection_closed(purpose, connection, done.result()))
        if self._outages:
            self._outages.recovered(logger, self._refusals, "%s accepts this client", self.place)
        loop = asyncio.get_running_loop()
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self._config.connections_max_idle, self._close_idle)
        if self._outages and self._recovery_timer is None:
            self._recovery_timer = loop.call_later(self._backoff.stable_after, self._check_recovered, connection)
        if connection.session_ends:
            self._spawn(lambda: self._keep_logged_in(connection))
        promise = self._wanted.pop(purpose, None)
        if promise is not None and not promise.done():
            promise.set_result(connection)

    def _tell(
        self,
        on_event: Callable[[ConnectionOpened | ConnectionClosed], None],
        purpose: Purpose,
        connection: Connection,
    ) -> None:
        """Call ``on_event`` for a connection that is open now, and again when it is closed."""
        from ..events import ConnectionClosed, ConnectionOpened

        # Read now, because the broker may move before the connection is closed.
        what = self.node.node_id, self.address, purpose.value
        connection.closed.add_done_callback(lambda done: on_event(ConnectionClosed(*what, done.result())))
        on_event(ConnectionOpened(*what))

    async def _keep_logged_in(self, connection: Connection) -> None:
        """Log an open connection in again, each time before its session ends. Runs as a task."""
        while connection.session_ends and not connection.closed.done():
            now = asyncio.get_running_loop().time()
            share = _RENEW_FROM + self._random() * (_RENEW_UNTIL - _RENEW_FROM)
            due = now + max((connection.session_ends - now) * share, _SHORTEST_SESSION)
            with anyio.CancelScope(deadline=due) as scope:
                await result_of(connection.closed)  # which must not be cancelled
            if scope.cancelled_caught:
                await connection.reauthenticate()

    def _check_recovered(self, connection: Connection) -> None:
        """End the outage if the connection is still open after some time. A broker may drop new connections soon."""
        self._recovery_timer = None
        if connection.ready:
            self._outages.recovered(logger, self.place, "%s is reachable again", self.place)

    def _fail_wanted(self, error: KafkaError) -> None:
        for promise in self._wanted.values():
            if not promise.done():
                promise.set_exception(error)
                promise.exception()  # marks the exception as retrieved, because all callers may have been cancelled
        self._wanted.clear()

    def _report_refusal(self, error: KafkaError, pause: float) -> None:
        """Log a refusal by itself: an operator may have to act, which most outages of a broker do not need."""
        if self.node.node_id >= 0:
            what = "%s refuses this client: %s; next attempt in %.2f s"
            self._outages.report(logger, self._refusals, error, what, self.place, error, pause)

    def _report(self, error: KafkaError, message: str, *arguments: object) -> None:
        if self.node.node_id < 0:
            logger.debug(message, *arguments)
        else:
            self._outages.report(logger, self.place, error, message, *arguments, level=logging.INFO)

    # Losing and closing connections.

    def _connection_closed(self, purpose: Purpose, connection: Connection, error: KafkaError | None) -> None:
        if self._connections.get(purpose) is connection:
            del self._connections[purpose]
            self._end(connection)
        # Without an error, this client has closed the connection, which says nothing about the broker.
        if error is not None:
            self._report(error, "lost the %s connection to %s: %s", purpose.value, self.place, error)
            self._backoff.connection_lost(connection.opened_at)

    def _end(self, connection: Connection) -> None:
        self._ending[connection] = None
        self._drop_gone()

    def _drop_gone(self) -> None:
        # Also called when a transport is closed: a connection takes 5 KiB, and the broker of a bootstrap address may
        # never open another one. A connection that is being opened has no transport yet, and stays.
        self._ending = {
            connection: None for connection in self._ending if not (connection.gone and connection.closed.done())
        }

    def _close_idle(self) -> None:
        """Close the idle connections, and set the timer to the time at which the next connection could be idle."""
        self._idle_timer = None
        now, longest = asyncio.get_running_loop().time(), self._config.connections_max_idle
        for connection in tuple(self._connections.values()):
            if not connection.in_flight and connection.last_used + longest <= now:
                logger.debug("closing %r: it was idle for %g s", connection, longest)
                connection.close()
        last_uses = [connection.last_used for connection in self._connections.values() if connection.ready]
        if last_uses:
            # At least a tenth of the limit later: a connection that waits for a long response may look idle.
            due = max(min(last_uses) + longest, now + longest / 10)
            self._idle_timer = asyncio.get_running_loop().call_at(due, self._close_idle)

"""One broker: its connections, one for each purpose, made when they are wanted, and not more often than is decent.

Whoever wants a connection that is not there waits for the one attempt that is under way. The attempt belongs to nobody
who waits, so none can take it down by giving up. Attempts to one broker come one after the other, with a growing pause
after each failure, whatever the number of waiters and purposes: that is what keeps a hundred clients from knocking a
broker down again that is just getting up.
"""

from __future__ import annotations

import asyncio
import logging
import random as _random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from ..aio.outages import Outages
from ..aio.retry import Backoff
from ..config import ClientConfig
from ..errors import ConnectionLost, KafkaError
from ..protocol.messages import ApiVersionsRequest
from ..protocol.schema import Request
from ..types import Node
from .connection import Connection, Purpose
from .connector import Connector, format_address

if TYPE_CHECKING:
    from .login import Login

__all__ = ["Broker", "Purpose", "Spawn"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

_HELD_WELL = 1.0
"""Seconds that a connection must have held at least before its loss counts as the first."""

_RENEW_FROM, _RENEW_UNTIL = 0.85, 0.95
"""Of a session's life, how much is used before it is renewed; drawn anew each time, or all would come at once."""

_SHORTEST_SESSION = 1.05
"""Seconds; brokers refuse whoever logs in again within one."""

_NAMES_ITSELF = 3
"""The version of ApiVersions from which on a client says who it is. A broker that has it did not hang up on it."""


class Spawn(Protocol):
    """Runs a coroutine function as a task of the component that owns the broker, as ``Service.start_child`` does."""

    def __call__(self, function: Callable[[], Coroutine[Any, Any, None]], /) -> object: ...


class Broker:
    """A broker's address and its connections. Owned by one client, in one loop; made without I/O.

    A negative ``node_id`` is a bootstrap address, of which it is not known yet which broker answers there.
    ``random`` gives numbers in [0, 1) for the jitter of the backoff. What fails is noted in ``outages``.
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
    ) -> None:
        self.node = node
        self._outages = Outages() if outages is None else outages
        self._config = config
        self._connector = connector
        self._spawn = spawn
        self._login = login
        self._random = random
        self._connections: dict[Purpose, Connection] = {}
        self._ending: set[Connection] = set()  # no longer given out; their transports may not be gone yet
        self._wanted: dict[Purpose, asyncio.Future[Connection]] = {}
        self._connecting = False
        self._attempt_scope: anyio.CancelScope | None = None
        self._backoff = Backoff(config.reconnect_backoff, config.reconnect_backoff_max, random=random)
        self._last_pause = 0.0
        self._retry_at = 0.0
        self._hurried = asyncio.Event()
        self._oldest_first = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._well_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def address(self) -> str:
        return format_address(self.node.host, self.node.port)

    @property
    def retry_at(self) -> float:
        """Loop time before which no connection is tried, as the last one failed; past, or 0.0, if there is none."""
        return self._retry_at

    @property
    def connected(self) -> bool:
        """Whether some connection is open."""
        return any(connection.ready for connection in self._connections.values())

    @property
    def is_idle(self) -> bool:
        """Whether it has no connection, not even one that is ending, and nobody waits for one."""
        ending = any(not connection.gone for connection in self._ending)
        return not (self._connections or self._wanted or self._connecting or ending)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections."""
        return tuple(self._connections.values())

    @property
    def connections_by_purpose(self) -> dict[Purpose, Connection]:
        """The open connections, each by what it is for."""
        return dict(self._connections)

    @property
    def place(self) -> str:
        """How outages name it."""
        return f"broker {self.node.node_id} at {self.address}" if self.node.node_id >= 0 else self.address

    def __repr__(self) -> str:
        name = f"{self.node.node_id} " if self.node.node_id >= 0 else ""
        open_for = ",".join(purpose.value for purpose in self._connections) or "none"
        return f"<Broker {name}{self.address} open={open_for}>"

    # Using it.

    async def connection(self, purpose: Purpose = Purpose.OTHER) -> Connection:
        """The connection for a purpose, made if need be; waits out the pause after a failure before it tries.

        Raises what the attempt ended with: ``ConnectionLost(sent=False)``, ``KafkaTimeout``, ``ProtocolError``,
        ``AuthenticationError``, ``UnsupportedVersion``, ``BrokerError``. A cancelled caller leaves the attempt to the
        others.
        """
        connection = self._connections.get(purpose)
        if connection is not None and connection.ready:
            return connection
        return await asyncio.shield(self._want(purpose))

    async def send(
        self,
        request: Request[R],
        *,
        purpose: Purpose = Purpose.OTHER,
        timeout: float | None = None,
        at_most: int | None = None,
    ) -> R:
        """Send a request on the connection for a purpose and wait for the answer; ``Connection.send`` says more.

        ``timeout`` is for the answer; the time to connect is bounded by the configuration.
        """
        connection = await self.connection(purpose)
        return await connection.send(request, timeout=timeout, at_most=at_most)

    def update(self, node: Node) -> None:
        """Take what metadata says now. At a new address, connections to the old one end when they are answered."""
        moved = (node.host, node.port) != (self.node.host, self.node.port)
        if moved:
            self._outages.forget(self.place)
        self.node = node
        if not moved:
            return
        logger.info("%r has moved to this address", self)
        for connection in tuple(self._connections.values()):
            self._end(connection)
            connection.retire()
        self._connections.clear()
        self._oldest_first = False
        self.hurry()
        if self._attempt_scope is not None:
            self._attempt_scope.cancel()  # to the old address; those who wait get the next one

    def hurry(self) -> None:
        """Forget the failures: there is reason to believe that the next try will not be in vain."""
        self._backoff.reset()
        self._retry_at = 0.0
        self._hurried.set()

    def close(self) -> None:
        """Close all connections. Whoever waits for one gets ``ConnectionLost(sent=False)``."""
        self._closed = True
        for timer in (self._idle_timer, self._well_timer):
            if timer is not None:
                timer.cancel()
        self._outages.forget(self.place)
        for connection in tuple(self._connections.values()):
            self._end(connection)
        for connection in tuple(self._ending):
            connection.close()
        self._connections.clear()
        self._hurried.set()
        if self._attempt_scope is not None:
            self._attempt_scope.cancel()
        self._fail_wanted(ConnectionLost(f"{self!r} is closed", sent=False))

    async def wait_closed(self) -> None:
        """Wait until the transports are gone; to be called after ``close``. It takes two seconds at most."""
        for connection in tuple(self._ending):
            await connection.wait_closed()
            self._ending.discard(connection)

    # Connecting.

    def _want(self, purpose: Purpose) -> asyncio.Future[Connection]:
        if self._closed:
            raise ConnectionLost(f"{self!r} is closed", sent=False)
        wanted = self._wanted.get(purpose)
        if wanted is None:
            if not self._connecting:
                self._spawn(self._connect_wanted)
                self._connecting = True
            wanted = self._wanted[purpose] = asyncio.get_running_loop().create_future()
        return wanted

    async def _connect_wanted(self) -> None:
        """The task that makes connections, for as long as any is wanted."""
        try:
            while self._wanted and not self._closed:
                await self._pause()
                # Who wanted it may have failed or been closed during the pause, so that nothing is left to do.
                purpose = next(iter(self._wanted), None)
                if purpose is not None:
                    await self._attempt(purpose)
        finally:
            self._connecting = False
            self._fail_wanted(ConnectionLost(f"connecting to {self.address} was given up", sent=False))

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._retry_at and not self._closed:
            self._hurried.clear()
            with anyio.CancelScope(deadline=self._retry_at):
                await self._hurried.wait()

    async def _attempt(self, purpose: Purpose) -> None:
        node = self.node
        connection = Connection(
            node.host,
            node.port,
            connector=self._connector,
            client_id=self._config.client_id,
            node_id=node.node_id,
            request_timeout=self._config.request_timeout,
            max_response_size=self._config.max_response_size,
            oldest_first=self._oldest_first,
            login=self._login,
            uses_tls=self._config.uses_tls,
        )
        self._end(connection)  # until it is open, closing the broker must end it, too
        try:
            with anyio.CancelScope() as self._attempt_scope:
                await connection.connect(self._config.connect_timeout)
        except KafkaError as error:
            self._oldest_first = connection.hung_up_on_versions and not self._oldest_first
            self._failed(error)
        finally:
            self._attempt_scope = None
        if connection.ready and not self._closed:
            self._adopt(purpose, connection)

    def _adopt(self, purpose: Purpose, connection: Connection) -> None:
        offered = connection.versions.offered(ApiVersionsRequest)
        if self._oldest_first and offered is not None and offered.last >= _NAMES_ITSELF:
            self._oldest_first = False  # it hung up for another reason; the next connection tells it who we are
        self._ending.discard(connection)
        retired = self._connections.get(purpose)
        if retired is not None:
            self._end(retired)
        self._connections[purpose] = connection
        connection.closed.add_done_callback(lambda done: self._connection_closed(purpose, connection, done.result()))
        if self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._config.connections_max_idle, self._close_idle)
        if self._outages and self._well_timer is None:
            pause = max(self._last_pause, _HELD_WELL)
            self._well_timer = asyncio.get_running_loop().call_later(pause, self._held, connection)
        if connection.session_ends:
            self._spawn(lambda: self._keep_logged_in(connection))
        wanted = self._wanted.pop(purpose, None)
        if wanted is not None and not wanted.done():
            wanted.set_result(connection)

    async def _keep_logged_in(self, connection: Connection) -> None:
        """The task that logs a connection in again while its session has some time left, for as long as it is open."""
        while connection.session_ends and not connection.closed.done():
            now = self._now()
            share = _RENEW_FROM + self._random() * (_RENEW_UNTIL - _RENEW_FROM)
            due = now + max((connection.session_ends - now) * share, _SHORTEST_SESSION)
            try:
                async with asyncio.timeout_at(due):
                    await asyncio.shield(connection.closed)
            except TimeoutError:
                await connection.reauthenticate()

    def _held(self, connection: Connection) -> None:
        """Some time after a connection was made; a broker that drops each one soon is not well yet."""
        self._well_timer = None
        spell = self._outages.over(self.place) if connection.ready else None
        if spell is not None:
            logger.info("%r is well again, after %s", self, spell)

    def _failed(self, error: KafkaError) -> None:
        """An attempt failed: so it did for everyone who waits, since all purposes lead to the same address."""
        self._back_off()
        self._note("%r: %s; the next try is due in %.2f s", self, error, self._retry_at - self._now(), error=error)
        self._fail_wanted(error)

    def _note(self, message: str, *arguments: object, error: KafkaError) -> None:
        # A bootstrap address is tried while nothing else answers; whoever does so says it, and then it is left alone.
        is_news = self.node.node_id >= 0 and self._outages.failed(self.place, error)
        level = logging.INFO if is_news else logging.DEBUG
        logger.log(level, message, *arguments)

    def _fail_wanted(self, error: KafkaError) -> None:
        for wanted in self._wanted.values():
            if not wanted.done():
                wanted.set_exception(error)
                wanted.exception()  # counts as seen: all who waited may have gone
        self._wanted.clear()

    def _back_off(self) -> None:
        now = self._now()
        if now >= self._retry_at:  # else several connections were lost together, which is one failure, not several
            self._last_pause = self._backoff.next()
            self._retry_at = now + self._last_pause

    # Losing.

    def _connection_closed(self, purpose: Purpose, connection: Connection, error: KafkaError | None) -> None:
        if self._connections.get(purpose) is connection:
            del self._connections[purpose]
            self._end(connection)
        if error is None:
            return
        self._note("%r lost its connection for %s: %s", self, purpose.value, error, error=error)
        # Only a connection that held for longer than the pause before it shows that all is well again. A broker that
        # accepts and then drops each connection would else be called upon without a pause.
        if self._now() - connection.opened_at >= max(self._last_pause, _HELD_WELL):
            self._backoff.reset()
        self._back_off()

    def _end(self, connection: Connection) -> None:
        self._ending = {other for other in self._ending if not other.gone}
        self._ending.add(connection)

    def _close_idle(self) -> None:
        """Close what nobody has used for long, and come back when the next could have become idle."""
        self._idle_timer = None
        now, longest = self._now(), self._config.connections_max_idle
        for connection in tuple(self._connections.values()):
            if not connection.in_flight and connection.last_used + longest <= now:
                logger.debug("%r is closed: idle for %g s", connection, longest)
                connection.close()
        busy = [connection.last_used for connection in self._connections.values() if connection.ready]
        if busy:
            due = max(min(busy) + longest, now + longest / 10)  # one in flight may have been used last long ago
            self._idle_timer = asyncio.get_running_loop().call_at(due, self._close_idle)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

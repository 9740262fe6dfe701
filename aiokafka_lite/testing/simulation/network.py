"""The network between the clients and the cluster of a simulation: every byte passes through it.

It can delay the bytes of a broker, cut a connection after any byte, and deliver a broker's answer twice. It can isolate
a client, whose connections stay open while no byte passes. It can end a client like the death of its process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from ...aio.memory_pipe import AtOnce, MemoryTransport, memory_pipe
from ...net.connector import Connector

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Network:
    """Connects clients, which have names, to brokers, which are named by their port.

    ``newest_connection`` returns the number of the cluster's newest connection. ``clients`` are the names of clients by
    these numbers.

    What a broker does runs in the context variables in which the network was made, and what a client does in those of
    its call of ``connect``.
    """

    def __init__(self, inner: Connector, newest_connection: Callable[[], int] = lambda: 0) -> None:
        self.clients: dict[int, str] = {}
        self._inner = inner
        self._newest_connection = newest_connection
        self._links: dict[_Link, None] = {}
        self._latency: dict[int, float] = {}
        self._isolated: dict[str, asyncio.Event] = {}
        self._killed: dict[str, None] = {}
        self._context = copy_context()

    @property
    def open_links(self) -> int:
        """The connections that are open."""
        return len(self._links)

    def open_links_of(self, client: str) -> int:
        """Return the number of connections that a client has not closed."""
        return sum(link.client == client and not link.has_ended for link in self._links)

    def connector_of(self, client: str) -> Connector:
        """Return the connector of one client."""
        return _ClientConnector(self, client)

    async def connect(
        self, client: str, host: str, port: int, protocol_factory: Callable[[], P]
    ) -> tuple[MemoryTransport, P]:
        if client in self._isolated:
            await self._isolated[client].wait()
        if client in self._killed:
            raise ConnectionRefusedError(f"the process of {client} has ended")
        link = _Link(
            client,
            port,
            self._links,
            self._latency,
            self._isolated,
            (copy_context(), self._context),
        )
        await _Within(self._context, self._inner.connect(host, port, lambda: link.to_broker))
        self.clients.setdefault(self._newest_connection(), client)
        near, _ = memory_pipe(protocol_factory, lambda: link.to_client, server_address=(host, port))
        self._links[link] = None
        if client in self._killed:  # while this connected
            link.kill()
        return near

    def set_latency(self, port: int, seconds: float) -> None:
        """Delay the bytes of a broker, in both directions."""
        self._latency[port] = seconds

    def cut(self, port: int, after: int) -> None:
        """Cut each open connection of a broker after ``after`` more bytes, counted in both directions together."""
        for link in list(self._links):
            if link.port == port:
                link.cut(after)

    def repeat_answer(self, port: int) -> None:
        """Deliver the next answer on each open connection of a broker twice."""
        for link in self._links:
            if link.port == port:
                link.repeats = True

    def isolate(self, client: str) -> None:
        """Hold the bytes of a client, and its attempts to connect, until ``rejoin``."""
        self._isolated.setdefault(client, asyncio.Event())

    def rejoin(self, client: str) -> None:
        """Deliver what was held, as TCP does when the network is back."""
        healed = self._isolated.pop(client, None)
        if healed is None:
            return
        healed.set()
        for link in list(self._links):
            if link.client == client:
                link.flush()

    def kill(self, client: str) -> None:
        """End the process of a client: its connections close, and it never connects again. The bytes that it has sent
        still arrive, late if the network is slow."""
        self._killed[client] = None
        for link in list(self._links):
            if link.client == client:
                link.kill()

    def heal(self) -> None:
        self._latency.clear()
        for client in list(self._isolated):
            self.rejoin(client)


class _ClientConnector:
    """The network as one client sees it."""

    def __init__(self, network: Network, client: str) -> None:
        self._network = network
        self._client = client

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[MemoryTransport, P]:
        return await self._network.connect(self._client, host, port, protocol_factory)


class _Link:
    """One connection: a pipe to the client, a pipe to the broker, and the bytes in flight between them."""

    def __init__(
        self,
        client: str,
        port: int,
        links: dict[_Link, None],
        latency: Mapping[int, float],
        isolated: Mapping[str, asyncio.Event],
        contexts: tuple[Context, Context],
    ) -> None:
        self.client = client
        self.port = port
        self.repeats = False
        self.has_ended = False  # one side has closed it; the other one may learn of it later
        self._contexts = contexts  # of the client and of the broker
        self._links = links
        self._latency = latency  # of the brokers that are slow, by port
        self._isolated = isolated
        self._left: int | None = None  # bytes until the cut
        self._last = 0.0
        self._delayed: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self.to_client = _Side(self)
        self.to_broker = _Side(self)

    def cut(self, after: int) -> None:
        self._left = after if self._left is None else min(self._left, after)
        if after == 0:
            self._abort()

    def kill(self) -> None:
        """End the client. The bytes in flight to the broker arrive before the end of the connection."""
        self.to_client.transport.abort()

    def forward(self, side: _Side, data: bytes) -> None:
        """Pass the bytes that arrived at one side to the other side."""
        if side is self.to_broker and self.repeats:
            self.repeats = False
            data += data
        self._then(self._deliver, side, data)

    def end(self, side: _Side) -> None:
        self.has_ended = True
        self._then(self._end, side)

    def _then(self, function: Callable[..., None], *arguments: object) -> None:
        latency, is_held = self._latency.get(self.port, 0.0), self.client in self._isolated
        if not latency and not is_held and not self._delayed:
            function(*arguments)
            return
        self._delayed.append((function, arguments))
        if not is_held:  # timers of the same time may fire in any order, so each one runs the first entry
            loop = asyncio.get_running_loop()
            self._last = max(self._last, loop.time() + latency)
            loop.call_at(self._last, self._run_next)

    def _run_next(self) -> None:
        if self._delayed and self.client not in self._isolated:
            function, arguments = self._delayed.popleft()
            function(*arguments)

    def flush(self) -> None:
        """Deliver everything that was delayed or held."""
        while self._delayed:
            self._run_next()

    def _deliver(self, side: _Side, data: bytes) -> None:
        other, context = self._other(side)
        if self._left is None or len(data) < self._left:
            self._left = None if self._left is None else self._left - len(data)
            context.run(other.transport.write, data)
            return
        context.run(other.transport.write, data[: self._left])
        context.run(other.transport.close)
        side.transport.abort()

    def _end(self, side: _Side) -> None:
        self._links.pop(self, None)
        other, context = self._other(side)
        context.run(other.transport.close)

    def _other(self, side: _Side) -> tuple[_Side, Context]:
        """Return the other side, and the context of what it belongs to."""
        client, broker = self._contexts
        return (self.to_client, client) if side is self.to_broker else (self.to_broker, broker)

    def _abort(self) -> None:
        self.to_client.transport.abort()
        self.to_broker.transport.abort()


class _Side(AtOnce):
    """One end of a link."""

    transport: asyncio.Transport

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._link.forward(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.end(self)


class _Within:
    """Awaits a coroutine, each step of which runs in a context."""

    def __init__(self, context: Context, coroutine: Coroutine[Any, Any, object]) -> None:
        self._context = context
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, object]:
        step: Callable[..., Any] = self._coroutine.send
        argument: object = None
        while True:
            try:
                future = self._context.run(step, argument)
            except StopIteration as done:
                return cast(object, done.value)
            try:
                argument, step = (yield future), self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - the coroutine receives it, also a cancellation
                argument, step = error, self._coroutine.throw

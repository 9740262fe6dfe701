"""A small HTTP/1.1 server for stand-ins in tests: requests in order, bodies with a length, connections that stay open.

It answers at once in the event loop and runs no tasks: the handler is a plain function.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

from ...aio import forks, local_ports, servers

HOST = "127.0.0.1"
LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 16 * 1024 * 1024


class HttpRequest(NamedTuple):
    """One request. ``path`` is still percent-encoded; the names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class HttpResponse(NamedTuple):
    """An answer with a JSON body."""

    status: int
    content: object


Handler = Callable[[HttpRequest], HttpResponse]


class HttpServer:
    """Listens on a free port of the loopback interface, and answers each request with the result of ``handler``."""

    def __init__(self, handler: Handler, ssl_context: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._ssl_context = ssl_context
        self._server: asyncio.Server | None = None
        self._port = 0  # once it has started
        self._process = forks.generation
        self._connections: set[asyncio.Transport] = set()

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def port(self) -> int:
        """The port while the server runs."""
        assert self._server is not None, "the server has started"
        return self._port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def start(self) -> None:
        """Begin to listen. A cancelled call leaves no open port."""
        loop = asyncio.get_running_loop()
        # ``create_server`` must not listen yet: if it is cancelled while it listens, the server is lost.
        self._server = await loop.create_server(
            lambda: _Connection(self._handler, self._connections),
            HOST,
            0,
            ssl=self._ssl_context,
            start_serving=False,
        )
        self._port = int(self._server.sockets[0].getsockname()[1])
        self._process = forks.generation
        forks.notify(self)
        try:
            await self._server.start_serving()
        except BaseException:  # a cancellation, too
            self._server.close()
            self._server = None
            raise
        local_ports.opened(HOST, self._port)

    def check_process(self) -> None:
        """Raise IllegalStateError in a process that was forked since the start."""
        if self._server is not None:
            forks.check_process(f"the server on port {self.port}", self._process)

    def forked(self) -> None:
        """Serve nothing in a forked process."""
        if self._server is not None:
            forks.detach_server(self._server)
        for transport in self._connections:
            forks.detach_transport(transport)

    async def close(self) -> None:
        """Close the port and all connections. Raises IllegalStateError in a forked process."""
        self.check_process()
        server, self._server = self._server, None
        if server is None:
            return
        local_ports.closed(HOST, self._port)
        try:
            await servers.close(server)
        finally:
            for transport in list(self._connections):
                transport.abort()
        await server.wait_closed()


class _Connection(asyncio.Protocol):
    """The server's end of one connection."""

    _transport: asyncio.Transport

    def __init__(self, handler: Handler, connections: set[asyncio.Transport]) -> None:
        self._handler = handler
        self._connections = connections
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from asyncio's
        self._connections.add(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while not self._transport.is_closing() and (request := _next(self._received)) is not None:
                self._answer(request)
        except ValueError as error:
            self._write(HttpResponse(HTTPStatus.BAD_REQUEST, {"error_code": 400, "message": str(error)}))
            self._transport.close()

    def _answer(self, request: HttpRequest) -> None:
        self._write(self._handler(request))
        if request.headers.get("connection", "").lower() == "close":
            self._transport.close()

    def _write(self, response: HttpResponse) -> None:
        body = json.dumps(response.content).encode()
        head = (
            f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
            f"Content-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)


def _next(received: bytearray) -> HttpRequest | None:
    """Take the next complete request from the received bytes; None if there is none yet. Raises ValueError."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) > LARGEST_HEAD:
            raise ValueError("the head of the request is too large")
        return None
    first, *lines = received[:end].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise ValueError("a request must have a Content-Length")
    size = int(headers.get("content-length", "0"))
    if not 0 <= size <= LARGEST_BODY:
        raise ValueError("the body of the request is too large")
    stop = end + 4 + size
    if len(received) < stop:
        return None
    body = bytes(received[end + 4 : stop])
    del received[:stop]
    words = first.split(" ")
    if len(words) != 3:
        raise ValueError("the request line must have three words")
    parts = urlsplit(words[1])
    return HttpRequest(words[0], parts.path, dict(parse_qsl(parts.query)), headers, body)

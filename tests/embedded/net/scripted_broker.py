"""A scripted peer: the broker's side of connections, on loopback or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka_lite.aio import servers
from aiokafka_lite.aio.component import Component
from aiokafka_lite.aio.memory_pipe import memory_pipe
from aiokafka_lite.net.connection import Connection
from aiokafka_lite.protocol.connection import (
    ParsedRequest,
    RequestHeader,
    UnknownRequest,
    encode_response,
    encode_unsupported_api_versions,
    parse_request,
)
from aiokafka_lite.protocol.framing import FrameSplitter
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aiokafka_lite.protocol.schema import Request

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Owner(Component):
    """The component in which a broker's tasks run."""

    def __init__(self) -> None:
        super().__init__()
        self.spawn = self._service.start_child


Script = Callable[["Served", RequestHeader, Any], None]


def all_versions(**changes: Any) -> ApiVersionsResponse:
    offered = [(key, request.versions) for key, request in REQUESTS.items()]
    keys = [ApiVersion(api_key=key, min_version=all_.first, max_version=all_.last) for key, all_ in offered]
    return ApiVersionsResponse(error_code=0, api_keys=keys, **changes)


def usual(served: Served, header: RequestHeader, request: Any) -> None:
    """Answer like a healthy broker."""
    if isinstance(request, ApiVersionsRequest):
        served.answer(header, all_versions())
    elif isinstance(request, MetadataRequest):
        names = ",".join(str(topic.name) for topic in request.topics or [])
        served.answer(header, MetadataResponse(brokers=[], cluster_id=names, controller_id=1, topics=[]))
    elif isinstance(request, HeartbeatRequest):
        served.answer(header, HeartbeatResponse(error_code=0))
    else:
        raise AssertionError(request)


def only_versions(served: Served, header: RequestHeader, request: Any) -> None:
    """Answer ApiVersions, and nothing else."""
    if isinstance(request, ApiVersionsRequest):
        usual(served, header, request)


class Served(asyncio.Protocol):
    """The peer's side of one connection."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.splitter = FrameSplitter(1 << 30, "a client")
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer.open.append(self)
        self.peer.accepted += 1
        if self.peer.greeting is not None:
            transport.write(self.peer.greeting)
        if self.peer.hangs_up:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.open.remove(self)

    def data_received(self, data: bytes) -> None:
        if self.peer.raw is not None:
            self.peer.raw(self, data)
            return
        for frame in self.splitter.feed(data):
            parsed = parse_request(frame)
            if isinstance(parsed, UnknownRequest):
                self.peer.unknown(self, parsed.header)
                continue
            assert isinstance(parsed, ParsedRequest)
            self.peer.requests.append(parsed.request)
            self.peer.headers.append(parsed.header)
            self.peer.arrived.set()
            self.peer.script(self, parsed.header, parsed.request)

    def answer(self, header: RequestHeader, response: Any) -> None:
        self.transport.write(encode_response(header, response))


class Peer:
    """A listening address. As a connector it connects to itself in memory, for any address."""

    def __init__(self, script: Script = usual, *, segment_size: int | None = None) -> None:
        self.script = script
        self.segment_size = segment_size
        self.greeting: bytes | None = None
        self.hangs_up = False
        self.refuses = False
        self.silent_connects = False
        self.raw: Callable[[Served, bytes], None] | None = None
        self.unknown: Callable[[Served, RequestHeader], None] = lambda served, _header: served.transport.close()
        self.open: list[Served] = []
        self.requests: list[Request[Any]] = []
        self.headers: list[RequestHeader] = []
        self.arrived = asyncio.Event()
        self.accepted = 0
        self.connects: list[tuple[float, str, int]] = []

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        self.connects.append((asyncio.get_running_loop().time(), host, port))
        await asyncio.sleep(0)
        if self.silent_connects:
            await asyncio.Event().wait()
        if self.refuses:
            raise ConnectionRefusedError("connection refused")
        near, _far = memory_pipe(
            protocol_factory, lambda: Served(self), server_address=(host, port), segment_size=self.segment_size
        )
        return near

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen on loopback. Yields the port."""
        server = await asyncio.get_running_loop().create_server(lambda: Served(self), "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            await servers.close(server)
            for served in tuple(self.open):
                served.transport.abort()
            while self.open:
                await asyncio.sleep(0)

    async def got(self, count: int) -> None:
        """Wait for this many requests."""
        while len(self.requests) < count:
            self.arrived.clear()
            await self.arrived.wait()


class Older:
    """Refuses ApiVersions above a version, like brokers before and after KIP-511."""

    def __init__(self, newest: int, *, lists: bool, malformed: bytes | None = None) -> None:
        self.newest = newest
        self.lists = lists
        self.malformed = malformed

    def __call__(self, served: Served, header: RequestHeader, request: Any) -> None:
        if not isinstance(request, ApiVersionsRequest) or header.version <= self.newest:
            usual(served, header, request)
            return
        offered = [ApiVersion(api_key=18, min_version=0, max_version=self.newest)] if self.lists else []
        frame = bytes(encode_unsupported_api_versions(header, ApiVersionsResponse(error_code=35, api_keys=offered)))
        if self.malformed is not None:
            body = frame[4:10] + self.malformed
            frame = len(body).to_bytes(4, "big") + body
        served.transport.write(frame)


# The client's side.


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def connection_to(peer: Any, *, port: int = 9092, **settings: Any) -> Connection:
    settings.setdefault("node_id", 2)
    return Connection("127.0.0.1", port, connector=peer, client_id="tester", **settings)


async def open_to(peer: Any, *, port: int = 9092, timeout: float = 10.0, **settings: Any) -> Connection:
    connection = connection_to(peer, port=port, **settings)
    await connection.connect(timeout)
    return connection


async def end(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


def ask(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])

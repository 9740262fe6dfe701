"""The servers and the damage that the cases in ``error_cases.py`` need."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from aiokafka_lite import EmbeddedCluster, TopicPartition
from aiokafka_lite.embedded.log.log import StoredBatch
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.connection import ParsedRequest, encode_response, parse_request
from aiokafka_lite.protocol.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka_lite.protocol.records.codecs import snappy

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def http_server_on_a_port() -> AbstractAsyncContextManager[str]:
    """Return a web server that responds "bad request"."""
    return answering(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def tls_server_on_a_port() -> AbstractAsyncContextManager[str]:
    """Return a TLS listener that responds with an alert."""
    return answering(bytes.fromhex("15030300020246"))


@asynccontextmanager
async def listener_that_refuses_logins() -> AsyncIterator[str]:
    """Run a broker that refuses each login with Kafka's error text."""
    spoken = (ApiVersionsRequest, MetadataRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
    versions = [
        ApiVersion(api_key=request_class.api_key, min_version=0, max_version=request_class.versions.last)
        for request_class in spoken
    ]
    answers = {
        ApiVersionsRequest: ApiVersionsResponse(error_code=0, api_keys=versions),
        SaslHandshakeRequest: SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
        SaslAuthenticateRequest: SaslAuthenticateResponse(
            error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED),
            error_message="Authentication failed: Invalid username or password",
            auth_bytes=b"",
        ),
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in answers:
            size = int.from_bytes(await reader.readexactly(4), "big")
            request = parse_request(await reader.readexactly(size))
            assert isinstance(request, ParsedRequest)
            writer.write(encode_response(request.header, answers[type(request.request)]))
        writer.close()

    async with serving(answer) as address:
        yield address


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[str]:
    """Run a server that sends these bytes and closes the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        await writer.drain()
        writer.close()

    async with serving(answer) as address:
        yield address


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """Run a TCP server on a free port, and yield its address."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


@contextmanager
def without_cramjam() -> Iterator[None]:
    """Hide the package cramjam, as if it were not installed."""
    before = sys.modules.get("cramjam")
    sys.modules["cramjam"] = None  # type: ignore[assignment]
    snappy._cramjam.cache_clear()
    try:
        yield
    finally:
        del sys.modules["cramjam"]
        if before is not None:
            sys.modules["cramjam"] = before
        snappy._cramjam.cache_clear()


def damage_a_batch(cluster: EmbeddedCluster) -> None:
    """Flip a bit of the last record in the log, as a broken disk does."""
    batches = cluster.nodes[1].replica_manager.require(TopicPartition("orders", 0)).log.segments[0].batches
    batch = batches[-1]
    data = bytearray(batch.data)
    data[-1] ^= 1
    batches[-1] = StoredBatch(
        batch.base_offset, batch.last_offset, batch.max_timestamp, batch.leader_epoch, bytes(data)
    )

"""Connections over TLS on loopback: large responses, and peers that stall, close, or use another protocol."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from aiokafka_lite.aio import servers
from aiokafka_lite.errors import AuthenticationError, ConnectionLost, KafkaError
from aiokafka_lite.net.connection import Connection
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.protocol.connection import RequestHeader
from aiokafka_lite.protocol.framing import WrongProtocol
from aiokafka_lite.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.embedded.net.scripted_broker import Peer, Served, ask, usual
from tests.waiting import DEADLINE, error_of

LARGE = 20 * 1024 * 1024

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Contexts:
    """Contexts of both sides, with one authority. The name of ``server`` is localhost, of ``by_address`` 127.0.0.1, and
    of ``elsewhere`` another one; ``stranger`` trusts another authority."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.server, self.by_address, self.elsewhere = (
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        )
        authority.issue_cert("localhost").configure_cert(self.server)
        authority.issue_cert("127.0.0.1").configure_cert(self.by_address)
        authority.issue_cert("elsewhere.example").configure_cert(self.elsewhere)
        self.client = ssl.create_default_context()
        authority.configure_trust(self.client)
        self.stranger = ssl.create_default_context()
        trustme.CA().configure_trust(self.stranger)


@pytest.fixture(scope="module")
def contexts() -> Contexts:
    return Contexts()


@asynccontextmanager
async def listening(peer: Peer, context: ssl.SSLContext) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(lambda: Served(peer), "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await servers.close(server)
        for served in tuple(peer.open):
            served.transport.abort()
        while peer.open:
            await asyncio.sleep(0)


@asynccontextmanager
async def handled_by(handler: Handler) -> AsyncIterator[int]:
    """Yield a port where ``handle`` runs for each connection, which then ends."""
    handled: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handled.add(task)
        try:
            await handler(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await servers.close(server)
        for task in handled:
            task.cancel()
        await asyncio.gather(*handled)


def connection_to(port: int, context: ssl.SSLContext, *, host: str = "localhost", timeout: float = 10.0) -> Connection:
    connector = TcpConnector(timeout, context)
    return Connection(host, port, connector=connector, client_id=None, uses_tls=True)


async def failure(port: int, context: ssl.SSLContext, *, host: str = "localhost", timeout: float = 10.0) -> KafkaError:
    """Return the error of opening."""
    connection = connection_to(port, context, host=host, timeout=timeout)
    with pytest.raises(KafkaError) as failed:
        await connection.connect(timeout)
    await connection.wait_closed()
    return failed.value


async def test_large_responses_arrive_complete_and_in_order(contexts: Contexts) -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, MetadataRequest) and request.topics and request.topics[0].name == "large":
            rack = "x" * 30_000
            brokers = [
                MetadataResponseBroker(node_id=number, host="h", port=1, rack=rack)
                for number in range(LARGE // len(rack))
            ]
            served.answer(header, MetadataResponse(brokers=brokers, cluster_id="large", controller_id=1, topics=[]))
        else:
            usual(served, header, request)

    peer = Peer(script)
    async with listening(peer, contexts.server) as port:
        connection = connection_to(port, contexts.client)
        await connection.connect(10.0)
        names = ["a", "large", "b", "large", "c"]
        answers = await asyncio.gather(*(connection.send_nowait(ask(name)) for name in names))
        assert [answer.cluster_id for answer in answers] == names
        assert len(answers[1].brokers) == LARGE // 30_000
        connection.close()
        await connection.wait_closed()


async def test_an_authority_that_is_not_trusted_is_an_authentication_error(contexts: Contexts) -> None:
    async with listening(Peer(), contexts.server) as port:
        error = await failure(port, contexts.stranger)
        assert isinstance(error, AuthenticationError)
        assert "set ssl_cafile to the certificate of the authority" in str(error)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_certificate_can_be_for_a_name_or_an_address(contexts: Contexts, host: str) -> None:
    async with listening(Peer(), contexts.server if host == "localhost" else contexts.by_address) as port:
        connection = connection_to(port, contexts.client, host=host)
        await connection.connect(10.0)
        assert connection.ready
        connection.close()
        await connection.wait_closed()


async def test_a_certificate_for_another_name_is_an_authentication_error(contexts: Contexts) -> None:
    async with listening(Peer(), contexts.elsewhere) as port:
        error = await failure(port, contexts.client)
        assert isinstance(error, AuthenticationError)
        assert "Hostname mismatch, certificate is not valid for 'localhost'; it must be for the host name" in str(error)


async def test_the_timeout_of_a_stalled_handshake_names_the_handshake(contexts: Contexts) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with handled_by(stall) as port:

        async def open_within(timeout: float) -> None:
            raise await failure(port, contexts.client, timeout=timeout)

        error = await error_of(open_within, "handshake")  # asyncio's own timeout for this is 60 s
        assert isinstance(error, ConnectionLost)
        assert "did not finish the TLS handshake in time; if the port does not use TLS, set security_protocol" in str(
            error
        )


async def test_the_error_for_a_peer_that_closes_in_the_handshake_names_the_setting(contexts: Contexts) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)

    async with handled_by(hang_up) as port:
        error = await failure(port, contexts.client)
        assert isinstance(error, ConnectionLost)
        assert "closed the connection during the TLS handshake; if the port does not use TLS" in str(error)


async def test_the_error_for_a_plaintext_answer_names_the_setting(contexts: Contexts) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with handled_by(answer) as port:
        error = await failure(port, contexts.client)
        assert isinstance(error, WrongProtocol)
        assert "does not speak TLS on this port; if the port does not use TLS, set security_protocol" in str(error)


async def test_an_end_without_close_notify_within_a_response_is_a_lost_connection(contexts: Contexts) -> None:
    def cut(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, MetadataRequest):
            served.transport.write(b"\0\0\1\0half")
            served.transport.abort()
        else:
            usual(served, header, request)

    async with listening(Peer(cut), contexts.server) as port:
        connection = connection_to(port, contexts.client)
        await connection.connect(10.0)
        with pytest.raises(ConnectionLost) as lost:
            await connection.send(ask("a"))
        assert lost.value.sent
        await connection.wait_closed()


async def test_closing_does_not_wait_long_for_close_notify(contexts: Contexts) -> None:
    peer = Peer()
    async with listening(peer, contexts.server) as port:
        connection = connection_to(port, contexts.client)
        await connection.connect(10.0)
        (served,) = peer.open
        served.transport.pause_reading()
        connection.close()
        async with asyncio.timeout(20.0):  # asyncio's own timeout for this is 30 s
            await connection.wait_closed()


async def test_opening_that_is_cancelled_in_the_handshake_leaves_nothing(contexts: Contexts) -> None:
    reached = asyncio.Event()
    ended = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        ended.set()

    async with handled_by(stall) as port:
        connection = connection_to(port, contexts.client)
        opening = asyncio.create_task(connection.connect(10.0))
        await reached.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(DEADLINE):
            await ended.wait()

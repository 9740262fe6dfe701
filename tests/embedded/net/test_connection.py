"""Opening and closing a connection, and peers that are not brokers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from aiokafka_lite.errors import (
    BrokerError,
    ConnectionLost,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    UnsupportedVersion,
)
from aiokafka_lite.net.connection import MAX_BEFORE_READY, Connection
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.protocol.connection import RequestHeader, encode_response
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    ApiVersionsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataResponse,
    MetadataResponseBroker,
)
from aiokafka_lite.state_machine import ConnectionState
from aiokafka_lite.types import Node, TopicPartition
from tests.embedded.net.scripted_broker import (
    HEARTBEAT,
    Older,
    Peer,
    Served,
    all_versions,
    ask,
    connection_to,
    end,
    only_versions,
    open_to,
    usual,
)
from tests.virtual import run_clean

# Opening.


@pytest.mark.parametrize("limit", [MAX_BEFORE_READY, 100 * MAX_BEFORE_READY])
async def test_a_large_response_before_the_handshake_has_ended_is_refused(limit: int) -> None:
    def flood(served: Served, header: RequestHeader, request: Any) -> None:
        served.transport.write((MAX_BEFORE_READY + 1).to_bytes(4, "big") + bytes(100))

    with pytest.raises(ProtocolError, match="announced a frame of 1048577 bytes; at most 1048576 are accepted"):
        await open_to(Peer(flood), max_response_size=limit)


async def test_a_large_response_after_the_handshake_is_accepted() -> None:
    def many_brokers(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
            return
        brokers = [MetadataResponseBroker(node_id=number, host="h" * 20_000, port=9092) for number in range(70)]
        served.answer(header, MetadataResponse(brokers=brokers, topics=[]))

    connection = await open_to(Peer(many_brokers), max_response_size=2 * MAX_BEFORE_READY)
    assert len((await connection.send(ask("orders"))).brokers) == 70
    await end(connection)


async def test_it_opens_names_the_client_and_sends_requests() -> None:
    peer = Peer()
    connection = await open_to(peer)
    assert repr(connection) == "<Connection broker=2 127.0.0.1:9092 READY in_flight=0>"
    (first,) = peer.requests
    assert isinstance(first, ApiVersionsRequest)
    assert (first.client_software_name, peer.headers[0].client_id) == ("aiokafka-lite", "tester")
    assert peer.headers[0].version == REQUESTS[18].versions.last
    response = await connection.send(ask("orders"))
    assert response.cluster_id == "orders"
    await end(connection)
    assert repr(connection) == "<Connection broker=2 127.0.0.1:9092 CLOSED in_flight=0>"
    assert connection.closed.result() is None


async def test_it_works_over_tcp() -> None:
    peer = Peer()
    async with peer.listening() as port:
        connection = await open_to(TcpConnector(), port=port)
        assert (await connection.send(ask("orders"))).cluster_id == "orders"
        await end(connection)


@pytest.mark.parametrize(
    ("older", "versions"),
    [
        (Older(3, lists=True), [4, 3]),
        (Older(2, lists=True), [4, 2]),
        (Older(2, lists=False), [4, 0]),
        (Older(0, lists=True), [4, 0]),
        (Older(1, lists=False, malformed=b""), [4, 0]),
        (Older(1, lists=False, malformed=b"\x00\x00\x7f"), [4, 0]),
        (Older(1, lists=False, malformed=b"\xff\xff\xff\xff"), [4, 0]),
        (Older(2, lists=False, malformed=b"\x00\x00\x00\x00\x00\x00\x00\x00"), [4, 0]),
    ],
)
async def test_api_versions_is_repeated_in_a_version_that_the_broker_has(older: Older, versions: list[int]) -> None:
    peer = Peer(older)
    connection = await open_to(peer)
    assert [header.version for header in peer.headers] == versions
    assert (await connection.send(ask("t"))).cluster_id == "t"
    await end(connection)


async def test_a_broker_without_any_common_version_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match=r"broker 2 \(127\.0\.0\.1:9092\)"):
        await open_to(Peer(Older(-1, lists=False)))


async def test_another_error_code_of_api_versions_is_raised() -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        served.answer(header, all_versions().__class__(error_code=42, api_keys=[]))

    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        await open_to(Peer(script))


async def test_a_peer_that_closes_on_the_newest_api_versions_can_be_asked_with_the_oldest() -> None:
    peer = Peer()
    peer.unknown = lambda served, _: served.transport.close()

    def script(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest) and header.version > 0:
            served.transport.close()
        else:
            usual(served, header, request)

    peer.script = script
    connection = connection_to(peer)
    with pytest.raises(ConnectionLost, match="closed the connection on ApiVersions"):
        await connection.connect(5)
    assert connection.closed_on_versions
    second = await open_to(peer, oldest_first=True)
    assert peer.headers[-1].version == 0
    await end(second)


async def test_a_connection_can_be_used_only_once() -> None:
    connection = connection_to(Peer())
    with pytest.raises(IllegalStateError):
        connection.send_nowait(HEARTBEAT)
    await connection.connect(5)
    with pytest.raises(IllegalStateError):
        await connection.connect(5)
    await end(connection)
    connection.close()
    with pytest.raises(ConnectionLost) as caught:
        await connection.send(HEARTBEAT)
    assert not caught.value.sent


@pytest.mark.parametrize("turns", range(12))
async def test_opening_that_is_cancelled_at_any_turn_leaves_nothing(turns: int) -> None:
    peer = Peer(only_versions, segment_size=7)
    connection = connection_to(peer)
    opening = asyncio.create_task(connection.connect(5))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await connection.wait_closed()
    await asyncio.sleep(0)
    assert connection.state is (ConnectionState.CLOSED if turns else ConnectionState.NEW)
    assert not peer.open


# Peers that are not brokers.


async def refused_opening(peer: Peer, timeout: float = 5.0) -> KafkaError:
    connection = connection_to(peer, node_id=None)
    with pytest.raises(KafkaError) as caught:
        await connection.connect(timeout)
    await connection.wait_closed()
    assert connection.state is ConnectionState.CLOSED
    assert "127.0.0.1:9092" in str(caught.value)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not peer.open
    return caught.value


@pytest.mark.parametrize(
    ("bytes_sent", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "frame of"),
        (b"\xff\xff\xff\xff rest", "never negative"),
        (b"\x00\x00\x00\x00", "too small"),
        (b"\x7f\xff\xff\xff", "at most"),
        (b"\x00\x00\x00\x08\x00\x00\x03\xe7\x00\x00\x00\x00", "correlation id 999"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00", "cannot be decoded"),
    ],
)
@pytest.mark.parametrize("segment_size", [None, 1])
async def test_another_protocol_is_recognized(bytes_sent: bytes, says: str, segment_size: int | None) -> None:
    peer = Peer(segment_size=segment_size)
    peer.raw = lambda served, data: served.transport.write(bytes_sent)
    error = await refused_opening(peer)
    assert isinstance(error, ProtocolError)
    assert says in str(error)


async def test_another_protocol_that_speaks_first_is_recognized() -> None:
    peer = Peer()
    peer.greeting = b"HTTP/1.0 200 OK\r\n"
    assert isinstance(await refused_opening(peer), ProtocolError)


async def test_a_peer_that_closes_at_once_is_a_lost_connection() -> None:
    peer = Peer()
    peer.hangs_up = True
    error = await refused_opening(peer)
    assert isinstance(error, ConnectionLost)
    assert "TLS" in str(error)


async def test_a_second_response_to_api_versions_is_a_protocol_error() -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        served.transport.write(bytes(encode_response(header, all_versions())) * 2)

    error = await refused_opening(Peer(script))
    assert isinstance(error, ProtocolError)
    assert "no request is in flight" in str(error)


async def test_a_connection_closed_in_the_last_turn_of_the_handshake_fails_with_that() -> None:
    def answers_then_closes_the_client(served: Served, header: RequestHeader, request: Any) -> None:
        usual(served, header, request)
        asyncio.get_running_loop().call_soon(connection.close)  # after the response came, before connect() goes on

    connection = connection_to(Peer(answers_then_closes_the_client))
    with pytest.raises(ConnectionLost, match="closed here"):
        await connection.connect(5)
    assert connection.state is ConnectionState.CLOSED


async def test_a_connection_lost_while_it_is_made_fails_with_that() -> None:
    class Fleeting(Peer):
        async def connect(self, host: str, port: int, protocol_factory: Any) -> Any:
            connected = await super().connect(host, port, protocol_factory)
            connected[1].stream_ended(None)
            return connected

    error = await refused_opening(Fleeting())
    assert isinstance(error, ConnectionLost)
    assert "closed the connection" in str(error)


def test_opening_to_a_silent_peer_ends_at_the_timeout() -> None:
    async def main() -> float:
        peer = Peer()
        peer.raw = lambda served, data: None
        error = await refused_opening(peer, timeout=3.0)
        assert isinstance(error, KafkaTimeout)
        assert "ApiVersions within 3 s" in str(error)
        return asyncio.get_running_loop().time()

    assert run_clean(main()) == pytest.approx(3.0)


def test_opening_to_an_unreachable_address_ends_at_the_timeout() -> None:
    async def main() -> float:
        peer = Peer()
        peer.silent_connects = True
        error = await refused_opening(peer, timeout=3.0)
        assert isinstance(error, KafkaTimeout)
        assert "could not connect" in str(error)
        return asyncio.get_running_loop().time()

    assert run_clean(main()) == pytest.approx(3.0)


async def test_a_closed_port_is_named_with_its_cause() -> None:
    peer = Peer()
    async with peer.listening() as port:
        pass
    connection = connection_to(TcpConnector(), port=port)
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}.*refused") as caught:
        await connection.connect(5)
    assert not caught.value.sent


# Ends.


async def test_a_peer_that_closes_fails_every_request() -> None:
    peer = Peer(only_versions)
    connection = await open_to(peer)
    promises = [connection.send_nowait(HEARTBEAT) for _ in range(3)]
    await peer.got(4)
    peer.open[0].transport.close()
    for result in await asyncio.gather(*promises, return_exceptions=True):
        assert isinstance(result, ConnectionLost)
        assert result.sent
        assert "broker 2 (127.0.0.1:9092) closed the connection" in str(result)


@pytest.mark.parametrize("segment_size", [None, 1])
@pytest.mark.parametrize(
    "reply",
    [
        b"\x00\x00\x00\x0b\x00\x00\x00\x01",  # ends within the frame
        b"\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00",  # too short a body
        b"\x00\x00\x00\x0b\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00",  # another request's answer
        b"\xff\xff\xff\xf0",
        b"\x7f\xff\xff\xff",
    ],
)
async def test_a_broken_response_fails_every_request(reply: bytes, segment_size: int | None) -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
        elif served.transport.can_write_eof() and not served.transport.is_closing():
            served.transport.write(reply)
            served.transport.close()

    peer = Peer(script, segment_size=segment_size)
    connection = await open_to(peer)
    promises = [connection.send_nowait(HEARTBEAT) for _ in range(3)]
    for result in await asyncio.gather(*promises, return_exceptions=True):
        assert isinstance(result, ConnectionLost)
        assert "127.0.0.1:9092" in str(result)
    assert connection.state is ConnectionState.CLOSED
    with pytest.raises(ConnectionLost, match="is closed"):
        connection.send_nowait(HEARTBEAT)


async def test_a_repeated_response_closes_the_connection() -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        usual(served, header, request)
        if isinstance(request, HeartbeatRequest):
            usual(served, header, request)

    connection = await open_to(Peer(script))
    assert (await connection.send(HEARTBEAT)).error_code == 0
    assert isinstance(await connection.closed, ProtocolError)


async def test_a_good_response_before_a_wrong_size_is_delivered() -> None:
    def script(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
        else:
            good = bytes(encode_response(header, HeartbeatResponse(error_code=0)))
            served.transport.write(good + b"\xff\xff\xff\xff")

    connection = await open_to(Peer(script))
    first, second = connection.send_nowait(HEARTBEAT), connection.send_nowait(HEARTBEAT)
    assert (await first).error_code == 0
    with pytest.raises(ConnectionLost):
        await second


async def test_dropped_promises_log_no_unretrieved_exception() -> None:
    connection = await open_to(Peer(only_versions))
    for _ in range(3):
        connection.send_nowait(HEARTBEAT)
    await asyncio.sleep(0)
    connection.close(ConnectionLost("enough", sent=True))
    await connection.wait_closed()
    gc.collect()


async def test_a_retired_connection_closes_when_its_requests_are_answered() -> None:
    connection = await open_to(Peer())
    promise = connection.send_nowait(ask("last"))
    connection.retire()
    assert not connection.ready
    assert (await promise).cluster_id == "last"
    assert await connection.closed is None
    idle = await open_to(Peer())
    idle.retire()
    assert idle.state is ConnectionState.CLOSED


async def test_names_from_the_network_cannot_forge_log_lines() -> None:
    connection = Connection("evil\r\nhost\x1b[31m", 1, connector=Peer(), client_id="c", node_id=3)
    assert "\n" not in repr(connection)
    assert "\x1b" not in connection.peer
    connection.close()
    assert str(Node(1, "evil\nhost", 9092)).isprintable()
    assert str(TopicPartition("orders\nINFO recovered", 0)).isprintable()


def check_types(connection: Connection) -> Coroutine[Any, Any, MetadataResponse]:
    return connection.send(ask("typed"))  # mypy: the answer's type follows from the request's

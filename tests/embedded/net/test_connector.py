"""Every address of a host name is tried, and the error has the reason for each."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.aio import servers
from aiokafka_lite.errors import ConnectionLost
from aiokafka_lite.net.connector import TcpConnector, format_address
from tests.embedded.net.scripted_broker import Peer
from tests.waiting import LONGER_AND_LONGER

Addresses = list[tuple[socket.AddressFamily, str]]


def resolve_to(monkeypatch: pytest.MonkeyPatch, addresses: Addresses | OSError) -> None:
    """Replace the system's name service."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        if isinstance(addresses, OSError):
            raise addresses
        rest = {socket.AF_INET: (), socket.AF_INET6: (0, 0)}
        return [(family, socket.SOCK_STREAM, 6, "", (ip, port, *rest[family])) for family, ip in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_addresses_are_tried_in_turn_until_one_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Peer().listening() as port:
        resolve_to(
            monkeypatch, [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1")]
        )
        transport, _ = await TcpConnector().connect("kafka.example", port, asyncio.Protocol)
        connected = transport.get_extra_info("socket")
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.close()


async def test_if_no_address_accepts_each_is_named_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Peer().listening() as port:
        pass
    resolve_to(monkeypatch, [(socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1")])
    with pytest.raises(ConnectionLost) as caught:
        await TcpConnector().connect("kafka.example", port, asyncio.Protocol)
    assert not caught.value.sent
    for part in (f"kafka.example:{port}", f"127.0.0.2:{port}: connection refused", f"127.0.0.1:{port}: connection ref"):
        assert part in str(caught.value)


async def test_an_unreachable_address_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    # 127.0.0.1 chooses the port: other tests use most of its ports, and none listens at 127.0.0.3. The other way round,
    # the port that was free at 127.0.0.3 was once in use at 127.0.0.1.
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    swallowing = socket.socket()
    swallowing.bind(("127.0.0.3", port))
    swallowing.listen(0)
    fillers = []
    for _ in range(4):  # more than the backlog: Linux drops the SYNs that come then
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.3", port))
        fillers.append(filler)
    try:
        resolve_to(monkeypatch, [(socket.AF_INET, "127.0.0.3"), (socket.AF_INET, "127.0.0.1")])
        for timeout in LONGER_AND_LONGER:  # half of it has to last for the second address
            with suppress(ConnectionLost):
                transport, _ = await TcpConnector(timeout).connect("kafka.example", port, asyncio.Protocol)
                break
        else:
            pytest.fail("no address accepts")
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        transport.close()
    finally:
        for used in (swallowing, *fillers):
            used.close()
        await servers.close(server)
        await asyncio.sleep(0)


async def test_a_name_that_cannot_be_resolved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, socket.gaierror(-2, "Name or service not known"))
    with pytest.raises(ConnectionLost, match=r"'kafka\.example'.*not known") as caught:
        await TcpConnector().connect("kafka.example", 9092, asyncio.Protocol)
    assert not caught.value.sent


async def test_an_invalid_host_name_is_a_kafka_error() -> None:
    with pytest.raises(ConnectionLost, match="cannot resolve"):
        await TcpConnector().connect("a" * 70 + ".example", 9092, asyncio.Protocol)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 70_000), ("::1", 2**31), ("a\0b", 9092)])
async def test_an_address_that_no_socket_accepts_is_a_kafka_error(host: str, port: int) -> None:
    with pytest.raises(ConnectionLost, match=r"cannot (connect|resolve)"):
        await TcpConnector().connect(host, port, asyncio.Protocol)


async def test_a_connection_comes_from_the_local_address() -> None:
    loop = asyncio.get_running_loop()
    seen: asyncio.Future[str] = loop.create_future()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            seen.set_result(transport.get_extra_info("peername")[0])

    server = await loop.create_server(Server, "127.0.0.1", 0)
    transport, _ = await TcpConnector(local_address="127.0.0.9").connect(
        *server.sockets[0].getsockname(), asyncio.Protocol
    )
    assert await seen == "127.0.0.9"
    transport.abort()
    await servers.close(server)
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("local", ["192.0.2.7", "::1"])
async def test_a_local_address_that_cannot_be_used_is_named(local: str) -> None:
    with pytest.raises(ConnectionLost, match=rf"127\.0\.0\.1:1 \(cannot connect from local_address={local}: "):
        await TcpConnector(local_address=local).connect("127.0.0.1", 1, asyncio.Protocol)


async def test_ipv6_literals_need_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, AssertionError("not asked"))  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost, match=r"\[::1\]:1 \("):
        await TcpConnector().connect("::1", 1, asyncio.Protocol)


def test_addresses_are_formatted_with_brackets_for_ipv6() -> None:
    assert format_address("kafka", 9092) == "kafka:9092"
    assert format_address("::1", 9092) == "[::1]:9092"
    assert "\n" not in format_address("a\nb", 1)

"""A starting client finds its cluster, or names the error of each address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiokafka_lite import Admin
from aiokafka_lite.aio import local_ports
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    AuthenticationError,
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
)
from aiokafka_lite.net.connector import Connector
from aiokafka_lite.protocol.messages import MetadataRequest
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cluster.simulation import (
    CountingConnector,
    client_of,
    cluster_and_client,
    memory_cluster,
    now,
    simulated,
)
from tests.waiting import error_of

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


CLOSED = "127.0.0.1:1"
"""A port on which nothing listens. It is outside of the range from which systems assign ports to other tests."""


async def start_error(servers: str, *causes: str) -> KafkaError:
    """Return the error of a start. Its timeout leaves it the time to find these causes."""

    async def start(timeout: float) -> None:
        await Client(ClientConfig(bootstrap_servers=servers, api_timeout=timeout)).start()

    return await error_of(start, *causes)


async def serve(handler: Handler) -> tuple[asyncio.Server, str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@simulated
async def test_servers_are_tried_in_turn_until_one_answers() -> None:
    async with memory_cluster() as cluster:
        servers = f"127.0.0.1:1,127.0.0.1:2,{cluster.bootstrap_servers},127.0.0.1:3"
        async with client_of(cluster, bootstrap_servers=servers) as client:
            assert set(client.view.nodes) == {1, 2, 3}
            assert now() == pytest.approx(0.0, abs=1e-3), "no pause before each was tried"


@simulated
async def test_start_waits_for_a_cluster_that_is_starting() -> None:
    async with memory_cluster() as cluster:
        for node in (1, 2, 3):
            await cluster.stop(node)
        starting = asyncio.ensure_future(client_of(cluster).__aenter__())
        await asyncio.sleep(15)
        await cluster.start_node(2)
        async with asyncio.timeout(2 * 10.0):
            client = await starting
        assert set(client.view.nodes) == {2}
        await client.close()


@simulated
async def test_if_no_server_answers_the_error_names_each_address_within_the_timeout() -> None:
    async with memory_cluster() as cluster:
        assert cluster.connector is not None
        connector = CountingConnector(cluster.connector)
        client = client_of(cluster, connector, bootstrap_servers="127.0.0.1:1,127.0.0.1:2", api_timeout=60.0)
        with pytest.raises(KafkaTimeout) as caught:
            await client.start()
        assert now() == pytest.approx(60, abs=0.5)
        assert "cannot connect to 127.0.0.1:1" in str(caught.value)
        assert "the same with 127.0.0.1:2" in str(caught.value)
        assert max(connector.attempts.values()) < 20, "a dead address is retried with backoff"
        with pytest.raises(KafkaTimeout):
            await client.refresh()


@pytest.mark.parametrize("timeout, cause", [(5.0, "no answer yet"), (15.0, "did not answer ApiVersions")])
@simulated
async def test_frozen_brokers_are_named_in_the_error(timeout: float, cause: str) -> None:
    async with memory_cluster(2) as cluster:
        await cluster.freeze(1)
        await cluster.freeze(2)
        client = client_of(cluster, api_timeout=timeout)
        with pytest.raises(KafkaTimeout) as caught:
            await client.start()
        assert now() == pytest.approx(timeout, abs=0.5)
        assert str(caught.value).count(cause) == 1
        assert "the same with 127.0.0.1:" in str(caught.value)


@pytest.mark.parametrize("frozen", [1, 2, 3, 4])
@simulated
async def test_frozen_brokers_delay_the_start_little_if_another_answers(frozen: int) -> None:
    async with memory_cluster(5) as cluster:
        for node in range(1, frozen + 1):
            await cluster.freeze(node)
        async with client_of(cluster) as client:
            assert now() < 2**frozen
            assert client.view.nodes


@simulated
async def test_failed_authentication_ends_the_start_at_once() -> None:
    async with memory_cluster() as cluster:
        client = client_of(cluster)
        calls = 0

        async def refuse(*_: object) -> None:
            nonlocal calls
            calls += 1
            raise AuthenticationError("the password is wrong")

        assert cluster.connector is not None
        cluster.connector.connect = refuse  # type: ignore[method-assign, assignment]
        with pytest.raises(AuthenticationError, match="password"):
            await client.start()
        assert (now(), calls) == (pytest.approx(0.0, abs=1e-3), 1)


async def test_cluster_is_found_over_tcp_by_a_name_with_several_addresses() -> None:
    async with EmbeddedCluster(brokers=2) as cluster:
        await cluster.create_topic("orders", partitions=2, replication_factor=2)
        servers = f"localhost:{cluster.nodes[1].port}"
        async with Client(ClientConfig(bootstrap_servers=servers)) as client:
            topic = await client.topic("orders", timeout=10)
            assert {partition.leader for partition in topic.partitions} == {1, 2}
            await cluster.kill(1)
            assert set((await client.refresh(timeout=10)).nodes) == {2}


async def test_closed_port() -> None:
    error = await start_error(CLOSED, "refused")
    assert isinstance(error, KafkaTimeout)
    assert CLOSED in str(error)
    assert "refused" in str(error)


async def answer_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as an HTTP server does."""
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


async def test_http_server_is_recognised_at_once() -> None:
    server, address = await serve(answer_http)
    async with server:
        error = await start_error(address, "HTTP")
    assert isinstance(error, ProtocolError)
    assert address in str(error)
    assert "HTTP" in str(error)


class Garbling(asyncio.Protocol):
    """Changes the bytes that a client's connection receives."""

    def __init__(self, inner: asyncio.BufferedProtocol, garble: Callable[[bytes], bytes]) -> None:
        self.inner = inner
        self.garble = garble

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        data = self.garble(data)
        while data:
            room = self.inner.get_buffer(len(data))
            part = data[: len(room)]
            room[: len(part)] = part  # type: ignore[index]
            self.inner.buffer_updated(len(part))
            data = data[len(part) :]


class GarblingConnector:
    """Changes the bytes that the first ``times`` connections receive."""

    def __init__(self, inner: Connector, garble: Callable[[bytes], bytes], times: int) -> None:
        self.inner = inner
        self.garble = garble
        self.times = times
        self.made = 0

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], Any]) -> Any:
        self.made += 1
        if self.made > self.times:
            return await self.inner.connect(host, port, protocol_factory)
        wire = protocol_factory()
        transport, _ = await self.inner.connect(host, port, lambda: Garbling(wire, self.garble))
        return transport, wire


GARBLES = {
    "another correlation id": lambda data: data[:4] + b"\x00\x01\x86\x9f" + data[8:],
    "twice": lambda data: data * 2,
    "a size below zero": lambda data: b"\xff\xff\xff\xfb" + data,
    "garbage": lambda data: data[:8] + b"\xff" * (len(data) - 8),
}


@pytest.mark.parametrize("garble", GARBLES)
@simulated
async def test_one_garbled_answer_of_the_only_server_does_not_end_the_start(garble: str) -> None:
    async with memory_cluster(1) as cluster:
        assert cluster.connector is not None
        connector = GarblingConnector(cluster.connector, GARBLES[garble], times=1)
        async with client_of(cluster, connector) as client:
            assert set(client.view.nodes) == {1}


@pytest.mark.parametrize("garble", GARBLES)
@simulated
async def test_a_server_that_garbles_every_answer_ends_the_start_soon(garble: str) -> None:
    async with memory_cluster(1) as cluster:
        assert cluster.connector is not None
        connector = GarblingConnector(cluster.connector, GARBLES[garble], times=1000)
        with pytest.raises(ProtocolError, match="no bootstrap server can be used"):
            await client_of(cluster, connector).start()
        assert connector.made == 2
        assert now() < 1.0


async def test_the_same_failure_of_several_servers_is_described_once() -> None:
    server, first = await serve(answer_http)
    other, second = await serve(answer_http)
    async with server, other:
        error = await start_error(f"{first},{second}", "HTTP")
    text = str(error)
    assert text.count("an HTTP server responded") == 1
    assert text.endswith((f"; the same with {first}", f"; the same with {second}"))


async def test_one_wrong_port_among_silent_ones_does_not_end_the_start() -> None:
    server, address = await serve(answer_http)
    async with server:
        error = await start_error(f"{address},{CLOSED}", "HTTP", "refused")
    assert isinstance(error, KafkaTimeout)
    assert "HTTP" in str(error)
    assert "refused" in str(error)


async def test_unknown_host_is_named() -> None:
    error = await start_error("no-such-host.invalid:9092", "no-such-host.invalid")
    assert "no-such-host.invalid" in str(error)


@pytest.mark.parametrize("servers", ["localhost", "kafka://a:1", "a:b", "::1:9092"])
def test_the_constructor_refuses_invalid_addresses(servers: str) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_servers"):
        Client(ClientConfig(bootstrap_servers=servers))


@simulated
async def test_connections_to_bootstrap_addresses_close_once_the_cluster_is_known() -> None:
    async with memory_cluster(1) as cluster:
        assert cluster.connector is not None
        connector = CountingConnector(cluster.connector)
        connector.aliases["kafka.example", 1] = ("127.0.0.1", cluster.nodes[1].port)
        async with client_of(cluster, connector, bootstrap_servers="kafka.example:1") as client:
            await client.refresh()
            await client.refresh()
            assert connector.attempts == {1: 1, cluster.nodes[1].port: 1}
            assert len(cluster.nodes[1].connections) == 1


@simulated
async def test_an_internal_failure_reaches_waiting_calls_the_next_call_and_close() -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a callback that raises")

    async with memory_cluster() as cluster:
        client = client_of(cluster)
        await client.start()
        client.on_view_change(broken)
        waiter = asyncio.ensure_future(client.refresh(["news"]))
        with pytest.raises(RuntimeError, match="a callback"):
            await waiter
        with pytest.raises(RuntimeError, match="a callback"):
            await client.refresh()
        with pytest.raises(RuntimeError, match="a callback"):
            await client.close()
        await asyncio.sleep(1)
        assert all(not node.connections for node in cluster.nodes.values()), "a failed client holds no connection"


@simulated
async def test_a_second_start_is_refused() -> None:
    async with cluster_and_client() as (_, client):
        with pytest.raises(IllegalStateError):
            await client.start()
        assert await client.send(MetadataRequest(topics=[]))


async def _start_in_vain(servers: str) -> str:
    """Return the error of a client whose server accepts connections and answers nothing."""
    with pytest.raises(KafkaTimeout, match="did not answer ApiVersions") as failed:
        await Admin(servers, connect_timeout=0.1).start(timeout=0.5)
    return str(failed.value)


def test_a_blocked_event_loop_of_this_process_is_a_likely_cause() -> None:
    """As in a synchronous test that uses the fixture of an asynchronous one."""

    async def block() -> str:
        async with EmbeddedCluster(brokers=1) as cluster:
            with ThreadPoolExecutor() as other:
                return other.submit(asyncio.run, _start_in_vain(cluster.bootstrap_servers)).result()

    assert "or it is in another event loop of this process that is blocked (use embedded_k" in asyncio.run(block())


def test_a_frozen_broker_in_an_event_loop_that_is_not_blocked_may_hang() -> None:
    with EmbeddedKafkaServer() as server:
        server.call(server.cluster.freeze, 1)
        assert "either it hangs, or the port is not Kafka's" in asyncio.run(_start_in_vain(server.bootstrap_servers))


def test_a_closed_cluster_is_not_in_another_event_loop() -> None:
    """The port number may belong to a server of another process by then."""

    async def is_in_another_loop(address: str, other_host: str = "") -> bool:
        host, _, port = address.rpartition(":")
        return local_ports.is_in_another_loop(other_host or host, int(port))

    with asyncio.Runner() as first, asyncio.Runner() as second:
        cluster = EmbeddedCluster(brokers=1)
        first.run(cluster.start())
        address = cluster.bootstrap_servers
        assert second.run(is_in_another_loop(address))
        assert not second.run(is_in_another_loop(address, "127.0.0.2"))
        assert not first.run(is_in_another_loop(address))
        first.run(cluster.close())
        assert not second.run(is_in_another_loop(address))

"""Brokers behind a SOCKS5 or HTTP CONNECT proxy: names that only the proxy knows, TLS, logins, proxies that fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, ConnectionLost, KafkaError, KafkaTimeout
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.net.proxy import ProxyConnector
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.properties import client_settings
from aiokafka_lite.settings.proxy_address import parse_proxy
from tests.real.proxies import Behaviour, ScriptedProxy
from tests.waiting import DEADLINE, error_of

SCHEMES = ("socks5", "http")
INSIDE = "kafka-1.inside.example"


@pytest.mark.parametrize("behaviour", ["connects", "answers in pieces"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_client_writes_and_reads_through_a_proxy_that_alone_knows_the_names(
    scheme: str, protocol: str, behaviour: Behaviour
) -> None:
    security = Security(protocol, users={"alice": "alice-secret"} if "SASL" in protocol else {})
    config = ClusterConfig(advertised_host=INSIDE)
    proxy = ScriptedProxy([INSIDE], behaviour=behaviour)
    async with EmbeddedCluster(brokers=2, security=security, config=config) as cluster, proxy.listening() as port:
        settings = cluster.client_settings() | {"proxy": f"{scheme}://127.0.0.1:{port}"}
        settings["bootstrap_servers"] = f"{INSIDE}:{cluster.nodes[1].port}"
        await cluster.create_topic("orders", partitions=2)
        async with Producer(**settings) as producer:
            for partition in (0, 1):
                await producer.send("orders", b"two coffees" * 10_000, partition=partition)
        async with Consumer(topics=["orders"], group_id="billing", **settings) as consumer:
            assert [(await anext(consumer)).value for _ in (0, 1)] == [b"two coffees" * 10_000] * 2
    assert {host for host, _ in proxy.targets} == {INSIDE}
    assert {port for _, port in proxy.targets} >= {node.port for node in cluster.nodes.values()}


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_certificate_of_the_broker_is_checked_through_the_proxy(scheme: str) -> None:
    config = ClusterConfig(advertised_host=INSIDE)
    proxy = ScriptedProxy([INSIDE, "other.example"])
    async with (
        EmbeddedCluster(brokers=1, security=Security("SSL"), config=config) as cluster,
        proxy.listening() as port,
    ):
        settings = cluster.client_settings() | {"proxy": f"{scheme}://127.0.0.1:{port}"}
        settings["bootstrap_servers"] = f"other.example:{cluster.nodes[1].port}"
        with pytest.raises(AuthenticationError, match=r"certificate of other.example:\d+ cannot be trusted: Hostname"):
            await Admin(**settings).start()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_proxy_may_require_a_login(scheme: str) -> None:
    proxy = ScriptedProxy([INSIDE], user="al ice", password="pass:word@7")
    async with (
        EmbeddedCluster(brokers=1, config=ClusterConfig(advertised_host=INSIDE)) as cluster,
        proxy.listening() as port,
    ):
        servers = f"{INSIDE}:{cluster.nodes[1].port}"
        right = f"{scheme}://al%20ice:pass%3Aword%407@127.0.0.1:{port}"
        async with Admin(servers, proxy=right) as admin:
            assert await admin.topics.list() == ()
        for credentials in ("", "alice:hunter2@"):
            refused = Admin(servers, proxy=f"{scheme}://{credentials}127.0.0.1:{port}")
            says = f"the proxy {scheme}://127.0.0.1:{port} refuses the login: .*; check the user and password of proxy"
            with pytest.raises(AuthenticationError, match=says) as failed:
                await refused.start()
            assert "hunter2" not in str(failed.value) + repr(refused) + repr(failed.value.__cause__)


async def test_the_error_of_a_proxy_that_repeats_the_request_hides_the_password() -> None:
    proxy = ScriptedProxy(behaviour="repeats the request", user="alice", password="hunter2-hunter3")
    async with proxy.listening() as port:
        error = await failure(ProxyConnector(parse_proxy(f"http://alice:hunter2-hunter3@127.0.0.1:{port}")))
    assert isinstance(error, AuthenticationError)
    assert "Proxy-Authorization: Basic ***" in str(error)
    assert " of alice:***" in str(error)


async def failure(connector: ProxyConnector, host: str = INSIDE) -> KafkaError:
    with pytest.raises(KafkaError) as failed:
        async with asyncio.timeout(DEADLINE):
            await connector.connect(host, 9092, asyncio.Protocol)
    return failed.value


@pytest.mark.parametrize(
    "behaviour, socks, http",
    [
        ("hangs", "accepted the connection, but did not answer within 0.18 s", None),
        ("closes", "Connection closed unexpectedly", "closed the connection before its answer"),
        ("refuses", f"does not connect to {INSIDE}:9092: Host unreachable", f"{INSIDE}:9092: 503 no route to host"),
        ("answers garbage", "Unexpected SOCKS version number: 83", "Invalid status line: SSH-2.0-OpenSSH_9.2"),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_proxy_that_fails_is_named_in_a_lost_connection_in_time(
    scheme: str, behaviour: Behaviour, socks: str, http: str | None
) -> None:
    async with ScriptedProxy([INSIDE], behaviour=behaviour).listening() as port:
        error = await failure(ProxyConnector(parse_proxy(f"{scheme}://127.0.0.1:{port}"), 0.2))
    assert isinstance(error, ConnectionLost)
    assert not error.sent
    assert f"the proxy {scheme}://127.0.0.1:{port} " in str(error)
    assert (socks if scheme == "socks5" or http is None else http) in str(error)


async def test_a_proxy_that_is_down_or_has_no_address_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"socks5://127.0.0.1:{unused.getsockname()[1]}"
        error = await failure(ProxyConnector(parse_proxy(address)))
    assert str(error) == f"cannot connect to the proxy {address}: connection refused, nothing listens there"
    error = await failure(ProxyConnector(parse_proxy("http://proxy.invalid:3128")))
    assert str(error).startswith("cannot connect to the proxy http://proxy.invalid:3128: ")


async def test_the_error_of_a_start_names_the_proxy_that_hangs() -> None:
    async with ScriptedProxy(behaviour="hangs").listening() as port:
        proxy = f"http://127.0.0.1:{port}"

        def start(timeout: float) -> Awaitable[object]:
            return Admin(f"{INSIDE}:9092", proxy=proxy, connect_timeout=timeout / 2, api_timeout=timeout).start()

        named = f"the proxy {proxy} accepted the connection, but did"
        error = await error_of(start, named)
    assert isinstance(error, KafkaTimeout)
    assert named in str(error)


async def test_a_host_name_that_socks_cannot_carry_is_a_lost_connection() -> None:
    async with ScriptedProxy().listening() as port:
        error = await failure(ProxyConnector(parse_proxy(f"socks5://127.0.0.1:{port}")), "x" * 64 + ".example")
    assert isinstance(error, ConnectionLost)
    assert "cannot be asked for" in str(error)


async def test_a_cancelled_connection_closes_its_socket() -> None:
    proxy = ScriptedProxy(behaviour="hangs")
    async with proxy.listening() as port:
        connecting = asyncio.create_task(
            ProxyConnector(parse_proxy(f"socks5://127.0.0.1:{port}")).connect(INSIDE, 9092, asyncio.Protocol)
        )
        await proxy.connected.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await proxy.ended.wait()


# Settings.


@pytest.mark.parametrize(
    "address, says",
    [
        (7, "got int"),
        ("", "got an empty string"),
        ("proxy:1080", "got a string of 10 characters"),
        ("socks5://proxy", "got a string of"),
        ("socks5://proxy:0", "got a string of"),
        ("socks5://proxy:70000", "got a string of"),
        ("socks5://:1080", "got a string of"),
        ("http://proxy:3128/path", "got a string of"),
        ("http://pro xy:3128", "got a string of"),
        ("ftp://proxy:21", "got a string of"),
        ("socks5://[::1:1080", "got a string of"),
        ("https://proxy:443", "proxy must not be https://"),
        ("socks4://proxy:1080", "proxy must not be socks4://"),
        ("http://:hunter2@proxy:3128", "a user name before its password"),
        ("socks5://alice@proxy:1080", "a password after its user name"),
        ("socks5://alice:hunter2%C3%A4@proxy:1080", "the password of proxy must be at most 255 characters of ASCII"),
        (f"socks5://{'a' * 256}:hunter2@proxy:1080", "the user name of proxy must be at most 255 characters of ASCII"),
        ("http://al%3Aice:hunter2@proxy:1080", "no colon"),
    ],
)
def test_a_wrong_address_is_refused_without_quoting_it(address: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refusal:
        ClientConfig(bootstrap_servers="localhost:9092", proxy=address)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "address, printed",
    [
        ("socks5://proxy.example:1080", "socks5://proxy.example:1080"),
        ("SOCKS5h://alice:hunter2@[::1]:1080", "socks5h://[::1]:1080"),
        ("http://alice:hunter2@proxy:3128/", "http://proxy:3128"),
    ],
)
def test_an_address_is_printed_without_user_and_password(address: str, printed: str) -> None:
    assert str(parse_proxy(address)) == printed
    config = ClientConfig(bootstrap_servers="localhost:9092", proxy=address)
    assert "hunter2" not in repr(config) + str(config.proxy) + repr(parse_proxy(address))


def test_a_properties_file_may_name_the_proxy() -> None:
    settings = client_settings(
        {"bootstrap.servers": "localhost:9092", "proxy.url": "socks5://alice:hunter2@proxy:1080"}
    )
    assert "hunter2" not in repr(settings)
    ClientConfig(**settings)  # type: ignore[arg-type]


def test_a_connector_excludes_a_proxy() -> None:
    with pytest.raises(ConfigurationError, match="connector cannot be combined with proxy"):
        Producer("localhost:9092", connector=TcpConnector(), proxy="socks5://proxy:1080")

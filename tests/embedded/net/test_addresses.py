"""A host name with several addresses, and a broker whose address changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster, Producer
from aiokafka_lite.aio.runtime import Runtime
from aiokafka_lite.aio.servers import close
from aiokafka_lite.cluster.brokers import Brokers
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.net.broker import Broker
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.protocol.messages import MetadataResponseBroker
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.types import Node, TopicPartition

NAME = "kafka.test"


class Nobody(asyncio.Protocol):
    """Accepts a connection behind which there is no broker."""

    accepted = 0

    def __init__(self, closes: bool) -> None:
        self._closes = closes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Nobody.accepted += 1
        if self._closes:
            transport.close()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    loop = asyncio.get_running_loop()
    real = loop.getaddrinfo

    async def getaddrinfo(host: str, port: int, **named: Any) -> list[Any]:
        if host != NAME:
            return await real(host, port, **named)
        return [(2, 1, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    ("closes", "protocol"), [(True, "PLAINTEXT"), (False, "PLAINTEXT"), (True, "SSL"), (False, "SSL")]
)
async def test_a_dead_first_address_is_left_for_the_next_one(
    closes: bool, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address accepts TCP, and closes the connection or is silent in the handshake."""
    Nobody.accepted = 0
    async with EmbeddedCluster(1, security=protocol, config=ClusterConfig(host="127.0.0.2", expose=True)) as cluster:
        settings = cluster.client_settings()
        port = int(settings.pop("bootstrap_servers").rpartition(":")[2])
        # Connections to any of these addresses come from ports of 127.0.0.1, so there the port may be taken.
        resolve_to(monkeypatch, "127.0.0.3", "127.0.0.2")
        server = await asyncio.get_running_loop().create_server(lambda: Nobody(closes), "127.0.0.3", port)
        if protocol == "SSL":
            settings["ssl_check_hostname"] = False
        async with Producer(f"{NAME}:{port}", connect_timeout=0.5, api_timeout=20.0, **settings) as producer:
            assert (await producer.send("orders", b"x")).offset == 0
        await close(server)
        await server.wait_closed()
    assert Nobody.accepted == 1


async def test_an_address_that_works_again_has_its_place_again(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = TcpConnector()
    servers = [
        await asyncio.get_running_loop().create_server(lambda: Nobody(False), host, 0) for host in ("127.0.0.1",)
    ]
    port = servers[0].sockets[0].getsockname()[1]
    servers.append(await asyncio.get_running_loop().create_server(lambda: Nobody(False), "127.0.0.2", port))
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    peers = []
    for is_ready in (False, False, True, True):
        transport, _ = await connector.connect(NAME, port, asyncio.Protocol)
        peers.append(transport.get_extra_info("peername")[0])
        connector.handshake_ended(NAME, port, transport, ready=is_ready)
        transport.close()
    assert peers == ["127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.1"]
    for server in servers:
        await close(server)
        await server.wait_closed()


async def test_the_newest_answer_for_a_node_wins() -> None:
    """A coordinator that was found earlier keeps no broker at its old address, nor does older metadata."""

    def make(node: Node) -> Broker:
        config = ClientConfig(bootstrap_servers="a:1")
        return Broker(node, config=config, connector=TcpConnector(), spawn=lambda function: None)

    brokers = Brokers([], make, Runtime())
    old, new, newest = Node(1, "old", 9092), Node(1, "new", 9092), Node(1, "newest", 9092)
    brokers.record(old)  # a coordinator was found
    assert brokers.of(old).node.host == "old"
    brokers.follow(ClusterView(nodes={1: new}))
    assert brokers.of(old).node.host == "new", "the cached coordinator is older than the metadata"
    brokers.record(newest)
    assert brokers.of(new).node.host == "newest", "the metadata is older than the coordinator"
    view = ClusterView(nodes={1: Node(1, "new", 9092)})
    brokers.follow(view)
    assert brokers.of(newest).node.host == "new"
    brokers.record(newest)
    brokers.follow(view)
    assert brokers.of(newest).node.host == "new", "metadata without a change is newer than the coordinator"
    brokers.record(newest)
    brokers.record(Node(2, "other", 9092))
    assert brokers.of(view.nodes[1]).node.host == "newest", "a hint about another broker says nothing of this one"


async def test_a_hint_about_a_leader_moves_its_broker_at_once() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders")
        config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
        async with Client(config, connector=cluster.connector) as client:
            await client.topic("orders")
            (node_id,) = client.view.nodes
            assert client.broker(node_id).node == client.view.nodes[node_id]
            epoch = (client.view.topics["orders"].partitions[0].leader_epoch or 0) + 1
            moved = MetadataResponseBroker(node_id=node_id, host="moved", port=9092)
            assert client.update_leader(TopicPartition("orders", 0), node_id, epoch, [moved])
            assert client.broker(node_id).node.host == "moved"

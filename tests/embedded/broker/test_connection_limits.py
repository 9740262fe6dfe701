"""The rate of new connections, and the quota of an IP address: the connections that wait, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.embedded.connection import LOGIN_TIMEOUT
from aiokafka_lite.errors import ConnectionLost
from aiokafka_lite.protocol.messages import MetadataRequest, SaslHandshakeRequest
from tests.embedded.broker.raw_client import Peer
from tests.embedded.broker.test_quotas import alter
from tests.virtual import in_virtual_time
from tests.waiting import until

RATE = "max.connection.creation.rate"


async def answered_after(cluster: EmbeddedCluster) -> float:
    """Return the seconds until a new client has its first answer."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with Peer(cluster) as peer:
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
    return loop.time() - began


@in_virtual_time
async def test_clients_that_leave_while_they_wait_take_no_turns() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, configs={RATE: "1"}) as cluster:
        async with AsyncExitStack() as stack:
            for _ in range(300):
                await stack.enter_async_context(Peer(cluster))
        assert await answered_after(cluster) <= 1.1


@in_virtual_time
async def test_requests_of_a_client_that_left_while_it_waited_are_not_handled() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, configs={RATE: "1"}) as cluster:
        for _ in range(11):
            await answered_after(cluster)
        before = len(cluster.history)
        async with Peer(cluster) as first, Peer(cluster) as second:
            for peer in (first, second):
                peer.send(MetadataRequest(topics=[]), 9)
        await until(lambda: not cluster.nodes[1].connections, "the connections have ended")
        assert len(cluster.history) == before


@in_virtual_time
async def test_a_new_rate_counts_for_the_connections_that_wait() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, configs={RATE: "1"}) as cluster:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(answered_after(cluster)) for _ in range(100)]
            await asyncio.sleep(3.5)
            cluster.controller.settings.replace_dynamic("1", {RATE: "1000"})
        assert max(wait.result() for wait in waits) <= 5


@pytest.mark.parametrize("limit", ["the rate", "the quota of the address"])
@in_virtual_time
async def test_a_restarted_broker_has_forgotten_earlier_connections(limit: str) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        if limit == "the rate":
            cluster.controller.settings.replace_dynamic("1", {RATE: "1"})
        else:
            async with Peer(cluster) as peer:
                await peer.ask(alter({"ip": None}, "connection_creation_rate", 1.0))
        for _ in range(10):
            await answered_after(cluster)
        await cluster.restart(1)
        for _ in range(10):
            assert await answered_after(cluster) == pytest.approx(0, abs=1e-3)


@in_virtual_time
async def test_a_connection_that_waits_is_not_idle() -> None:
    configs = {
        RATE: "0",
        "quota.window.size.seconds": "60",
        "connections.max.idle.ms": "10000",
        "log.retention.check.interval.ms": "1000",
    }
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster:
        assert await answered_after(cluster) == pytest.approx(60, abs=0.1)
        async with Peer(cluster) as peer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert await peer.receive() is None
            assert 70 <= loop.time() - began < 72  # it counts as idle from the end of its wait


@in_virtual_time
async def test_a_connection_that_waits_with_its_request_makes_no_room() -> None:
    configs = {RATE: "0", "quota.window.size.seconds": "60", "max.connections": "1"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as first:
        first.send(MetadataRequest(topics=[]), 9)
        await asyncio.sleep(10)
        async with Peer(cluster) as second:
            with pytest.raises(ConnectionLost):
                await second.receive()
        assert (await first.receive()).brokers


@in_virtual_time
async def test_a_client_has_its_time_for_the_login_after_the_wait() -> None:
    configs = {RATE: "0", "quota.window.size.seconds": str(2 * int(LOGIN_TIMEOUT))}
    security = Security("SASL_PLAINTEXT", users={"alice": "secret"})
    async with EmbeddedCluster(brokers=1, tcp=False, security=security, configs=configs) as cluster:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with Peer(cluster) as peer:
            assert (await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
            assert loop.time() - began == pytest.approx(2 * LOGIN_TIMEOUT, abs=0.1)
            assert await peer.receive() is None
            assert loop.time() - began == pytest.approx(3 * LOGIN_TIMEOUT, abs=0.1)


@pytest.mark.parametrize(
    "limit", ["max.connections", "listener.name.plaintext.max.connections", "max.connections.per.ip"]
)
@in_virtual_time
async def test_connections_that_the_quota_of_their_address_refuses_take_no_places(limit: str) -> None:
    configs = {limit: "4", "quota.window.num": "2"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as peer:
        await peer.ask(alter({"ip": None}, "connection_creation_rate", 1.0))
        await answered_after(cluster)
        async with AsyncExitStack() as stack:
            refused: list[Peer] = []
            connections = cluster.nodes[1].connections
            for _ in range(5):
                refused.append(await stack.enter_async_context(Peer(cluster)))
                await until(
                    lambda: sum(connection.is_refused for connection in connections) == len(refused), "it is refused"
                )
            await peer.ask(alter({"ip": None}, "connection_creation_rate", 1.0, remove=True))
            assert await answered_after(cluster) == pytest.approx(0, abs=1e-3)
            for connection in refused:
                assert await connection.receive() is None

"""A connection that is accepted while its server ends is ended too, whenever the two meet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.embedded.settings import listeners
from tests.waiting import DEADLINE

TURNS = range(6)
"""Turns of the event loop between the connection and the end. The server accepts within the first three."""


async def end_by_kill(cluster: EmbeddedCluster) -> None:
    await cluster.kill(1)


async def end_by_stop(cluster: EmbeddedCluster) -> None:
    await cluster.stop(1)


async def end_by_restart(cluster: EmbeddedCluster) -> None:
    await cluster.restart(1)


async def end_by_close(cluster: EmbeddedCluster) -> None:
    await cluster.__aexit__(None, None, None)


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    return client


async def is_ended(client: socket.socket) -> bool:
    try:
        async with asyncio.timeout(DEADLINE):
            return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("security", [None, "SSL"])
@pytest.mark.parametrize("end", [end_by_kill, end_by_stop, end_by_restart, end_by_close])
async def test_a_broker_that_ends_leaves_no_connection(
    end: Callable[[EmbeddedCluster], Awaitable[None]],
    security: str | None,
    turns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_TIMEOUT", 10 * DEADLINE)  # or it would end the connection
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        with connected(cluster.nodes[1].port) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await end(cluster)
            assert await is_ended(client)


@pytest.mark.parametrize("turns", TURNS)
async def test_a_schema_registry_that_ends_leaves_no_connection(turns: int) -> None:
    async with EmbeddedSchemaRegistry() as registry:
        with connected(int(registry.url.rpartition(":")[2])) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await registry.close()
            assert await is_ended(client)

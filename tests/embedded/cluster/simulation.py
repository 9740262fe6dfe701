"""Clients and clusters in one loop on virtual time, with a check that they leave nothing behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka_lite.aio.runtime import Runtime
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.net.connector import Connector
from aiokafka_lite.protocol.messages import MetadataRequest
from aiokafka_lite.settings.client import ClientConfig
from tests.virtual import in_virtual_time

P = TypeVar("P", bound=asyncio.BaseProtocol)


simulated = in_virtual_time


class CountingConnector:
    """Counts connection attempts by port. ``aliases`` are addresses with the address to connect to instead."""

    def __init__(self, inner: Connector) -> None:
        self.inner = inner
        self.attempts: Counter[int] = Counter()
        self.aliases: dict[tuple[str, int], tuple[str, int]] = {}

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        self.attempts[port] += 1
        return await self.inner.connect(*self.aliases.get((host, port), (host, port)), protocol_factory)


def memory_cluster(brokers: int = 3, **settings: Any) -> EmbeddedCluster:
    return EmbeddedCluster(brokers=brokers, tcp=False, seed=1, **settings)


def client_of(cluster: EmbeddedCluster, connector: Connector | None = None, **settings: Any) -> Client:
    config = ClientConfig(**{"bootstrap_servers": cluster.bootstrap_servers, **settings})
    connector = connector or cluster.connector
    assert connector is not None
    return Client(config, connector=connector, runtime=Runtime(random=random.Random(7).random))


@asynccontextmanager
async def cluster_and_client(
    brokers: int = 3, *, client: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[EmbeddedCluster, Client]]:
    async with memory_cluster(brokers, **settings) as cluster, client_of(cluster, **(client or {})) as connected:
        yield cluster, connected


def metadata_requests(cluster: EmbeddedCluster) -> int:
    return len(cluster.history.of(MetadataRequest))


def now() -> float:
    return asyncio.get_running_loop().time()

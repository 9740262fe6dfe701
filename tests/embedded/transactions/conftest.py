"""Transactions on an embedded cluster in memory and in virtual time, with a client that sends single requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.embedded import EmbeddedCluster
from tests.embedded.transactions.producing import TransactionalPeer

CONFIGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with the topics t and u, of two partitions and three replicas each."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, configs=CONFIGS) as cluster:
        await cluster.create_topic("t", 2, 3)
        await cluster.create_topic("u", 2, 3)
        yield cluster


@pytest.fixture(params=[1, 2])
async def producer(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> AsyncIterator[TransactionalPeer]:
    """An initialized producer of each generation."""
    async with TransactionalPeer(cluster, "id", generation=request.param) as made:
        await made.initialize()
        yield made


@pytest.fixture
async def first(cluster: EmbeddedCluster) -> AsyncIterator[TransactionalPeer]:
    """An initialized producer of generation 1."""
    async with TransactionalPeer(cluster, "id", generation=1) as made:
        await made.initialize()
        yield made


@pytest.fixture
async def second(cluster: EmbeddedCluster) -> AsyncIterator[TransactionalPeer]:
    """An initialized producer of generation 2."""
    async with TransactionalPeer(cluster, "id", generation=2) as made:
        await made.initialize()
        yield made

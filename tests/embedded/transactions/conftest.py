"""Transactions on an embedded cluster in memory and in virtual time, with a client that sends single requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.embedded.transactions.raw_producer import TransactionalPeer
from tests.virtual import virtual_loops

CONFIGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


pytest_asyncio_loop_factories = virtual_loops


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
    async with TransactionalPeer(cluster, "id", generation=request.param) as producer:
        await producer.initialize()
        yield producer


@pytest.fixture
async def first(cluster: EmbeddedCluster) -> AsyncIterator[TransactionalPeer]:
    """An initialized producer of generation 1."""
    async with TransactionalPeer(cluster, "id", generation=1) as producer:
        await producer.initialize()
        yield producer


@pytest.fixture
async def second(cluster: EmbeddedCluster) -> AsyncIterator[TransactionalPeer]:
    """An initialized producer of generation 2."""
    async with TransactionalPeer(cluster, "id", generation=2) as producer:
        await producer.initialize()
        yield producer

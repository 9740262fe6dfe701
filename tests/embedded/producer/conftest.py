"""Producers on an embedded cluster in memory and in virtual time: waits take no time, and runs are repeatable."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.producer import Producer
from tests.embedded.producer.transaction_requests import transactional, use_generation
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers without topics."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture(params=[1, 2])
async def generation(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> int:
    """Each generation of the transaction protocol, on a cluster with the topic ``t`` of two partitions."""
    generation: int = request.param
    await use_generation(cluster, generation)
    return generation


@pytest.fixture
async def producer(cluster: EmbeddedCluster, generation: int) -> AsyncIterator[Producer]:
    """A producer with a transactional id, in each generation of the protocol."""
    async with transactional(cluster) as producer:
        yield producer

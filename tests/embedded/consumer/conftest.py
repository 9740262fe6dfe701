"""Consumers on an embedded cluster in memory and in virtual time: waiting takes no time, and every run is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import fill, until_replicated
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers without topics."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        yield cluster


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster with a topic of three partitions, each on another broker, 100 records each."""
    await cluster.create_topic("orders", partitions=3, replication_factor=3)
    await cluster.until_in_sync("orders")
    partitions = [TopicPartition("orders", number) for number in range(3)]
    for partition in partitions:
        fill(cluster, partition, 100)
    for partition in partitions:
        await until_replicated(cluster, partition)
    return cluster

"""Transactions on an embedded cluster in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with the topics ``orders`` and ``bills``. All of Kafka's own topics are on all three."""
    configs = {
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.num.partitions": "3",
        "min.insync.replicas": "2",
    }
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=3, replication_factor=3)
        await cluster.create_topic("bills", partitions=2, replication_factor=3)
        yield cluster

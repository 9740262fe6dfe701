"""Clients of an embedded cluster in memory, as exporters see them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from tests.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """One broker with the topic ``orders`` of two partitions."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", partitions=2)
        yield cluster


@pytest.fixture
async def producer(cluster: EmbeddedCluster) -> AsyncIterator[Producer]:
    """Has written three records to the first partition."""
    settings = {"connector": cluster.connector, "client_id": "shop"}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        await producer.send_many("orders", [b"1", b"2", b"3"], partition=0)
        yield producer


@pytest.fixture
async def consumer(cluster: EmbeddedCluster, producer: Producer) -> AsyncIterator[Consumer]:
    """A member of the group ``billing`` that has read two of the records."""
    settings = {"connector": cluster.connector, "client_id": "shop", "group_id": "billing", "topics": ["orders"]}
    async with Consumer(cluster.bootstrap_servers, **settings) as consumer:
        await until(lambda: consumer.assignment)
        records = await consumer.poll(2, timeout=30.0)
        assert len(records) == 2
        yield consumer

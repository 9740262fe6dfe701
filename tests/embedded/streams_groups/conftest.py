"""Run these tests in virtual time: sessions take 45 seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three nodes in memory, with the topic ``g-in`` of four partitions on all of them."""
    configs = {"group.streams.assignment.interval.ms": "0", "group.streams.num.standby.replicas": "0"}
    async with EmbeddedCluster(brokers=3, tcp=False, configs=configs) as cluster:
        await cluster.create_topic("g-in", 4, 3)
        yield cluster

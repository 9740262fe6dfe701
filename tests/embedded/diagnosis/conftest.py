"""Clients on one broker, in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """One broker with two partitions of ``orders``."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        yield cluster

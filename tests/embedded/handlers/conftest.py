"""An embedded cluster in memory, in real time: threads and processes do not wait for a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """One broker with a topic of one partition."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", partitions=1)
        yield cluster

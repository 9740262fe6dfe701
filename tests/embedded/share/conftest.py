"""Share groups on an embedded cluster in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.embedded.share.billing_consumers import begin_at_the_first_record
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Two brokers, a topic of two partitions and one of one, and a group that begins at the first record."""
    async with EmbeddedCluster(brokers=2, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", partitions=2, replication_factor=2)
        await cluster.create_topic("jobs", partitions=1, replication_factor=2)
        await begin_at_the_first_record(cluster)
        yield cluster

"""Share groups on an embedded cluster in memory and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.embedded import EmbeddedCluster
from tests.embedded.share.sharing import begin_at_the_first_record


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Two brokers, a topic of two partitions and one of one, and a group that begins at the first record."""
    async with EmbeddedCluster(brokers=2, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", partitions=2, replication_factor=2)
        await cluster.create_topic("jobs", partitions=1, replication_factor=2)
        await begin_at_the_first_record(cluster)
        yield cluster

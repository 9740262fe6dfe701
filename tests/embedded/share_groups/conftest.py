"""Run these tests in virtual time: acquisition locks and sessions take half a minute."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three nodes in memory, with the topic ``orders`` of one partition on all of them."""
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        await cluster.create_topic("orders", 1, 3)
        yield cluster

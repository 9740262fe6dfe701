"""Consumers on an embedded cluster in memory and in virtual time: waiting takes no time, and every run is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers without topics."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        yield cluster

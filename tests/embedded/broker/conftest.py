from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster


@pytest.fixture
async def one() -> AsyncIterator[EmbeddedCluster]:
    """A single node in memory."""
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        yield cluster


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    """Three nodes in memory."""
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        yield cluster


@pytest.fixture(params=["memory", "tcp"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """Three nodes, in memory and on loopback."""
    async with EmbeddedCluster(brokers=3, tcp=request.param == "tcp") as started:
        yield started

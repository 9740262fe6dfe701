"""Clients on one broker, in memory and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.embedded import EmbeddedCluster


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """One broker with two partitions of ``orders``."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        yield cluster

"""Run these tests in virtual time: acquisition locks and sessions take half a minute."""

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
    """Three nodes in memory, with the topic ``orders`` of one partition on all of them."""
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        await cluster.create_topic("orders", 1, 3)
        yield cluster

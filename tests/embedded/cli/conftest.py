"""Commands in this process, on an embedded cluster in memory and in virtual time."""

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
    """Three brokers without topics."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        yield cluster

"""An admin client on an embedded cluster in memory and in virtual time, so that waiting takes no time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers without topics."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        yield cluster


@pytest.fixture
async def old_cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with the versions of Kafka 1.1."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, as_kafka="1.1.1") as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        yield admin


@pytest.fixture
async def old_admin(old_cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(old_cluster.bootstrap_servers, connector=old_cluster.connector) as admin:
        yield admin

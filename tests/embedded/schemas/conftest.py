"""An embedded registry for each test, and its client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.schemas import SchemaRegistryClient


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("orders")
        yield cluster


@pytest.fixture
async def registry(embedded_schema_registry: EmbeddedSchemaRegistry) -> AsyncIterator[SchemaRegistryClient]:
    async with SchemaRegistryClient(embedded_schema_registry.url, retry_backoff=0.001) as registry:
        yield registry

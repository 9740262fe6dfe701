"""Programs written for aiokafka, run on aiokafka and on ``aiokafka_lite.compat.aiokafka`` with an embedded cluster."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster

MODULES = {"aiokafka": "aiokafka", "compat": "aiokafka_lite.compat.aiokafka"}


@pytest.fixture(params=MODULES)
def library(request: pytest.FixtureRequest) -> Any:
    """The names of aiokafka: its own, and ours."""
    name = MODULES[request.param]
    names = vars(importlib.import_module(name)) | {"name": request.param}
    for part in ("admin", "errors", "helpers", "partitioner", "structs"):
        names[part] = importlib.import_module(f"{name}.{part}")
    return SimpleNamespace(**names)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Two brokers with the topic ``orders`` of two partitions. aiokafka needs TCP."""
    async with EmbeddedCluster(brokers=2, seed=1) as cluster:
        await cluster.create_topic("orders", 2)
        yield cluster

"""Groups on an embedded cluster in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from tests.embedded.group.recording_members import Ownership
from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with a topic of six partitions. The offsets topic is on all three."""
    configs = {
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        # Members that join one after the other get their partitions at once.
        "group.consumer.assignment.interval.ms": "0",
    }
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=6)
        yield cluster


@pytest.fixture
def ownership() -> Ownership:
    """The owner of each partition, as the listeners of all members report it."""
    return Ownership()

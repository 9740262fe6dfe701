"""Share consumers of the group "billing" of the topics "orders", with two partitions, and "jobs", with one."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka_lite import Admin, ShareConsumer, ShareRecord
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.embedded import EmbeddedCluster
from tests.waiting import DEADLINE

GROUP = "billing"


def share_consumer(cluster: EmbeddedCluster, topic: str = "orders", **settings: Any) -> ShareConsumer:
    """Return a consumer of the group, not started."""
    servers, connector = cluster.bootstrap_servers, cluster.connector
    return ShareConsumer(servers, topics=[topic], group_id=GROUP, connector=connector, **settings)


async def begin_at_the_first_record(cluster: EmbeddedCluster) -> None:
    """Let the group begin with the first record of each partition."""
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        changes = {ConfigResource.group(GROUP): {"share.auto.offset.reset": "earliest"}}
        (await admin.configs.alter(changes)).raise_for_errors()


async def write(cluster: EmbeddedCluster, *values: bytes, topic: str = "orders", partition: int = 0) -> None:
    for value in values:
        await cluster.produce(topic, value, partition=partition)


async def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Return the next records, exactly this many."""
    records: list[ShareRecord] = []
    async with asyncio.timeout(DEADLINE):
        while len(records) < count:
            records += await consumer.poll(count - len(records), timeout=1.0)
    return records

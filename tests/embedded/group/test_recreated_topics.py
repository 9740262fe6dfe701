"""A topic that is deleted and created again under a group: offsets of the old topic skip no record of the new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import each_way, member_of

AGAIN = TopicPartition("again", 0)


@each_way
@pytest.mark.parametrize("auto_offset_reset", ["earliest", "latest"])
async def test_offsets_of_a_deleted_topic_are_not_committed_to_the_one_that_takes_its_name(
    cluster: EmbeddedCluster, settings: dict[str, Any], auto_offset_reset: str
) -> None:
    await cluster.create_topic("again", partitions=1)
    fill(cluster, AGAIN, 20)
    options = {"auto_offset_reset": auto_offset_reset, "metadata_max_age": 5.0, "allow_auto_create_topics": False}
    records = []

    async def read(seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            records.extend(await consumer.poll(timeout=0.1))

    async with (
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
        member_of(cluster, topics=["again"], **options, **settings) as consumer,
    ):
        await consumer.wait_assigned()
        await read(10.0)
        await cluster.produce("again", b"the last one", partition=0)
        await read(2.0)  # processed, and not committed yet
        records.clear()
        (await admin.topics.delete(["again"])).raise_for_errors()
        await read(0.3)
        await cluster.create_topic("again", partitions=1)
        for number in range(5):
            await cluster.produce("again", b"%d" % number, partition=0)
        await read(30.0)
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]

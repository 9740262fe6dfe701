"""``assign_gradually``: other tasks run meanwhile, and another change of the assignment ends it."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill

PARTITIONS = 2_500
ALL = [TopicPartition("many", number) for number in range(PARTITIONS)]


async def test_many_partitions_are_assigned_while_other_tasks_run(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("many", partitions=PARTITIONS)
    fill(cluster, ALL[-1], 1)
    async with consumer_of(cluster) as consumer:
        consumer.assign(ALL[:1])
        consumer.pause(ALL[:1])
        call = asyncio.ensure_future(consumer.assign_gradually(ALL))
        sizes = set()
        while not call.done():
            sizes.add(len(consumer.assignment))
            await asyncio.sleep(0)
        assert len(sizes) > 3
        assert (consumer.assignment, consumer.paused) == (tuple(ALL), (ALL[0],))
        assert [record.partition for record in await consumer.poll(timeout=30)] == [PARTITIONS - 1]
        await consumer.assign_gradually(ALL[-2:])
        assert consumer.assignment == tuple(ALL[-2:])


async def test_a_gradual_assignment_ends_when_another_call_changes_the_assignment(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster) as consumer:
        call = asyncio.ensure_future(consumer.assign_gradually(ALL))
        while not consumer.assignment:
            await asyncio.sleep(0)
        consumer.assign(ALL[:3])
        with pytest.raises(IllegalStateError, match="another call changed the assignment"):
            await call
        assert consumer.assignment == tuple(ALL[:3])
        with pytest.raises(TypeError):
            await consumer.assign_gradually([*ALL, "many"])
        assert consumer.assignment == tuple(ALL[:3])

"""Partitions that are added under ``auto_offset_reset="latest"``, which aiokafka skips until it knows them."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat import aiokafka
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import write
from tests.waiting import DEADLINE


@pytest.mark.parametrize("group", [None, "billing"])
async def test_an_added_partition_is_read_from_its_beginning(cluster: EmbeddedCluster, group: str | None) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="latest",
        metadata_max_age_ms=500,
    )
    async with consumer, asyncio.timeout(DEADLINE):
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        cluster.controller.create_partitions("orders", 3, None)
        write(cluster, TopicPartition("orders", 2), [b"first", b"second"])
        assert [(await consumer.getone()).value for _ in range(2)] == [b"first", b"second"]

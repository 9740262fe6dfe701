"""Topics that are deleted and created again while a client is idle, at brokers without topic ids (before Kafka 2.8)."""

from __future__ import annotations

import asyncio

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.producer import Producer
from tests.virtual import in_virtual_time


@in_virtual_time
async def test_a_topic_with_lower_leader_epochs_is_used_after_some_refreshes() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, as_kafka="2.4.1") as cluster:
        await cluster.create_topic("orders", assignments=[[1, 2]])
        for _ in range(3):  # the epoch of the leader becomes 3
            await cluster.move_leader("orders", 0)
            await cluster.until_in_sync("orders")
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
        async with Producer(**settings) as producer, Consumer(topics=["orders"], **settings) as consumer:
            await producer.send("orders", b"old")
            assert [record.value for record in await consumer.poll(timeout=5.0)] == [b"old"]
            await cluster.delete_topic("orders")
            await cluster.create_topic("orders", assignments=[[3, 2]])
            began = asyncio.get_running_loop().time()
            assert (await producer.send("orders", b"new")).offset == 0
            assert 5.0 < asyncio.get_running_loop().time() - began < 15.0
            records = []
            while not records:
                records = await consumer.poll(timeout=60.0)
            assert [record.value for record in records] == [b"new"]
            assert asyncio.get_running_loop().time() - began < 30.0

"""``cluster.metrics()``: the counters of the brokers, and their waiting requests."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import EmbeddedCluster, TopicMetrics
from aiokafka_lite.errors import RecordTooLarge
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.waiting import until


def test_requests_of_clients_are_counted_by_topic() -> None:
    async def main() -> TopicMetrics:
        async with EmbeddedCluster(brokers=2, tcp=False, seed=1) as cluster:
            await cluster.create_topic("orders", 1, configs={"max.message.bytes": "1000"})
            async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
                await producer.send_many("orders", [b"1", b"2", b"3"])
                with pytest.raises(RecordTooLarge):
                    await producer.send("orders", bytes(2000))
            settings = {"connector": cluster.connector, "topics": ["orders"]}
            async with Consumer(cluster.bootstrap_servers, **settings) as consumer:
                assert len(await consumer.poll(timeout=10.0)) == 3
            metrics = cluster.metrics()
            leader = metrics.brokers[cluster.leader_of("orders", 0)].topics["orders"]
            assert leader == metrics.topics["orders"]
            assert json.loads(json.dumps(metrics.to_dict()))["topics"]["orders"]["messages_in"] == 3
            return leader

    orders = run(main())
    assert (orders.messages_in, orders.produce_requests, orders.failed_produce_requests) == (3, 2, 1)
    assert orders.bytes_in == orders.bytes_out > 0
    assert orders.fetch_requests >= 1
    assert orders.failed_fetch_requests == 0


def test_requests_are_counted_and_timed_by_api() -> None:
    async def main() -> None:
        async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
            await cluster.create_topic("orders", 1)
            cluster.on(ProduceRequest).delay(2.0)
            async with Producer(**cluster.client_settings()) as producer:
                for _ in range(3):
                    await producer.send("orders", b"x")
            async with Consumer(topics=["orders"], **cluster.client_settings()) as consumer:
                assert len(await consumer.poll(timeout=10.0)) == 3
                assert await consumer.poll(timeout=3.0) == []
            requests = cluster.metrics().brokers[1].requests
            assert {"ApiVersions", "Metadata", "InitProducerId", "Produce", "Fetch", "ListOffsets"} <= requests.keys()
            produce, fetch = requests["Produce"], requests["Fetch"]
            assert (produce.count, produce.longest_time) == (3, pytest.approx(2.0, abs=0.1))
            assert 2.0 <= produce.total_time < 2.2
            assert fetch.longest_time == pytest.approx(0.5, abs=0.1), "the wait for data counts"
            assert requests["Metadata"].total_time < 0.1

    run(main())


def test_the_produce_path_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka_lite.embedded.handlers.produce")

    async def main() -> None:
        async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
            await cluster.create_topic("orders", 1, configs={"max.message.bytes": "1000"})
            async with Producer(**cluster.client_settings(), client_id="billing") as producer:
                await producer.send_many("orders", [b"1", b"2", b"3"])
                await producer.send("orders", b"secret-value")
                with pytest.raises(RecordTooLarge):
                    await producer.send("orders", bytes(2000))

    run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[0].startswith("node 1: Produce v13 of 'billing' from User:ANONYMOUS, acks=-1, ")
    assert lines[0].endswith(" bytes: orders-0: 3 records at 0")
    assert lines[1].endswith(" bytes: orders-0: 1 records at 3")
    assert lines[2].endswith(" bytes: orders-0: MESSAGE_TOO_LARGE")
    assert "secret-value" not in caplog.text


def test_in_sync_sets_that_shrink_and_expand_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka_lite.embedded")

    async def main() -> None:
        configs = {"replica.lag.time.max.ms": "2000"}  # the leader removes the follower before the controller does
        async with EmbeddedCluster(brokers=2, tcp=False, configs=configs, seed=1) as cluster:
            await cluster.create_topic("orders", 1, assignments=[[1, 2]])
            async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
                await cluster.freeze(2)
                waiting = producer.send_nowait("orders", b"1")
                await until(lambda: cluster.metrics().brokers[1].produce_purgatory == 1)
                await until(lambda: cluster.metrics().brokers[1].under_replicated_partitions == 1)
                assert cluster.metrics().brokers[1].connections > 0
                await waiting
                await cluster.thaw(2)
                await cluster.until_in_sync("orders")
            leader = cluster.metrics().brokers[1]
            assert (leader.under_replicated_partitions, leader.produce_purgatory) == (0, 0)
            assert (leader.isr_shrinks, leader.isr_expands) == (1, 1)
            await cluster.stop(1)
            assert cluster.metrics().brokers[2].leaders == 1

    run(main())
    assert "node 1 shrank the in-sync set of orders-0 from [1, 2] to [1]" in caplog.messages
    assert "node 1 expanded the in-sync set of orders-0 from [1] to [1, 2]" in caplog.messages
    assert "fenced node 1" in caplog.messages
    assert "orders-0 has node 2 as the leader from epoch 1 on" in caplog.messages


async def test_a_fetch_that_waits_is_in_the_purgatory(one: EmbeddedCluster) -> None:
    await one.create_topic("orders", 1)
    async with Consumer(one.bootstrap_servers, connector=one.connector, topics=["orders"]) as consumer:
        reading = asyncio.ensure_future(anext(consumer))
        await until(lambda: one.metrics().brokers[1].fetch_purgatory == 1)
        reading.cancel()
        await asyncio.wait([reading])

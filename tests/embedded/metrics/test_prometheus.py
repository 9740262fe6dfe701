"""The collector for Prometheus, read back with the parser of ``prometheus_client``."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aiokafka_lite import Admin, Consumer, ConsumerGroup, Producer, ShareConsumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.metrics.prometheus import KafkaCollector
from aiokafka_lite.processing.workers import Workers
from tests.waiting import DEADLINE, until

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(registry: CollectorRegistry) -> Series:
    """Return the scraped values by name and labels."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def at(series: Series, name: str, **labels: str) -> float:
    return series[name, frozenset(labels.items())]


def producer_of(cluster: EmbeddedCluster) -> Producer:
    return Producer(cluster.bootstrap_servers, connector=cluster.connector, client_id="shop")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


async def test_a_scrape_has_what_the_clients_have_done(
    producer: Producer, consumer: Consumer, registry: CollectorRegistry
) -> None:
    KafkaCollector(producer, consumer, registry=registry)
    series = scrape(registry)
    assert at(series, "kafka_producer_records_delivered_total", client="shop") == 3
    member = {"client": "shop-2", "group": "billing"}
    assert at(series, "kafka_consumer_assigned_partitions", **member) == 2
    assert at(series, "kafka_consumer_rebalances_total", **member) >= 1
    first = {"client": "shop-2", "topic": "orders", "partition": "0"}
    assert at(series, "kafka_consumer_partition_records_lag", **first) == 1
    assert at(series, "kafka_consumer_partition_records_consumed_total", **first) == 2
    assert at(series, "kafka_client_broker_received_bytes_total", client="shop-2", broker="1") > 0


async def test_every_kind_of_client_is_exported(
    cluster: EmbeddedCluster, producer: Producer, registry: CollectorRegistry
) -> None:
    async def handle(record: object) -> None: ...

    workers, group = Workers(handle), ConsumerGroup(cluster.bootstrap_servers, group_id="g")
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        collector = KafkaCollector(admin, workers, registry=registry)
        collector.add(group, name="idle")
        series = scrape(registry)
        assert at(series, "kafka_client_outages", client="aiokafka-lite") == 0
        assert at(series, "kafka_workers_records_pending", client="Workers") == 0
        assert not [labels for _, labels in series if ("client", "idle") in labels]
        collector.remove(admin)
        assert not [name for name, _ in scrape(registry) if name.startswith("kafka_client")]


async def test_a_share_consumer_is_exported_with_its_group(
    cluster: EmbeddedCluster, registry: CollectorRegistry
) -> None:
    settings = {"connector": cluster.connector, "client_id": "shop"}
    async with ShareConsumer(cluster.bootstrap_servers, topics=["orders"], group_id="queue", **settings) as queue:
        await until(lambda: queue.assignment)
        KafkaCollector(queue, registry=registry)
        series = scrape(registry)
        assert at(series, "kafka_share_assigned_partitions", client="shop", group="queue") == 2
        assert at(series, "kafka_share_heartbeats_total", client="shop", group="queue") >= 1
        assert at(series, "kafka_share_records_accepted_total", client="shop", group="queue") == 0
        assert at(series, "kafka_client_outages", client="shop") == 0


async def test_a_scrape_in_another_thread_reads_the_clients_in_their_loop(
    producer: Producer, registry: CollectorRegistry
) -> None:
    KafkaCollector(producer, registry=registry)
    series = await asyncio.to_thread(scrape, registry)
    assert at(series, "kafka_producer_records_delivered_total", client="shop") == 3


async def test_a_collector_keeps_no_client_alive(cluster: EmbeddedCluster, registry: CollectorRegistry) -> None:
    producer = Producer(cluster.bootstrap_servers, connector=cluster.connector)
    KafkaCollector(producer, registry=registry)
    assert scrape(registry)
    del producer
    gc.collect()
    assert not scrape(registry)


async def test_a_second_collector_of_a_registry_is_refused_and_the_first_one_takes_its_clients(
    producer: Producer, consumer: Consumer, registry: CollectorRegistry
) -> None:
    collector = KafkaCollector(producer, registry=registry)
    with pytest.raises(IllegalStateError, match=r"has a KafkaCollector already.*collector\.add\(client\)"):
        KafkaCollector(consumer, registry=registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(KafkaCollector(consumer, registry=None))
    collector.add(consumer)
    page = generate_latest(registry).decode().splitlines()
    series = [line.rsplit(" ", 1)[0] for line in page if not line.startswith("#")]
    assert len(series) == len(set(series))
    assert 'kafka_consumer_records_consumed_total{client="shop-2"}' in series


async def test_a_collector_that_was_unregistered_makes_room(producer: Producer, registry: CollectorRegistry) -> None:
    registry.unregister(KafkaCollector(producer, registry=registry))
    KafkaCollector(producer, registry=registry)
    assert scrape(registry)


def test_a_collector_of_a_closed_event_loop_is_replaced(registry: CollectorRegistry) -> None:
    async def run() -> Series:
        async with EmbeddedCluster(brokers=1, tcp=False) as cluster, producer_of(cluster) as producer:
            KafkaCollector(producer, registry=registry)
            return scrape(registry)

    assert asyncio.run(run())
    assert asyncio.run(run())
    assert not scrape(registry)


async def test_one_collector_exports_the_clients_of_several_event_loops(
    producer: Producer, registry: CollectorRegistry
) -> None:
    collector = KafkaCollector(producer, registry=registry)
    ready, scraped = threading.Event(), threading.Event()

    async def other_loop() -> None:
        async with EmbeddedCluster(brokers=1, tcp=False) as cluster, producer_of(cluster) as other:
            await other.send("orders", b"x")
            collector.add(other)
            ready.set()
            await asyncio.to_thread(scraped.wait)

    thread = asyncio.create_task(asyncio.to_thread(asyncio.run, other_loop()))
    assert await asyncio.to_thread(ready.wait, DEADLINE)
    series = scrape(registry)
    scraped.set()
    await thread
    assert at(series, "kafka_producer_records_delivered_total", client="shop") == 3
    assert at(series, "kafka_producer_records_delivered_total", client="shop-2") == 1
    assert at(scrape(registry), "kafka_producer_records_delivered_total", client="shop") == 3


async def test_a_scrape_can_be_restricted_to_names(producer: Producer, registry: CollectorRegistry) -> None:
    KafkaCollector(producer, registry=registry)
    only: Any = registry.restricted_registry(["kafka_producer_records_delivered_total"])
    assert {name for name, _ in scrape(only)} == {"kafka_producer_records_delivered_total"}


async def test_the_multiprocess_mode_is_a_warning(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "somewhere")
    with caplog.at_level(logging.WARNING):
        REGISTRY.unregister(KafkaCollector(producer))
    assert [record.message for record in caplog.records if "multiprocess mode" in record.message]


def test_a_collector_must_be_made_in_an_event_loop(registry: CollectorRegistry) -> None:
    with pytest.raises(IllegalStateError, match="must be made in the event loop of the clients"):
        KafkaCollector(registry=registry)


async def test_an_object_without_metrics_is_refused(registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigurationError, match=r"client must be an object with metrics\(\), got 'shop'"):
        KafkaCollector("shop", registry=registry)  # type: ignore[arg-type]

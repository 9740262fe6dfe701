"""The counters and gauges of a consumer: exact for records, and kept over seeks, revocations and failures."""

from __future__ import annotations

import json
import pickle

import pytest

from aiokafka_lite.admin import Admin
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.messages import FetchRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, leader, take, write
from tests.waiting import until

FIRST = TopicPartition("orders", 0)


@pytest.fixture
async def size(cluster: EmbeddedCluster) -> int:
    """100 records in ten batches, too large to be unpacked together. The value is their size in the log."""
    await cluster.create_topic("orders", partitions=1)
    for _ in range(10):
        write(cluster, FIRST, [bytes(1_000)] * 10)
    return len(leader(cluster, FIRST).log.read(0, 1 << 20, 100))


async def read_one_by_one(consumer: Consumer, count: int) -> None:
    async for _ in consumer:
        count -= 1
        if not count:
            return


async def test_before_the_start_everything_is_zero_or_unknown(cluster: EmbeddedCluster) -> None:
    metrics = consumer_of(cluster, topics=["orders"]).metrics()
    assert (metrics.records_consumed, metrics.bytes_consumed, metrics.fetch_latency.count) == (0, 0, 0)
    assert metrics.lag is None
    assert metrics.group is None
    assert metrics.client.last_response_ago is None


async def test_records_count_when_they_are_returned_one_by_one(cluster: EmbeddedCluster, size: int) -> None:
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        await read_one_by_one(consumer, 13)
        metrics = consumer.metrics()
        partition = metrics.partitions[FIRST]
        assert metrics.records_consumed == partition.records_consumed == 13
        assert (partition.position, partition.lag, metrics.lag, metrics.lag_max) == (13, 87, 87, 87)
        assert 0 < metrics.bytes_consumed < size
        await read_one_by_one(consumer, 87)
        assert consumer.metrics().records_consumed == 100


async def test_records_count_once_however_they_are_read(cluster: EmbeddedCluster, size: int) -> None:
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        await read_one_by_one(consumer, 3)
        assert len(await consumer.poll(5)) == 5
        assert len(await anext(consumer.batches(4))) == 4
        rows = (await anext(consumer.batches(30).to_arrow())).num_rows
        assert consumer.metrics().records_consumed == 12 + rows
        await take(consumer, 88 - rows)
        metrics = consumer.metrics()
        assert (metrics.records_consumed, metrics.bytes_consumed, metrics.lag) == (100, size, 0)


async def test_a_record_that_is_read_again_after_a_seek_counts_again(cluster: EmbeddedCluster, size: int) -> None:
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        await read_one_by_one(consumer, 15)
        consumer.seek(FIRST, 10)
        await read_one_by_one(consumer, 5)
        assert consumer.metrics().records_consumed == 20


async def test_totals_keep_the_records_of_removed_partitions(cluster: EmbeddedCluster, size: int) -> None:
    async with consumer_of(cluster) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 100)
        consumer.assign([])
        metrics = consumer.metrics()
    assert (metrics.records_consumed, metrics.bytes_consumed) == (100, size)
    assert not metrics.partitions


async def test_fetches_are_timed_and_failed_ones_counted(cluster: EmbeddedCluster, size: int) -> None:
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        with cluster.on(FetchRequest, times=1).disconnect():
            await take(consumer, 100)
        metrics = consumer.metrics()
        assert metrics.fetch_failures == 1
        assert metrics.fetch_latency.count > 0
        assert metrics.fetch_latency.average is not None
        broker = metrics.client.brokers[cluster.leader_of(*FIRST)]
        assert broker.latency_count >= metrics.fetch_latency.count
        assert broker.latency_total >= metrics.fetch_latency.total


async def test_a_consumer_that_only_commits_counts_commits_and_no_heartbeats(
    cluster: EmbeddedCluster, size: int
) -> None:
    async with consumer_of(cluster, group_id="billing", auto_commit=False) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 10)
        consumer.mark()
        await consumer.commit()
        group = consumer.metrics().group
    assert group is not None
    assert (group.group_id, group.commits.latency.count, group.commits.failures) == ("billing", 1, 0)
    assert group.member is None


async def test_metrics_become_json_and_can_be_pickled(cluster: EmbeddedCluster, size: int) -> None:
    async with consumer_of(cluster, topics=["orders"], group_id="billing") as consumer:
        await until(lambda: consumer.assignment)
        await take(consumer, 10)
        metrics = consumer.metrics()
    assert json.loads(json.dumps(metrics.to_dict()))["partitions"]["orders-0"]["records_consumed"] == 10
    assert pickle.loads(pickle.dumps(metrics)) == metrics


async def test_an_admin_client_counts_its_connections_and_requests(cluster: EmbeddedCluster) -> None:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        await admin.topics.list()
        metrics = admin.metrics()
    assert metrics.connections >= 1
    assert metrics.requests == metrics.responses > 0
    assert metrics.bytes_sent > 0
    assert metrics.bytes_received > metrics.bytes_sent
    assert metrics.last_response_ago == pytest.approx(0, abs=1e-3)
    assert metrics.outages == 0

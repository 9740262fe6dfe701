"""Ranges are read to their ends and not beyond; unreadable ranges are errors. These tests need no Spark session."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.aio import virtual_time
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.errors import KafkaTimeout, UnknownTopic
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.consumer import ConsumerConfig
from aiokafka_lite.spark import reading
from aiokafka_lite.spark.offsets import Range
from aiokafka_lite.spark.reading import RangeReader

LONG_WAIT = ConsumerConfig(auto_offset_reset="none", fetch_max_wait=20.0)
SOON = 10.0


async def filled(cluster: EmbeddedCluster, *sizes: int) -> list[TopicPartition]:
    await cluster.create_topic("t", partitions=len(sizes))
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        for number, size in enumerate(sizes):
            for _ in range(size):
                await producer.send("t", b"v", partition=number)
    return [TopicPartition("t", number) for number in range(len(sizes))]


async def offsets(client: Client, *task: Range, poll_timeout: float = 60.0) -> dict[TopicPartition, list[int]]:
    """Return the offsets of the batches that are read for these ranges."""
    by_partition: dict[TopicPartition, list[int]] = {}
    reader = RangeReader(client, LONG_WAIT, task, fail_on_data_loss=True, poll_timeout=poll_timeout)
    async with reader:
        while fetched := await reader.take():
            for piece in fetched:
                by_partition.setdefault(piece.range.partition, []).extend(
                    batch.base_offset for batch, _ in piece.batches
                )
    return by_partition


async def test_a_range_to_the_end_of_the_log_waits_for_no_fetch(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further fetch would take twenty seconds."""
    monkeypatch.setattr(reading, "PROBE_INTERVAL", 60.0)
    first, second, third = await filled(cluster, 30, 1, 200)
    async with Client(ClientConfig(bootstrap_servers=cluster.bootstrap_servers)) as client, asyncio.timeout(SOON):
        by_partition = await offsets(client, Range(first, 0, 30), Range(second, 0, 1), Range(third, 5, 200))
    assert by_partition == {first: list(range(30)), second: [0], third: list(range(5, 200))}


async def test_a_range_whose_end_has_no_record_is_finished(
    cluster: EmbeddedCluster,
) -> None:
    (partition,) = await filled(cluster, 10)
    leader = cluster.nodes[cluster.leader_of("t", 0)]
    (segment,) = leader.replica_manager.partitions["t", 0].log.segments
    segment.truncate(7)  # as after compaction of final deletions: the end of the log stays at 10
    async with Client(ClientConfig(bootstrap_servers=cluster.bootstrap_servers)) as client, asyncio.timeout(SOON):
        assert await offsets(client, Range(partition, 0, 10)) == {partition: list(range(7))}


async def test_the_loss_of_a_leader_during_a_probe_finishes_no_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "PROBE_INTERVAL", 0.05)
    config = ConsumerConfig(auto_offset_reset="none", fetch_max_wait=0.1)
    partition = TopicPartition("t", 0)
    async with EmbeddedCluster(brokers=3, config=ClusterConfig(broker_session_timeout=0.5)) as cluster:
        servers = cluster.bootstrap_servers
        await cluster.create_topic("t", partitions=1, replication_factor=3)
        client_config = ClientConfig(bootstrap_servers=servers, request_timeout=1.0, metadata_max_age=0.2)
        async with (
            asyncio.timeout(SOON),
            Producer(servers, request_timeout=1.0) as producer,
            Client(client_config) as client,
            RangeReader(client, config, (Range(partition, 0, 2),), fail_on_data_loss=True, poll_timeout=60) as reader,
        ):
            await producer.send("t", b"before", partition=0)
            assert [len(piece.batches) for piece in await reader.take()] == [1]
            leader = cluster.leader_of("t", 0)
            rest = asyncio.create_task(reader.take())
            await cluster.freeze(leader)
            while client.view.leader_of(partition) in (None, leader):
                await asyncio.sleep(0.05)
            await producer.send("t", b"after", partition=0)
            assert [len(piece.batches) for piece in await rest] == [1]
            assert await reader.take() == []


def test_an_end_beyond_the_log_is_a_timeout() -> None:
    async def read() -> None:
        async with EmbeddedCluster(tcp=False) as cluster:
            (partition,) = await filled(cluster, 3)
            config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
            async with Client(config, connector=cluster.connector) as client:
                with pytest.raises(KafkaTimeout, match=r"no records arrived within 20 s .* for t-0 from offset 3 to 5"):
                    await offsets(client, Range(partition, 0, 5), poll_timeout=20.0)

    virtual_time.run(read())


def test_a_missing_topic_is_an_error() -> None:
    async def read() -> None:
        async with EmbeddedCluster(tcp=False) as cluster:
            config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers, allow_auto_create_topics=False)
            async with Client(config, connector=cluster.connector) as client:
                with pytest.raises(UnknownTopic, match="gone"):
                    await offsets(client, Range(TopicPartition("gone", 0), 0, 5))

    virtual_time.run(read())

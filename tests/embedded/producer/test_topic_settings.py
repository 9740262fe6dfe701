"""Settings of a producer for single topics: compression, batches, linger, timeouts and partitioners."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from aiokafka_lite import blocking
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    UnsupportedVersion,
)
from aiokafka_lite.producer import (
    ExplicitPartitioner,
    PartitionerByTopic,
    Producer,
    RoundRobinPartitioner,
    TopicSettings,
)
from aiokafka_lite.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, ProduceRequest
from aiokafka_lite.types import Compression
from tests.embedded.producer.producers_and_logs import batches_of, producer_of

OF_AUDIT = {"audit": TopicSettings(compression="zstd", compression_level=3, batch_size=2_000, linger=1.0)}


async def test_each_topic_has_the_compression_and_the_batches_that_its_settings_say(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("audit", 1)
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, compression="gzip", compression_level=9, topic_settings=OF_AUDIT) as producer:
        for topic in ("audit", "t"):
            await producer.send_many(topic, [b"%d" % number * 20 for number in range(2_000)])
    assert {batch.compression for batch in batches_of(cluster, "audit")} == {Compression.ZSTD}
    assert {batch.compression for batch in batches_of(cluster, "t")} == {Compression.GZIP}
    assert len(batches_of(cluster, "audit")) > 2 * len(batches_of(cluster, "t"))


@pytest.mark.parametrize(("common", "own"), [(0.0, 1.0), (1.0, 0.0), (3.0, 1.0)])
async def test_each_topic_lingers_for_its_own_time(cluster: EmbeddedCluster, common: float, own: float) -> None:
    lingers = {"audit": own, "t": common}
    loop = asyncio.get_running_loop()
    settings = {"audit": TopicSettings(linger=own)}
    async with producer_of(cluster, linger=common, topic_settings=settings) as producer:
        for topic in lingers:
            await cluster.create_topic(topic, 1)
            await producer.partitions_for(topic)
        before = loop.time()

        async def took(topic: str) -> float:
            await producer.send(topic, b"v")
            return loop.time() - before

        times = dict(zip(lingers, await asyncio.gather(*map(took, lingers))))
    assert {topic: round(time) for topic, time in times.items()} == lingers


async def test_a_record_fails_after_the_delivery_timeout_of_its_topic(cluster: EmbeddedCluster) -> None:
    for topic in ("audit", "t", "quick"):
        await cluster.create_topic(topic, 1)
    timeouts = {"audit": 20.0, "t": 60.0, "quick": 5.0}
    settings = {topic: TopicSettings(delivery_timeout=timeouts[topic]) for topic in ("audit", "quick")}
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, delivery_timeout=60.0, topic_settings=settings) as producer:
        for topic in timeouts:
            await producer.partitions_for(topic)
        cluster.on(ProduceRequest, times=None).drop()
        before = loop.time()

        async def failed_after(topic: str) -> float:
            with pytest.raises(KafkaTimeout, match=f"within delivery_timeout={timeouts[topic]:g} s"):
                await producer.send(topic, b"v")
            return float(round(loop.time() - before))

        assert dict(zip(timeouts, await asyncio.gather(*map(failed_after, timeouts)))) == timeouts


async def test_a_record_is_not_pending_for_longer_than_the_delivery_timeout_of_its_topic(
    cluster: EmbeddedCluster,
) -> None:
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, topic_settings={"absent": TopicSettings(delivery_timeout=5.0)}) as producer:
        before = loop.time()
        with pytest.raises(KafkaError, match="absent"):
            await producer.send("absent", b"v", partition=3)
        assert loop.time() - before == pytest.approx(5.0, abs=0.5)


async def test_only_the_topic_fails_whose_compression_the_broker_does_not_know(cluster: EmbeddedCluster) -> None:
    def without_zstd(response: ApiVersionsResponse) -> ApiVersionsResponse:
        for api in response.api_keys:
            if api.api_key == ProduceRequest.api_key:
                api.max_version = 6
        return response

    cluster.on(ApiVersionsRequest, times=None).alter(without_zstd)
    for topic in ("audit", "t"):
        await cluster.create_topic(topic, 1)
    async with producer_of(cluster, topic_settings={"audit": TopicSettings(compression="zstd")}) as producer:
        for topic in ("audit", "t"):
            await producer.partitions_for(topic)
        refused, written = producer.send_nowait("audit", b"v"), producer.send_nowait("t", b"v")
        with pytest.raises(UnsupportedVersion, match=r"compression='zstd' requires Kafka 2\.1"):
            await refused
        assert (await written).offset == 0
        assert (await producer.send("t", b"v")).offset == 1


async def test_advice_about_a_refused_compression_is_for_the_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("audit", 1)
    cluster.on(ProduceRequest).fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    async with producer_of(cluster, topic_settings={"audit": TopicSettings(compression="zstd")}) as producer:
        with pytest.raises(KafkaError, match='set compression="none"'):
            await producer.send("audit", b"v")


async def test_each_topic_has_its_partitioner(cluster: EmbeddedCluster) -> None:
    for topic in ("events", "explicit", "t"):
        await cluster.create_topic(topic, 4)
    partitioner = PartitionerByTopic({"events": RoundRobinPartitioner(), "explicit": ExplicitPartitioner()})
    async with producer_of(cluster, partitioner=partitioner) as producer:
        chosen = [(await producer.send("events", b"v")).partition for _ in range(4)]
        assert sorted(chosen) == [0, 1, 2, 3]
        with pytest.raises(IllegalStateError, match="names no partition"):
            await producer.send("explicit", b"v")
        by_key = {(await producer.send("t", b"v", key=b"k")).partition for _ in range(4)}
        assert len(by_key) == 1
        results = await producer.send_many("events", [b"v"] * 8)
        assert {metadata.partition for metadata in results} == {0, 1, 2, 3}


def test_a_blocking_producer_takes_the_same_settings() -> None:
    producer = blocking.Producer("127.0.0.1:1", topic_settings=OF_AUDIT)
    assert producer.config.for_topic("audit").compression is Compression.ZSTD
    assert producer.config.for_topic("t") is producer.config


def test_a_compression_without_a_level_has_the_default_level_of_its_codec() -> None:
    settings = {"audit": TopicSettings(compression="gzip"), "t": TopicSettings(linger=0.1)}
    config = Producer("127.0.0.1:1", compression="zstd", compression_level=19, topic_settings=settings).config
    assert config.for_topic("audit").compression_level is None
    assert config.for_topic("t").compression_level == 19


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["audit"], r"topic_settings must be a dict of TopicSettings by topic, or None, got \['audit'\]"),
        ({3: TopicSettings()}, "a topic in topic_settings must be a string, got 3"),
        ({"a b": TopicSettings()}, r"topic_settings\['a b'\]: topic name must consist of"),
        ({"t": {"linger": 1.0}}, r"topic_settings\['t'\] must be TopicSettings\(\.\.\.\), got \{'linger': 1\.0\}"),
        ({"t": TopicSettings(linger=-1)}, r"topic_settings\['t'\]: linger must be a number of seconds >= 0, got -1"),
        ({"t": TopicSettings(delivery_timeout=0)}, r"topic_settings\['t'\]: delivery_timeout must be"),
        ({"t": TopicSettings(linger=200)}, r"topic_settings\['t'\]: linger must be less than delivery_timeout=120"),
        ({"t": TopicSettings(batch_size=0)}, r"topic_settings\['t'\]: batch_size must be a whole number from 1"),
        ({"t": TopicSettings(compression="br")}, r"topic_settings\['t'\]: compression must be"),  # type: ignore[arg-type]
        (
            {"t": TopicSettings(compression="gzip", compression_level=12)},
            r"topic_settings\['t'\]: compression_level must be a whole number from 0 to 9 for gzip, got 12",
        ),
        (
            {"t": TopicSettings(compression_level=3)},
            r"topic_settings\['t'\]: compression_level must be None with compression='none', got 3",
        ),
    ],
)
def test_wrong_settings_of_a_topic_are_refused_with_its_name(settings: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Producer("127.0.0.1:1", topic_settings=settings)


def test_a_setting_that_is_the_same_for_all_topics_is_no_setting_of_a_topic() -> None:
    with pytest.raises(TypeError, match="acks"):
        TopicSettings(acks=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("partitioners", "default", "message"),
    [
        ([], None, r"partitioners must be a dict of partitioners by topic, got \[\]"),
        ({"": RoundRobinPartitioner()}, None, "a topic in partitioners must be a string that is not empty"),
        ({"t": "murmur2"}, None, r"partitioners\['t'\] must be an object with partition"),
        ({}, "murmur2", "default must be an object with partition"),
    ],
)
def test_wrong_partitioners_are_refused(partitioners: Mapping[str, Any], default: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PartitionerByTopic(partitioners, default)

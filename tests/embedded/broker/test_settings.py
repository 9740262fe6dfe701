"""A setting of the embedded cluster has one source, whichever way it was set."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.controller import Refused
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.embedded.broker.peer import Peer, fetch_request
from tests.pure.embedded.batches import produced

BROKER = 4


async def described(peer: Peer, *names: str) -> dict[str, str | None]:
    """The values in DescribeConfigs of broker 1."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=list(names) or None)
    (result,) = (await peer.ask(DescribeConfigsRequest(resources=[resource]))).results
    assert result.error_code == 0
    return {each.name: each.value for each in result.configs}


@pytest.mark.parametrize(
    "arguments", [{"default_partitions": 4}, {"configs": {"num.partitions": "4"}}], ids=["argument", "configs"]
)
async def test_the_default_of_partitions_is_what_describe_configs_says(arguments: dict[str, Any]) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, **arguments) as cluster, Peer(cluster) as peer:
        assert await described(peer, "num.partitions") == {"num.partitions": "4"}
        new = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
        created = await peer.ask(CreateTopicsRequest(topics=[new]))
        assert created.topics[0].num_partitions == 4


async def test_every_setting_in_force_is_the_described_one() -> None:
    configs = {"fetch.max.bytes": "2048", "group.initial.rebalance.delay.ms": "7", "replica.lag.time.max.ms": "11"}
    async with EmbeddedCluster(brokers=1, tcp=False, auto_create_topics=False, configs=configs) as cluster:
        async with Peer(cluster) as peer:
            found = await described(peer)
        settings = cluster.nodes[1].settings
        changed = {**configs, "auto.create.topics.enable": "false", "max.connections": "2000"}
        assert {name: found[name] for name in changed} == changed
        assert {name: settings.value(name) for name in changed} == changed


async def test_a_fetch_response_keeps_to_the_setting() -> None:
    configs = {"fetch.max.bytes": "1024"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as peer:
        await cluster.create_topic("t")
        for _ in range(4):
            await peer.produce("t", produced(b"x" * 500, timestamp=-1))
        response = await peer.ask(fetch_request("t", 0), 12)
        assert len(response.responses[0].partitions[0].records or b"") <= 1024


@pytest.mark.parametrize("version, code", [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_topics_are_not_deleted_where_that_is_disabled(version: int, code: ErrorCode) -> None:
    configs = {"delete.topic.enable": "false"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as peer:
        await cluster.create_topic("t")
        answer = await peer.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), version)
        assert answer.responses[0].error_code == code
        assert "t" in cluster.nodes[1].metadata.topics


@pytest.mark.parametrize(
    "configs",
    [{"remote.storage.enable": "true"}, {"min.compaction.lag.ms": "5000", "max.compaction.lag.ms": "10"}],
    ids=["tiered storage", "lags that contradict"],
)
async def test_settings_of_a_topic_that_cannot_work_are_refused(configs: dict[str, str]) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        with pytest.raises(Refused, match=next(iter(configs))):
            await cluster.create_topic("t", configs=configs)


async def test_the_first_node_id_can_be_chosen() -> None:
    config = ClusterConfig(first_node_id=0, racks=["a", "b"])
    async with EmbeddedCluster(brokers=2, tcp=False, config=config) as cluster:
        assert {node: each.rack for node, each in cluster.nodes.items()} == {0: "a", 1: "b"}
        await cluster.create_topic("t", assignments=[[0, 1]])
        async with Peer(cluster, node=0) as peer:
            assert (await peer.produce("t", produced(b"x", timestamp=-1))).error_code == 0


def test_compacted_topics_are_compacted_by_their_settings() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        config = ClusterConfig(wall_clock=lambda: 1_000_000 + clock())
        async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster, Peer(cluster) as peer:
            base = {"cleanup.policy": "compact", "segment.ms": "1000"}
            await cluster.create_topic("quick", configs=base)
            await cluster.create_topic("late", configs={**base, "min.compaction.lag.ms": "100000"})
            await cluster.create_topic("dirty", configs={**base, "min.cleanable.dirty.ratio": "0.9"})
            await cluster.create_topic(  # the lag closes a segment that segment.ms would keep open
                "soon",
                configs={
                    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "60000"
                },
            )  # fmt: skip
            names = ("quick", "late", "dirty", "soon")

            async def write(*keys: bytes) -> None:
                for name in names:
                    for key in keys:
                        now = int(config.wall_clock() * 1000)
                        assert (await peer.produce(name, produced(b"v", key=key, timestamp=now))).error_code == 0
                await asyncio.sleep(20)  # the cleaner looks every 15 seconds

            def keys_of(name: str) -> int:
                log = cluster.nodes[1].replica_manager.partitions[name, 0].log
                return sum(1 for batch in log.batches() for _ in batch.scan())

            await write(b"a", b"a", b"b")
            assert [keys_of(name) for name in names] == [2, 3, 2, 3]
            await asyncio.sleep(100)
            assert [keys_of(name) for name in names] == [2, 2, 2, 2]
            await write(b"a", b"a", b"a")
            assert [keys_of(name) for name in names] == [2, 5, 5, 5]

    run(main())

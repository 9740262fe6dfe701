"""A setting of the embedded cluster has one source, whichever way it was set."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
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
        changed = {**configs, "auto.create.topics.enable": "false", "max.connections": "10000"}
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

"""A setting of the embedded cluster has one source, whichever way it was set."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.metadata.controller import Refused
from aiokafka_lite.errors import ConfigurationError, ErrorCode
from aiokafka_lite.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from tests.embedded.broker.raw_client import Peer, fetch_request
from tests.pure.embedded.batches import produced
from tests.virtual import in_virtual_time

BROKER = 4


async def described(peer: Peer, *names: str) -> dict[str, str | None]:
    """Return the values in DescribeConfigs of broker 1."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=list(names) or None)
    (result,) = (await peer.ask(DescribeConfigsRequest(resources=[resource]))).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs}


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
            descriptions = await described(peer)
        settings = cluster.nodes[1].settings
        changed = {**configs, "auto.create.topics.enable": "false", "max.connections": "2000"}
        assert {name: descriptions[name] for name in changed} == changed
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
        assert {node: broker.rack for node, broker in cluster.nodes.items()} == {0: "a", 1: "b"}
        await cluster.create_topic("t", assignments=[[0, 1]])
        async with Peer(cluster, node=0) as peer:
            assert (await peer.produce("t", produced(b"x", timestamp=-1))).error_code == 0


@pytest.mark.parametrize(("name", "first"), [("first_node_id", 2**31 - 2), ("advertised_port", 65_534)])
def test_the_last_broker_has_an_id_and_a_port_that_clients_can_use(name: str, first: int) -> None:
    config = ClusterConfig(**{name: first})  # type: ignore[arg-type]
    EmbeddedCluster(brokers=2, config=config)
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number <= {first - 1} for 3 brokers"):
        EmbeddedCluster(brokers=3, config=config)


@in_virtual_time
async def test_compacted_topics_are_compacted_by_their_settings() -> None:
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


async def every_setting(peer: Peer, broker: str) -> dict[str, DescribeConfigsResourceResult]:
    """Return the settings, with their synonyms, of a broker, or, with "", of all brokers."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=broker, configuration_keys=None)
    (result,) = (await peer.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True))).results
    return {config.name: config for config in result.configs}


async def set_on_broker(peer: Peer, broker: str, name: str, value: str) -> ErrorCode:
    change = IncrementalAlterConfigsRequestConfig(name=name, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestResource(resource_type=BROKER, resource_name=broker, configs=[change])
    answer = await peer.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    return ErrorCode.of(answer.responses[0].error_code)


async def test_the_throttle_of_a_reassignment_is_described_while_it_is_set(one: EmbeddedCluster) -> None:
    name = "leader.replication.throttled.rate"
    async with Peer(one) as peer:
        assert name not in await every_setting(peer, "1")
        assert await set_on_broker(peer, "1", name, "1000") is ErrorCode.NONE
        setting = (await every_setting(peer, "1"))[name]
        assert (setting.value, setting.is_sensitive) == ("1000", False)
        assert await set_on_broker(peer, "1", name, "many") is ErrorCode.INVALID_REQUEST


async def test_the_settings_of_all_brokers_have_one_source(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        await set_on_broker(peer, "", "message.max.bytes", "2000000")
        setting = (await every_setting(peer, ""))["message.max.bytes"]
        assert [(synonym.value, synonym.source) for synonym in setting.synonyms] == [("2000000", 3)]


async def test_the_settings_of_an_authorizer_are_listed_without_values() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, super_users=["User:ANONYMOUS"]) as cluster, Peer(cluster) as peer:
        setting = (await every_setting(peer, "1"))["super.users"]
        assert (setting.value, setting.is_sensitive) == (None, True)


@pytest.mark.parametrize("value, shown", [("20000000", "2.0E7"), ("12345678.5", "1.23456785E7"), ("5", "5.0")])
async def test_a_fraction_is_shown_as_by_java(one: EmbeddedCluster, value: str, shown: str) -> None:
    name = "log.cleaner.io.max.bytes.per.second"
    async with Peer(one) as peer:
        assert await set_on_broker(peer, "1", name, value) is ErrorCode.NONE
        assert await described(peer, name) == {name: shown}


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("auto_create_topics_enable", "auto.create.topics.enable"),
        ("retention.ms", "log.retention.ms"),
        ("min.insync.replica", "min.insync.replicas"),
    ],
)
def test_an_unknown_setting_of_a_broker_has_a_suggestion(name: str, setting: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"unknown setting {name!r}; did you mean {setting}?")):
        EmbeddedCluster(configs={name: "1"})


def test_an_unknown_setting_that_resembles_none_has_no_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown setting 'qqqqqqqqqq'$"):
        EmbeddedCluster(configs={"qqqqqqqqqq": "1"})

"""Settings of brokers, groups and client metrics, as Apache Kafka 4.3.1 describes and checks them."""

from __future__ import annotations

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    ListConfigResourcesRequest,
)
from tests.embedded.broker.raw_client import Peer
from tests.pure.embedded.batches import produced

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_BROKER, SHARED, STATIC, DEFAULT = 2, 3, 4, 5


async def described(peer: Peer, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = (await peer.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True))).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


async def altered(peer: Peer, kind: int, resource: str, name: str, value: str | None, operation: int = SET) -> int:
    change = IncrementalAlterConfigsRequestConfig(name=name, config_operation=operation, value=value)
    change_request = IncrementalAlterConfigsRequestResource(
        resource_type=kind, resource_name=resource, configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[change_request], validate_only=False)
    return (await peer.ask(request)).responses[0].error_code


async def test_a_broker_describes_all_settings_of_kafka_with_its_addresses_and_its_rack() -> None:
    config = ClusterConfig(racks=["RACK1"], advertised_host="kafka.test")
    async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster, Peer(cluster) as peer:
        settings = await described(peer, BROKER, "1")
    assert len(settings) == 340
    expected: dict[str, tuple[str | None, int, bool]] = {
        "broker.rack": ("RACK1", STATIC, True),
        "advertised.listeners": ("PLAINTEXT://kafka.test:9092", STATIC, True),
        "node.id": ("1", STATIC, True),
        "num.io.threads": ("8", DEFAULT, False),
        "log.retention.ms": (None, DEFAULT, False),
        "log.retention.hours": ("168", DEFAULT, True),
        "ssl.key.password": (None, DEFAULT, False),
        "group.consumer.assignors": ("uniform,range", DEFAULT, True),
    }
    assert {
        name: (settings[name].value, settings[name].config_source, settings[name].read_only) for name in expected
    } == (expected)
    assert settings["ssl.key.password"].is_sensitive


@pytest.mark.parametrize(
    "broker, name, value, code",
    [
        ("1", "num.io.threads", "16", ErrorCode.NONE),
        ("1", "num.io.threads", "17", ErrorCode.INVALID_REQUEST),
        ("1", "log.cleaner.threads", "0", ErrorCode.INVALID_REQUEST),
        ("1", "max.connections.per.ip", "5", ErrorCode.NONE),
        ("1", "advertised.listeners", "x", ErrorCode.INVALID_REQUEST),
        ("1", "ssl.keystore.type", "JKS", ErrorCode.INVALID_REQUEST),
        ("", "listeners", "PLAINTEXT://:1", ErrorCode.INVALID_REQUEST),
        ("1", "no.such.setting", "x", ErrorCode.NONE),
        ("1", "log.segment.bytes", "10", ErrorCode.INVALID_REQUEST),
        ("1", "min.insync.replicas", "2", ErrorCode.INVALID_CONFIG),
        ("", "min.insync.replicas", "2", ErrorCode.NONE),
    ],
)
async def test_a_running_broker_takes_and_refuses_settings_as_kafka(
    one: EmbeddedCluster, broker: str, name: str, value: str, code: ErrorCode
) -> None:
    async with Peer(one) as peer:
        assert await altered(peer, BROKER, broker, name, value) == code


async def test_an_unknown_setting_is_kept_and_its_value_is_hidden(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        await altered(peer, BROKER, "1", "no.such.setting", "secret")
        setting = (await described(peer, BROKER, "1"))["no.such.setting"]
    assert (setting.value, setting.is_sensitive, setting.read_only, setting.config_source) == (
        None,
        True,
        True,
        DYNAMIC_BROKER,
    )


@pytest.mark.parametrize("release, source", [("4.3", SHARED), ("4.1", SHARED), ("4.0", DEFAULT), ("2.8", DEFAULT)])
async def test_the_whole_cluster_has_one_number_of_in_sync_replicas_from_4_1_on(release: str, source: int) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, as_kafka=release) as cluster, Peer(cluster) as peer:
        await cluster.create_topic("t")
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)
        (result,) = (await peer.ask(DescribeConfigsRequest(resources=[resource]), 2)).results
        assert {config.name: config.config_source for config in result.configs}["min.insync.replicas"] == source


async def test_the_number_of_in_sync_replicas_of_the_cluster_cannot_be_removed(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        code = await altered(peer, BROKER, "", "min.insync.replicas", None, DELETE)
        assert code == ErrorCode.INVALID_CONFIG
        replaced = AlterConfigsRequestResource(
            resource_type=BROKER,
            resource_name="",
            configs=[AlterConfigsRequestConfig(name="num.io.threads", value="8")],
        )
        answer = await peer.ask(AlterConfigsRequest(resources=[replaced], validate_only=False))
        assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
        assert list(await described(peer, BROKER, "")) == ["min.insync.replicas"]


async def test_a_setting_of_one_broker_applies_to_the_topics_there(three: EmbeddedCluster) -> None:
    await three.create_topic("t", assignments=[[1], [2]])
    async with Peer(three) as first, Peer(three, node=2) as second:
        assert await altered(first, BROKER, "1", "message.max.bytes", "200") == 0
        assert await altered(first, BROKER, "1", "log.retention.ms", "77000") == 0
        large = produced(b"x" * 1000, timestamp=-1)
        assert (await first.produce("t", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await second.produce("t", large, partition=1)).error_code == 0
        settings = {peer: (await described(peer, TOPIC, "t"))["retention.ms"] for peer in (first, second)}
    assert (settings[first].value, settings[first].config_source) == ("77000", DYNAMIC_BROKER)
    assert (settings[second].value, settings[second].config_source) == ("604800000", DEFAULT)


async def test_the_hours_of_retention_count_where_there_are_no_milliseconds() -> None:
    configs = {"log.retention.hours": "2"}
    async with EmbeddedCluster(brokers=1, tcp=False, configs=configs) as cluster, Peer(cluster) as peer:
        topic = await cluster.create_topic("t")
        assert topic.config.retention_ms == 7_200_000
        assert (await described(peer, TOPIC, "t"))["retention.ms"].value == "7200000"


@pytest.mark.parametrize(
    "kind, resource, name, value, code",
    [
        (GROUP, "g", "consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        (GROUP, "g", "consumer.session.timeout.ms", "1", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "50001", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "streams.num.standby.replicas", "2", ErrorCode.NONE),
        (GROUP, "g", "streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "nope", "1", ErrorCode.INVALID_CONFIG),
        (GROUP, "", "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", "interval.ms", "200", ErrorCode.NONE),
        (CLIENT_METRICS, "s", "interval.ms", "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", "interval.ms", "x", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", "nope", "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", "match", "zz=1", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", "match", "client_id=(", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", "match", "client_id=x.*", ErrorCode.NONE),
        (CLIENT_METRICS, "", "metrics", "a", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_settings_of_groups_and_client_metrics_are_checked_and_listed(
    one: EmbeddedCluster, kind: int, resource: str, name: str, value: str, code: ErrorCode
) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        assert await altered(peer, kind, resource, name, value) == code
        listed = (await peer.ask(ListConfigResourcesRequest(resource_types=[kind]))).config_resources
        is_accepted = code is ErrorCode.NONE
        assert [(listing.resource_name, listing.resource_type) for listing in listed] == (
            [(resource, kind)] if is_accepted else []
        )
        everything = (await peer.ask(ListConfigResourcesRequest())).config_resources
        assert {(listing.resource_name, listing.resource_type) for listing in everything} >= {
            ("t", TOPIC),
            ("1", BROKER),
        }
        if is_accepted:
            setting = (await described(peer, kind, resource))[name]
            assert (setting.value, setting.config_source) == (value, 8 if kind == GROUP else 7)
            assert not setting.read_only


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
async def test_nothing_is_appended_to_a_list_of_client_metrics(one: EmbeddedCluster, operation: int) -> None:
    async with Peer(one) as peer:
        assert await altered(peer, CLIENT_METRICS, "s", "metrics", "org.apache") == ErrorCode.NONE
        code = await altered(peer, CLIENT_METRICS, "s", "metrics", "org.apache", operation)
    assert code == ErrorCode.INVALID_CONFIG


async def test_a_refused_match_of_client_metrics_says_what_is_wrong_with_the_pattern(one: EmbeddedCluster) -> None:
    change = IncrementalAlterConfigsRequestConfig(name="match", config_operation=SET, value="client_id=(?=a)")
    resource = IncrementalAlterConfigsRequestResource(resource_type=CLIENT_METRICS, resource_name="s", configs=[change])
    async with Peer(one) as peer:
        answer = await peer.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    text = answer.responses[0].error_message or ""
    assert text.endswith("which is not a valid pattern: invalid or unsupported Perl syntax"), text


async def test_a_group_without_settings_has_those_of_the_broker(one: EmbeddedCluster) -> None:
    async with Peer(one) as peer:
        settings = await described(peer, GROUP, "any")
        assert len(settings) == 17
        session = settings["consumer.session.timeout.ms"]
        assert (session.value, session.config_source) == ("45000", DEFAULT)
        assert [synonym.name for synonym in session.synonyms] == ["group.consumer.session.timeout.ms"]
        assert len(await described(peer, CLIENT_METRICS, "any")) == 3
        assert (await peer.ask(ListConfigResourcesRequest(resource_types=[99]))).error_code == (
            ErrorCode.UNSUPPORTED_VERSION
        )


async def test_the_error_of_an_unknown_topic_has_an_empty_message_as_in_kafka(one: EmbeddedCluster) -> None:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="unknown", configuration_keys=None)
    async with Peer(one) as peer:
        (result,) = (await peer.ask(DescribeConfigsRequest(resources=[resource]))).results
    assert (result.error_code, result.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")

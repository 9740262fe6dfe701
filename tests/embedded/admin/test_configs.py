"""Settings are described with their sources, and changed without touching others."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite import BrokerError
from aiokafka_lite.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ConfigSource, NewTopic, Setting
from aiokafka_lite.admin.configs import ConfigResourceType, replaced
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, UnknownTopic, UnsupportedVersion
from aiokafka_lite.protocol.messages import IncrementalAlterConfigsRequest

ORDERS = ConfigResource.topic("orders")


async def test_a_setting_has_the_source_of_its_value(admin: Admin) -> None:
    await admin.topics.create(NewTopic("orders", 1, configs={"retention.ms": 1000}))
    settings = (await admin.configs.describe(ORDERS))[ORDERS]
    retention = settings["retention.ms"]
    assert (retention.value, retention.source, retention.is_default) == ("1000", ConfigSource.TOPIC, False)
    assert retention.synonyms[0].source is ConfigSource.TOPIC
    assert settings["cleanup.policy"].is_default
    only = (await admin.configs.describe(ORDERS, names=["retention.ms"]))[ORDERS]
    assert list(only) == ["retention.ms"]


async def test_no_names_and_no_types_select_nothing(admin: Admin) -> None:
    await admin.topics.create("orders")
    missing = ConfigResource.topic("missing")
    described = await admin.configs.describe([ORDERS, missing], names=[])
    assert described.done == {ORDERS: {}}
    assert list(described.failed) == [missing]
    assert await admin.configs.list([]) == ()
    assert ORDERS in await admin.configs.list()


async def test_a_change_leaves_other_settings_alone(admin: Admin) -> None:
    await admin.topics.create(NewTopic("orders", 1, configs={"retention.ms": 1000, "max.message.bytes": 2000}))
    await set_and_check(admin)


async def test_a_change_leaves_other_settings_alone_on_old_kafka(
    old_admin: Admin, old_cluster: EmbeddedCluster
) -> None:
    await old_admin.topics.create(NewTopic("orders", 1, configs={"retention.ms": 1000, "max.message.bytes": 2000}))
    await set_and_check(old_admin)


async def set_and_check(admin: Admin) -> None:
    changes: dict[str, Any] = {"max.message.bytes": 3000, "retention.ms": None, "cleanup.policy": "compact"}
    (await admin.configs.alter({ORDERS: changes})).raise_for_errors()
    (await admin.configs.alter({ORDERS: {"segment.bytes": 2_000_000}})).raise_for_errors()
    (
        await admin.configs.alter({ORDERS: [ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)]})
    ).raise_for_errors()
    assert await own(admin) == {
        "max.message.bytes": "3000",
        "segment.bytes": "2000000",
        "cleanup.policy": "compact,delete",
    }
    await admin.configs.alter({ORDERS: {"segment.bytes": None}}, validate_only=True)
    assert "segment.bytes" in await own(admin)


async def own(admin: Admin) -> dict[str, str | None]:
    settings = (await admin.configs.describe(ORDERS))[ORDERS]
    return {name: setting.value for name, setting in settings.items() if setting.source is ConfigSource.TOPIC}


async def test_each_resource_has_its_own_error(admin: Admin) -> None:
    await admin.topics.create("orders")
    missing = ConfigResource.topic("missing")
    results = await admin.configs.alter(
        {
            ORDERS: {"retention.ms": "soon"},
            missing: {"retention.ms": 1},
            ConfigResource.broker(2): {"log.retention.ms": 5},
        }
    )
    assert list(results.done) == [ConfigResource.broker(2)]
    with pytest.raises(UnknownTopic):
        results[missing]
    with pytest.raises(BrokerError) as caught:
        results[ORDERS]
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_the_settings_of_a_broker_are_described_by_that_broker(admin: Admin) -> None:
    brokers = [ConfigResource.broker(node_id) for node_id in (1, 2, 3)]
    (await admin.configs.alter({brokers[1]: {"log.retention.ms": 5}})).raise_for_errors()
    (await admin.configs.alter({ConfigResource.all_brokers(): {"log.retention.ms": 9}})).raise_for_errors()
    settings_of = (await admin.configs.describe([*brokers, ConfigResource.all_brokers()])).raise_for_errors()
    values = [
        (settings["log.retention.ms"].value, settings["log.retention.ms"].source) for settings in settings_of.values()
    ]
    everywhere = ("9", ConfigSource.ALL_BROKERS)
    assert values == [everywhere, ("5", ConfigSource.BROKER), everywhere, everywhere]
    with pytest.raises(BrokerError, match="broker 9 is not in the cluster, which has 1, 2, 3"):
        (await admin.configs.describe(ConfigResource.broker(9))).raise_for_errors()


async def test_a_broker_without_incremental_changes_gets_no_such_request(
    old_admin: Admin, old_cluster: EmbeddedCluster
) -> None:
    assert IncrementalAlterConfigsRequest.api_key not in old_cluster.nodes[1].versions
    await old_admin.topics.create(NewTopic("orders", 1))
    (await old_admin.configs.alter({ORDERS: {"retention.ms": 1}})).raise_for_errors()


def test_a_secret_setting_is_not_lost_by_replacing() -> None:
    secret = Setting("ssl.key.password", None, ConfigSource.BROKER, read_only=False, sensitive=True)
    present = {"ssl.key.password": secret}
    broker = ConfigResource.broker(1)
    with pytest.raises(UnsupportedVersion, match=r"ssl\.key\.password.*2\.3"):
        replaced(broker, present, [ConfigChange("log.retention.ms", 1)])
    assert replaced(broker, present, [ConfigChange("ssl.key.password", "new")]) == {"ssl.key.password": "new"}
    assert replaced(broker, present, [ConfigChange("ssl.key.password", operation=ConfigOperation.DELETE)]) == {}


@pytest.mark.parametrize(
    "changes",
    [{"orders": {}}, {ORDERS: {"retention.ms": object()}}, {ORDERS: {1: "x"}}, [ORDERS]],
    ids=["resource", "value", "name", "list"],
)
async def test_wrong_types_are_refused_at_the_call(admin: Admin, changes: Any) -> None:
    with pytest.raises(TypeError):
        await admin.configs.alter(changes)


def test_unknown_numbers_of_a_newer_broker_are_unknown() -> None:
    assert ConfigSource.of(99) is ConfigSource.UNKNOWN
    assert ConfigResourceType.of(99) is ConfigResourceType.UNKNOWN


async def test_the_resources_with_settings_are_listed_by_type(admin: Admin, old_admin: Admin) -> None:
    await admin.topics.create(NewTopic("orders", 1))
    group = ConfigResource.group("billing")
    (await admin.configs.alter({group: {"consumer.session.timeout.ms": 50_000}})).raise_for_errors()
    assert set(await admin.configs.list([ConfigResourceType.TOPIC, ConfigResourceType.GROUP])) == {
        ConfigResource.topic("orders"),
        group,
    }
    assert ConfigResource.broker(3) in await admin.configs.list()
    with pytest.raises(UnsupportedVersion, match=r"4\.1"):
        await old_admin.configs.list()
    with pytest.raises(UnsupportedVersion, match=r"3\.7"):
        await old_admin.configs.list([ConfigResourceType.CLIENT_METRICS])

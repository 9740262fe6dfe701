"""The admin client: calls that programs make to set up a cluster and to watch it."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka.admin import AIOKafkaAdminClient, ConfigResource
from aiokafka_lite.compat.aiokafka.errors import IllegalStateError


@pytest.fixture
async def admin(library: Any, cluster: EmbeddedCluster) -> AsyncIterator[Any]:
    client = library.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def config_resource(library: Any) -> Any:
    """The module with ``ConfigResource``."""
    if library.name == "aiokafka":
        return importlib.import_module("aiokafka.admin.config_resource")
    return library.admin


async def test_settings_are_described(config_resource: Any, cluster: EmbeddedCluster, admin: Any) -> None:
    await cluster.create_topic("kept", configs={"retention.ms": "1000"})
    topic = config_resource.ConfigResource(config_resource.ConfigResourceType.TOPIC, "kept", {"retention.ms": None})
    broker = config_resource.ConfigResource("broker", "1")
    missing = config_resource.ConfigResource("topic", "bills")
    of_broker, of_topics = await admin.describe_configs([topic, broker, missing], include_synonyms=True)
    (code, text, kind, name, entries) = of_topics.resources[0]
    assert (code, text or "", kind, name) == (0, "", 2, "kept")
    assert [entry[:5] for entry in entries] == [("retention.ms", "1000", False, 1, False)]
    assert entries[0][5][0] == ("retention.ms", "1000", 1)
    assert of_topics.resources[1][0] == 3
    assert of_topics.to_object()["resources"][0]["config_entries"][0]["config_value"] == "1000"
    (resource,) = of_broker.resources
    assert (resource[0], resource[2], resource[3]) == (0, 4, "1")
    assert len(resource[4]) > 100


async def test_settings_that_are_not_named_return_to_their_defaults(config_resource: Any, admin: Any) -> None:
    async def alter(configs: dict[str, str]) -> list[Any]:
        resource = config_resource.ConfigResource("topic", "orders", configs)
        return [response.resources for response in await admin.alter_configs([resource])]

    async def values() -> dict[str, str]:
        names = {"retention.ms": None, "max.message.bytes": None}
        (response,) = await admin.describe_configs([config_resource.ConfigResource("topic", "orders", names)])
        return {entry[0]: entry[1] for entry in response.resources[0][4]}

    ((resource,),) = await alter({"retention.ms": "1000"})
    assert (resource[0], resource[1] or "", *resource[2:]) == (0, "", 2, "orders")
    await alter({"max.message.bytes": "2000"})
    assert await values() == {"retention.ms": "604800000", "max.message.bytes": "2000"}
    ((refused,),) = await alter({"retention.ms": "x"})
    assert refused[0] == 40
    assert await values() == {"retention.ms": "604800000", "max.message.bytes": "2000"}


async def test_resources_are_described_each_with_its_own_names(
    config_resource: Any, cluster: EmbeddedCluster, admin: Any
) -> None:
    await cluster.create_topic("bills", configs={"retention.ms": "1000"})
    orders = config_resource.ConfigResource("topic", "orders", {"max.message.bytes": None})
    bills = config_resource.ConfigResource("topic", "bills", {"retention.ms": None})
    (response,) = await admin.describe_configs([orders, bills])
    entries = [(resource[3], [entry[:2] for entry in resource[4]]) for resource in response.resources]
    assert entries == [("orders", [("max.message.bytes", "1048588")]), ("bills", [("retention.ms", "1000")])]


async def test_settings_of_several_resources_are_set(
    config_resource: Any, cluster: EmbeddedCluster, admin: Any
) -> None:
    await cluster.create_topic("bills")
    configs_of = {"bills": {"retention.ms": "1000"}, "none": {}, "orders": {"retention.ms": "2000"}}
    resources = [config_resource.ConfigResource("topic", name, configs) for name, configs in configs_of.items()]
    responses = await admin.alter_configs(resources)
    assert [(resource[0], resource[3]) for resource in responses[0].resources] == [
        (0, "bills"),
        (3, "none"),
        (0, "orders"),
    ]
    assert cluster.controller.topics["bills"].configs["retention.ms"] == "1000"
    assert cluster.controller.topics["orders"].configs["retention.ms"] == "2000"


@pytest.mark.parametrize(
    "wrong, text",
    [
        (("broker", "x", {"a": "b"}), "name of a broker must be its id"),
        (("topic", "orders", {"max.message.bytes": "2000"}), "config_resources must name topic 'orders' once"),
    ],
)
async def test_a_wrong_resource_is_refused_before_anything_changes(
    cluster: EmbeddedCluster, wrong: tuple[Any, ...], text: str
) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        right = ConfigResource("topic", "orders", {"retention.ms": "1000"})
        tasks = asyncio.all_tasks()
        with pytest.raises(ValueError, match=text):
            await admin.alter_configs([right, ConfigResource(*wrong)])
        assert asyncio.all_tasks() == tasks  # nothing goes on after the call
        assert "retention.ms" not in cluster.controller.topics["orders"].configs


async def test_groups_are_described(library: Any, cluster: EmbeddedCluster, admin: Any) -> None:
    servers = cluster.bootstrap_servers
    async with library.AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="billing", client_id="b") as one:
        assert len(one.assignment()) == 2
        responses = await admin.describe_consumer_groups(["billing", "none"])
        groups = {group[1]: group for response in responses for group in response.groups}
        code, name, state, kind, strategy, members = groups["billing"][:6]
        assert (code, name, state, kind, strategy) == (0, "billing", "Stable", "consumer", "roundrobin")
        ((member_id, client_id, host, _, assignment),) = members
        assert member_id.startswith("b")
        assert (client_id, host) == ("b", "/127.0.0.1")
        # One topic with the partitions 0 and 1, as Kafka's clients write it.
        assert assignment[:24] == b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0"
        assert groups["none"][:6] == (0, "none", "Dead", "", "", [])
        groups_by_name = {group["group"]: group for response in responses for group in response.to_object()["groups"]}
        assert groups_by_name["billing"]["members"][0]["client_id"] == "b"


async def test_the_coordinator_of_a_group_is_found_and_lists_the_group(
    library: Any, cluster: EmbeddedCluster, admin: Any
) -> None:
    async with library.AIOKafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing"):
        coordinator = await admin.find_coordinator("billing")
        (other,) = {1, 2} - {coordinator}
        assert await admin.list_consumer_groups([coordinator]) == [("billing", "consumer")]
        assert await admin.list_consumer_groups([other]) == []
        assert await admin.find_coordinator("no such group") in (1, 2)
        assert await admin.find_coordinator("no such id", 1) in (1, 2)


@pytest.mark.parametrize("module", ["client", "config_resource", "new_partitions", "new_topic", "records_to_delete"])
def test_modules_of_the_admin_client_have_the_same_names(module: str) -> None:
    theirs = importlib.import_module(f"aiokafka.admin.{module}")
    names = [name for name, value in vars(theirs).items() if getattr(value, "__module__", "") == theirs.__name__]
    ours = importlib.import_module("aiokafka_lite.compat.aiokafka.admin")
    assert names
    assert all(hasattr(ours, name) for name in names)


async def test_an_admin_client_that_cannot_start_can_be_closed(library: Any) -> None:
    admin = library.admin.AIOKafkaAdminClient(bootstrap_servers="127.0.0.1:1", request_timeout_ms=500)
    for _ in range(2):
        with pytest.raises(library.errors.KafkaConnectionError):
            await admin.start()
    await admin.close()


async def test_a_second_start_keeps_the_running_client(cluster: EmbeddedCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    outcomes = await asyncio.gather(admin.start(), admin.start(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), IllegalStateError]
    with pytest.raises(IllegalStateError, match="is started already"):
        await admin.start()
    assert await admin.list_topics() == ["orders"]
    await admin.close()


async def test_a_closed_client_cannot_be_started(cluster: EmbeddedCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    await admin.close()
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="cannot be started again: create a new one"):
            await admin.start()


async def test_a_broker_is_named_by_its_number(config_resource: Any, admin: Any) -> None:
    (response,) = await admin.describe_configs([config_resource.ConfigResource("broker", 1)])
    (code, _, _, name, entries) = response.resources[0]
    assert (code, name) == (0, "1")
    assert len(entries) > 100


async def test_a_program_reads_whether_the_client_runs(library: Any, cluster: EmbeddedCluster) -> None:
    admin = library.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    states = [(admin._started, admin._closed)]
    await admin.start()
    states.append((admin._started, admin._closed))
    await admin.close()
    assert [*states, admin._closed] == [(False, False), (True, False), True]

"""An admin client for controllers: wrong addresses, and calls that controllers do not answer."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite import Admin
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, ErrorCode, UnsupportedVersion
from aiokafka_lite.protocol.messages import (
    CreateTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
)
from aiokafka_lite.types import TopicPartition


def as_controllers(cluster: EmbeddedCluster, active: int) -> DescribeClusterResponse:
    """Return the answer of Apache Kafka's controllers, for which the brokers stand in."""
    nodes = [
        DescribeClusterBroker(broker_id=node_id, host=node.host, port=node.port)
        for node_id, node in cluster.nodes.items()
    ]
    return DescribeClusterResponse(error_code=0, endpoint_type=2, cluster_id="c", controller_id=active, brokers=nodes)


async def test_a_broker_is_refused_as_a_controller(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UnsupportedVersion, match="is a broker: its address belongs in bootstrap_servers"):
        await Admin(bootstrap_controllers=cluster.bootstrap_servers, connector=cluster.connector).start()


async def test_controllers_are_asked_in_place_of_brokers(cluster: EmbeddedCluster) -> None:
    """The brokers stand in for controllers: they answer as Apache Kafka's controllers do."""
    cluster.on(DescribeClusterRequest, times=None).answer(lambda request: as_controllers(cluster, 2))
    async with Admin(bootstrap_controllers=cluster.bootstrap_servers, connector=cluster.connector) as admin:
        described = await admin.cluster.describe()
        assert described.controller is not None
        assert (described.cluster_id, described.controller.node_id, len(described.brokers)) == (
            "c",
            2,
            len(cluster.nodes),
        )
        results = await admin.records.delete({TopicPartition("orders", 0): 0})
        with pytest.raises(UnsupportedVersion, match="controllers do not know the leaders of partitions"):
            results.raise_for_errors()
    assert {seen.request.endpoint_type for seen in cluster.history.of(DescribeClusterRequest)} == {2}
    assert not cluster.history.of(MetadataRequest)


async def test_a_change_follows_the_active_controller(cluster: EmbeddedCluster) -> None:
    """Only the active controller executes a change; another one answers NOT_CONTROLLER."""
    active = 2
    cluster.on(DescribeClusterRequest, times=None).answer(lambda request: as_controllers(cluster, active))
    async with Admin(bootstrap_controllers=cluster.bootstrap_servers, connector=cluster.connector) as admin:
        (await admin.topics.create([NewTopic("first", partitions=1)])).raise_for_errors()
        active = 3
        moved = cluster.on(CreateTopicsRequest, node=2).fail(ErrorCode.NOT_CONTROLLER)
        (await admin.topics.create([NewTopic("second", partitions=1)])).raise_for_errors()
        assert moved.hits == 1
        described = await admin.cluster.describe()
        assert described.controller is not None
        assert described.controller.node_id == 3
        with pytest.raises(UnsupportedVersion, match="controllers do not describe users"):
            await admin.users.describe()
    assert [seen.node_id for seen in cluster.history.of(CreateTopicsRequest)] == [2, 2, 3]


async def test_an_api_that_only_brokers_have_is_said_to_be_for_brokers() -> None:
    without = [MetadataRequest.api_key, DescribeClientQuotasRequest.api_key]
    config = ClusterConfig(without_apis=without)
    async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster:
        cluster.on(DescribeClusterRequest, times=None).answer(lambda request: as_controllers(cluster, 1))
        async with Admin(bootstrap_controllers=cluster.bootstrap_servers, connector=cluster.connector) as admin:
            with pytest.raises(UnsupportedVersion, match=r"quotas is for brokers, and broker 1 .* controller"):
                await admin.quotas.describe()


@pytest.mark.parametrize("servers", [{}, {"bootstrap_servers": "a:1", "bootstrap_controllers": "b:1"}])
def test_either_servers_or_controllers_are_given(servers: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="give either bootstrap_servers or bootstrap_controllers"):
        Admin(**servers)


def test_wrong_controllers_are_named_as_such() -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_controllers must be"):
        Admin(bootstrap_controllers=[])
    with pytest.raises(
        ConfigurationError, match="bootstrap_controllers: cannot use 'controller-1': the port is missing"
    ):
        Admin(bootstrap_controllers="controller-1")

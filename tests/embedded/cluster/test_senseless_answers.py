"""Wrong but well-formed answers about the cluster: few requests, clear errors, quick recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import KafkaError, KafkaTimeout, ProtocolError
from aiokafka_lite.protocol.messages import FindCoordinatorRequest, MetadataRequest
from tests.embedded.cluster.simulation import (
    client_of,
    cluster_and_client,
    memory_cluster,
    metadata_requests,
    now,
    simulated,
)

LAST = 2**31 - 1


def port(value: int) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        response.brokers[0].port = value
        return response

    return change


def partition_number(value: int) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        for topic in response.topics:
            topic.partitions[0].partition_index = value
        return response

    return change


def broker_id(value: int) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        response.brokers[0].node_id = value
        return response

    return change


def no_topics(response: Any) -> Any:
    response.topics = []
    return response


def other_topic(response: Any) -> Any:
    for topic in response.topics:
        topic.name = "another"
    return response


WRONG = [
    pytest.param(port(-1), "has the port -1", id="port -1"),
    pytest.param(port(70_000), "has the port 70000", id="port 70000"),
    pytest.param(broker_id(-1), "a broker has the id -1", id="broker -1"),
    pytest.param(broker_id(2), "broker 2 is listed twice", id="broker twice"),
    pytest.param(partition_number(LAST), "topic orders has a partition 2147483647", id="partition 2^31-1"),
    pytest.param(partition_number(1), "topic orders has partition 1 twice", id="partition twice"),
    pytest.param(no_topics, "their responses omitted this topic", id="no topic"),
    pytest.param(other_topic, "their responses omitted this topic", id="another topic"),
]


async def with_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=2)


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize(("change", "says"), WRONG)
@simulated
async def test_a_topic_is_awaited_with_few_requests_until_an_answer_makes_sense(
    brokers: int, change: Callable[[Any], Any], says: str
) -> None:
    async with cluster_and_client(max(brokers, 2)) as (cluster, client):
        await with_topic(cluster)
        before = client.view
        wrong = cluster.on(MetadataRequest, times=None).alter(change)
        requests = metadata_requests(cluster)
        with pytest.raises(KafkaTimeout, match=says):
            await client.topic("orders", timeout=20)
        assert now() == pytest.approx(20, abs=0.1)
        assert metadata_requests(cluster) - requests <= 5 * 20
        assert client.view.nodes == before.nodes
        wrong.remove()
        assert len((await client.topic("orders", timeout=5)).partitions) == 2


@simulated
async def test_a_topic_that_responses_omit_is_requested_with_backoff() -> None:
    async with cluster_and_client(1) as (cluster, client):
        await with_topic(cluster)
        cluster.on(MetadataRequest, times=None).alter(no_topics)
        requests = metadata_requests(cluster)
        with pytest.raises(KafkaTimeout):
            await client.topic("orders", timeout=60)
        assert metadata_requests(cluster) - requests <= 75


@pytest.mark.parametrize("change", [port(-1), broker_id(-1)])
@simulated
async def test_a_client_that_gets_only_senseless_answers_does_not_start(change: Callable[[Any], Any]) -> None:
    async with memory_cluster(2) as cluster:
        cluster.on(MetadataRequest, times=None).alter(change)
        client = client_of(cluster)
        with pytest.raises(ProtocolError, match="the broker's answer is invalid"):
            await client.start()
        assert now() < 5


@pytest.mark.parametrize("field, value", [("port", 99_999), ("port", -1), ("node_id", -1), ("host", "")])
@pytest.mark.parametrize("version", [3, 4])
@simulated
async def test_a_coordinator_that_cannot_be_connected_to_is_refused(field: str, value: Any, version: int) -> None:
    def change(response: Any) -> Any:
        for answer in [response] if version < 4 else response.coordinators:
            setattr(answer, field, value)
        return response

    versions = {FindCoordinatorRequest.api_key: (0, version)}
    async with cluster_and_client(1, config=ClusterConfig(versions=versions)) as (cluster, client):
        wrong = cluster.on(FindCoordinatorRequest, times=None).alter(change)
        with pytest.raises(KafkaError, match="the coordinator of group 'g': the broker's answer is invalid"):
            await client.coordinator("g", timeout=5)
        wrong.remove()
        assert (await client.coordinator("g", timeout=5)).node.node_id == 1


@simulated
async def test_a_broker_that_is_cut_off_never_becomes_the_leader_again() -> None:
    async with cluster_and_client(3, client={"metadata_max_age": 10.0}) as (cluster, client):
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await cluster.move_leader("orders", 0, 1)
        await client.topic("orders")
        await cluster.partition_network({1}, {2, 3})
        async with asyncio.timeout(60):
            while (partition := (await client.topic("orders")).partitions[0]).leader == 1:
                await client.refresh(["orders"])
        await cluster.freeze(2)
        await cluster.freeze(3)
        answered = metadata_requests(cluster)
        await asyncio.sleep(300.0)
        assert metadata_requests(cluster) - answered > 20
        assert (await client.topic("orders")).partitions[0] == partition
        await cluster.thaw(2)
        await cluster.thaw(3)

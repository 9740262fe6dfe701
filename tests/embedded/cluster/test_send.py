"""A request finds the broker that it is for, and is repeated only where that is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.coordinators import CoordinatorKey, CoordinatorKind
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.node import default_versions
from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode, KafkaTimeout, UnknownTopic
from aiokafka_lite.net.broker import Purpose
from aiokafka_lite.protocol.messages import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    HeartbeatRequest,
    HeartbeatResponse,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    MetadataRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import Node, TopicPartition
from tests.embedded.cluster.simulation import cluster_and_client, metadata_requests, now, simulated

ANY = DescribeClusterRequest(include_cluster_authorized_operations=False)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def receivers(cluster: EmbeddedCluster, request: type[Request[Any]]) -> list[int]:
    return [exchange.node_id for exchange in cluster.history.of(request)]


def end_of(partition: TopicPartition) -> ListOffsetsRequest:
    asked = ListOffsetsRequestPartition(partition_index=partition.partition, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsRequestTopic(name=partition.topic, partitions=[asked])]
    )


def coordinated_by(cluster: EmbeddedCluster, node_id: int) -> FindCoordinatorResponse:
    """What FindCoordinator v4 says of the group "g"."""
    node = cluster.nodes[node_id]
    found = FindCoordinatorResponseCoordinator(key="g", node_id=node_id, host=node.host, port=node.port)
    return FindCoordinatorResponse(coordinators=[found])


@simulated
async def test_each_target_is_reached() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", assignments=[[1], [2], [3]])
        for partition in range(3):
            wanted = TopicPartition("orders", partition)
            response = await client.send(end_of(wanted), leader=wanted)
            assert response.topics[0].partitions[0].error_code == 0
        assert receivers(cluster, ListOffsetsRequest) == [1, 2, 3]
        await client.send(ANY, node=2)
        await client.send(ANY, node=client.view.nodes[3])
        await client.send(ANY, controller=True)
        assert receivers(cluster, DescribeClusterRequest) == [2, 3, client.view.controller_id]
        await client.send(ANY)


@simulated
async def test_two_targets_are_refused() -> None:
    async with cluster_and_client() as (_, client):
        with pytest.raises(TypeError, match="one broker"):
            await client.send(ANY, node=1, controller=True)


@simulated
async def test_unknown_broker_is_named() -> None:
    async with cluster_and_client() as (_, client):
        with pytest.raises(BrokerError, match=r"broker 9 .* 1, 2, 3"):
            client.broker(9)
        with pytest.raises(BrokerError, match="broker 9"):
            await client.send(ANY, node=9)


@pytest.mark.parametrize("fault", ["disconnect", "apply_then_disconnect"])
@simulated
async def test_lost_connection_is_made_up_for_unless_there_is_one_try_only(fault: str) -> None:
    async with cluster_and_client() as (cluster, client):
        getattr(cluster.on(DescribeClusterRequest), fault)()
        assert (await client.send(ANY)).error_code == 0
        getattr(cluster.on(DescribeClusterRequest), fault)()
        with pytest.raises(ConnectionLost) as caught:
            await client.send(ANY, retry=False)
        assert caught.value.sent


@simulated
async def test_passing_error_at_the_top_is_tried_again_and_a_lasting_one_returned() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(DescribeClusterRequest).fail(ErrorCode.REQUEST_TIMED_OUT, times=3)
        assert (await client.send(ANY)).error_code == 0
        assert len(receivers(cluster, DescribeClusterRequest)) == 4
        assert now() > 0.3, "with backoff"
        cluster.on(DescribeClusterRequest).fail(ErrorCode.INVALID_REQUEST)
        assert (await client.send(ANY)).error_code == ErrorCode.INVALID_REQUEST


@simulated
async def test_deadline_names_request_target_and_last_error() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(DescribeClusterRequest).fail(ErrorCode.REQUEST_TIMED_OUT, times=None)
        with pytest.raises(KafkaTimeout, match=r"DescribeCluster to broker 2: .*5 s.*REQUEST_TIMED_OUT"):
            await client.send(ANY, node=2, timeout=5)
        assert now() == pytest.approx(5, abs=0.1)
        assert len(receivers(cluster, DescribeClusterRequest)) < 12


@simulated
async def test_silent_broker_ends_at_the_deadline_and_another_is_asked_next() -> None:
    async with cluster_and_client(client={"request_timeout": 2.0}) as (cluster, client):
        cluster.on(DescribeClusterRequest).drop()
        assert (await client.send(ANY, timeout=10)).error_code == 0
        first, second = receivers(cluster, DescribeClusterRequest)
        assert first != second
        assert 2.0 <= now() < 3.0


@simulated
async def test_leader_that_moved_away_is_followed() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", assignments=[[1, 2]])
        await cluster.until_in_sync("orders")
        wanted = TopicPartition("orders", 0)
        await client.send(end_of(wanted), leader=wanted)
        await cluster.kill(1)
        await client.send(end_of(wanted), leader=wanted, timeout=10)
        assert receivers(cluster, ListOffsetsRequest)[-1] == 2


@simulated
async def test_leader_of_what_does_not_exist_is_an_error_at_the_deadline() -> None:
    async with cluster_and_client(auto_create_topics=False) as (cluster, client):
        await cluster.create_topic("orders", partitions=1)
        for missing in (TopicPartition("orders", 7), TopicPartition("nowhere", 0)):
            with pytest.raises(KafkaTimeout, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await client.send(end_of(missing), leader=missing, timeout=2)
            with pytest.raises((BrokerError, UnknownTopic)):
                await client.send(end_of(missing), leader=missing, timeout=2, retry=False)


@simulated
async def test_not_controller_is_tried_again_at_the_new_controller() -> None:
    async with cluster_and_client() as (cluster, client):

        def refuse(_: CreateTopicsRequest) -> CreateTopicsResponse:
            refused = CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER, error_message="moved")
            return CreateTopicsResponse(throttle_time_ms=0, topics=[refused])

        before = metadata_requests(cluster)
        cluster.on(CreateTopicsRequest).answer(refuse)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        response = await client.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), controller=True)
        assert response.topics[0].error_code == 0
        assert metadata_requests(cluster) > before


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
@simulated
async def test_coordinator_is_found_once_and_remembered(version: int) -> None:
    versions = {**default_versions(), FindCoordinatorRequest.api_key: (0, version)}
    async with cluster_and_client(versions=versions) as (cluster, client):
        node = cluster.nodes[2]

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            if version >= 4:
                assert request.coordinator_keys == ["g"]
                return coordinated_by(cluster, 2)
            assert request.key == "g"
            return FindCoordinatorResponse(node_id=2, host=node.host, port=node.port)

        cluster.on(FindCoordinatorRequest, times=None).answer(find)
        cluster.on(HeartbeatRequest, times=None).answer(lambda _: HeartbeatResponse(error_code=0))
        found = await asyncio.gather(*(client.coordinator("g") for _ in range(100)))
        assert {broker.node.node_id for broker in found} == {2}
        await client.send(HEARTBEAT, coordinator="g")
        assert len(receivers(cluster, FindCoordinatorRequest)) == 1
        assert receivers(cluster, HeartbeatRequest) == [2]


@pytest.mark.parametrize("silent,bound", [(1, 1.5), (2, 3.5)])
@simulated
async def test_brokers_that_keep_silent_do_not_hold_up_the_search_for_a_coordinator(silent: int, bound: float) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest, times=silent).drop()
        cluster.on(FindCoordinatorRequest).answer(lambda _: coordinated_by(cluster, 1))
        began = now()
        assert (await client.coordinator("g")).node.node_id == 1
        assert now() - began < bound
        assert len(set(receivers(cluster, FindCoordinatorRequest))) == silent + 1


@simulated
async def test_coordinator_that_is_loading_or_moves_is_followed() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
        cluster.on(FindCoordinatorRequest).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 3))
        cluster.on(HeartbeatRequest).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        cluster.on(HeartbeatRequest).fail(ErrorCode.NOT_COORDINATOR)
        cluster.on(HeartbeatRequest, times=None).answer(lambda _: HeartbeatResponse(error_code=0))
        assert (await client.send(HEARTBEAT, coordinator="g")).error_code == 0
        assert receivers(cluster, HeartbeatRequest) == [1, 1, 3], "loading is waited out where it is"
        assert now() < 10


@simulated
async def test_coordinator_out_of_reach_is_looked_for_again() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 3))
        cluster.on(HeartbeatRequest, times=None).answer(lambda _: HeartbeatResponse(error_code=0))
        await client.send(HEARTBEAT, coordinator="g")
        await cluster.kill(1)
        await client.send(HEARTBEAT, coordinator=CoordinatorKey(CoordinatorKind.GROUP, "g"))
        assert receivers(cluster, HeartbeatRequest) == [1, 3]


@simulated
async def test_one_try_returns_the_refusal_and_learns_from_it() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(HeartbeatRequest).fail(ErrorCode.NOT_COORDINATOR)
        response = await client.send(HEARTBEAT, coordinator="g", retry=False)
        assert response.error_code == ErrorCode.NOT_COORDINATOR
        await client.coordinator("g")
        assert len(receivers(cluster, FindCoordinatorRequest)) == 2


@simulated
async def test_late_error_does_not_forget_a_newer_coordinator() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 3))
        await client.coordinator("g")
        client.forget_coordinator("g", node_id=1)
        await client.coordinator("g")
        assert len(receivers(cluster, FindCoordinatorRequest)) == 1
        client.forget_coordinator("g", node_id=3)
        await client.coordinator("g")
        assert len(receivers(cluster, FindCoordinatorRequest)) == 2


@simulated
async def test_no_coordinator_is_an_error_at_the_deadline() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        with pytest.raises(KafkaTimeout, match=r"group 'g'.*COORDINATOR_NOT_AVAILABLE"):
            await client.coordinator("g", timeout=3)
        cluster.faults.clear()
        cluster.on(FindCoordinatorRequest, times=None).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            await client.coordinator("g", timeout=3)
        assert now() < 3.5


@simulated
async def test_purposes_have_connections_of_their_own() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(DescribeClusterRequest).delay(10)
        slow = asyncio.ensure_future(client.send(ANY, node=1, purpose=Purpose.FETCH))
        await asyncio.sleep(1)
        await client.send(ANY, node=1)
        assert now() < 2
        await slow


async def _use(client: Client) -> None:
    await client.start()
    try:
        await asyncio.gather(client.topic("orders"), client.refresh())
        wanted = TopicPartition("orders", 0)
        await client.send(end_of(wanted), leader=wanted)
        await client.send(HEARTBEAT, coordinator="g")
    finally:
        await client.close()


@pytest.mark.parametrize("turns", range(0, 60, 1))
@simulated
async def test_cancelled_at_any_turn_nothing_is_left(turns: int) -> None:
    async with cluster_and_client(1) as (cluster, other):
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(HeartbeatRequest, times=None).answer(lambda _: HeartbeatResponse(error_code=0))
        client = Client(other.config, connector=cluster.connector)
        use = asyncio.ensure_future(_use(client))
        for _ in range(turns):
            await asyncio.sleep(0)
        use.cancel()
        await asyncio.wait([use])
        await client.close()
        await asyncio.sleep(0.1)
        assert len(cluster.nodes[1].connections) <= 1, "only the other client's"
        await other.refresh()


@pytest.mark.parametrize("turns", range(0, 30, 1))
@simulated
async def test_call_cancelled_at_any_turn_leaves_the_client_usable(turns: int) -> None:
    async with cluster_and_client(2) as (cluster, client):
        await cluster.create_topic("orders", partitions=2)
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(HeartbeatRequest, times=None).answer(lambda _: HeartbeatResponse(error_code=0))
        wanted = TopicPartition("orders", 1)

        def calls() -> list[asyncio.Future[Any]]:
            return [
                asyncio.ensure_future(client.refresh()),
                asyncio.ensure_future(client.topic("orders")),
                asyncio.ensure_future(client.send(end_of(wanted), leader=wanted)),
                asyncio.ensure_future(client.send(HEARTBEAT, coordinator="g")),
                asyncio.ensure_future(client.send(MetadataRequest(topics=[]))),
            ]

        cancelled, others = calls(), calls()
        for _ in range(turns):
            await asyncio.sleep(0)
        for call in cancelled:
            call.cancel()
        await asyncio.wait(cancelled)
        assert all(call.cancelled() or call.exception() is None for call in cancelled)
        async with asyncio.timeout(5):
            await asyncio.gather(*others)
            await asyncio.gather(*calls())
        assert isinstance(client.view.nodes[1], Node)


@simulated
async def test_a_name_that_no_request_can_carry_harms_nobody_else() -> None:
    async with cluster_and_client() as (_, client):
        for name in ("\ud800", "g" * 40_000):
            with pytest.raises(ValueError, match="FindCoordinator"):
                await client.coordinator(name)
            with pytest.raises(ValueError, match="FindCoordinator"):
                await client.send(HEARTBEAT, coordinator=name)
        assert await client.coordinator("g")

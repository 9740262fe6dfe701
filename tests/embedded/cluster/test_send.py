"""Requests reach their broker and are retried; coordinators are looked up once and cached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.admin import Admin, NewTopic
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode, KafkaTimeout
from aiokafka_lite.net.broker import Purpose
from aiokafka_lite.protocol.messages import (
    CreateTopicsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    MetadataRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import Node
from tests.embedded.cluster.simulation import cluster_and_client, memory_cluster, now, simulated

ANY = DescribeClusterRequest(include_cluster_authorized_operations=False)


def receivers(cluster: EmbeddedCluster, request: type[Request[Any]]) -> list[int]:
    return [exchange.node_id for exchange in cluster.history.of(request)]


def coordinated_by(cluster: EmbeddedCluster, node_id: int) -> FindCoordinatorResponse:
    """Return the FindCoordinator v4 response that names ``node_id`` as the coordinator of the group "g"."""
    node = cluster.nodes[node_id]
    coordinator = FindCoordinatorResponseCoordinator(key="g", node_id=node_id, host=node.host, port=node.port)
    return FindCoordinatorResponse(coordinators=[coordinator])


@simulated
async def test_a_request_reaches_the_named_broker_or_any() -> None:
    async with cluster_and_client() as (cluster, client):
        await client.send(ANY, node=2)
        await client.send(ANY, node=client.view.nodes[3])
        assert receivers(cluster, DescribeClusterRequest) == [2, 3]
        assert (await client.send(ANY)).error_code == 0


@simulated
async def test_an_unknown_broker_id_is_an_error_at_once() -> None:
    async with cluster_and_client() as (_, client):
        with pytest.raises(BrokerError, match=r"broker 9 .* 1, 2, 3"):
            client.broker(9)
        with pytest.raises(BrokerError, match="broker 9"):
            await client.send(ANY, node=9)


@pytest.mark.parametrize("fault", ["disconnect", "apply_then_disconnect"])
@simulated
async def test_a_lost_connection_is_retried_unless_retry_is_off(fault: str) -> None:
    async with cluster_and_client() as (cluster, client):
        getattr(cluster.on(DescribeClusterRequest), fault)()
        assert (await client.send(ANY)).error_code == 0
        getattr(cluster.on(DescribeClusterRequest), fault)()
        with pytest.raises(ConnectionLost) as caught:
            await client.send(ANY, retry=False)
        assert caught.value.sent


@simulated
async def test_a_retriable_top_level_error_is_retried_and_another_one_returned() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(DescribeClusterRequest).fail(ErrorCode.REQUEST_TIMED_OUT, times=3)
        assert (await client.send(ANY)).error_code == 0
        assert len(receivers(cluster, DescribeClusterRequest)) == 4
        assert now() > 0.3, "with backoff"
        cluster.on(DescribeClusterRequest).fail(ErrorCode.INVALID_REQUEST)
        assert (await client.send(ANY)).error_code == ErrorCode.INVALID_REQUEST


@simulated
async def test_the_timeout_names_request_broker_and_last_error() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(DescribeClusterRequest).fail(ErrorCode.REQUEST_TIMED_OUT, times=None)
        with pytest.raises(KafkaTimeout, match=r"DescribeCluster to broker 2: .*5 s.*REQUEST_TIMED_OUT"):
            await client.send(ANY, node=2, timeout=5)
        assert now() == pytest.approx(5, abs=0.1)
        assert len(receivers(cluster, DescribeClusterRequest)) < 12


@simulated
async def test_a_silent_broker_costs_the_request_timeout_and_another_is_asked_next() -> None:
    async with cluster_and_client(client={"request_timeout": 2.0}) as (cluster, client):
        cluster.on(DescribeClusterRequest).drop()
        assert (await client.send(ANY, timeout=10)).error_code == 0
        first, second = receivers(cluster, DescribeClusterRequest)
        assert first != second
        assert 2.0 <= now() < 3.0


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
@simulated
async def test_a_coordinator_is_looked_up_once_and_cached(version: int) -> None:
    versions = {**default_versions(), FindCoordinatorRequest.api_key: (0, version)}
    async with cluster_and_client(config=ClusterConfig(versions=versions)) as (cluster, client):
        node = cluster.nodes[2]

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            if version >= 4:
                assert request.coordinator_keys == ["g"]
                return coordinated_by(cluster, 2)
            assert request.key == "g"
            return FindCoordinatorResponse(node_id=2, host=node.host, port=node.port)

        cluster.on(FindCoordinatorRequest, times=None).answer(find)
        coordinators = await asyncio.gather(*(client.coordinator("g") for _ in range(100)))
        assert {broker.node.node_id for broker in coordinators} == {2}
        assert await client.coordinator("g") is coordinators[0]
        assert len(receivers(cluster, FindCoordinatorRequest)) == 1


@pytest.mark.parametrize("silent,bound", [(1, 1.5), (2, 3.5)])
@simulated
async def test_silent_brokers_do_not_delay_the_lookup_of_a_coordinator(silent: int, bound: float) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest, times=silent).drop()
        cluster.on(FindCoordinatorRequest).answer(lambda _: coordinated_by(cluster, 1))
        began = now()
        assert (await client.coordinator("g")).node.node_id == 1
        assert now() - began < bound
        assert len(set(receivers(cluster, FindCoordinatorRequest))) == silent + 1


@simulated
async def test_a_coordinator_that_is_not_available_is_looked_up_with_backoff() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
        cluster.on(FindCoordinatorRequest).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 3))
        assert (await client.coordinator("g")).node.node_id == 1
        assert 0 < now() < 10
        client.refresh_coordinator("g")
        assert client.known_coordinator("g") == client.view.nodes[1], "the cached one stays until the answer"
        await asyncio.sleep(1)
        assert client.known_coordinator("g") == client.view.nodes[3]


@simulated
async def test_an_unreachable_coordinator_is_looked_up_again() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(FindCoordinatorRequest).answer(lambda _: coordinated_by(cluster, 1))
        cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 3))
        assert (await client.coordinator("g")).node.node_id == 1
        await cluster.kill(1)
        with pytest.raises(ConnectionLost):
            await client.send(ANY, node=1, retry=False)
        assert (await client.coordinator("g")).node.node_id == 3


@simulated
async def test_a_late_error_does_not_drop_a_newer_coordinator() -> None:
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
async def test_a_failed_lookup_is_an_error_at_the_deadline_or_at_once() -> None:
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
async def test_each_purpose_has_its_own_connection() -> None:
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
        await client.send(ANY, node=1)
        await client.coordinator("g")
    finally:
        await client.close()


@simulated
async def test_a_client_cancelled_at_any_turn_leaves_no_connection() -> None:
    for turns in range(60):
        async with cluster_and_client(1) as (cluster, other):
            cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 1))
            client = Client(other.config, connector=cluster.connector)
            use = asyncio.ensure_future(_use(client))
            for _ in range(turns):
                await asyncio.sleep(0)
            use.cancel()
            await asyncio.wait([use])
            await client.close()
            await asyncio.sleep(0.1)
            assert len(cluster.nodes[1].connections) <= 1, "only the other client's connection is left"
            await other.refresh()


@simulated
async def test_a_call_cancelled_at_any_turn_leaves_the_client_usable() -> None:
    for turns in range(30):
        async with cluster_and_client(2) as (cluster, client):
            await cluster.create_topic("orders", partitions=2)
            cluster.on(FindCoordinatorRequest, times=None).answer(lambda _: coordinated_by(cluster, 1))

            def calls() -> list[asyncio.Future[Any]]:
                return [
                    asyncio.ensure_future(client.refresh()),
                    asyncio.ensure_future(client.topic("orders")),
                    asyncio.ensure_future(client.send(ANY, node=2)),
                    asyncio.ensure_future(client.coordinator("g")),
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
async def test_a_group_id_that_cannot_be_encoded_fails_only_its_own_lookup() -> None:
    async with cluster_and_client() as (_, client):
        for name in ("\ud800", "g" * 40_000):
            with pytest.raises(ValueError, match="FindCoordinator"):
                await client.coordinator(name)
        assert await client.coordinator("g")


@simulated
async def test_metadata_does_not_wait_behind_slow_admin_requests() -> None:
    async with memory_cluster(1) as cluster:
        admin = Admin(cluster.bootstrap_servers, connector=cluster.connector)
        async with admin:
            cluster.on(CreateTopicsRequest).delay(20)
            slow = asyncio.ensure_future(admin.topics.create([NewTopic("orders", partitions=1)]))
            await asyncio.sleep(1)
            assert not slow.done()
            began = now()
            await admin._client.refresh()
            assert now() - began < 0.5
            await slow

"""The traffic of each broker is counted over all APIs, and settings of connections reach them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from aiokafka_lite import (
    Admin,
    Claim,
    ConfigurationError,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    KafkaTimeout,
    Producer,
    TopicPartition,
)
from aiokafka_lite.aio import servers
from aiokafka_lite.cluster.metrics import client_metrics
from aiokafka_lite.errors import ErrorCode, IllegalStateError
from aiokafka_lite.metrics import BrokerTraffic
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.protocol.messages import DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest
from tests.embedded.cluster.simulation import cluster_and_client, memory_cluster, now, simulated
from tests.waiting import until

DESCRIBE = DescribeClusterRequest(include_cluster_authorized_operations=False)


@simulated
async def test_requests_and_bytes_are_counted_by_broker() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=1)
        cluster.history.clear()
        before = client.traffic().get(2)
        assert before is None or before.requests == 0
        for _ in range(10):
            await client.send(DESCRIBE, node=2)
        traffic = client.traffic()[2]
        # ApiVersions of the handshake is counted as well.
        assert (traffic.requests, traffic.responses, traffic.requests_in_flight) == (11, 11, 0)
        assert (traffic.connections, traffic.connects, traffic.connect_failures) == (1, 1, 0)
        sent = sum(exchange.size + 4 for exchange in cluster.history if exchange.node_id == 2)
        assert traffic.bytes_sent == sent
        assert traffic.bytes_received > traffic.responses * 8
        assert traffic.latency_p50 is not None
        assert traffic.latency_max is not None
        assert 0 <= traffic.latency_p50 <= traffic.latency_max < 1


@simulated
async def test_sums_keep_the_traffic_of_brokers_that_have_left_the_cluster() -> None:
    async with cluster_and_client() as (cluster, client):
        await client.refresh()
        await client.send(DESCRIBE, node=2)
        before = client_metrics(client)
        await cluster.stop(2)
        while 2 in client.traffic():
            await client.refresh()
            await asyncio.sleep(1.0)
        after = client_metrics(client)
        assert 2 in before.brokers
        for name in ("connects", "requests", "responses", "bytes_sent", "bytes_received"):
            assert getattr(after, name) >= getattr(before, name)


@simulated
async def test_counters_outlive_connections_and_failed_attempts_count() -> None:
    async with cluster_and_client(1) as (cluster, client):
        await client.refresh()
        before = client.traffic()[1]
        await cluster.kill(1)
        with pytest.raises(KafkaTimeout):
            await client.refresh(timeout=3)
        await cluster.start_node(1)
        await client.refresh()
        after = client.traffic()[1]
        assert after.requests > before.requests
        assert after.connect_failures > 0
        assert after.connects > after.connect_failures


@simulated
async def test_every_client_reports_its_traffic() -> None:
    async with memory_cluster(1) as cluster:
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
        async with Producer(**settings) as producer, Consumer(**settings) as consumer, Admin(**settings) as admin:
            await producer.send("t", bytes(10_000))
            consumer.assign([TopicPartition("t", 0)])
            await anext(consumer)
            await admin.topics.list()
            assert producer.traffic()[1].bytes_sent > 10_000
            assert consumer.traffic()[1].bytes_received > 10_000
            assert admin.traffic()[1].requests > 0


class TrafficOfGroup(ConsumerGroupHandler[bytes, bytes]):
    """Takes a snapshot of the traffic with the first record."""

    def __init__(self, group: ConsumerGroup[bytes, bytes]) -> None:
        self._group = group
        self.snapshot: asyncio.Future[Mapping[int, BrokerTraffic]] = asyncio.get_running_loop().create_future()

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
        async for _ in claim:
            self.snapshot.set_result(self._group.traffic())
            return


@simulated
async def test_a_consumer_group_reports_its_traffic_while_it_consumes() -> None:
    async with memory_cluster(1) as cluster:
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
        async with Producer(**settings) as producer:
            await producer.send("t", bytes(10_000))
        group: ConsumerGroup[bytes, bytes] = ConsumerGroup(group_id="g", auto_offset_reset="earliest", **settings)
        with pytest.raises(IllegalStateError, match="not consuming"):
            group.traffic()
        handler = TrafficOfGroup(group)
        consuming = asyncio.create_task(group.consume(["t"], handler))
        assert (await handler.snapshot)[1].bytes_received > 10_000
        await group.close()
        await consuming


@simulated
async def test_throttle_times_are_added_up() -> None:
    def throttled(response: DescribeClusterResponse) -> DescribeClusterResponse:
        response.throttle_time_ms = 1_500
        return response

    async with cluster_and_client(1) as (cluster, client):
        cluster.on(DescribeClusterRequest, times=2).alter(throttled)
        for _ in range(3):
            await client.send(DESCRIBE, node=1)
        assert client.traffic()[1].throttle_time == 3.0


@simulated
async def test_max_open_requests_bounds_the_written_requests_of_a_connection() -> None:
    async with cluster_and_client(1, client={"max_open_requests": 2}) as (cluster, client):
        await client.send(DESCRIBE, node=1)
        before = client.traffic()[1].requests
        cluster.on(DescribeClusterRequest).delay(10.0)
        responses = [asyncio.ensure_future(client.send(DESCRIBE, node=1)) for _ in range(5)]
        await asyncio.sleep(5.0)
        assert client.traffic()[1].requests == before + 2
        await asyncio.gather(*responses)
        assert client.traffic()[1].requests == before + 5


@simulated
async def test_retry_backoff_function_paces_the_retries_of_requests() -> None:
    settings = {"retry_backoff_function": lambda failures: 3.0 * failures}
    async with cluster_and_client(1, client=settings) as (cluster, client):
        cluster.on(FindCoordinatorRequest, times=2).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        before = now()
        await client.coordinator("g")
        assert now() - before == pytest.approx(3.0 + 6.0, abs=0.1)


async def test_a_client_connects_from_local_address() -> None:
    peers: set[str] = set()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            peers.add(transport.get_extra_info("peername")[0])
            transport.close()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    starting = asyncio.create_task(Producer(f"{host}:{port}", local_address="127.0.0.9").start())
    await until(lambda: peers, "the server has a connection")
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await servers.close(server)
    assert peers == {"127.0.0.9"}


def test_a_connector_excludes_local_address() -> None:
    with pytest.raises(ConfigurationError, match="connector cannot be combined with local_address"):
        Producer("localhost:9092", connector=TcpConnector(), local_address="127.0.0.9")


@pytest.mark.parametrize(
    ("setting", "wrong", "says"),
    [
        ("local_address", "localhost", 'must be an IP address such as "192.0.2.7"'),
        ("local_address", ("127.0.0.1", 0), "must be an IP address"),
        ("max_open_requests", 0, "must be a whole number from 1"),
        ("retry_backoff_function", 0.5, "must be a function, or None"),
    ],
)
def test_wrong_settings_of_connections_are_refused(setting: str, wrong: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting} {says}"):
        Producer("localhost:9092", **{setting: wrong})

"""Clients push their metrics to brokers while the operator of the cluster subscribes to them (KIP-714).

What is pushed is read with OpenTelemetry's own protobuf messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from aiokafka_lite import Admin, Consumer, Producer, ShareConsumer
from aiokafka_lite.admin import ConfigResource, ConfigResourceType
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, MetricsPush
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from tests.waiting import until

ASSIGNED = "org.apache.kafka.consumer.coordinator.assigned.partitions"
SENT = "org.apache.kafka.producer.record.send.total"


class Pushed:
    """A cluster with a receiver, and what it has received."""

    def __init__(self) -> None:
        self.received: list[MetricsPush] = []
        self.cluster = EmbeddedCluster(
            brokers=2, tcp=False, seed=1, config=ClusterConfig(receive_client_metrics=self.received.append)
        )

    async def subscribe(self, **settings: str) -> None:
        resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
        async with Admin(self.cluster.bootstrap_servers, connector=self.cluster.connector) as admin:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            (await admin.configs.alter({resource: named})).raise_for_errors()

    async def begin_at_the_first_record(self, group: str) -> None:
        async with Admin(self.cluster.bootstrap_servers, connector=self.cluster.connector) as admin:
            changes = {ConfigResource.group(group): {"share.auto.offset.reset": "earliest"}}
            (await admin.configs.alter(changes)).raise_for_errors()

    def producer(self, **settings: Any) -> Producer:
        return Producer(self.cluster.bootstrap_servers, connector=self.cluster.connector, **settings)


@pytest.fixture
async def pushed() -> AsyncIterator[Pushed]:
    pushed = Pushed()
    async with pushed.cluster as cluster:
        await cluster.create_topic("orders", partitions=1)
        yield pushed


def read(push: MetricsPush) -> dict[str, float]:
    """Return the values of a push by name: of each metric, the last data point."""
    data = MetricsData.FromString(push.metrics)
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "aiokafka_lite"
    values = {}
    for metric in scope.metrics:
        if metric.HasField("sum"):
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        for point in metric.sum.data_points or metric.gauge.data_points:
            assert 0 < point.start_time_unix_nano <= point.time_unix_nano
            values[metric.name] = point.as_double
    return values


async def test_a_producer_pushes_what_it_has_counted_since_the_last_push(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="*")
    async with pushed.producer(client_id="shop") as producer:
        await producer.send_many("orders", [b"1", b"2", b"3"])
        await until(lambda: len(pushed.received) == 2)
        await producer.send("orders", b"4")
    first, second, last = pushed.received
    assert [read(push)[SENT] for push in pushed.received] == [3, 0, 1]
    assert read(first)["org.apache.kafka.producer.node.request.latency.avg"] >= 0
    assert (first.client_id, first.is_last, second.is_last, last.is_last) == ("shop", False, False, True)
    assert len({push.client_instance_id for push in pushed.received}) == 1


async def test_a_consumer_pushes_fetches_and_its_group(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="org.apache.kafka.consumer.coordinator.,org.apache.kafka.none.")
    settings = {"connector": pushed.cluster.connector, "topics": ["orders"], "group_id": "billing"}
    async with Consumer(pushed.cluster.bootstrap_servers, **settings):
        await until(lambda: any(read(push)[ASSIGNED] == 1 for push in pushed.received))
    names = {name for push in pushed.received for name in read(push)}
    assert "org.apache.kafka.consumer.coordinator.rebalance.latency.avg" in names
    assert all(name.startswith("org.apache.kafka.consumer.coordinator.") for name in names)
    (resource,) = MetricsData.FromString(pushed.received[0].metrics).resource_metrics
    assert {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes} == {
        "group_id": "billing"
    }


async def test_a_share_consumer_pushes_what_java_s_share_consumer_pushes(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="org.apache.kafka.consumer.share.")
    await pushed.begin_at_the_first_record("queue")
    for value in (b"1", b"2", b"3"):
        await pushed.cluster.produce("orders", value)
    settings = {"connector": pushed.cluster.connector, "topics": ["orders"], "group_id": "queue"}
    async with ShareConsumer(pushed.cluster.bootstrap_servers, **settings) as queue:
        pushes = [await anext(queue) for _ in range(3)]
        queue.release(pushes[2])
        await queue.commit()
    totals: dict[str, float] = {}
    for push in pushed.received:
        for name, value in read(push).items():
            totals[name] = totals.get(name, 0.0) + value
    fetches, group = "org.apache.kafka.consumer.share.fetch.manager.", "org.apache.kafka.consumer.share.coordinator."
    assert totals[f"{fetches}records.consumed.total"] == 3
    assert totals[f"{fetches}acknowledgements.send.total"] == 3
    assert totals[f"{fetches}acknowledgements.error.total"] == 0
    assert totals[f"{fetches}fetch.total"] >= 1
    assert totals[f"{fetches}bytes.consumed.total"] > 0
    assert totals[f"{group}rebalance.total"] == 1
    assert totals[f"{group}heartbeat.total"] >= 1
    (resource,) = MetricsData.FromString(pushed.received[0].metrics).resource_metrics
    assert {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes} == {
        "group_id": "queue"
    }


async def test_a_client_follows_a_new_subscription(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="org.apache.kafka.producer.connection.")
    async with pushed.producer():
        await until(lambda: pushed.received)
        assert SENT not in read(pushed.received[-1])
        await pushed.subscribe(metrics="*")
        await until(lambda: SENT in read(pushed.received[-1]))
    # The broker assigns an id to a new client, and answers a client that has one with 0.
    assert len({push.client_instance_id for push in pushed.received}) == 1


async def test_a_client_without_an_id_pushes_nothing_until_a_broker_assigns_one(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="*")

    def alter(answer: GetTelemetrySubscriptionsResponse) -> GetTelemetrySubscriptionsResponse:
        answer.client_instance_id = bytes(16)
        return answer

    wrong = pushed.cluster.on(GetTelemetrySubscriptionsRequest, times=None).alter(alter)
    async with pushed.producer():
        await asyncio.sleep(3600)  # virtual time
        assert 1 < wrong.hits <= 125, "every 30 seconds"
        assert not pushed.cluster.history.of(PushTelemetryRequest)
        wrong.remove()
        await until(lambda: pushed.received)


async def test_without_a_subscription_nothing_is_pushed(pushed: Pushed) -> None:
    async with pushed.producer():
        await asyncio.sleep(3600)  # virtual time
    assert pushed.cluster.history.of(GetTelemetrySubscriptionsRequest)
    assert not pushed.received


@pytest.mark.parametrize("interval_ms", [0, -1])
async def test_a_subscription_without_an_interval_is_no_loop_of_requests(pushed: Pushed, interval_ms: int) -> None:
    def alter(answer: GetTelemetrySubscriptionsResponse) -> GetTelemetrySubscriptionsResponse:
        answer.push_interval_ms = interval_ms
        return answer

    with pushed.cluster.on(GetTelemetrySubscriptionsRequest, times=None).alter(alter):
        async with pushed.producer():
            await asyncio.sleep(3600)  # virtual time
    assert len(pushed.cluster.history.of(GetTelemetrySubscriptionsRequest)) <= 13, "every 5 minutes"


async def test_a_subscription_with_an_interval_of_a_millisecond_is_no_loop_of_pushes(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="*")

    def alter(answer: GetTelemetrySubscriptionsResponse) -> GetTelemetrySubscriptionsResponse:
        answer.push_interval_ms = 1
        return answer

    with pushed.cluster.on(GetTelemetrySubscriptionsRequest, times=None).alter(alter):
        async with pushed.producer():
            await asyncio.sleep(60)  # virtual time
    assert 30 <= len(pushed.cluster.history.of(PushTelemetryRequest)) <= 62


async def test_a_client_with_enable_metrics_push_off_asks_for_no_subscription(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="*")
    async with pushed.producer(enable_metrics_push=False):
        await asyncio.sleep(3600)  # virtual time
    assert not pushed.cluster.history.of(GetTelemetrySubscriptionsRequest)


async def test_a_push_that_fails_does_not_disturb_the_client(pushed: Pushed) -> None:
    await pushed.subscribe(interval_ms="1000", metrics="*")
    with (
        pushed.cluster.on(PushTelemetryRequest, times=1).disconnect(),
        pushed.cluster.on(GetTelemetrySubscriptionsRequest, times=1).fail(ErrorCode.INVALID_REQUEST),
    ):
        async with pushed.producer() as producer:
            await producer.send("orders", b"1")
            await until(lambda: pushed.received)
            assert producer.health().is_ready
    assert read(pushed.received[0])[SENT] == 1

"""Clients push their metrics to brokers (KIP-714), if the cluster has a receiver."""

from __future__ import annotations

import asyncio
import gzip
import uuid

import confluent_kafka
import pytest

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, MetricsPush
from aiokafka_lite.embedded import client_telemetry as telemetry
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    PushTelemetryRequest,
)
from tests.embedded.broker.raw_client import Peer
from tests.waiting import DEADLINE, until

CLIENT_METRICS = 16
GZIP = 1
ZERO = bytes(16)


async def subscribe_clients(peer: Peer, name: str, **settings: str) -> None:
    configs = [
        IncrementalAlterConfigsRequestConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequestResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    answer = await peer.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == 0


async def subscription(peer: Peer, client_instance_id: bytes = ZERO) -> GetTelemetrySubscriptionsResponse:
    return await peer.ask(GetTelemetrySubscriptionsRequest(client_instance_id=client_instance_id))


async def test_librdkafka_pushes_its_metrics() -> None:
    received: list[MetricsPush] = []
    config = ClusterConfig(receive_client_metrics=received.append)
    async with EmbeddedCluster(brokers=1, config=config) as cluster:
        async with Peer(cluster) as peer:
            await subscribe_clients(peer, "all", interval_ms="200", metrics="*")
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        await until(lambda: producer.poll(0) or received, "librdkafka has pushed metrics")
        await asyncio.to_thread(producer.flush, DEADLINE)
        assert received[0].client_id == "rdkafka"
        assert b"org.apache.kafka.producer.connection.creation.total" in received[0].metrics


async def test_without_a_receiver_the_apis_are_not_offered_as_in_kafka(one: EmbeddedCluster) -> None:
    assert not {GetTelemetrySubscriptionsRequest.api_key, PushTelemetryRequest.api_key} & one.nodes[1].versions.keys()


def test_a_node_remembers_a_limited_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MOST_INSTANCES", 3)

    async def main() -> None:
        config = ClusterConfig(receive_client_metrics=lambda pushed: None)
        async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster, Peer(cluster) as peer:
            await subscribe_clients(peer, "all", interval_ms="100", metrics="*")
            answers = [await subscription(peer) for _ in range(4)]
            codes = [
                await peer.ask(
                    PushTelemetryRequest(
                        client_instance_id=answer.client_instance_id,
                        subscription_id=answer.subscription_id,
                        terminating=False,
                        compression_type=0,
                        metrics=b"",
                    )
                )
                for answer in answers
            ]
        expected = [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, *[ErrorCode.NONE] * 3]
        assert [code.error_code for code in codes] == expected

    run(main())


def test_a_client_pushes_the_metrics_of_the_subscriptions_that_match_it() -> None:
    received: list[MetricsPush] = []

    async def main() -> None:
        config = ClusterConfig(receive_client_metrics=received.append)
        async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster, Peer(cluster) as peer:
            await subscribe_clients(peer, "some", interval_ms="2000", metrics="a.,b.", match="client_id=pe+r")
            await subscribe_clients(peer, "others", interval_ms="100", metrics="*", match="client_id=pe")
            answer = await subscription(peer)
            assert (answer.requested_metrics, answer.push_interval_ms) == (["a.", "b."], 2000)
            own = answer.client_instance_id
            assert (await subscription(peer, own)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

            async def push(metrics: bytes, *, last: bool = False, compression: int = GZIP, to: int = 0) -> int:
                request = PushTelemetryRequest(
                    client_instance_id=own,
                    subscription_id=to or answer.subscription_id,
                    terminating=last,
                    compression_type=compression,
                    metrics=metrics,
                )
                return (await peer.ask(request)).error_code

            assert await push(b"", to=answer.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            assert await push(b"x", compression=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            assert await push(b"not gzip") == ErrorCode.INVALID_RECORD
            assert await push(bytes(answer.telemetry_max_bytes + 1), compression=0) == ErrorCode.TELEMETRY_TOO_LARGE
            assert await push(gzip.compress(b"first")) == 0
            assert await push(gzip.compress(b"soon")) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            await asyncio.sleep(2)
            assert await push(b"second", compression=0) == 0
            assert await push(b"last", last=True, compression=0) == 0
            assert await push(b"after", compression=0) == ErrorCode.INVALID_REQUEST
        assert [(push.metrics, push.is_last) for push in received] == [
            (b"first", False), (b"second", False), (b"last", True)
        ]  # fmt: skip
        assert {(push.client_id, push.client_instance_id) for push in received} == {("peer", uuid.UUID(bytes=own))}

    run(main())


async def test_a_stored_pattern_that_is_not_valid_matches_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = ClusterConfig(receive_client_metrics=lambda pushed: None)
    async with EmbeddedCluster(brokers=1, tcp=False, config=config) as cluster, Peer(cluster) as peer:
        stored = {"match": "client_id=(?=peer).*", "metrics": "*"}  # valid in Python's syntax
        cluster.controller.settings.replace_resource(CLIENT_METRICS, "old", stored)
        for _ in range(2):
            assert (await subscription(peer)).requested_metrics == []
    (logged,) = [record.message for record in caplog.records if "matches nothing" in record.message]
    assert logged.endswith("matches nothing: invalid or unsupported Perl syntax")

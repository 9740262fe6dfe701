"""A client whose metadata is so large that it is decoded in parts. Here, every answer counts as large."""

from __future__ import annotations

import struct

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.cluster.metadata import TopicView
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.net import in_flight
from aiokafka_lite.protocol.codec import encode_message
from aiokafka_lite.protocol.framing import frame
from aiokafka_lite.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tests.embedded.cluster.simulation import client_of, cluster_and_client, memory_cluster, simulated


@pytest.fixture(autouse=True)
def every_answer_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "LARGE", 0)


def damaged_response() -> bytes:
    """Return a response whose last topic lacks its end."""
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
        topics=[MetadataResponseTopic(error_code=0, name=name, partitions=[]) for name in ("first", "last")],
    )
    out = bytearray()
    encode_message(response, MetadataResponse.versions.last, out)
    return bytes(out[:-12])


async def found_by_a_new_client(cluster: EmbeddedCluster, *names: str) -> dict[str, TopicView]:
    """Return the topics that a client without an earlier answer finds."""
    async with client_of(cluster) as client:
        return {name: await client.topic(name) for name in names}


@simulated
async def test_answer_after_answer_leads_to_what_a_new_client_finds() -> None:
    async with cluster_and_client() as (cluster, client):
        names = ["b", "d", "a"]
        for name in names:
            await cluster.create_topic(name, partitions=3)
            await client.topic(name)
        assert client.view.topics == await found_by_a_new_client(cluster, *names)
        await cluster.create_topic("c", partitions=2)
        await client.topic("c")
        await cluster.move_leader("d", 1)
        leader = cluster.leader_of("d", 1)
        await client.refresh()
        assert client.view.topics["d"].partitions[1].leader == leader
        assert client.view.topics == await found_by_a_new_client(cluster, *names, "c")


@simulated
async def test_an_unchanged_topic_stays_the_same_object() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=3)
        before = await client.topic("orders")
        await client.refresh()
        assert client.view.topics["orders"] is before


@simulated
async def test_an_answer_that_cannot_be_decoded_closes_its_connection_and_changes_nothing() -> None:
    async with cluster_and_client(1) as (cluster, client):
        await cluster.create_topic("orders", partitions=3)
        before = await client.topic("orders")
        (broker,) = [broker for broker in client.brokers if broker.connections]
        (connection,) = broker.connections.values()
        head = struct.pack(">iB", broker.traffic.requests, 0)
        cluster.on(MetadataRequest).reply_bytes(frame(head + damaged_response()))
        await client.refresh()
        error = connection.closed.result()
        assert "cannot be decoded: MetadataResponse v13: " in str(error)
        assert client.view.topics["orders"] is before


@simulated
async def test_a_client_that_hides_its_secrets_reads_such_answers() -> None:
    async with (
        memory_cluster(1, security=Security("SASL_PLAINTEXT", users={"alice": "alice-secret"})) as cluster,
        Producer(**cluster.client_settings()) as producer,
    ):
        await cluster.create_topic("orders", partitions=1)
        assert (await producer.send("orders", b"1")).offset == 0

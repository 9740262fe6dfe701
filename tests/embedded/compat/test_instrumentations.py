"""The names of aiokafka that instrumentations (OpenTelemetry, Datadog) and frameworks read, replace or call."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka import AIOKafkaClient, AIOKafkaProducer
from aiokafka_lite.compat.aiokafka.protocol import MetadataRequest

MODULES = {"aiokafka": "aiokafka.consumer.group_coordinator", "compat": "aiokafka_lite.compat.aiokafka.coordinator"}


def second(key: bytes | None, partitions: list[int], available: list[int]) -> int:
    assert partitions == available == [0, 1]
    return 1


@pytest.mark.parametrize(
    ("partitioner", "key", "chosen_partition", "expected"),
    [(None, b"a", None, 0), (None, b"a", 1, 1), (second, None, None, 1)],
)
async def test_the_partition_of_a_record_is_known_before_it_is_sent(
    library: Any,
    cluster: EmbeddedCluster,
    partitioner: Any,
    key: bytes | None,
    chosen_partition: int | None,
    expected: int,
) -> None:
    settings = {} if partitioner is None else {"partitioner": partitioner}
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        await producer.client._wait_on_metadata("orders")
        assert producer._partition("orders", chosen_partition, key, b"v", key, b"v") == expected
        assert (await producer.send_and_wait("orders", b"v", key=key, partition=chosen_partition)).partition == expected


async def test_the_partition_of_a_record_without_a_key_is_not_guessed(cluster: EmbeddedCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.client._wait_on_metadata("orders")
        assert producer._partition("orders", None, None, b"v", None, b"v") is None


async def test_an_instrumentation_sees_each_commit(
    library: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = importlib.import_module(MODULES[library.name]).GroupCoordinator
    commit, seen = kind.commit_offsets, []

    async def commit_offsets(self: Any, assignment: object, offsets: Any) -> None:
        await commit(self, assignment, offsets)
        seen.append((self.group_id, offsets))

    monkeypatch.setattr(kind, "commit_offsets", commit_offsets)
    partition = library.TopicPartition("orders", 0)
    consumer = library.AIOKafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing", enable_auto_commit=False
    )
    async with consumer:
        assert isinstance(consumer._coordinator, kind)
        assert consumer._coordinator.member_id
        await consumer.commit({partition: 0})
        await consumer.commit()
        committed = await consumer._coordinator.fetch_committed_offsets([partition])
        assert committed == {partition: library.OffsetAndMetadata(0, "")}
    assert [group for group, _ in seen[:2]] == ["billing", "billing"]
    assert list(seen[0][1]) == [partition]


async def test_a_client_asks_for_the_id_of_the_cluster(cluster: EmbeddedCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    response = await client.send(0, MetadataRequest(topics=["orders"], allow_auto_topic_creation=False))
    assert response.cluster_id
    assert response.controller_id in {broker.nodeId for broker in response.brokers} == set(cluster.nodes)
    await client.close()


@pytest.mark.parametrize("name", ["AIOKafkaClient", "AIOKafkaConsumer", "AIOKafkaProducer", "AIOKafkaAdminClient"])
def test_a_framework_reads_the_names_of_the_settings(name: str) -> None:
    part = ".admin" if name == "AIOKafkaAdminClient" else ""
    theirs, ours = (
        set(inspect.signature(getattr(importlib.import_module(f"{library}{part}"), name).__init__).parameters)
        for library in ("aiokafka", "aiokafka_lite.compat.aiokafka")
    )
    assert not theirs - ours
    assert "settings" not in ours

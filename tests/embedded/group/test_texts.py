"""The texts of refusals that name the likely cause, and of misuse that was silently ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiokafka_lite import ConsumerGroup
from aiokafka_lite.consumer import RebalanceListener
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ErrorCode, ProtocolError
from aiokafka_lite.metrics.clients import _name_of
from aiokafka_lite.protocol.messages import MetadataRequest, OffsetCommitRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.group.recording_members import member_of

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def test_a_commit_whose_answer_omits_a_partition_says_so(cluster: EmbeddedCluster) -> None:
    def omit_second(response: Any) -> Any:
        for topic in response.topics:
            topic.partitions = [
                partition for partition in topic.partitions if partition.partition_index != SECOND.partition
            ]
        return response

    async with member_of(cluster, topics=()) as consumer:
        consumer.assign([FIRST, SECOND])
        with cluster.on(OffsetCommitRequest, times=None).alter(omit_second):
            result = await consumer.commit({FIRST: 1, SECOND: 1})
    assert list(result.committed) == [FIRST]
    error = result.refused[SECOND]
    assert isinstance(error, ProtocolError)
    assert "committing offset 1 of orders-1: the answer of broker" in str(error)
    assert "omits this partition" in str(error)


async def test_metadata_without_brokers_about_a_missing_topic_is_about_the_topic(cluster: EmbeddedCluster) -> None:
    def without_brokers(response: Any) -> Any:
        if any(topic.error_code for topic in response.topics):
            response.brokers = []
        return response

    async with member_of(cluster, topics=(), group_id=None, allow_auto_create_topics=False) as consumer:
        with (
            cluster.on(MetadataRequest, times=None).alter(without_brokers),
            pytest.raises(BrokerError, match="topic 'missing' did not appear within 2 s") as refused,
        ):
            await consumer.partitions_for("missing", timeout=2.0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost", "on_assign"])
def test_a_listener_with_the_method_names_of_another_client_is_refused(name: str) -> None:
    async def method(self: object, partitions: Sequence[TopicPartition]) -> None: ...

    ours = {"on_partitions_revoked": "on_revoked", "on_partitions_lost": "on_lost"}.get(name, "on_assigned")
    text = rf"Old\.{name}\(\) would never be called: its name is {ours}\(handle, partitions\)"
    with pytest.raises(TypeError, match=text):
        type("Old", (RebalanceListener,), {name: method})


async def test_a_group_has_its_client_id_as_its_name_in_metrics_before_it_consumes(cluster: EmbeddedCluster) -> None:
    group = ConsumerGroup(cluster.bootstrap_servers, connector=cluster.connector, group_id="g", client_id="billing")
    assert _name_of(group) == group.client_id == "billing"


async def test_the_records_of_a_missing_topic_raise_an_error_of_the_package(cluster: EmbeddedCluster) -> None:
    with pytest.raises(BrokerError, match="unknown topic 'nope'") as refused:
        cluster.records("nope")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

"""A producer that is aware of racks writes records without a key to leaders in its rack (KIP-1123)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.producer import RoundRobinPartitioner
from tests.virtual import in_virtual_time

RACKS = ("eu-a", "eu-b", "eu-c")


@in_virtual_time
async def test_records_without_a_key_go_to_leaders_in_the_rack_until_none_is_left() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, config=ClusterConfig(racks=RACKS)) as cluster:
        await cluster.create_topic("orders", partitions=6, assignments=[[1 + n % 3, 1 + (n + 1) % 3] for n in range(6)])
        settings = cluster.client_settings() | {"client_rack": "eu-b", "partitioner_rack_aware": True}
        async with Producer(**settings, delivery_timeout=60.0) as producer:
            led = Counter([cluster.leader_of("orders", await written(producer)) for _ in range(200)])
            assert set(led) == {2}
            await cluster.stop(2)
            led = Counter([cluster.leader_of("orders", await written(producer)) for _ in range(200)])
            assert set(led) == {1, 3}, "without a leader in the rack, the others are used"


async def written(producer: Producer[Any, Any]) -> int:
    return (await producer.send("orders", b"x" * 10_000)).partition


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"partitioner_rack_aware": True}, "partitioner_rack_aware=True requires client_rack, which is not set"),
        ({"partitioner_rack_aware": "yes", "client_rack": "a"}, "partitioner_rack_aware must be True or False"),
        (
            {"partitioner_rack_aware": True, "client_rack": "a", "partitioner": RoundRobinPartitioner()},
            "partitioner_rack_aware cannot be combined with partitioner",
        ),
    ],
)
def test_a_wrong_combination_is_refused(settings: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Producer("localhost:9092", **settings)

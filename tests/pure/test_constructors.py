"""Constructors refuse wrong arguments and name them, without a running event loop."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, EmbeddedCluster, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.producer import DefaultPartitioner, JsonSerializer
from aiokafka_lite.schemas import SchemaRegistryClient

GROUP = {"group_id": "g"}


@pytest.mark.parametrize(
    ("client", "settings", "name"),
    [
        (Producer, {"value_serializer": 5}, "value_serializer"),
        (Producer, {"key_serializer": ""}, "key_serializer"),
        (Producer, {"value_serializer": JsonSerializer}, r"value_serializer.* JsonSerializer\(\)"),
        (Producer, {"partitioner": lambda topic, key: 0}, r"partitioner.* partition\(\) and on_new_batch\(\)"),
        (Producer, {"partitioner": DefaultPartitioner}, r"partitioner.* DefaultPartitioner\(\)"),
        (Producer, {"partitioner": 0}, "partitioner"),
        (Producer, {"connector": "tcp"}, r"connector.* connect\(\)"),
        (Producer, {"connector": TcpConnector}, r"connector.* TcpConnector\(\)"),
        (Producer, {"clock": 5}, "clock.* a function"),
        (Producer, {"random": 0.5}, "random.* a function"),
        (Producer, {"compression": "gzip", "compression_level": 22}, "compression_level must be .* 0 to 9 .* got 22"),
        (Producer, {"compression": "zstd", "compression_level": 1.5}, "compression_level must be .*, got 1.5"),
        (Producer, {"compression_level": 1}, "compression_level must be None with compression='none', got 1"),
        (Producer, {"bootstrap_servers": "kafka"}, "bootstrap_servers: cannot use 'kafka'"),
        (Producer, {"bootstrap_servers": {"linger.ms": 5}}, "settings must be keyword arguments, got a dict"),
        (Producer, {"bootstrap_servers": "http://kafka:9092/"}, "bootstrap_servers: .* 'kafka:9092'"),
        (ConsumerGroup, GROUP | {"topics": ["t"]}, r"topics is not a setting of ConsumerGroup; pass topics to consume"),
        (Consumer, {"connector": 1}, "connector"),
        (Consumer, {"clock": None}, "clock"),
        (Consumer, {"on_offset_reset": "log"}, "on_offset_reset"),
        (Consumer, {"value_deserializer": 5}, "value_deserializer"),
        (Consumer, {"topics": "orders"}, r"topics.*\['orders'\]"),
        (Consumer, {"topics": None}, "topics"),
        (Consumer, {"topics": b"orders"}, "topics.*b'orders'"),
        (Consumer, {"topics": 5}, "topics"),
        (Consumer, {"topics": [1]}, "topic"),
        (Consumer, {"topics": [["orders"]]}, "topic"),
        (Consumer, {"topics": ["a b"]}, "topic.* a-z"),
        (Consumer, {"topics": [""]}, "topic.* not be empty"),
        (Consumer, {"topics": re.compile(b"orders"), **GROUP}, "pattern"),
        (Consumer, {"topics": re.compile("orders")}, "group_id"),
        (Consumer, {"topics": ["orders"], "strategies": ["rnge"], **GROUP}, "strategies.* range, roundrobin"),
        (ConsumerGroup, {"strategies": [b"range"], **GROUP}, "strategies"),
        (ConsumerGroup, {"connector": 1, **GROUP}, "connector"),
        (ConsumerGroup, {"bootstrap_servers": "kafka", **GROUP}, "bootstrap_servers: cannot use 'kafka'"),
        (Admin, {"connector": 1}, "connector"),
    ],
)
def test_a_wrong_argument_is_named(client: type[Any], settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        client(**{"bootstrap_servers": "localhost:9092", **settings})


def test_a_wrong_argument_of_a_stand_in_or_a_registry_is_named() -> None:
    with pytest.raises(ConfigurationError, match="brokers must be a whole number >= 1, got '1'"):
        EmbeddedCluster(brokers="1")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"url must be the http:// or https:// address .*, got 8081"):
        SchemaRegistryClient(8081)  # type: ignore[arg-type]
    cluster: Any = EmbeddedCluster(brokers=2)
    with pytest.raises(TypeError, match="request must be a class of requests, such as ProduceRequest, got 'produce'"):
        cluster.on("produce")


async def test_a_broker_that_does_not_exist_is_answered_with_the_ids() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        for call in (cluster.kill, cluster.stop, cluster.restart):
            with pytest.raises(ValueError, match="node must be the id of a broker: 1, 2, got 9"):
                await call(9)


@pytest.mark.parametrize("servers", ["a:1,", ["a:1", ""], ",a:1 , "])
@pytest.mark.parametrize("client", [Producer, Consumer])
def test_empty_entries_of_servers_are_left_out(client: type[Any], servers: object) -> None:
    owner = client(servers)
    client = owner._core.client if isinstance(owner, Consumer) else owner._client
    assert client.config.servers == ("a:1",)


def test_an_invalid_topic_name_is_reported_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Consumer("localhost:9092", topics=["a b"])
    assert str(raised.value) == "topics: topic name must consist of a-z, A-Z, 0-9, '.', '_' and '-': 'a b'"

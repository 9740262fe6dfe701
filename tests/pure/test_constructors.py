"""Constructors refuse what could not work later, by the name of the setting; they need no loop for that."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.producer import DefaultPartitioner, JsonSerializer

GROUP = {"group_id": "g"}


@pytest.mark.parametrize(
    ("made", "settings", "says"),
    [
        (Producer, {"value_serializer": 5}, r"value_serializer=5: an object with serialize\(.*or a function"),
        (Producer, {"key_serializer": ""}, "key_serializer='': "),
        (Producer, {"value_serializer": JsonSerializer}, r"value_serializer=.* may be JsonSerializer\(\)"),
        (Producer, {"partitioner": lambda topic, key: 0}, r"partitioner=.* partition\(\) and on_new_batch\(\)"),
        (Producer, {"partitioner": DefaultPartitioner}, r"partitioner=.* may be DefaultPartitioner\(\)"),
        (Producer, {"partitioner": 0}, "partitioner=0: "),
        (Producer, {"connector": "tcp"}, r"connector='tcp': an object that has connect\(\)"),
        (Producer, {"connector": TcpConnector}, r"connector=.* may be TcpConnector\(\)"),
        (Producer, {"clock": 5}, "clock=5: a function that gives seconds"),
        (Producer, {"random": 0.5}, "random=0.5: a function"),
        (Producer, {"compression": "gzip", "compression_level": 22}, "compression_level=22"),
        (Producer, {"compression": "zstd", "compression_level": 1.5}, "compression_level=1.5"),
        (Producer, {"compression_level": 1}, "compression_level=1"),
        (Producer, {"bootstrap_servers": "kafka"}, "bootstrap_servers: cannot use 'kafka'"),
        (Producer, {"bootstrap_servers": {"linger.ms": 5}}, r"bootstrap_servers=\['linger.ms'\]: .* keyword arguments"),
        (Producer, {"bootstrap_servers": "http://kafka:9092/"}, "so give 'kafka:9092'"),
        (Consumer, {"connector": 1}, "connector=1"),
        (Consumer, {"clock": None}, "clock=None"),
        (Consumer, {"on_offset_reset": "log"}, "on_offset_reset='log'"),
        (Consumer, {"value_deserializer": 5}, r"value_deserializer=5: an object with deserialize\(.*or a function"),
        (Consumer, {"topics": "orders"}, r"topics='orders'.*\['orders'\]"),
        (Consumer, {"topics": None}, "topics=None: a list of names"),
        (Consumer, {"topics": b"orders"}, "topics=b'orders'"),
        (Consumer, {"topics": 5}, "topics=5: a list of names"),
        (Consumer, {"topics": [1]}, r"topics=\[1\]: .*not text"),
        (Consumer, {"topics": [["orders"]]}, "not text"),
        (Consumer, {"topics": ["a b"]}, r"topics=\['a b'\]: .*only a-z"),
        (Consumer, {"topics": [""]}, "must not be empty"),
        (Consumer, {"topics": re.compile(b"orders"), **GROUP}, "pattern is one of bytes"),
        (Consumer, {"topics": re.compile("orders")}, "needs a group_id"),
        (Consumer, {"topics": ["orders"], "strategies": ["rnge"], **GROUP}, "names: range, roundrobin"),
        (ConsumerGroup, {"strategies": [b"range"], **GROUP}, r"strategies=\[b'range'\]: "),
        (ConsumerGroup, {"connector": 1, **GROUP}, "connector=1"),
        (ConsumerGroup, {"bootstrap_servers": "kafka", **GROUP}, "bootstrap_servers: cannot use 'kafka'"),
        (Admin, {"connector": 1}, "connector=1"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_by_name(made: type[Any], settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{says}" if "=" in says[:20] else says):
        made(**{"bootstrap_servers": "localhost:9092", **settings})


@pytest.mark.parametrize("servers", ["a:1,", ["a:1", ""], ",a:1 , "])
@pytest.mark.parametrize("made", [Producer, Consumer])
def test_empty_entries_of_servers_are_left_out(made: type[Any], servers: object) -> None:
    assert made(servers)._client.config.servers == ("a:1",)

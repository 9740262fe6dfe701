"""``with`` and ``for`` on a client raise Python's own TypeError: it needs ``async with`` and ``async for``."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, EmbeddedCluster, Producer, ShareConsumer
from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.schemas import SchemaRegistryClient

HERE = "localhost:9092"
CLIENTS: list[Any] = [
    Producer(HERE),
    Consumer(HERE),
    ConsumerGroup(HERE, group_id="g"),
    ShareConsumer(HERE, topics=["t"], group_id="g"),
    Admin(HERE),
    EmbeddedCluster(),
    SchemaRegistryClient("http://localhost:8081"),
    AIOKafkaProducer(),
    AIOKafkaConsumer(),
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: type(client).__name__)
def test_with_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match="does not support the context manager protocol"), client:
        pass


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if hasattr(client, "__anext__")], ids=lambda client: type(client).__name__
)
def test_for_is_refused(client: Any) -> None:
    for read in (iter, list):
        with pytest.raises(TypeError, match="is not iterable"):
            read(client)


async def test_a_client_that_is_dropped_before_its_start_is_not_started() -> None:
    with pytest.raises(IllegalStateError, match=r"^<Admin NEW> is not started"):
        await Admin(HERE).topics.list()

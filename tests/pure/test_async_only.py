"""``with`` and ``for`` on a client say that ``async with`` and ``async for`` are needed."""

from __future__ import annotations

from contextlib import ExitStack
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
def test_with_names_async_with(client: Any) -> None:
    text = f"^{type(client).__name__} must be used in 'async with', got 'with'$"
    with pytest.raises(TypeError, match=text), client:
        pass
    with pytest.raises(TypeError, match="async with"), ExitStack() as stack:
        stack.enter_context(client)


@pytest.mark.parametrize(
    "client", [each for each in CLIENTS if hasattr(each, "__anext__")], ids=lambda each: type(each).__name__
)
def test_for_names_async_for(client: Any) -> None:
    for read in (iter, list, lambda each: [*each]):
        with pytest.raises(TypeError, match=f"^{type(client).__name__} must be read with 'async for'"):
            read(client)


def test_the_iterations_of_clients_name_async_for_too() -> None:
    producer = Producer(HERE)
    for iteration in (producer.failures(), ConsumerGroup(HERE, group_id="g").errors()):
        with pytest.raises(TypeError, match="must be read with 'async for'"):
            iter(iteration)  # type: ignore[call-overload]


async def test_a_group_names_its_handler() -> None:
    group: Any = ConsumerGroup(HERE, group_id="g")
    with pytest.raises(TypeError, match=r"await consume\(topics, handler\)"):
        async for _ in group:
            pass


async def test_a_client_that_is_dropped_before_its_start_is_not_started() -> None:
    with pytest.raises(IllegalStateError, match=r"^<Admin NEW> is not started"):
        await Admin(HERE).topics.list()

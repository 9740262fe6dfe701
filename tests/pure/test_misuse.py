"""Calls that are wrong in a plausible way: each error says what is wrong, what was given, and what to do."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite import (
    Admin,
    Consumer,
    ConsumerGroup,
    EmbeddedCluster,
    JsonSerializer,
    Producer,
    ShareConsumer,
    StrDeserializer,
    StrSerializer,
    TopicPartition,
    Workers,
)
from aiokafka_lite.admin.peer import Deadline
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.producer.delivery import BatchResult, Delivery
from aiokafka_lite.schemas import SchemaRegistryClient

HERE = "localhost:9092"
ZERO = TopicPartition("orders", 0)

# Any: a type checker reports these calls, and the tests are about programs that none has checked.
admin: Any = Admin(HERE)
consumer: Any = Consumer(HERE)
member: Any = Consumer(HERE, topics=["orders"], group_id="g")
group: Any = ConsumerGroup(HERE, group_id="g")
producer: Any = Producer(HERE)
shared: Any = ShareConsumer(HERE, group_id="g", topics=["orders"])
WORKERS: Any = Workers


async def handle(record: object) -> None:
    """Handle a record."""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: admin.topics.create({"orders": 3}),
            "topics must be names or NewTopic objects, such as NewTopic('orders', partitions=3), got {'orders': 3}",
        ),
        (
            lambda: admin.offsets.list([ZERO]),
            "specs must be a mapping of TopicPartition to OffsetSpec or milliseconds, got [TopicPartition(",
        ),
        (lambda: admin.offsets.list({ZERO: "latest"}), "an OffsetSpec such as OffsetSpec.LATEST or milliseconds, must"),
        (lambda: admin.records.delete("orders"), "before must be a mapping of TopicPartition to offsets, got 'orders'"),
        (
            lambda: group.consume(["orders"], handle),
            "handler must be a ConsumerGroupHandler, or Workers(function), ",
        ),
    ],
)
async def test_a_wrong_argument_is_answered_with_the_right_call(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(TypeError) as caught:
        await call()
    assert says in str(caught.value)


@pytest.mark.parametrize("timeout", ["5", -1, 0, float("nan"), float("inf"), True])
async def test_a_wrong_timeout_of_the_admin_client_is_a_configuration_error(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^timeout must be a number of seconds > 0, got "):
        Deadline(timeout)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Workers(handle, timeout=0), "timeout must be a number of seconds > 0, or None, got 0"),
        (lambda: StrSerializer(5), "encoding must be an encoding that Python knows, got 5"),  # type: ignore[arg-type]
        (lambda: StrDeserializer(5), "encoding must be a text encoding of Python, got 5"),  # type: ignore[arg-type]
        (
            lambda: SchemaRegistryClient({"url": "http://localhost:8081"}),
            "url must be the http:// or https:// address of a schema registry, got dict",
        ),
        (lambda: JsonSerializer(default=5), "default must be a function, got 5"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_refused_before_the_first_record(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert says in str(caught.value)


async def test_seconds_in_the_place_of_a_number_of_records_are_answered_with_timeout() -> None:
    with pytest.raises(TypeError, match=r"^max_records must be a whole number >= 1, got 0.5; .* pass timeout=0.5$"):
        await shared.poll(0.5)


async def test_an_embedded_cluster_refuses_arguments_of_a_wrong_type() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as running:
        cluster: Any = running
        with pytest.raises(TypeError, match=r"^name must be a string, got 5$"):
            await cluster.create_topic(5)
        with pytest.raises(TypeError, match=r"^partitions must be a whole number, got '3'$"):
            await cluster.create_topic("orders", "3")
        with pytest.raises(ConfigurationError, match=r"^seconds must be a number of seconds, got 'x'$"):
            cluster.skew_clock(1, "x")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("get", r"use await delivery, or result\(\) when done\(\) is True"),
        ("add_done_callback", r"use report\(function\), or future\(\), which asyncio.wait accepts too"),
        ("offset", "use await delivery, which returns a RecordMetadata"),
        ("cancel", "use nothing: an accepted record is sent in any case"),
    ],
)
def test_a_delivery_explains_methods_of_other_futures(name: str, says: str) -> None:
    delivery = Delivery(BatchResult("orders", 0), 0, 0, 0, 0)
    with pytest.raises(AttributeError, match=f"^'Delivery' object has no attribute '{name}'; {says}$"):
        getattr(delivery, name)
    assert name not in dir(delivery)


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy])
def test_what_belongs_to_a_connection_cannot_be_pickled_or_copied(make: Callable[[object], object]) -> None:
    for client in (admin, consumer, group, producer, shared, Delivery(BatchResult("orders", 0), 0, 0, 0, 0)):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            make(client)


@pytest.mark.parametrize(
    "call",
    [
        *(producer.metrics, producer.health, consumer.metrics, consumer.diagnose, admin.metrics),
        *(member.metrics, member.health, member.diagnose),
    ],
)
async def test_metrics_in_another_thread_say_how_to_read_them_there(call: Callable[[], object]) -> None:
    with pytest.raises(IllegalStateError, match="must be called in the event loop; in another"):
        await asyncio.to_thread(call)
